"""Samplers for `torch.utils.data.DataLoader`, over the processes of `torch.distributed`."""

from __future__ import annotations

from typing import Any

import torch.distributed
import torch.utils.data

from equipoise import loader


def process() -> tuple[int, int]:
    """Rank of this process and number of processes: 0 and 1 without `torch.distributed`."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return 0, 1


class Sampler(loader.Sampler, torch.utils.data.Sampler[int]):
    """`equipoise.Sampler` as one of PyTorch. Rank and world size are those of `torch.distributed` if not given."""

    def __init__(self, labels: Any, kind: loader.SamplerKind = "uniform", **named: Any) -> None:
        """Builds a sampler; the arguments are those of `equipoise.Sampler`."""
        rank, world_size = process()
        labels = labels.cpu().numpy() if isinstance(labels, torch.Tensor) else labels
        super().__init__(labels, kind, **{"rank": rank, "world_size": world_size, **named})
