"""Tensors of a device on their way to the CPU and back."""

from __future__ import annotations

import torch
from torch import Tensor


class Stage:
    """Copies between a device and the CPU.

    Copies from and to CUDA go through pinned memory and overlap with each other. PyTorch's allocator of pinned memory
    does not hand out a block again before the copies that use it are over.
    """

    def __init__(self, device: torch.device) -> None:
        """Prepares copies from and to a device."""
        self.target = device
        self.pinned = device.type == "cuda"

    def to_host(self, tensor: Tensor) -> Tensor:
        """Starts a copy to the CPU. It is complete after `wait`."""
        host = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=self.pinned)
        return host.copy_(tensor.detach(), non_blocking=self.pinned)

    def wait(self) -> None:
        """Waits for the copies to the CPU."""
        if self.pinned:
            torch.cuda.current_stream(self.target).synchronize()

    def to_device(self, tensor: Tensor) -> Tensor:
        """Copies a result to the device. Work that is put on the device's stream from now on sees it."""
        if self.pinned and not tensor.is_pinned():
            tensor = tensor.contiguous().pin_memory()
        device = torch.empty(tensor.shape, dtype=tensor.dtype, device=self.target)
        return device.copy_(tensor, non_blocking=self.pinned)


def stage_for(device: torch.device) -> Stage:
    """The copies from and to a device."""
    return Stage(device)
