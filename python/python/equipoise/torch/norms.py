"""Batch norms: of one process, and over the rows of all workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn


class BatchNorm2d(nn.BatchNorm2d):
    """Batch norm that also takes a single value per channel, whose variance is 0, as the CPU engine of the crates does.

    With a process group, statistics are those of the rows of all its members, some of which may have no rows.
    """

    group: dist.ProcessGroup | None = None

    def forward(self, input: Tensor) -> Tensor:
        """The normalized input."""
        if self.training and self.group is not None:
            return self.forward_of_all(input, self.group)
        if self.training and input.numel() == input.shape[1]:
            return self.forward_of_one(input)
        return super().forward(input)

    def forward_of_one(self, input: Tensor) -> Tensor:
        """The output for one value per channel."""
        value = input.detach().float().reshape(-1)
        self.update(value, torch.zeros_like(value))
        return (input - input) * self.weight.reshape(1, -1, 1, 1) + self.bias.reshape(1, -1, 1, 1)

    def forward_of_all(self, input: Tensor, group: dist.ProcessGroup) -> Tensor:
        """The output with the statistics of all workers."""
        y, mean, variance, count = sync_norm(input, self.weight, self.bias, self.eps, group)
        self.update(mean, variance * (count / max(count - 1.0, 1.0)))
        return cast(Tensor, y)

    def update(self, mean: Tensor, variance: Tensor) -> None:
        """Moves the running statistics."""
        share = 0.1 if self.momentum is None else self.momentum
        if self.running_mean is not None and self.running_var is not None:
            self.running_mean.mul_(1.0 - share).add_(mean, alpha=share)
            self.running_var.mul_(1.0 - share).add_(variance, alpha=share)


class _SyncNorm(torch.autograd.Function):
    """Batch norm over the rows of all workers; sums have 64 bits."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float, group: dist.ProcessGroup
    ) -> tuple[Tensor, Tensor, Tensor, float]:
        wide = x.float()
        count = torch.full((1,), float(x.numel() // x.shape[1]), dtype=torch.float64, device=x.device)
        sums = torch.cat([wide.sum((0, 2, 3), dtype=torch.float64), wide.double().square().sum((0, 2, 3)), count])
        dist.all_reduce(sums, group=group)
        channels, number = x.shape[1], float(sums[-1])
        mean = sums[:channels] / number
        variance = (sums[channels : 2 * channels] / number - mean.square()).clamp_(min=0.0)
        inverse = (variance + eps).rsqrt().float()
        centered = wide - mean.float().reshape(1, -1, 1, 1)
        y = centered * (inverse * weight).reshape(1, -1, 1, 1) + bias.reshape(1, -1, 1, 1)
        ctx.save_for_backward(centered, weight, inverse)
        ctx.group, ctx.number = group, number
        mean, variance = mean.float(), variance.float()
        ctx.mark_non_differentiable(mean, variance)
        return y.to(x.dtype), mean, variance, number

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, None, None]:
        centered, weight, inverse = ctx.saved_tensors
        wide = gradient.float()
        total, product = wide.sum((0, 2, 3)), (wide * centered).sum((0, 2, 3))
        sums = torch.cat([total, product]).double()
        dist.all_reduce(sums, group=ctx.group)
        means = (sums / ctx.number).float().chunk(2)
        along = means[1] * inverse.square()
        x = wide - means[0].reshape(1, -1, 1, 1) - centered * along.reshape(1, -1, 1, 1)
        x = x * (inverse * weight).reshape(1, -1, 1, 1)
        # of own rows: the gradients of all parameters are summed over the workers later
        return x.to(gradient.dtype), product * inverse, total, None, None


sync_norm: Callable[..., Any] = cast(Any, torch.compiler).disable(_SyncNorm.apply)
"""Batch norm over all workers, whose messages cannot be compiled."""
