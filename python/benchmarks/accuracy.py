"""Accuracy of both engines on the built-in dataset: the crates' own, and torch's, over the same seeds.

Usage: python benchmarks/accuracy.py [seeds] [epochs]

Both start from the same weights and see the same batches; rounding alone makes different runs of them. Differences are
paired by seed and have a 95 % interval (Student's).
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from pathlib import Path

import torch

from equipoise._equipoise import TrainOptions
from equipoise.torch.engine import EngineOptions, TorchEngine
from equipoise.torch.workers import Alone

STUDENT = {3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
THREADS = 1


def train(folder: Path, seed: int, epochs: int, with_torch: bool) -> dict[str, float]:
    """Accuracy of a run in %, overall and by group."""
    arguments = ["--model", "resnet8", "--epochs", str(epochs), "--seed", str(seed), "--quiet", "-o", str(folder)]
    options, code = TrainOptions.parse([*arguments, "--threads", str(THREADS)], True)
    if options is None:
        sys.exit(code)
    if with_torch:
        how = EngineOptions(torch.device("cpu"))
        code = options.train(THREADS, False, Alone(), lambda description: TorchEngine(description, how))
    else:
        code = options.train_without_torch(THREADS)
    if code != 0:
        sys.exit(code)
    test = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])["test"]
    return {"overall": test["top1"], **{group["name"]: group["accuracy"] for group in test["groups"]}}


def interval(values: list[float]) -> str:
    """A mean with its 95 % interval."""
    spread = STUDENT[len(values)] * statistics.stdev(values) / len(values) ** 0.5
    return f"{statistics.mean(values):.1f} ± {spread:.1f}"


def main() -> None:
    """Prints the table."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    epochs = int(sys.argv[2]) if len(sys.argv) > 2 else 15
    if seeds not in STUDENT:
        sys.exit("the number of seeds must be from 3 to 10")
    torch.set_num_threads(THREADS)
    runs: dict[bool, list[dict[str, float]]] = {False: [], True: []}
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(seeds):
            for with_torch, found in runs.items():
                found.append(train(Path(folder) / f"{seed}-{with_torch}", seed, epochs, with_torch))
    print(f"\nfashion-mini, resnet8, balanced-softmax, {epochs} epochs, {seeds} seeds: accuracy in %\n")
    print("| | crates | torch | torch - crates | by seed |")
    print("|---|---|---|---|---|")
    for name in runs[False][0]:
        ours, theirs = ([run[name] for run in runs[with_torch]] for with_torch in (False, True))
        differences = [b - a for a, b in zip(ours, theirs, strict=True)]
        by_seed = ", ".join(f"{difference:+.1f}" for difference in differences)
        print(f"| {name} | {interval(ours)} | {interval(theirs)} | {interval(differences)} | {by_seed} |")


if __name__ == "__main__":
    main()
