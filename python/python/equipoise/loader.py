"""The order of examples in an epoch, and batches from Rust threads."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from equipoise import _equipoise
from equipoise._check import Integers, integer, labels_array
from equipoise.data import Dataset, Dtype

if TYPE_CHECKING:
    from typing_extensions import Unpack

    Batch: TypeAlias = tuple[npt.NDArray[Any], Unpack[tuple[Any, ...]]]
    """Images, the target, and the indices of the images if they were asked for."""

SamplerKind: TypeAlias = Literal["uniform", "class-balanced", "square-root", "progressive"]
Uneven: TypeAlias = Literal["pad", "drop", "keep"]
KINDS = ("uniform", "class-balanced", "square-root", "progressive")


class Sampler:
    """The order of examples in every epoch: a function of the labels, the seed and the epoch.

    An epoch has as many examples as there are labels, whatever the kind. Each of several processes takes every
    `world_size`-th example of the same order. Any `DataLoader` takes it as its sampler. Call `set_epoch` at the start
    of every epoch; without it, every pass has the same order, and a warning says so.
    """

    def __init__(
        self,
        labels: Integers,
        kind: SamplerKind = "uniform",
        *,
        epochs: int = 1,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        uneven: Uneven = "pad",
        classes: int | None = None,
    ) -> None:
        """Builds a sampler.

        Args:
            labels: The class of every training image.
            kind: `uniform` (every example once), `class-balanced` (every class equally often), `square-root` (by the
                square root of the class size) or `progressive` (from uniform in the first epoch to class-balanced in
                the last).
            epochs: Epochs of the run, for `progressive`.
            seed: Seed of the order.
            rank: This process, from 0.
            world_size: Number of processes.
            uneven: What happens if the examples do not divide evenly: `pad` repeats the first ones, `drop` leaves the
                last ones out, `keep` gives some processes one more, whose last batches may then differ in size from
                those of others.
            classes: Number of classes; one more than the largest label if it is not given.
        """
        array = labels_array(labels, classes)
        number = classes if classes is not None else int(array.max(initial=0)) + 1
        self.kind = kind
        self.epochs = integer(epochs, "epochs", low=1)
        self.seed = integer(seed, "seed")
        self.world_size = integer(world_size, "world_size", low=1)
        self.rank = integer(rank, "rank", high=self.world_size - 1)
        if uneven not in ("pad", "drop", "keep"):
            raise ValueError(f"uneven is {uneven!r}; it must be 'pad', 'drop' or 'keep'")
        self.uneven: Uneven = uneven
        self.epoch = 0
        # whether a second pass is worth a warning: not after `set_epoch`, and only once
        self._warns, self._has_passed = True, False
        self._labels = (array, number)
        self._core = _equipoise.SamplerCore(kind, self.epochs, array, number, self.seed)

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch, counted from 0."""
        self.epoch = integer(epoch, "epoch")
        self._warns = False

    def whole(self) -> npt.NDArray[np.int64]:
        """Indices of the epoch over all processes, in order."""
        return self._core.epoch(self.epoch, 0, 1)

    def indices(self) -> npt.NDArray[np.int64]:
        """Indices of this process in the epoch, in order."""
        if self.uneven == "keep":
            return self._core.epoch(self.epoch, self.rank, self.world_size)
        order = self.whole()
        length = len(self) * self.world_size
        # `resize` repeats the first ones
        order = np.resize(order, length) if length > len(order) else order[:length]
        return order[self.rank :: self.world_size]

    def __len__(self) -> int:
        """Number of examples of this process in an epoch."""
        total = len(self._core)
        if self.uneven == "pad":
            return -(-total // self.world_size)
        if self.uneven == "drop":
            return total // self.world_size
        return len(range(self.rank, total, self.world_size))

    def __iter__(self) -> Iterator[int]:
        """The indices of this process in the epoch."""
        if self._warns and self._has_passed:
            self._warns = False
            warnings.warn(
                f"a second pass begins in epoch {self.epoch}, with the same order: call set_epoch(epoch) of the "
                "sampler at the start of every epoch",
                stacklevel=2,
            )
        yield from self.indices().tolist()
        self._has_passed = True

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the labels and the settings."""
        labels, classes = self._labels
        settings = {
            "epochs": self.epochs,
            "seed": self.seed,
            "rank": self.rank,
            "world_size": self.world_size,
            "uneven": self.uneven,
            "classes": classes,
        }
        return _sampler_again, (type(self), labels, self.kind, settings, self.epoch)


def _sampler_again(kind: type[Sampler], labels: Any, name: Any, settings: dict[str, Any], epoch: int) -> Sampler:
    sampler = kind(labels, name, **settings)
    sampler.set_epoch(epoch)
    return sampler


class Loader:
    """Batches of a dataset, prepared by Rust threads ahead of time, without the GIL.

    Iterating yields pairs of images (n x channels x height x width) and targets. Targets are labels; if the
    augmentation mixes images (mixup, CutMix, CMO), they are a tuple of labels, the labels of the partners, and the
    shares of the first labels, as criteria take it. Every pass is an epoch, also one that is not completed: the next
    pass is the next epoch, unless `set_epoch` chooses another.

    The batches depend on the seed and the epoch alone, not on the number of threads.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch_size: int = 128,
        *,
        sampler: SamplerKind | Literal["sequential"] | Sampler | Iterable[int] | None = None,
        epochs: int = 1,
        rank: int = 0,
        world_size: int = 1,
        uneven: Uneven = "pad",
        drop_last: bool = False,
        dtype: Dtype | None = None,
        with_indices: bool = False,
        threads: int = 0,
        prefetch: int = 2,
    ) -> None:
        """Builds a loader.

        Args:
            dataset: The images.
            batch_size: Images per batch of this process. A last batch of less than a quarter of that shares evenly
                with the one before it, since a few images make poor batch norms.
            sampler: The kind of a `Sampler`, `sequential`, a sampler, or the indices of an epoch. Without it, augmented
                training images come in `uniform` order, others in sequence.
            epochs: Epochs of the run, for the progressive sampler and CMO.
            rank: This process, from 0.
            world_size: Number of processes.
            uneven: What happens if the images do not divide evenly among processes: `pad`, `drop` or `keep`.
            drop_last: Whether a last batch with fewer images is left out.
            dtype: Type of the pixels; the dataset's without it.
            with_indices: Whether the indices of the images are yielded too, as a third item.
            threads: Threads that prepare a batch; 0 means one per core.
            prefetch: Batches that are prepared ahead.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(f"dataset must be an equipoise.Dataset, not {type(dataset).__name__}")
        self.dataset = dataset
        self.batch_size = integer(batch_size, "batch_size", low=1)
        self.epochs = integer(epochs, "epochs", low=1)
        self.drop_last = bool(drop_last)
        self.dtype: Dtype = dtype if dtype is not None else dataset.dtype
        if self.dtype not in ("uint8", "float32"):
            raise ValueError(f"dtype is {dtype!r}; it must be 'uint8' or 'float32'")
        self.with_indices = bool(with_indices)
        self.threads = integer(threads, "threads", high=1024)
        self.prefetch = integer(prefetch, "prefetch", high=1024)
        self.levels: Sequence[int] = []
        """Level of each class for `randaugment = [N, "difficulty"]`, 0..=30; empty for 0."""
        self.epoch = 0
        """The epoch of the next pass, counted from 0."""
        if sampler is None:
            sampler = "uniform" if dataset.split == "train" else "sequential"
        if isinstance(sampler, str) and sampler != "sequential":
            if sampler not in KINDS:
                raise ValueError(f"sampler is {sampler!r}; it must be one of sequential, {', '.join(KINDS)}")
            sampler = Sampler(
                dataset.labels,
                sampler,
                epochs=self.epochs,
                seed=dataset.seed,
                rank=rank,
                world_size=world_size,
                uneven=uneven,
                classes=len(dataset.classes),
            )
        elif sampler == "sequential":
            step = integer(world_size, "world_size", low=1)
            sampler = range(integer(rank, "rank", high=step - 1), len(dataset), step)
        self.sampler: Any = sampler

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the next pass, counted from 0."""
        self.epoch = integer(epoch, "epoch")

    def __len__(self) -> int:
        """Number of batches of an epoch."""
        images = len(self.sampler)
        return images // self.batch_size if self.drop_last else -(-images // self.batch_size)

    def _order(self, epoch: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """The indices of this process, and those of all processes."""
        if hasattr(self.sampler, "set_epoch"):
            self.sampler.set_epoch(epoch)
        if isinstance(self.sampler, Sampler):
            return self.sampler.indices(), self.sampler.whole()
        order = np.fromiter(self.sampler, np.int64)
        return order, order

    def _stream(self, epoch: int) -> _equipoise.BatchStream:
        order, whole = self._order(epoch)
        if self.drop_last:
            order = order[: len(order) // self.batch_size * self.batch_size]
        mixes = self.dataset._core.mixes(epoch, self.epochs)
        return self.dataset._core.stream(
            np.ascontiguousarray(order),
            whole if mixes else whole[:0],
            [integer(level, "levels", high=30) for level in self.levels],
            self.batch_size,
            self.dataset.seed,
            epoch,
            self.epochs,
            self.threads,
            self.prefetch,
            self.dtype,
        )

    def _batches(self, epoch: int) -> Iterator[Batch]:
        stream = self._stream(epoch)
        try:
            for images, labels, mixed, indices in stream:
                target = labels if mixed is None else (labels, *mixed)
                yield (images, target, indices) if self.with_indices else (images, target)
        finally:
            stream.close()

    def __iter__(self) -> Iterator[Batch]:
        """The batches of the epoch. The next call gives those of the next epoch."""
        epoch = self.epoch
        self.epoch += 1
        return self._batches(epoch)
