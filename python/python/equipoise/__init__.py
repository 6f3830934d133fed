"""Training image classifiers on long-tailed data."""

from typing import Any

from equipoise._equipoise import __version__
from equipoise.criterion import Criterion, Result, criteria
from equipoise.data import Dataset, groups, inspect, long_tailed
from equipoise.loader import Loader, Sampler
from equipoise.metrics import Metrics
from equipoise.run import Run, report

__all__ = [
    "Criterion",
    "Dataset",
    "Loader",
    "Metrics",
    "Result",
    "Run",
    "Sampler",
    "__version__",
    "criteria",
    "groups",
    "inspect",
    "long_tailed",
    "report",
]


def __getattr__(name: str) -> Any:
    """Imports `equipoise.torch` when it is used: everything else works without PyTorch."""
    if name == "torch":
        import importlib

        return importlib.import_module("equipoise.torch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "torch"]
