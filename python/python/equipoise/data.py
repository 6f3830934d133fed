"""Long-tailed subsets, groups of classes, reports on datasets, and the images of a split."""

from __future__ import annotations

import json
import mmap
import operator
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from equipoise import _equipoise
from equipoise._check import Integers, counts_list, integer, labels_array, nested

Profile: TypeAlias = Literal["exp", "step"]
Split: TypeAlias = Literal["train", "val", "test"]
Dtype: TypeAlias = Literal["uint8", "float32"]
Groups: TypeAlias = str | Mapping[str, Sequence[int]]

CACHE_BYTES = 4 << 30


def long_tailed(
    labels: Integers, imbalance: float, profile: Profile = "exp", seed: int = 0, *, classes: int | None = None
) -> npt.NDArray[np.int64]:
    """Draws a long-tailed subset of a balanced training split, exactly as in published tables.

    Args:
        labels: The class of every training image.
        imbalance: Size of the largest class over that of the smallest, at least 1.
        profile: How class sizes decrease: `exp` or `step`.
        seed: Seed of the choice of images; published tables use 0.
        classes: Number of classes; one more than the largest label if it is not given.

    Returns:
        Indices of the images, class by class in the order they were drawn: those of `equipoise data index`. Class sizes
        are rounded down, so that a rare class of a small dataset may have no image.

    Raises:
        ValueError: The imbalance is below 1, or a class has no images.
    """
    array = labels_array(labels, classes)
    number = classes if classes is not None else int(array.max(initial=0)) + 1
    if array.size and (absent := np.flatnonzero(np.bincount(array, minlength=number) == 0)).size:
        raise ValueError(
            f"labels: class {absent[0]} has no images; all {number} classes, numbered from 0, must have some"
        )
    return _equipoise.long_tailed(array, number, float(imbalance), profile, integer(seed, "seed", high=2**32 - 1))


def groups(counts: Integers, rule: Groups = "rank:4") -> dict[str, list[int]]:
    """Groups classes by their number of training images.

    Args:
        counts: Training images per class.
        rule: `rank:K` (K groups of equally many classes), `mass:K` (of equally many images) or `threshold` (Many has
            more than 100 images, Few less than 20). Classes of about the same size are one group, `All`, except by
            `threshold`. A mapping from names to labels is checked and returned.

    Returns:
        The labels of each group by its name, the largest class first.
    """
    return dict(_equipoise.groups(counts_list(counts), rule))


