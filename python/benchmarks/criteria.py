"""Times forward + backward of criteria against PyTorch, side by side in one process.

Usage: python benchmarks/criteria.py [threads]

`cross_entropy` is PyTorch's own. The peers of `seesaw` and `cwap` use whole-tensor operations, as the public
implementations do (tools/losses_torch.py). Both sides take turns, with a pause before each, in case threads of
the other side spin for some milliseconds after their work; the table shows medians.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

import equipoise.torch as et

ALPHA, GAMMA, BINS = 0.9, 0.8, 30
ROUNDS = 4
PAUSE = 0.05
"""Seconds before a turn."""


class Peers:
    """The criteria as users of PyTorch write them, for one batch."""

    def __init__(self, z: Tensor, y: Tensor, counts: Tensor) -> None:
        """Prepares what a training loop would keep between two batches."""
        self.z, self.y, self.n = z, y, counts.float()
        classes = len(counts)
        self.edges = torch.linspace(0, 1, BINS + 1)[None].repeat(classes, 1)
        self.v = self.n[:, None].repeat(1, BINS) / BINS

    def softmax(self) -> Tensor:
        """PyTorch's cross-entropy."""
        return F.cross_entropy(self.z, self.y)

    def seesaw(self) -> Tensor:
        """Mitigation from the matrix of all ratios, compensation from the scores."""
        z, y, n = self.z, self.y, self.n
        one = F.one_hot(y, z.shape[1]).float()
        ratio = n[None, :] / n[:, None]
        mitigation = torch.where(ratio < 1, ratio.pow(0.8), torch.ones_like(ratio))[y]
        scores = F.softmax(z.detach(), 1)
        ratio = scores / scores.gather(1, y[:, None]).clamp(min=1e-2)
        compensation = torch.where(ratio > 1, ratio.pow(2), torch.ones_like(ratio))
        return F.cross_entropy(z + (mitigation * compensation).log() * (1 - one), y)

    def cwap(self) -> Tensor:
        """Weights from the density of the gradient norm, margins from the sizes."""
        z, y, v = self.z, self.y, self.v
        with torch.no_grad():
            size = v.pow(ALPHA).sum(1)
            g = 1 - F.softmax(z, 1).gather(1, y[:, None])
            i = (torch.searchsorted(self.edges[y].contiguous(), g, right=True) - 1).clamp(0, BINS - 1)
            weight = (size[y, None] / v[y].gather(1, i).pow(ALPHA)).squeeze(1) / BINS
            margin = GAMMA * (size[None, :] / size[y, None]).clamp(max=1).log()
        return (weight * F.cross_entropy(z + margin, y, reduction="none")).mean()


def compare(ours: Callable[[], Tensor], theirs: Callable[[], Tensor], z: Tensor, calls: int) -> tuple[float, float]:
    """The median microseconds of both, in turns of some calls. The first two of each turn do not count."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        for side, call in enumerate((ours, theirs)):
            time.sleep(PAUSE)
            for number in range(calls // ROUNDS + 2):
                z.grad = None
                start = time.perf_counter()
                torch.autograd.backward(call())
                if number >= 2:
                    times[side].append(time.perf_counter() - start)
    ours_median, theirs_median = (1e6 * statistics.median(side) for side in times)
    return ours_median, theirs_median


def main() -> None:
    """Prints the table."""
    torch.set_num_threads(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
    torch.manual_seed(0)
    print(f"PyTorch {torch.__version__}, {torch.get_num_threads()} threads, forward + backward, medians\n")
    print("| criterion | batch x classes | equipoise | peer | equipoise / peer | speedup |")
    print("|---|---|---|---|---|---|")
    shapes = [("softmax", 128, 10, 3000), ("softmax", 256, 8142, 100), ("cwap", 128, 10, 1000), ("cwap", 256, 8142, 60)]
    for method, batch, classes, calls in [*shapes, ("seesaw", 128, 10, 1000), ("seesaw", 256, 8142, 12)]:
        z = (torch.randn(batch, classes) * 2).requires_grad_()
        y = torch.randint(0, classes, (batch,))
        counts = (1280 * (256 ** -(torch.arange(classes) / (classes - 1)))).floor().clamp(min=1).long()
        criterion = et.Criterion(method, counts, preset="printed")

        def ours(criterion: et.Criterion = criterion, z: Tensor = z, y: Tensor = y) -> Tensor:
            loss: Tensor = criterion(z, y)
            return loss

        a, b = compare(ours, getattr(Peers(z, y, counts), method), z, calls)
        shape = f"{batch} x {classes}"
        print(f"| {method} | {shape} | {a:,.0f} µs | {b:,.0f} µs | {a / b:.2f} | {b / a:.1f} x |", flush=True)


if __name__ == "__main__":
    main()
