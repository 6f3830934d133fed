"""Criteria, data, metrics and training for PyTorch."""

import os as _os
import sys as _sys
from typing import TYPE_CHECKING, Any

if "equipoise.torch.train" in _sys.orig_argv and "OMP_WAIT_POLICY" not in _os.environ:
    # Threads of OpenMP that wait give up their core after some microseconds, not after milliseconds. Where others use
    # the machine, that made training 1.8 times as fast; on an idle machine it changed nothing, while not spinning at
    # all (`OMP_WAIT_POLICY=passive`) cost a tenth. The variable is read when torch is loaded, so a program that only
    # uses this package decides for itself.
    _os.environ.setdefault("GOMP_SPINCOUNT", "10000")

try:
    import torch as _torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "torch":
        raise
    raise ModuleNotFoundError("equipoise.torch needs PyTorch: pip install torch", name="torch") from None

from equipoise.torch.criterion import Criterion
from equipoise.torch.data import Dataset, Loader, Normalize
from equipoise.torch.methods import (
    BalancedSoftmax,
    Cdt,
    ClassBalanced,
    Cwap,
    EffectiveNumber,
    Equalization,
    Focal,
    Ghm,
    LabelAwareSmoothing,
    Ldam,
    LogitAdjusted,
    Seesaw,
    Softmax,
    Vs,
)
from equipoise.torch.samplers import Sampler

if TYPE_CHECKING:
    from equipoise.torch.metrics import Metrics

__all__ = [
    "BalancedSoftmax",
    "Cdt",
    "ClassBalanced",
    "Criterion",
    "Cwap",
    "Dataset",
    "EffectiveNumber",
    "Equalization",
    "Focal",
    "Ghm",
    "LabelAwareSmoothing",
    "Ldam",
    "Loader",
    "LogitAdjusted",
    "Metrics",
    "Normalize",
    "Sampler",
    "Seesaw",
    "Softmax",
    "Vs",
]


def __getattr__(name: str) -> Any:
    """Imports `Metrics` when it is used: torchmetrics, its base class, takes seconds to import."""
    if name == "Metrics":
        from equipoise.torch.metrics import Metrics

        return Metrics
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
