"""Writes the type stubs of the classes that are made from the list of criteria.

`python tools/make_stubs.py` writes python/equipoise/torch/methods.pyi; with `--check` it fails if the file is not up to
date.
"""

import sys
from pathlib import Path

from equipoise import criteria
from equipoise.torch.methods import class_name, keyword_name

PATH = Path(__file__).parents[1] / "python" / "equipoise" / "torch" / "methods.pyi"

HEADER = """\
# Written by tools/make_stubs.py.
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch import distributed as dist

from equipoise.criterion import Params, Preset
from equipoise.torch.criterion import Criterion, Reduction

BY_METHOD: dict[str, type[Criterion]]

def class_name(method: str) -> str: ...
def keyword_name(parameter: str) -> str: ...
"""

CLASS = """
class {name}(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
{parameters}    ) -> None: ...
"""

TYPES = {bool: "bool", int: "int", float: "float", str: "str", type(None): "float | None"}


def stubs() -> str:
    """The whole file."""
    text = HEADER
    for entry in criteria():
        fields = ((name, field["presets"]["recommended"]) for name, field in entry["parameters"].items())
        lines = (
            f"        {keyword_name(name)}: {TYPES[type(value)]} = ...,\n"
            for name, value in fields
            if name != "reduction"
        )
        text += CLASS.format(name=class_name(entry["id"]), parameters="".join(lines))
    return text


if __name__ == "__main__":
    if "--check" in sys.argv:
        sys.exit("methods.pyi is not up to date: run tools/make_stubs.py" if PATH.read_text() != stubs() else 0)
    PATH.write_text(stubs())
