"""Training image classifiers on long-tailed data."""

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
