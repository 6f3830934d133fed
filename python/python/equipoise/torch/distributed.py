"""Batches that several processes hold together.

Criteria that count gather logits and labels, and every process runs the whole batch: then every process holds the state
that one process would, integers and moving averages alike. The others exchange two sums. Local batches may differ in
size, and may be empty on some processes.
"""

from __future__ import annotations

from types import TracebackType

import torch
from torch import Tensor
from torch import distributed as dist

_BAD = -1


def on_host(group: dist.ProcessGroup | None) -> bool:
    """Whether the backend exchanges tensors of the CPU."""
    return str(dist.get_backend(group)) != "nccl"


class Exchange:
    """One step of all processes of a group.

    Inside a `with` block, every process announces its batch or sends its sums. A process whose block fails tells the
    others, which then raise an error too instead of waiting forever.
    """

    def __init__(self, group: dist.ProcessGroup | None, device: torch.device) -> None:
        """Prepares an exchange. Collectives use `device` where the backend needs it."""
        self.group = group
        self.world = dist.get_world_size(group)
        self.rank = dist.get_rank(group)
        self.device = torch.device("cpu") if on_host(group) else device
        self.rows: list[int] = []
        self._waiting = False
        self._width = 2

    def __enter__(self) -> Exchange:
        """The other processes wait for this one from now on."""
        self._waiting = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Tells the others if this process failed before it sent anything."""
        if error is not None and self._waiting:
            self.refuse()

    def refuse(self) -> None:
        """Tells the others that this process cannot use its batch."""
        self._all([float(_BAD)] * self._width)

    def _all(self, numbers: list[float]) -> list[list[float]]:
        """The numbers of every process, in the order of ranks."""
        self._waiting = False
        own = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        everyone = [torch.empty_like(own) for _ in range(self.world)]
        dist.all_gather(everyone, own, group=self.group)
        return [numbers.tolist() for numbers in everyone]

    def _refuse_failures(self, everyone: list[list[float]]) -> None:
        for rank, numbers in enumerate(everyone):
            if numbers[-1] == _BAD:
                raise RuntimeError(f"rank {rank} could not use its batch; its own error says why")

    def announce(self, rows: int, classes: int) -> None:
        """Tells the other processes the size of this one's batch."""
        everyone = self._all([float(rows), float(classes)])
        self._refuse_failures(everyone)
        for rank, (_, other) in enumerate(everyone):
            if other != classes:
                raise ValueError(f"logits have {classes} columns here and {int(other)} on rank {rank}")
        self.rows = [int(rows) for rows, _ in everyone]

    def sums(self, total: float, denominator: float) -> tuple[float, float]:
        """The sums of two numbers over all processes, the same bits on every one."""
        everyone = self._all([total, denominator])
        self._refuse_failures(everyone)
        return sum(total for total, _ in everyone), sum(denominator for _, denominator in everyone)

    def first_row(self) -> int:
        """The number of this process's first row in the whole batch."""
        return sum(self.rows[: self.rank])

    def total_rows(self) -> int:
        """The rows of the whole batch."""
        return sum(self.rows)

    def own_rows(self) -> slice:
        """This process's rows of the whole batch."""
        first = self.first_row()
        return slice(first, first + self.rows[self.rank])

    def gather(
        self,
        logits: Tensor,
        labels: Tensor,
        second: Tensor | None,
        share: Tensor | None,
        examples: Tensor | None,
    ) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """The whole batch, in the order of ranks.

        Ranks without second labels take part with a share of 1. Example indices are used if every rank has them.
        """
        rows, classes, most = len(logits), logits.shape[1], max(self.rows)
        # a table per rank: labels, second labels, examples, shares, logits, all of it as 32-bit words
        words = torch.zeros(most, classes + 9, dtype=torch.int32, device=self.device)
        own = words[:rows]
        parts = [labels, labels if second is None else second]
        parts.append(torch.full_like(labels, _BAD) if examples is None else examples)
        for k, part in enumerate(parts):
            own[:, 2 * k : 2 * k + 2] = part.detach().to(self.device).view(torch.int32).view(rows, 2)
        shares = torch.ones(rows) if share is None else share
        own[:, 6] = shares.detach().to(self.device).view(torch.int32)
        own[:, 7] = int(second is not None)
        own[:, 8] = int(examples is not None)
        own[:, 9:] = logits.detach().to(self.device).view(torch.int32)
        everyone = [torch.empty_like(words) for _ in range(self.world)]
        dist.all_gather(everyone, words, group=self.group)
        whole = torch.cat([table[:rows] for table, rows in zip(everyone, self.rows, strict=True)])

        def longs(k: int) -> Tensor:
            return whole[:, 2 * k : 2 * k + 2].contiguous().view(torch.int64).view(-1)

        mixed = bool((whole[:, 7] == 1).any())
        indexed = bool((whole[:, 8] == 1).all())
        return (
            whole[:, 9:].contiguous().view(torch.float32),
            longs(0),
            longs(1) if mixed else None,
            whole[:, 6].contiguous().view(torch.float32) if mixed else None,
            longs(2) if indexed else None,
        )
