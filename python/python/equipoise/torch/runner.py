"""Runs a criterion on tensors: the part without autograd, shared by the eager function and the custom operators."""

from __future__ import annotations

import copy
import itertools
import weakref
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch import distributed as dist

from equipoise import _equipoise
from equipoise._equipoise import CriterionCore
from equipoise.torch import distributed
from equipoise.torch.staging import Stage, stage_for


class Batch(NamedTuple):
    """A batch as the criterion takes it: contiguous tensors, labels of int64, everything else float32."""

    logits: Tensor
    labels: Tensor
    second: Tensor | None = None
    share: Tensor | None = None
    examples: Tensor | None = None


class Outcome(NamedTuple):
    """What a criterion makes of a batch."""

    loss: Tensor
    """A scalar, or a loss per row."""
    grad: Tensor | None
    """The gradient; `scale` times it is the derivative of the loss, or of each row's loss."""
    weights: Tensor
    scale: float


class Runner:
    """A criterion and how to run it. The custom operators find it by its `handle`."""

    _handles = itertools.count()
    by_handle: weakref.WeakValueDictionary[int, Runner] = weakref.WeakValueDictionary()

    def __init__(self, core: CriterionCore, threads: int | None, use_distributed: bool | None) -> None:
        """Wraps a criterion."""
        self.core = core
        self.threads = threads
        self.use_distributed = use_distributed
        self.group: dist.ProcessGroup | None = None
        self.staged = False
        self.weights: Tensor | None = None
        # counts training batches under torch.compile: what the counting operator changes and the other one reads
        self.version = torch.zeros((), dtype=torch.int64)
        self.pending: tuple[object, ...] | None = None
        self.handle = next(Runner._handles)
        Runner.by_handle[self.handle] = self

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy or a pickle has a handle of its own; a process group cannot be pickled and is left out."""
        return Runner, (self.core, self.threads, self.use_distributed)

    def __deepcopy__(self, memo: dict[int, Any]) -> Runner:
        """A copy with a state of its own, in the same process group."""
        twin = Runner(copy.deepcopy(self.core, memo), self.threads, self.use_distributed)
        twin.group, twin.staged = self.group, self.staged
        return twin

    def num_threads(self) -> int:
        """Threads for the next call: those of PyTorch, unless they were chosen."""
        return torch.get_num_threads() if self.threads is None else self.threads

    def is_distributed(self, training: bool) -> bool:
        """Whether the next call is one of several processes that share a batch."""
        if self.use_distributed is False or not training:
            return False
        if not (dist.is_available() and dist.is_initialized()):
            if self.use_distributed:
                raise RuntimeError("distributed=True needs torch.distributed.init_process_group first")
            return False
        return dist.get_world_size(self.group) > 1

    def refuse(self, training: bool) -> None:
        """Tells the other processes that this one cannot use its arguments, so that they do not wait for it."""
        if self.is_distributed(training):
            on_device = not distributed.on_host(self.group)
            device = torch.device("cuda", torch.cuda.current_device()) if on_device else torch.device("cpu")
            distributed.Exchange(self.group, device).refuse()

    def run(self, batch: Batch, *, training: bool, count: bool, per_row: bool, with_grad: bool) -> Outcome:
        """Computes a batch, and counts it if `count` is set."""
        shared = self.is_distributed(training)
        if batch.logits.is_cpu and not self.staged:
            if not shared:
                return self.local(batch, count, per_row, with_grad)
            return self._shared(batch, count, per_row, with_grad)
        stage = stage_for(batch.logits.device)
        if shared and not distributed.on_host(self.group):
            # the backend wants tensors of the device, so gather before staging
            return self._shared(batch, count, per_row, with_grad, stage)
        host = _to_host(batch, stage)
        run = self._shared if shared else self.local
        return _to_device(run(host, count, per_row, with_grad), stage)

    def local(self, batch: Batch, count: bool, per_row: bool, with_grad: bool) -> Outcome:
        """Computes a batch of this process on the CPU."""
        outcome, _ = self._compute(batch, count, per_row, with_grad)
        return outcome

    def _compute(self, batch: Batch, count: bool, per_row: bool, with_grad: bool) -> tuple[Outcome, float]:
        logits, labels, second, share, examples = batch
        if share is None and labels.is_floating_point():
            labels, second, share = two_hot(labels, self.core.classes)
        grad = torch.empty_like(logits) if with_grad else None
        rows = len(logits) if logits.dim() else 0
        weights = torch.empty(rows)
        losses = torch.empty(rows) if per_row else None
        loss, denominator = self.core.run(
            logits, labels, second, share, examples, grad, weights, losses, count, self.num_threads()
        )
        if losses is not None:
            return Outcome(losses, grad, weights, float(rows)), denominator
        return Outcome(torch.scalar_tensor(loss), grad, weights, 1.0), denominator

    def _shared(self, batch: Batch, count: bool, per_row: bool, with_grad: bool, stage: Stage | None = None) -> Outcome:
        """Computes this process's rows of a batch that all processes hold together.

        The loss is that of the whole batch. The gradient is scaled so that the mean over processes, which
        DistributedDataParallel takes, is the gradient of that loss.
        """
        with distributed.Exchange(self.group, batch.logits.device) as exchange:
            if batch.share is None and batch.labels.is_floating_point():
                labels, second, share = two_hot(batch.labels, self.core.classes)
                batch = batch._replace(labels=labels, second=second, share=share)
            for name, part in zip(("logits", "target", "target[1]", "target[2]", "examples"), batch, strict=True):
                if part is not None and part.shape[:1] != batch.labels.shape:
                    raise ValueError(f"{name} has shape {tuple(part.shape)}; target has {tuple(batch.labels.shape)}")
            if batch.logits.dim() != 2 or batch.logits.shape[1] != self.core.classes:
                raise ValueError(f"logits have shape {tuple(batch.logits.shape)} for {self.core.classes} classes")
            exchange.announce(len(batch.logits), batch.logits.shape[1])
        if self.core.has_state:
            return self._gathered(batch, exchange, count, per_row, with_grad, stage)
        return self._summed(batch, exchange, per_row, with_grad, stage)

    def _gathered(
        self,
        batch: Batch,
        exchange: distributed.Exchange,
        count: bool,
        per_row: bool,
        with_grad: bool,
        stage: Stage | None,
    ) -> Outcome:
        """Every process computes the whole batch, so that every process holds the same state."""
        whole = Batch(*exchange.gather(*batch))
        if stage is not None:
            whole = _to_host(whole, stage)
        failure: ValueError | None = None
        try:
            outcome, _ = self._compute(whole, count, per_row, with_grad)
        except ValueError as error:
            failure = error
        if failure is not None:
            # every process has found it; the one whose rows are wrong names them by its own numbers
            with exchange:
                if len(batch.logits) > 0:
                    self._compute(batch if stage is None else _to_host(batch, stage), False, per_row, False)
                exchange.sums(0.0, 0.0)
            raise failure
        rows = exchange.own_rows()
        grad = None if outcome.grad is None else outcome.grad[rows]
        loss = outcome.loss[rows] if per_row else outcome.loss
        scale = outcome.scale if per_row else float(exchange.world)
        outcome = Outcome(loss, grad, outcome.weights[rows], scale)
        return outcome if stage is None else _to_device(outcome, stage)

    def _summed(
        self, batch: Batch, exchange: distributed.Exchange, per_row: bool, with_grad: bool, stage: Stage | None
    ) -> Outcome:
        """Rows do not depend on each other: every process computes its own, and only sums travel."""
        rows = len(batch.logits)
        if batch.examples is None:
            first = exchange.first_row()
            batch = batch._replace(examples=torch.arange(first, first + rows, device=batch.logits.device))
        if stage is not None:
            batch = _to_host(batch, stage)
        with exchange:
            if rows > 0:
                outcome, own = self._compute(batch, False, per_row, with_grad)
            else:
                empty = torch.empty(0)
                grad = torch.empty_like(batch.logits)
                outcome, own = Outcome(empty if per_row else torch.zeros(()), grad, empty.clone(), 1.0), 0.0
            loss = 0.0 if rows == 0 else float(outcome.loss.double().mean())
            total, denominator = exchange.sums(loss * own, own)
        share = own / denominator if denominator > 0 else 0.0
        if per_row:
            scale = exchange.total_rows() * share
            outcome = outcome._replace(loss=outcome.loss * (scale / max(rows, 1)), scale=scale)
        else:
            mean = total / denominator if denominator > 0 else 0.0
            outcome = outcome._replace(loss=torch.scalar_tensor(mean), scale=exchange.world * share)
        return outcome if stage is None else _to_device(outcome, stage)


def two_hot(dense: Tensor, classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Turns dense targets on the CPU into labels, second labels and shares."""
    if dense.dim() == 2 and dense.shape[1] != classes:
        raise ValueError(f"target has {dense.shape[1]} columns for {classes} classes")
    dense = dense.detach().to(dtype=torch.float32).contiguous()
    rows = dense.shape[:1] if dense.dim() else (0,)
    labels, second = torch.empty(rows, dtype=torch.int64), torch.empty(rows, dtype=torch.int64)
    share = torch.empty(rows)
    _equipoise.two_hot(dense if dense.is_cpu else dense.cpu(), labels, second, share)
    return labels, second, share


def _to_host(batch: Batch, stage: Stage) -> Batch:
    logits, labels, *others = (None if tensor is None else stage.to_host(tensor) for tensor in batch)
    assert logits is not None and labels is not None
    host = Batch(logits, labels, *others)
    stage.wait()
    return host


def _to_device(outcome: Outcome, stage: Stage) -> Outcome:
    grad = None if outcome.grad is None else stage.to_device(outcome.grad)
    return Outcome(stage.to_device(outcome.loss), grad, stage.to_device(outcome.weights), outcome.scale)
