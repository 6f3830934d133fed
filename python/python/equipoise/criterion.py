"""Training criteria on NumPy arrays."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from keyword import iskeyword
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from equipoise import _equipoise
from equipoise._check import integer, whole_numbers

Preset: TypeAlias = Literal["recommended", "reference", "printed", "paper"]
Params: TypeAlias = Mapping[str, Any]


class Result(NamedTuple):
    """What a criterion makes of a batch."""

    loss: float
    """The loss of the batch."""
    grad: npt.NDArray[np.float32]
    """The gradient of the loss with respect to the logits, batch x classes."""
    weights: npt.NDArray[np.float32]
    """The weight of each example in the loss."""


def criteria() -> list[dict[str, Any]]:
    """Lists the criteria.

    Returns:
        A dictionary per criterion: `id`, `idea` (one line), `sections` (heading to text), `parameters` (name to `doc`
        and its value in the `presets`) and `has_state` (whether the loss depends on earlier batches).
    """
    return _equipoise.criteria()


def build_core(
    method: str,
    counts: Any,
    preset: str,
    params: Params | None,
    named: Params,
    drw: int | Params | None,
    *,
    tensors: bool,
) -> _equipoise.CriterionCore:
    """Builds what the classes for arrays and tensors share, and passes on its warnings."""
    for name, value in (("method", method), ("preset", preset)):
        if not isinstance(value, str):
            raise TypeError(f"{name} must be a string, not {type(value).__name__}")
    if params is not None and not isinstance(params, Mapping):
        raise TypeError(f"params must be a mapping from names to values, not {type(params).__name__}")
    check_drw(drw)
    merged = dict(params or {})
    named = {name[:-1] if name.endswith("_") and iskeyword(name[:-1]) else name: named[name] for name in named}
    if twice := merged.keys() & named.keys():
        raise TypeError(f"{', '.join(sorted(twice))}: given twice, by name and in params")
    core = _equipoise.CriterionCore(method, check_counts(counts), preset, {**merged, **named}, drw, tensors)
    for warning in core.warnings():
        warnings.warn(f"counts: {warning}", stacklevel=3)
    return core


def described(core: _equipoise.CriterionCore) -> str:
    """A criterion with what differs from its preset, for `repr`."""
    drw = core.config().get("drw")
    if drw is not None:
        start = drw["start_epoch"]
        alike = _equipoise.CriterionCore("softmax", np.array([1, 1]), "recommended", {}, start, False).config()["drw"]
        drw = start if drw == alike else drw
    deferred = "" if drw is None else f", drw={drw}"
    return f"{core.label()!r}, classes={core.classes}{deferred}"


def check_counts(counts: Any) -> npt.NDArray[np.int64]:
    """The training images per class as an array."""
    array = np.asarray(counts)
    if array.dtype == object:
        raise TypeError(f"counts must be a list with a number per class, not {type(counts).__name__}")
    array = whole_numbers(array, "counts")
    if array.ndim != 1:
        raise ValueError(f"counts must have 1 dimension, not {array.ndim}")
    return array


def check_drw(drw: Any) -> None:
    """The first epoch of deferred re-weighting, or a mapping."""
    if drw is None or isinstance(drw, Mapping):
        return
    if isinstance(drw, bool) or not hasattr(drw, "__index__"):
        raise TypeError(f"drw must be an epoch or a mapping with 'start_epoch', not {type(drw).__name__}")
    integer(drw, "drw")


def check_epoch(epoch: Any) -> int:
    """An epoch that can be set."""
    if isinstance(epoch, bool) or not isinstance(epoch, int):
        raise TypeError(f"epoch must be a whole number, not {type(epoch).__name__}")
    return integer(epoch, "epoch")


def check_threads(threads: Any) -> int:
    """A number of threads."""
    if isinstance(threads, bool) or not isinstance(threads, int):
        raise TypeError(f"threads must be a whole number, not {type(threads).__name__}")
    if not 0 <= threads <= 1024:
        raise ValueError(f"threads is {threads}; it must be from 0 to 1024")
    return threads


def _floats(values: Any, name: str) -> npt.NDArray[np.float32]:
    array = np.asarray(values)
    if array.dtype.kind != "f" and not (array.dtype.kind in "iu" and isinstance(values, (list, tuple))):
        raise TypeError(f"{name} must be floating-point numbers, not {array.dtype}")
    with np.errstate(over="ignore"):
        return np.require(array, np.float32, ["C", "A"])


class Criterion:
    """A training criterion on NumPy arrays.

    One call gives the loss, the gradient with respect to the logits and the weight of every example:

        criterion = equipoise.Criterion("cwap", counts=[500, 60, 7])
        loss, grad, weights = criterion.train(logits, labels)
        criterion.end_epoch()

    `train` and `evaluate` return the same numbers for the same batch; only `train` counts it. The GIL is released while
    they run. Results do not depend on the number of threads.
    """

    def __init__(
        self,
        method: str,
        counts: Sequence[int] | npt.NDArray[np.integer[Any]],
        *,
        preset: Preset = "recommended",
        drw: int | Params | None = None,
        threads: int = 0,
        params: Params | None = None,
        **named: Any,
    ) -> None:
        """Builds a criterion.

        Args:
            method: The name of the criterion, one of those in `equipoise.criteria()`.
            counts: Number of training images per class.
            preset: A named choice of parameters: `recommended`, `reference` (as published), `printed` (the published
                equations to the letter, where that differs) or `paper` (as run for the tables of the GHM-CWAP paper).
            drw: Deferred re-weighting: the first epoch with class weights, or a mapping with `start_epoch`, and
                optionally `beta` and `reduction`.
            threads: Threads that a large batch is split over. 0 means one per core.
            params: Parameters that override the preset.
            **named: The same, by name. A name that is a keyword of Python takes an underscore: `lambda_`.

        Raises:
            TypeError: A parameter does not exist, or has the wrong type.
            ValueError: A name is unknown, a parameter is out of range, or the counts cannot be used.
        """
        self.threads = check_threads(threads)
        self._core = build_core(method, counts, preset, params, named, drw, tensors=False)

    def train(
        self,
        logits: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        mixed: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        examples: npt.ArrayLike | None = None,
    ) -> Result:
        """Computes loss, gradient and weights of a batch, and counts the batch.

        Args:
            logits: The outputs of the network, batch x classes. Computed in float32.
            labels: The class of each row.
            mixed: For mixtures of two images (mixup, CutMix): the second label of each row, and the share of its first
                label, one number per row or one for all.
            examples: The index in the dataset of each row's example. Random draws (`equalization`) depend on it;
                without it, on the row number.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: Shapes do not fit, a label is out of range, or a logit is not finite. Nothing is counted then.
        """
        return self._run(logits, labels, mixed, examples, True)

    def evaluate(
        self,
        logits: npt.ArrayLike,
        labels: npt.ArrayLike,
        *,
        mixed: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        examples: npt.ArrayLike | None = None,
    ) -> Result:
        """Computes what `train` would, without counting the batch. The arguments are the same."""
        return self._run(logits, labels, mixed, examples, False)

    def _run(self, logits: Any, labels: Any, mixed: Any, examples: Any, count: bool) -> Result:
        logits = _floats(logits, "logits")
        labels = whole_numbers(labels, "labels")
        second = share = None
        if mixed is not None:
            if not isinstance(mixed, tuple) or len(mixed) != 2:
                raise TypeError("mixed must be a tuple of second labels and shares")
            second, share = whole_numbers(mixed[0], "mixed[0]"), np.asarray(mixed[1])
            if share.ndim == 0:
                share = np.full(len(labels), share, np.float32) if share.dtype.kind in "iuf" else share
            share = _floats(share, "mixed[1]")
        if examples is not None:
            examples = whole_numbers(examples, "examples")
        grad = np.empty(logits.shape, np.float32)
        weights = np.empty(labels.shape, np.float32)
        loss, _ = self._core.run(logits, labels, second, share, examples, grad, weights, None, count, self.threads)
        return Result(loss, grad, weights)

    def end_epoch(self) -> None:
        """Ends an epoch. Call it once, after the last batch."""
        self._core.end_epoch()

    @property
    def method(self) -> str:
        """The name of the criterion."""
        return self._core.method

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self._core.classes

    @property
    def epoch(self) -> int:
        """The epoch, counted from 0. `end_epoch` increases it."""
        return self._core.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._core.set_epoch(check_epoch(epoch))

    @property
    def config(self) -> dict[str, Any]:
        """The method, the value of every parameter, and `drw` if it is on."""
        return self._core.config()

    def state(self) -> dict[str, Any]:
        """Everything that was counted, and the epoch: a dictionary of numbers and arrays for `restore`."""
        return self._core.state()

    def restore(self, state: Params) -> None:
        """Puts a state back, bit for bit.

        Raises:
            ValueError: The state belongs to another criterion or does not fit. Nothing is changed then.
        """
        self._core.restore(state)

    def state_summary(self) -> dict[str, Any]:
        """What was counted, in the form that `equipoise loss` prints."""
        return self._core.state_summary()

    def __repr__(self) -> str:
        """The criterion with what differs from its preset."""
        return f"equipoise.Criterion({described(self._core)}, epoch={self.epoch})"
