"""Metrics that processes add up: a `torchmetrics.Metric` if torchmetrics is installed, the same by itself if not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed

from equipoise import _equipoise
from equipoise._check import Integers, class_names, counts_list, labels_array
from equipoise.data import Groups
from equipoise.metrics import logits_array, plain

if TYPE_CHECKING:

    class _Metric(torch.nn.Module):
        def __init__(self) -> None: ...
        def add_state(self, name: str, default: torch.Tensor, dist_reduce_fx: str) -> None: ...
        def forward(self, logits: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]: ...
        def reset(self) -> None: ...

else:
    try:
        from torchmetrics import Metric as _Metric
    except ImportError:

        class _Metric(torch.nn.Module):
            """What this module needs of `torchmetrics.Metric`."""

            def add_state(self, name, default, dist_reduce_fx):
                self.register_buffer(name, default, persistent=False)

            def reset(self):
                self.sums = torch.zeros_like(self.sums)

            def forward(self, logits, target):
                before, self.sums = self.sums, torch.zeros_like(self.sums)
                try:
                    self.update(logits, target)
                    return self.compute()
                finally:
                    self.sums = before + self.sums


class Metrics(_Metric):
    """Metrics of an evaluation over one or several processes: `update`, `compute`, `reset`.

    A call counts a batch as `update` does, and returns the metrics of this batch on this process.

    The state is one tensor of integers that is summed over processes (`dist_reduce_fx="sum"`), so that the result is
    that of one process, to the last bit.
    """

    full_state_update = False
    higher_is_better = True
    is_differentiable = False
    sums: torch.Tensor

    def __init__(
        self, counts: Integers, *, groups: Groups = "rank:4", classes: Sequence[str] | None = None, **named: Any
    ) -> None:
        """Starts to count.

        Args:
            counts: Training images per class, which classes are grouped by.
            groups: A rule of `equipoise.groups`, or the labels of each group by its name.
            classes: Names of the classes.
            **named: Arguments of `torchmetrics.Metric`.
        """
        super().__init__(**named)
        self._arguments = (counts_list(counts), groups, None if classes is None else list(classes))
        self._core = self._make_core()
        self._record: str | None = None
        self._in_forward = False
        self.add_state("sums", torch.zeros(self._core.integers, dtype=torch.int64), dist_reduce_fx="sum")

    def _make_core(self) -> _equipoise.EvaluationCore:
        counts, groups, classes = self._arguments
        return _equipoise.EvaluationCore(counts, class_names(classes, len(counts)), groups)

    def update(self, logits: torch.Tensor, target: torch.Tensor) -> None:
        """Counts a batch.

        Args:
            logits: The outputs of the network, batch x classes, on any device.
            target: The class of each row.
        """
        array = logits_array(logits.detach().to("cpu", torch.float32).numpy())
        labels = labels_array(target.detach().cpu().numpy(), len(self._arguments[0]), "target")
        self.sums += torch.from_numpy(self._core.sums_of(array, labels)).to(self.sums.device)
        self._record = None

    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> dict[str, torch.Tensor]:
        """Counts a batch, and returns the metrics of this batch alone: what `compute` gives for all batches."""
        self._in_forward = True
        try:
            return super().forward(logits, target)
        finally:
            self._in_forward = False
            # it is that of the batch
            self._record = None

    def reset(self) -> None:
        """Forgets all batches."""
        super().reset()
        self._record = None

    def compute(self) -> dict[str, torch.Tensor]:
        """The metrics over all processes, as scalars. All processes must call it.

        Returns:
            `top1`, `balanced`, `macro_f1`, `calibration` and the accuracy of each group as `group/NAME`, in percent,
            and `loss`. What is not known is NaN.
        """
        found = self.details()
        numbers = {name: found[name] for name in ("top1", "balanced", "macro_f1", "calibration", "loss")}
        numbers |= {f"group/{name}": accuracy for name, accuracy in found["groups"].items()}
        nan = float("nan")
        return {name: torch.tensor(nan if value is None else value) for name, value in numbers.items()}

    def details(self) -> dict[str, Any]:
        """All metrics over all processes, as `equipoise.Metrics.compute` gives them.

        All processes must call it, unless they have called `compute` since the last batch.
        """
        return plain(json.loads(self.record()))

    def record(self) -> str:
        """The metrics in the JSON of a run folder. Calls are as for `details`."""
        if self._record is None:
            self._record = self._core.metrics_of(self._summed().cpu().numpy())
        return self._record

    def _summed(self) -> torch.Tensor:
        """The sums over all processes. Within its `compute`, torchmetrics has summed them already."""
        distributed = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not distributed or self._in_forward or getattr(self, "_is_synced", False):
            return self.sums
        sums = self.sums.clone()
        torch.distributed.all_reduce(sums)
        return sums

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the Rust part, which is built again."""
        parent = getattr(super(), "__getstate__", None)
        state = dict(parent() if parent is not None else self.__dict__)
        state.pop("_core", None)
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Builds the Rust part again."""
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self._core = self._make_core()
