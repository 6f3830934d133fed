"""Checks of arguments that several modules share."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Integers: TypeAlias = Sequence[int] | npt.NDArray[np.integer[Any]]


def labels_array(labels: Any, classes: int | None, name: str = "labels") -> npt.NDArray[np.uint32]:
    """Labels as the crates take them; `classes` is the number of classes, if it is known."""
    array = np.asarray(labels)
    if array.size and array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, not {array.dtype}")
    if array.ndim != 1:
        raise ValueError(f"{name} must have 1 dimension, not {array.ndim}")
    if array.size:
        low, high = int(array.min()), int(array.max())
        limit = 2**32 if classes is None else classes
        if low < 0 or high >= limit:
            row = int(array.argmin() if low < 0 else array.argmax())
            raise ValueError(f"{name}[{row}] is {array[row]}; there are {limit} classes, numbered from 0")
    return np.require(array, np.uint32, ["C", "A"])


def counts_list(counts: Any, name: str = "counts") -> list[int]:
    """Training images per class."""
    array = np.asarray(counts)
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a list with a number per class")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name} must be whole numbers, not {array.dtype}")
    if int(array.min()) < 0:
        raise ValueError(f"{name}[{int(array.argmin())}] is {array.min()}; it must not be negative")
    return [int(n) for n in array]


def integer(value: Any, name: str, low: int = 0, high: int = 2**63 - 1) -> int:
    """A whole number in a range."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, not {type(value).__name__}") from None
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}; it must be in {low}..={high}")
    return number


def class_names(classes: Sequence[str] | None, number: int) -> list[str]:
    """Names of the classes; their numbers without names."""
    if classes is None:
        return [str(label) for label in range(number)]
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise TypeError("classes must be a list of names")
    if len(classes) != number:
        raise ValueError(f"classes has {len(classes)} names; counts has {number} classes")
    return list(classes)
