"""Records of an own training loop in the folder format of the program, and the report on them."""

from __future__ import annotations

import json
import math
import os
import platform
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from equipoise import _equipoise
from equipoise._check import Integers, class_names, counts_list, integer, nested
from equipoise.data import Dataset, Groups
from equipoise.data import groups as grouped
from equipoise.metrics import Metrics


class Run:
    """Records a training loop in a run folder, so that `equipoise.report` and `equipoise report` show it.

        run = equipoise.Run("runs/mine", counts=counts, criterion=criterion, model="resnet18", epochs=90)
        for epoch in range(run.epochs_done, 90):
            ...
            metrics = run.metrics()
            metrics.update(logits, labels)          # for every test batch
            run.epoch(loss, learning_rate=optimizer, test=metrics)
        run.finish()

    Files are written at once or not at all, one process owns the folder, and a folder that holds anything else is never
    overwritten. A process that is killed leaves a folder that can be read and continued.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str],
        *,
        dataset: Dataset | str = "dataset",
        counts: Integers | None = None,
        classes: Sequence[str] | None = None,
        groups: Groups | None = None,
        criterion: Any = "softmax",
        model: str = "model",
        epochs: int,
        seed: int = 0,
        settings: Mapping[str, Any] | None = None,
        resume: bool | int = False,
    ) -> None:
        """Starts or continues a run.

        Args:
            folder: The run folder, which must not exist or be empty.
            dataset: The dataset: its name, or an `equipoise.Dataset`, from which counts, classes and groups are taken,
                and names and thumbnails of the test images if it is the test split.
            counts: Training images per class.
            classes: Names of the classes.
            groups: A rule of `equipoise.groups`, or the labels of each group by its name; `rank:4` without it.
            criterion: A criterion of this package, or a name.
            model: Name of the network.
            epochs: Planned number of epochs.
            seed: Seed of the run. Runs that differ in nothing else are one row of a table.
            settings: Anything else that the result depends on, by name. Differences between runs show in the report.
            resume: Whether to continue the run in the folder, after its last epoch, or after this epoch. An empty or
                missing folder starts a run. Nothing is changed before the next epoch is recorded; then the earlier
                result goes.

        Raises:
            FileExistsError: The folder holds something, and `resume` is not set.
            BlockingIOError: Another process writes the run.
            ValueError: An argument cannot be used, or the folder holds another run.
        """
        self.dataset = dataset if isinstance(dataset, Dataset) else None
        if counts is None:
            if self.dataset is None:
                raise TypeError("counts is missing: the number of training images per class")
            counts = self.dataset.counts
        self.counts = counts_list(counts)
        if classes is None and self.dataset is not None:
            classes = self.dataset.classes
        self.classes = class_names(classes, len(self.counts))
        if groups is None:
            groups = "rank:4" if self.dataset is None else self.dataset.groups
        self.groups = grouped(self.counts, groups)
        self.epochs = integer(epochs, "epochs", low=1)
        self.seed = integer(seed, "seed")
        self._settings = self._all_settings(dataset, criterion, model, settings)
        self.path = Path(folder)
        self.history: list[dict[str, Any]] = []
        """The recorded epochs, as in `metrics.jsonl`."""
        # whether the folder holds these epochs and nothing later; a run that is only looked at stays as it is
        self._is_prepared = True
        self._is_closed = False
        self._core = self._open(resume)
        self._evaluated: tuple[int, Any] | None = None
        self._best: tuple[int, Any] | None = None
        self._started = self._last = time.monotonic()
        self._images = 0.0

    def _all_settings(
        self, dataset: Dataset | str, criterion: Any, model: str, settings: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """The configuration of the run."""
        name = dataset.name if isinstance(dataset, Dataset) else str(dataset)
        config = criterion if isinstance(criterion, (str, Mapping)) else getattr(criterion, "config", None)
        if callable(config):
            config = config()
        if config is None:
            raise TypeError(f"criterion must be a name or a criterion of equipoise, not {type(criterion).__name__}")
        table = {"method": config} if isinstance(config, str) else _plain(config)
        given = _plain(nested(settings))
        data = {"dataset": name, **given.pop("data", {})}
        if isinstance(dataset, Dataset):
            subset = ("imbalance", "profile", "subset_seed")
            data |= {key: dataset._arguments[key] for key in subset if dataset._arguments[key] is not None}
        return {
            "command": shlex.join([Path(sys.executable).name or "python", *sys.argv]),
            "seed": self.seed,
            "epochs": self.epochs,
            "data": data,
            "model": {"name": str(model), **given.pop("model", {})},
            "criterion": table,
            **given,
        }

    def _open(self, resume: bool | int) -> Any:
        if resume is False:
            return self._create()
        if not self.path.exists() or not (self.path / "config.toml").exists():
            if resume is not True and resume > 0:
                raise ValueError(f"resume is {resume}, but {self.path} holds no run")
            return self._create()
        core = _equipoise.RunCore.open(self.path)
        if (key := core.difference(self._settings)) is not None:
            core.close()
            raise ValueError(f"{self.path} holds a run with another '{key}': choose another folder")
        # a killed process may not have finished its last line
        lines = [json.loads(line) for line in core.epochs().splitlines(keepends=True) if line.endswith("\n")]
        if resume is not True and len(lines) < integer(resume, "resume"):
            core.close()
            raise ValueError(f"resume is {resume}, but {self.path} holds {len(lines)} epochs")
        self.history = lines if resume is True else lines[:resume]
        self._is_prepared = False
        return core

    def _create(self) -> Any:
        try:
            return _equipoise.RunCore.create(self.path, self._settings)
        except FileExistsError:
            what = f"{self.path} already exists and is not empty"
            hint = "; resume=True continues the run in it" if (self.path / "config.toml").exists() else ""
            raise FileExistsError(f"{what}{hint}") from None

    def _prepare(self) -> None:
        """Prepares the folder of a run that is continued: later epochs, the result and the details go."""
        if not self._is_prepared:
            self._core.keep_epochs(len(self.history))
            self._core.write_config(self._settings)
            self._is_prepared = True

    def _earlier_result(self) -> dict[str, Any] | None:
        """The result of an earlier process, if it is still that of these epochs."""
        path = self.path / "result.json"
        if not path.exists() or len(self.history) < self._core.epochs().count("\n"):
            self._prepare()
        if self._is_prepared:
            return None
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found

    @property
    def epochs_done(self) -> int:
        """Number of recorded epochs."""
        return len(self.history)

    def metrics(self) -> Metrics:
        """Empty metrics for this run's classes and groups."""
        return Metrics(self.counts, groups=self.groups, classes=self.classes)

    def epoch(
        self,
        loss: float,
        *,
        learning_rate: Any,
        test: Any = None,
        val: Any = None,
        images: int | None = None,
        seconds: float | None = None,
    ) -> dict[str, Any]:
        """Records an epoch.

        Args:
            loss: Mean training loss of the epoch.
            learning_rate: Learning rate of the last step: a number, or an optimizer of PyTorch.
            test: Metrics on the test split, or a pair of its logits and labels.
            val: The same on the validation split. The best epoch is then selected on it, by balanced accuracy.
            images: Images that were trained on; the training images without it.
            seconds: Duration of the epoch; the time since the last one without it.

        Returns:
            The record, as in `metrics.jsonl`.

        Raises:
            RuntimeError: All planned epochs are recorded.
            TypeError: An argument has the wrong type.
            ValueError: A number is negative or not finite, or the metrics have other classes. Nothing is recorded then.
        """
        now = time.monotonic()
        if self._is_closed:
            raise RuntimeError("the run is closed")
        if self.epochs_done >= self.epochs:
            planned = f"all {self.epochs} planned epochs are recorded"
            raise RuntimeError(f"{planned}; Run(..., epochs=N) sets another number, also with resume=True")
        seconds = _finite(seconds, "seconds") if seconds is not None else now - self._last
        if seconds < 0:
            raise ValueError(f"seconds is {seconds}; it must be at least 0")
        trained = sum(self.counts) if images is None else integer(images, "images")
        number = self.epochs_done + 1
        evaluated = {"test": self._evaluation(test, "test"), "val": self._evaluation(val, "val")}
        record = {
            "epoch": number,
            "learning_rate": _learning_rate(learning_rate),
            "loss": _finite(loss, "loss"),
            **{split: None if found is None else json.loads(found[0]) for split, found in evaluated.items()},
        }
        speed = trained / seconds if seconds > 0 else 0.0
        times = {"epoch": number, "seconds": seconds, "images_per_second": speed, "ended_at": time.time()}
        self._prepare()
        self._core.add_epoch(json.dumps(record), json.dumps(times))
        self.history.append(record)
        self._images += trained
        self._last = now
        if evaluated["test"] is not None:
            self._evaluated = (number, evaluated["test"][1])
            if self._best_epoch() == number:
                self._best = self._evaluated
        return record

    def _evaluation(self, given: Any, name: str) -> tuple[str, Any] | None:
        """The record of an evaluation and its counts, if they have details."""
        if given is None:
            return None
        if isinstance(given, tuple):
            logits, labels = given
            given = self.metrics()
            given.update(logits, labels)
        if not hasattr(given, "record"):
            raise TypeError(f"{name} must be Metrics or a pair of logits and labels, not {type(given).__name__}")
        text: str = given.record()
        record = json.loads(text)
        if len(record["per_class"]) != len(self.counts):
            raise ValueError(f"{name} has {len(record['per_class'])} classes; the run has {len(self.counts)}")
        core = given._core.copy() if isinstance(given, Metrics) else None
        return text, core

    def _best_epoch(self) -> int | None:
        """The epoch with the best balanced accuracy on the validation split."""
        scored = [(epoch["val"] or {}).get("balanced") for epoch in self.history]
        known = [(score, -number) for number, score in enumerate(scored, 1) if score is not None]
        return -max(known)[1] if known else None

    def finish(self, *, stopped_early: bool = False) -> Path:
        """Writes the result and the page, and closes the folder.

        Args:
            stopped_early: Whether the run ended before its planned epochs because nothing improved.

        Returns:
            The page, `report.html` in the folder.

        Raises:
            RuntimeError: No epoch with metrics on the test split was recorded, so that there is nothing to report.
        """
        if not any(epoch["test"] for epoch in self.history):
            raise RuntimeError(f"{self.path} has nothing to report: no epoch was recorded with test=...")
        earlier = self._earlier_result()
        best = self._best_epoch()
        result = {
            "dataset": self._settings["data"]["dataset"],
            "imbalance": self._settings["data"].get("imbalance"),
            "criterion": self._settings["criterion"].get("method", "unknown"),
            "params": self._settings["criterion"].get("params", {}),
            "drw": self._settings["criterion"].get("drw"),
            "logit_adjustment": 0.0,
            "model": self._settings["model"]["name"],
            "seed": self.seed,
            "subset_seed": self._settings["data"].get("subset_seed", 0),
            "epochs": self.epochs,
            "schedule": None,
            "train_counts": self.counts,
            "last": _epoch_metrics(next((e for e in reversed(self.history) if e["test"]), None)),
            "best": None if best is None else _epoch_metrics(self.history[best - 1]),
            "best_selected_on": None if best is None else "val",
            "stopped_early": bool(stopped_early),
            **self._measurements(),
        }
        if earlier is not None:
            result |= {name: earlier[name] for name in self._measurements() if name in earlier}
            result["stopped_early"] |= earlier["stopped_early"]
            if earlier["epochs"] != self.epochs:
                self._core.write_config(self._settings)
        details = None
        reported = self._evaluated if best is None else self._best
        if reported is not None and reported[1] is not None:
            epoch, core = reported
            described = self.dataset._core if self.dataset is not None and self.dataset.split == "test" else None
            details = core.details(epoch, described)
        self._core.finish(json.dumps(result), details)
        page, _, _ = _equipoise.report_page([self.path], None, False)
        self._core.write_page(page)
        self.close()
        return self.path / "report.html"

    def _measurements(self) -> dict[str, Any]:
        seconds = time.monotonic() - self._started
        threads = os.cpu_count()
        torch = sys.modules.get("torch")
        engine = f"PyTorch {torch.__version__}" if torch is not None else f"Python {platform.python_version()}"
        return {
            "images_per_second": round(self._images / seconds, 1) if seconds > 0 else 0.0,
            "seconds": round(seconds, 1),
            "peak_mb": _peak_mb(),
            "machine": f"{platform.machine()}, {threads} cores",
            "version": f"{_equipoise.__version__} with {engine}",
            "commit": "",
        }

    def close(self) -> None:
        """Gives the folder up, so that it can be continued. Nothing is lost: every epoch is on the disk."""
        self._is_closed = True
        self._core.close()

    def __enter__(self) -> Run:
        """The run."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closes the folder."""
        self.close()

    def __repr__(self) -> str:
        """The folder and the number of epochs."""
        return f"<run {str(self.path)!r}: {self.epochs_done} of {self.epochs} epochs>"


