"""Metrics of an evaluation: top-1, balanced accuracy, accuracy by group and class, calibration error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from equipoise import _equipoise
from equipoise._check import Integers, class_names, counts_list, labels_array
from equipoise.data import Groups


def logits_array(logits: Any) -> npt.NDArray[np.float32]:
    """Logits as the crates take them."""
    array = np.asarray(logits)
    if array.dtype.kind not in "iuf":
        raise TypeError(f"logits must be numbers, not {array.dtype}")
    if array.ndim != 2:
        raise ValueError(f"logits must have 2 dimensions (batch x classes), not {array.ndim}")
    with np.errstate(over="ignore"):
        return np.require(array, np.float32, ["C", "A"])


def plain(record: dict[str, Any]) -> dict[str, Any]:
    """The metrics of a record, with the accuracy of each group by its name."""
    return {**record, "groups": {group["name"]: group["accuracy"] for group in record["groups"]}}


class Metrics:
    """Metrics of an evaluation, counted batch by batch: `update`, `compute`, `reset`, as in torchmetrics.

    Counts are integers, so that results do not depend on the order or the size of batches. An image with a logit that
    is not finite counts as an error.
    """

    def __init__(self, counts: Integers, *, groups: Groups = "rank:4", classes: Sequence[str] | None = None) -> None:
        """Starts to count.

        Args:
            counts: Training images per class, which classes are grouped by.
            groups: A rule of `equipoise.groups`, or the labels of each group by its name.
            classes: Names of the classes.
        """
        numbers = counts_list(counts)
        self._core = _equipoise.EvaluationCore(numbers, class_names(classes, len(numbers)), groups)
        self._classes = len(numbers)

    def update(self, logits: npt.ArrayLike, labels: npt.ArrayLike) -> None:
        """Counts a batch.

        Args:
            logits: The outputs of the network, batch x classes.
            labels: The class of each row.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: Shapes do not fit, or a label is out of range. Nothing is counted then.
        """
        self._core.add(logits_array(logits), labels_array(labels, self._classes))

    def compute(self) -> dict[str, Any]:
        """The metrics of all batches. Accuracies, F1 and calibration error are in percent; what is not known is `None`.

        Returns:
            `top1`, `top5` (with more than five classes), `balanced` (mean recall of the classes), `macro_f1`,
            `calibration` (expected calibration error, 15 bins), `loss` (mean cross-entropy), `unusable` (images with
            logits that are not finite), `groups` (mean recall by the name of the group) and `per_class` (`name`,
            `train`, `test`, `hits`, `predicted`).
        """
        return plain(json.loads(self.record()))

    def record(self) -> str:
        """The metrics in the JSON of a run folder."""
        return self._core.metrics()

    def reset(self) -> None:
        """Forgets all batches."""
        self._core.reset()

    def __len__(self) -> int:
        """Number of images so far."""
        return self._core.images