def _data_settings(
    data: str | os.PathLike[str], named: Mapping[str, Any], settings: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Settings as in the TOML of a run; named arguments override them."""
    merged = nested(settings)
    given = {key: value for key, value in named.items() if value is not None}
    merged["data"] = {**merged.get("data", {}), "dataset": os.fspath(data), **given}
    return merged


def inspect(
    data: str | os.PathLike[str],
    *,
    groups: str = "rank:4",
    imbalance: float | None = None,
    profile: Profile | None = None,
    subset_seed: int | None = None,
    settings: Mapping[str, Any] | None = None,
    data_root: str | os.PathLike[str] | None = None,
    threads: int = 0,
) -> dict[str, Any]:
    """Looks at a dataset before training on it: class sizes, imbalance, sizes of images, problems and advice.

    Args:
        data: Name of a dataset, such as `fashion-mini`, or a path in any format that the program reads.
        groups: How classes are grouped.
        imbalance: Imbalance factor of a long-tailed subset to draw.
        profile: Profile of that subset.
        subset_seed: Seed of that subset.
        settings: More settings by their names in the TOML of a run, such as `{"data": {"test_fraction": 0.1}}` or
            `{"data.test_fraction": 0.1}`.
        data_root: Folder of the named datasets.
        threads: Threads that decode files; 0 means one per core.

    Returns:
        What `equipoise inspect --json` prints.
    """
    named = {"imbalance": imbalance, "profile": profile, "subset_seed": subset_seed}
    all_settings = {**_data_settings(data, named, settings), "groups": groups}
    report: dict[str, Any] = json.loads(
        _equipoise.inspect(all_settings, _path(data_root), integer(threads, "threads", high=1024))
    )
    return report


def _path(path: str | os.PathLike[str] | None) -> str | None:
    return None if path is None else os.fspath(path)


class Dataset:
    """The images and labels of one split, read by the Rust reader.

    `dataset[i]` is a pair of an image (channels x height x width) and its label. Augmentation is a function of the
    seed, the epoch and the index: nothing depends on the order, on threads or on processes. Call `set_epoch` at the
    start of every epoch; without it, every pass sees the same augmented images, and a warning says so. The class
    works as a map-style dataset of `torch.utils.data` as it is; it is picklable and survives a fork, and an epoch that
    is set reaches workers that were forked before.
    """

    def __init__(
        self,
        data: str | os.PathLike[str] = "fashion-mini",
        split: Split = "train",
        *,
        imbalance: float | None = None,
        profile: Profile | None = None,
        subset_seed: int | None = None,
        image_size: int | None = None,
        photographs: bool | None = None,
        augment: bool | Mapping[str, Any] | None = None,
        normalize: tuple[Sequence[float], Sequence[float]] | None = None,
        dtype: Dtype = "float32",
        seed: int = 0,
        groups: str | None = None,
        cache_bytes: int | None = CACHE_BYTES,
        settings: Mapping[str, Any] | None = None,
        data_root: str | os.PathLike[str] | None = None,
        threads: int = 0,
    ) -> None:
        """Reads a dataset.

        Args:
            data: Name of a dataset, such as `fashion-mini` (which needs no files), or a path in any format that the
                program reads.
            split: `train`, `val` or `test`.
            imbalance: Imbalance factor of a long-tailed subset of the training images.
            profile: Profile of that subset: `exp` or `step`.
            subset_seed: Seed of that subset; published tables use 0.
            image_size: Height and width that image files are scaled to; chosen by the size of the images without it.
            photographs: Whether crops are taken from complete photographs (random resized crop, center crop) rather
                than from scaled images (padding and random crop). By the size of the images without it.
            augment: Settings of `[augment]` in the TOML of a run, such as `{"randaugment": [2, 9]}`. `True` stands for
                the defaults, `False` for no augmentation. Training images are augmented without it, others are not.
            normalize: Mean and standard deviation of the channels, in 0..=1; those that suit the dataset without it.
            dtype: `float32` for normalized pixels, `uint8` for levels that are normalized where the network runs.
            seed: Seed of the augmentation.
            groups: How classes are grouped: `rank:4` without it.
            cache_bytes: Limit on decoded files that are kept in memory. All files are decoded at once, and unreadable
                ones are left out, up to `data.max_broken` of them. `None` decodes no file before it is needed.
            settings: More settings by their names in the TOML of a run, such as `{"data.max_broken": 0.05}`.
            data_root: Folder of the named datasets.
            threads: Threads that decode files at once; 0 means one per core.

        Raises:
            FileNotFoundError: There is no such dataset.
            OSError: Files cannot be read.
            ValueError: A setting cannot be used.
        """
        self._arguments: dict[str, Any] = {
            "data": os.fspath(data),
            "split": split,
            "imbalance": imbalance,
            "profile": profile,
            "subset_seed": subset_seed,
            "image_size": image_size,
            "photographs": photographs,
            "augment": dict(augment) if isinstance(augment, Mapping) else augment,
            "normalize": normalize,
            "dtype": dtype,
            "seed": seed,
            "groups": groups,
            "cache_bytes": cache_bytes,
            "settings": None if settings is None else dict(settings),
            "data_root": _path(data_root),
            "threads": threads,
        }
        named = {"imbalance": imbalance, "profile": profile, "subset_seed": subset_seed, "image_size": image_size}
        merged = _data_settings(data, named, settings)
        if groups is not None:
            merged["groups"] = groups
        if photographs is not None:
            merged["model"] = {**merged.get("model", {}), "name": "resnet18" if photographs else "resnet32"}
        augmented = split == "train" if augment is None else bool(augment) or isinstance(augment, Mapping)
        if isinstance(augment, Mapping):
            merged["augment"] = {**merged.get("augment", {}), **augment}
        if dtype not in ("uint8", "float32"):
            raise ValueError(f"dtype is {dtype!r}; it must be 'uint8' or 'float32'")
        if normalize is not None:
            mean, std = normalize
            normalize = [float(x) for x in mean], [float(x) for x in std]
        if cache_bytes is not None:
            cache_bytes = integer(cache_bytes, "cache_bytes")
        self.dtype: Dtype = dtype
        self.seed = integer(seed, "seed")
        self.split = split
        self._core = _equipoise.SplitCore(
            merged, split, augmented, cache_bytes, normalize, _path(data_root), integer(threads, "threads", high=1024)
        )
        self.labels: npt.NDArray[np.int64] = self._core.labels
        self._augmented = augmented
        # the epoch, the number of images that were read, and whether a second pass is not worth a warning (any more):
        # shared with forked workers, also with those that were started before
        self._epoch = mmap.mmap(-1, 17)
        for warning in self._core.warnings():
            warnings.warn(warning, stacklevel=2)

    @property
    def name(self) -> str:
        """Name of the dataset."""
        return self._core.name

    @property
    def classes(self) -> list[str]:
        """Names of the classes, by label."""
        return self._core.classes

    @property
    def counts(self) -> list[int]:
        """Training images per class, whichever split this is."""
        return self._core.counts

    @property
    def groups(self) -> dict[str, list[int]]:
        """Labels of each group of classes."""
        return dict(self._core.groups)

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the images."""
        return self._core.shape

    @property
    def mean(self) -> list[float]:
        """Means of the channels that pixels are normalized by, in 0..=1."""
        return self._core.mean

    @property
    def std(self) -> list[float]:
        """Standard deviations of the channels that pixels are normalized by, in 0..=1."""
        return self._core.std

    @property
    def settings(self) -> str:
        """All settings that the images depend on, in TOML."""
        return self._core.settings

    @property
    def epoch(self) -> int:
        """The epoch of the augmentation, counted from 0."""
        return int.from_bytes(self._epoch[:8], "little")

    def set_epoch(self, epoch: int) -> None:
        """Chooses the epoch of the augmentation, counted from 0."""
        self._epoch[:8] = integer(epoch, "epoch").to_bytes(8, "little")
        self._epoch[16] = 1

    def _count_reads(self, images: int) -> None:
        """Warns once if a second pass has begun without a call of `set_epoch`."""
        if not self._augmented or self._epoch[16]:
            return
        read = int.from_bytes(self._epoch[8:16], "little") + images
        self._epoch[8:16] = read.to_bytes(8, "little")
        if read > len(self):
            self._epoch[16] = 1
            warnings.warn(
                f"more than {len(self)} images were read in epoch {self.epoch}, so augmentation repeats itself: call "
                "set_epoch(epoch) of the dataset at the start of every epoch",
                stacklevel=4,
            )

    def file(self, index: int) -> str:
        """The file of an image, or its number."""
        return self._core.file(self._index(index))

    def __len__(self) -> int:
        """Number of images."""
        return len(self._core)

    def _index(self, index: int) -> int:
        number = operator.index(index)
        if not -len(self) <= number < len(self):
            raise IndexError(f"index {number} is out of range: there are {len(self)} images")
        return number % len(self)

    def images(self, indices: Integers) -> npt.NDArray[Any]:
        """Images of the epoch, n x channels x height x width, prepared on the calling thread."""
        array = np.asarray(indices)
        if array.size and array.dtype.kind not in "iu":
            raise TypeError(f"indices must be whole numbers, not {array.dtype}")
        array = np.require(array, np.int64, ["C", "A"])
        if array.ndim != 1:
            raise ValueError(f"indices must have 1 dimension, not {array.ndim}")
        return self._core.images(array, self.seed, self.epoch, self.dtype)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """An image of the epoch and its label."""
        number = self._index(index)
        self._count_reads(1)
        return self.images([number])[0], int(self.labels[number])

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Any, int]]:
        """Several images and their labels, for `torch.utils.data.DataLoader`."""
        numbers = [self._index(index) for index in indices]
        self._count_reads(len(numbers))
        return list(zip(self.images(numbers), self.labels[numbers].tolist(), strict=True))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles the arguments; the files are read again."""
        return _read_again, (type(self), self._arguments, self.epoch)

    def __repr__(self) -> str:
        """The split and its size."""
        size = " x ".join(str(n) for n in self.shape)
        return f"<{self.name}, {self.split} split: {len(self)} images of {size}, {len(self.classes)} classes>"


def _read_again(kind: type[Dataset], arguments: dict[str, Any], epoch: int) -> Dataset:
    with warnings.catch_warnings():
        # they were shown when the dataset was read first
        warnings.simplefilter("ignore")
        dataset = kind(**arguments)
    dataset.set_epoch(epoch)
    return dataset