def report(runs: Any, output: str | os.PathLike[str] | None = None, *, baseline: str | None = None) -> Path:
    """Makes the HTML page of `equipoise report`: one file that needs no network.

    Args:
        runs: Run folders or folders with runs below them, of any training loop: paths or `Run`s, one or several.
        output: The page; `report.html` in the folder if there is one, else in the current folder.
        baseline: The row that the others are compared with; `softmax`, else the first, without it.

    Returns:
        The path of the page.
    """
    several = [runs] if isinstance(runs, (str, os.PathLike, Run)) else list(runs)
    paths = [run.path if isinstance(run, Run) else Path(run) for run in several]
    page, _, skipped = _equipoise.report_page(paths, baseline, False)
    for why in skipped:
        warnings.warn(f"skipped: {why}", stacklevel=2)
    target = Path(output) if output is not None else (paths[0] if len(paths) == 1 else Path()) / "report.html"
    _replace(target, page)
    return target


def _replace(target: Path, text: str) -> None:
    """Writes a file at once or not at all."""
    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        # as a plain `open` would have made it
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, 0o666 & ~umask)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise


def _epoch_metrics(epoch: dict[str, Any] | None) -> dict[str, Any] | None:
    if epoch is None or not epoch["test"]:
        return None
    return {"epoch": epoch["epoch"], **epoch["test"], "val_balanced": (epoch["val"] or {}).get("balanced")}


def _plain(value: Any) -> Any:
    """Arrays as lists, mappings as dictionaries without `None`."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items() if item is not None}
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value if isinstance(value, (str, int, float)) else str(value)


def _finite(value: Any, name: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise TypeError(f"{name} must be a number, not {type(value).__name__}") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} is {number}; it must be finite")
    return number


def _learning_rate(given: Any) -> float:
    if hasattr(given, "param_groups"):
        given = given.param_groups[0]["lr"]
    return _finite(given, "learning_rate")


def _peak_mb() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // (2**20 if sys.platform == "darwin" else 2**10)
