"""The cases of crates/equipoise/tests/golden, and how to run one."""

import json
from pathlib import Path

import numpy as np

FOLDER = Path(__file__).parents[2] / "crates" / "equipoise" / "tests" / "golden"
CASES = sorted(FOLDER.glob("*.json"))


def load(path):
    return json.loads(path.read_text())


def options(case):
    return {"preset": case.get("preset", "printed"), "params": case.get("params", {}), "drw": case.get("drw")}


def arguments(step):
    """Logits, labels, second labels, shares and examples of a step."""
    mixed = step.get("mixed")
    return (
        np.array(step["logits"], np.float32),
        np.array(step["labels"]),
        np.array(mixed["labels"]) if mixed else None,
        np.array(mixed["share"], np.float32) if mixed else None,
        np.array(step["examples"]) if "examples" in step else None,
    )
