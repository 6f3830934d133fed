"""Datasets and loaders that give tensors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
import torch.utils.data

from equipoise import data, loader
from equipoise.torch.samplers import process

if TYPE_CHECKING:
    from typing_extensions import Unpack

    Batch: TypeAlias = tuple[torch.Tensor, Unpack[tuple[Any, ...]]]
    """Images, the target, and the indices of the images if they were asked for."""


class Dataset(data.Dataset, torch.utils.data.Dataset[tuple[torch.Tensor, int]]):
    """`equipoise.Dataset` with tensors as images, for `torch.utils.data.DataLoader`."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        """An image of the epoch and its label."""
        image, label = super().__getitem__(index)
        return torch.from_numpy(image), label

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[torch.Tensor, int]]:
        """Several images and their labels."""
        return [(torch.from_numpy(image), label) for image, label in super().__getitems__(indices)]


class Normalize(torch.nn.Module):
    """Normalizes `uint8` images where they are: what a dataset with `dtype="float32"` does on the CPU."""

    scale: torch.Tensor
    offset: torch.Tensor

    def __init__(self, dataset: data.Dataset) -> None:
        """Takes the means and standard deviations of a dataset."""
        super().__init__()
        scale, offset = dataset._core.normalization
        self.register_buffer("scale", torch.tensor(scale).view(-1, 1, 1), persistent=False)
        self.register_buffer("offset", torch.tensor(offset).view(-1, 1, 1), persistent=False)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Normalized images."""
        return images.to(self.scale.dtype).mul_(self.scale).add_(self.offset)


class Loader(loader.Loader):
    """`equipoise.Loader` with tensors. Rank and world size are those of `torch.distributed` if not given.

    With `device`, batches are moved there, as `uint8` if the dataset has this type, and normalized there.
    """

    def __init__(
        self,
        dataset: data.Dataset,
        batch_size: int = 128,
        *,
        device: torch.device | str | None = None,
        pin_memory: bool | None = None,
        channels_last: bool = False,
        **named: Any,
    ) -> None:
        """Builds a loader.

        Args:
            dataset: The images.
            batch_size: Images per batch of this process.
            device: Where batches go.
            pin_memory: Whether batches are copied to page-locked memory first, so that the way to a GPU does not wait;
                on for CUDA devices without it.
            channels_last: Whether images are laid out pixel by pixel.
            **named: The other arguments of `equipoise.Loader`.
        """
        rank, world_size = process()
        super().__init__(dataset, batch_size, **{"rank": rank, "world_size": world_size, **named})
        self.device = None if device is None else torch.device(device)
        on_cuda = self.device is not None and self.device.type == "cuda"
        self.pin_memory = on_cuda if pin_memory is None else bool(pin_memory)
        self.channels_last = bool(channels_last)
        self._normalize = Normalize(dataset).to(self.device) if self.device is not None else None

    def _moved(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._moved(item) for item in value)
        tensor = torch.from_numpy(value)
        if self.pin_memory:
            tensor = tensor.pin_memory()
        return tensor if self.device is None else tensor.to(self.device, non_blocking=True)

    def __iter__(self) -> Iterator[Batch]:  # type: ignore[override]
        """The batches of the epoch. The next call gives those of the next epoch."""
        return self._tensors(super().__iter__())

    def _tensors(self, batches: Iterator[loader.Batch]) -> Iterator[Batch]:
        for arrays in batches:
            images, *others = self._moved(arrays)
            if self._normalize is not None and images.dtype == torch.uint8:
                images = self._normalize(images)
            if self.channels_last:
                images = images.contiguous(memory_format=torch.channels_last)
            yield (images, *others)
