"""Checks of arguments that several modules share."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
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
            known = f"there are {classes} classes, numbered from 0"
            allowed = known if classes is not None else "it must be in 0..2^32" if low >= 0 else "it must be at least 0"
            raise ValueError(f"{name}[{row}] is {array[row]}; {allowed}")
    return np.require(array, np.uint32, ["C", "A"])


def whole_numbers(values: Any, name: str) -> npt.NDArray[np.int64]:
    """Whole numbers as the crates take them, of any shape."""
    array = np.asarray(values)
    if array.dtype.kind not in "iu" and array.size > 0:
        given = type(values).__name__ if array.dtype == object else array.dtype
        raise TypeError(f"{name} must be whole numbers, not {given}")
    if array.dtype == np.uint64 and array.size > 0 and int(array.max()) >= 2**63:
        at = "".join(f"[{i}]" for i in np.unravel_index(int(array.argmax()), array.shape))
        raise ValueError(f"{name}{at} is {array.max()}; it must be below 2^63")
    return np.require(array, np.int64, ["C", "A"])


def counts_list(counts: Any, name: str = "counts") -> list[int]:
    """Training images per class."""
    array = np.asarray(counts)
    if array.dtype == object:
        raise TypeError(f"{name} must be a list with a number per class, not {type(counts).__name__}")
    if array.ndim != 1 or not array.size:
        raise ValueError(f"{name} must be a list with a number per class")
    array = whole_numbers(array, name)
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


def nested(settings: Mapping[str, Any] | None, name: str = "settings") -> dict[str, Any]:
    """Settings as tables: `{"data.imbalance": 100}` means `{"data": {"imbalance": 100}}`."""
    tables: dict[str, Any] = {}
    for path, value in _leaves(settings or {}, name, ()):
        table = tables
        for part in path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ValueError(f"{name}: '{part}' in '{'.'.join(path)}' is a value, not a table")
        if path[-1] in table:
            raise ValueError(f"{name}: '{'.'.join(path)}' is given twice")
        table[path[-1]] = value
    return tables


def _leaves(settings: Any, name: str, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The values of nested settings with their paths."""
    if not isinstance(settings, Mapping):
        raise TypeError(f"{name} must be a mapping, not {type(settings).__name__}")
    for key, value in settings.items():
        if not isinstance(key, str):
            raise TypeError(f"{name}: keys must be strings, not {type(key).__name__}")
        inner = (*path, *key.split("."))
        if isinstance(value, Mapping):
            yield from _leaves(value, name, inner)
        else:
            yield inner, value


def class_names(classes: Sequence[str] | None, number: int) -> list[str]:
    """Names of the classes; their numbers without names."""
    if classes is None:
        return [str(label) for label in range(number)]
    if isinstance(classes, str) or not all(isinstance(name, str) for name in classes):
        raise TypeError("classes must be a list of names")
    if len(classes) != number:
        raise ValueError(f"classes has {len(classes)} names; counts has {number} classes")
    return list(classes)
