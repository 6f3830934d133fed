"""The operators behind the criteria: an autograd function for eager mode, custom operators for `torch.compile`.

An operator that changes something cannot have a derivative, so there are two for the compiler: `equipoise::criterion`
computes and changes nothing, `equipoise::count_` counts the batch that was computed. The counter `version`, which the
first reads and the second increases, keeps them in order.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from equipoise.torch.runner import Batch, Runner

transforms_active = getattr(torch._C, "_are_functorch_transforms_active", lambda: False)
_keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", lambda: True)


def _scaled(grad: Tensor, factor: Tensor, scale: float, in_place: bool) -> Tensor:
    """The gradient times the derivative of what was made of the loss: one number, or one per row."""
    if factor.dim() == 1:
        factor = (factor * scale).unsqueeze(1)
    elif factor.is_cpu:
        number = factor.item() * scale
        if number == 1.0:
            return grad
        return grad.mul_(number) if in_place else grad * number
    else:
        factor = factor * scale
    return grad.mul_(factor) if in_place else grad * factor


class EagerCriterion(torch.autograd.Function):
    """A criterion in eager mode. Computes the gradient together with the loss, and counts the batch in training."""

    @staticmethod
    def forward(  # noqa: D102
        ctx: Any,
        logits: Tensor,
        runner: Runner,
        labels: Tensor,
        second: Tensor | None,
        share: Tensor | None,
        examples: Tensor | None,
        training: bool,
        per_row: bool,
    ) -> Tensor:
        batch = Batch(logits, labels, second, share, examples)
        outcome = runner.run(
            batch, training=training, count=training, per_row=per_row, with_grad=ctx.needs_input_grad[0]
        )
        ctx.grad, ctx.scale = outcome.grad, outcome.scale
        runner.weights = outcome.weights
        return outcome.loss

    @staticmethod
    def backward(ctx: Any, factor: Tensor) -> Any:  # noqa: D102
        if torch.is_grad_enabled():
            # gradients are computed by Rust code, which autograd cannot differentiate
            raise RuntimeError("criteria have no second derivatives; call backward without create_graph=True")
        grad = ctx.grad
        if grad is None:
            raise RuntimeError("the criterion's gradient was used already; call backward with retain_graph=True first")
        if _keeps_graph():
            # somebody may need the gradient again
            return _scaled(grad, factor, ctx.scale, False), None, None, None, None, None, None, None
        ctx.grad = None
        return _scaled(grad, factor, ctx.scale, True), None, None, None, None, None, None, None


_TAGS = (torch.Tag.cudagraph_unsafe,) if hasattr(torch.Tag, "cudagraph_unsafe") else ()


def _runner(handle: int) -> Runner:
    runner = Runner.by_handle.get(handle)
    if runner is None:
        raise RuntimeError("the criterion of this compiled function does not exist any more")
    return runner


@torch.library.custom_op("equipoise::criterion", mutates_args=(), tags=_TAGS)
def criterion(
    logits: Tensor,
    target: Tensor,
    second: Tensor | None,
    share: Tensor | None,
    examples: Tensor | None,
    version: Tensor,
    handle: int,
    training: bool,
    per_row: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Loss, gradient and weights of a batch. Counts nothing."""
    runner = _runner(handle)
    batch = Batch(logits.detach().contiguous(), target, second, share, examples)
    outcome = runner.run(batch, training=training, count=False, per_row=per_row, with_grad=True)
    runner.pending = _identity(logits, target)
    grad = outcome.grad
    assert grad is not None
    if outcome.scale != 1.0:
        grad.mul_(outcome.scale)
    return outcome.loss, grad.clone() if grad._base is not None else grad, outcome.weights


def _identity(logits: Tensor, target: Tensor) -> tuple[object, ...]:
    return logits.data_ptr(), target.data_ptr(), tuple(logits.shape)


@criterion.register_fake
def _criterion_shapes(
    logits: Tensor,
    target: Tensor,
    second: Tensor | None,
    share: Tensor | None,
    examples: Tensor | None,
    version: Tensor,
    handle: int,
    training: bool,
    per_row: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    rows, classes = logits.shape
    loss = logits.new_empty((rows,) if per_row else (), dtype=torch.float32)
    grad = logits.new_empty((rows, classes), dtype=torch.float32)
    return loss, grad, logits.new_empty((rows,), dtype=torch.float32)


def _keep_gradient(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.mark_non_differentiable(output[1], output[2])
    ctx.save_for_backward(output[1])


def _criterion_backward(ctx: Any, factor: Tensor, *_: Any) -> tuple[Any, ...]:
    (grad,) = ctx.saved_tensors
    factor = factor.unsqueeze(1) if factor.dim() == 1 else factor
    return grad * factor, None, None, None, None, None, None, None, None


criterion.register_autograd(_criterion_backward, setup_context=_keep_gradient)


@torch.library.custom_op("equipoise::count_", mutates_args=("version",), tags=_TAGS)
def count_(
    version: Tensor,
    logits: Tensor,
    target: Tensor,
    second: Tensor | None,
    share: Tensor | None,
    examples: Tensor | None,
    handle: int,
) -> None:
    """Counts a batch: the one that was just computed, as a rule."""
    runner = _runner(handle)
    pending, runner.pending = runner.pending, None
    if pending == _identity(logits, target):
        runner.core.observe()
    else:
        batch = Batch(logits.detach().contiguous(), target, second, share, examples)
        runner.run(batch, training=True, count=True, per_row=False, with_grad=False)
    version.add_(1)


@count_.register_fake
def _count_nothing(
    version: Tensor,
    logits: Tensor,
    target: Tensor,
    second: Tensor | None,
    share: Tensor | None,
    examples: Tensor | None,
    handle: int,
) -> None:
    return None
