import contextlib
import copy
import importlib
import json
import multiprocessing
import os
import pickle
import sys

import numpy as np
import pytest

import equipoise

COUNTS = [500, 200, 80, 40, 20, 10, 5]


def batch(rows, seed=0):
    random = np.random.default_rng(seed)
    labels = random.integers(0, len(COUNTS), rows)
    logits = random.normal(size=(rows, len(COUNTS))).astype(np.float32)
    logits[np.arange(rows), labels] += 1.5
    return logits, labels


def test_against_plain_numpy():
    logits, labels = batch(3000)
    metrics = equipoise.Metrics(COUNTS, groups="rank:3", classes=list("abcdefg"))
    for start in range(0, 3000, 700):
        metrics.update(logits[start : start + 700], labels[start : start + 700])
    assert len(metrics) == 3000
    found = metrics.compute()
    predicted = logits.argmax(1)
    recalls = [100 * (predicted[labels == c] == c).mean() for c in range(7)]
    assert found["top1"] == pytest.approx(100 * (predicted == labels).mean())
    assert found["balanced"] == pytest.approx(np.mean(recalls))
    groups = equipoise.groups(COUNTS, "rank:3")
    assert found["groups"] == pytest.approx({name: np.mean([recalls[c] for c in own]) for name, own in groups.items()})
    top5 = (logits >= np.sort(logits)[:, -5:-4])[np.arange(3000), labels].mean()
    assert found["top5"] == pytest.approx(100 * top5)
    shares = np.exp(logits.astype(float) - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    assert found["loss"] == pytest.approx(-np.log(shares[np.arange(3000), labels]).mean())
    confidence, bins = shares.max(1), np.ceil(shares.max(1) * 15)
    gaps = [abs(((predicted == labels)[bins == b] - confidence[bins == b]).sum()) for b in range(1, 16)]
    assert found["calibration"] == pytest.approx(100 * sum(gaps) / 3000)
    row = found["per_class"][2]
    want = {"train": 80, "test": (labels == 2).sum(), "predicted": (predicted == 2).sum()}
    assert row["name"] == "c" and all(row[key] == value for key, value in want.items())
    sklearn = pytest.importorskip("sklearn.metrics")
    assert found["macro_f1"] == pytest.approx(100 * sklearn.f1_score(labels, predicted, average="macro"))


def test_reset_and_unknown_values():
    metrics = equipoise.Metrics(COUNTS)
    assert metrics.compute()["top1"] is None and metrics.compute()["groups"]["Rare"] is None
    logits, labels = batch(10)
    logits[3, 2] = np.nan
    metrics.update(logits, labels)
    assert metrics.compute()["unusable"] == 1
    metrics.reset()
    assert len(metrics) == 0 and metrics.compute()["loss"] is None


def test_bad_batches_are_refused_and_not_counted():
    metrics = equipoise.Metrics(COUNTS)
    logits, labels = batch(4)
    for arguments, kind, message in (
        ((logits[:, :3], labels), ValueError, "logits has 3 columns; there are 7 classes"),
        ((logits, labels[:3]), ValueError, "labels: the length is 3; it must be 4"),
        ((logits[0], labels), ValueError, "logits must have 2 dimensions"),
        ((logits, [0, 1, 2, 7]), ValueError, r"labels\[3\] is 7; there are 7 classes"),
        ((logits, [0, 1, 2, -1]), ValueError, r"labels\[3\] is -1"),
        ((logits, [0.0, 1.0, 2.0, 3.0]), TypeError, "labels must be whole numbers"),
        ((logits.astype(str), labels), TypeError, "logits must be numbers"),
    ):
        with pytest.raises(kind, match=message):
            metrics.update(*arguments)
    assert len(metrics) == 0
    with pytest.raises(ValueError, match="classes has 1 names; counts has 7 classes"):
        equipoise.Metrics(COUNTS, classes=["a"])
    with pytest.raises(ValueError, match="groups = "):
        equipoise.Metrics(COUNTS, groups="none")


@contextlib.contextmanager
def metrics_class(installed):
    """The class as it is with and without torchmetrics."""
    import equipoise.torch.metrics as module

    known = sys.modules.get("torchmetrics")
    try:
        if not installed:
            sys.modules["torchmetrics"] = None
            importlib.reload(module)
        yield module.Metrics
    finally:
        if not installed:
            sys.modules.pop("torchmetrics")
            if known is not None:
                sys.modules["torchmetrics"] = known
            importlib.reload(module)


@pytest.mark.parametrize("installed", [True, False])
def test_tensors(installed):
    torch = pytest.importorskip("torch")
    if installed:
        pytest.importorskip("torchmetrics")
    with metrics_class(installed) as kind:
        assert ("torchmetrics" in {base.__module__.split(".")[0] for base in kind.__mro__}) == installed
        logits, labels = (torch.from_numpy(array) for array in batch(300))
        metrics, plain = kind(COUNTS), equipoise.Metrics(COUNTS)
        plain.update(logits, labels)
        metrics.update(logits[:100].bfloat16(), labels[:100])
        metrics.reset()
        for i in (0, 100, 200):
            metrics.update(logits[i : i + 100].requires_grad_(), labels[i : i + 100])
        assert metrics.details() == plain.compute() and metrics.record() == plain.record()
        found = metrics.compute()
        assert float(found["balanced"]) == pytest.approx(plain.compute()["balanced"]) and "group/Rare" in found
        assert pickle.loads(pickle.dumps(metrics)).record() == metrics.record()
        assert copy.deepcopy(metrics).record() == metrics.record()
        for bad in ((logits[:, :2], labels), (logits, labels + 7), (logits[0], labels)):
            with pytest.raises(ValueError, match="logits|target"):
                metrics.update(*bad)
        assert metrics.record() == plain.record()


@pytest.mark.parametrize("installed", [True, False])
def test_a_call_returns_the_batch_and_counts_it(installed):
    torch = pytest.importorskip("torch")
    if installed:
        pytest.importorskip("torchmetrics")
    with metrics_class(installed) as kind:
        logits, labels = (torch.from_numpy(array) for array in batch(300))
        metrics = kind(COUNTS)
        whole = equipoise.Metrics(COUNTS)
        for i in (0, 100, 200):
            own = equipoise.Metrics(COUNTS)
            rows = slice(i, i + 100)
            own.update(logits[rows], labels[rows])
            whole.update(logits[rows], labels[rows])
            found = metrics(logits[rows], labels[rows])
            assert float(found["top1"]) == pytest.approx(own.compute()["top1"])
            assert metrics.record() == whole.record() and metrics.details() == whole.compute()
            assert float(metrics.compute()["top1"]) == pytest.approx(whole.compute()["top1"])
        metrics.update(logits[:100], labels[:100])
        whole.update(logits[:100], labels[:100])
        assert metrics.record() == whole.record()
        with pytest.raises(ValueError, match="target"):
            metrics(logits, labels + 7)
        if not installed:
            assert metrics.record() == whole.record()


def process(rank, folder):
    import torch.distributed

    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    logits, labels = (torch.from_numpy(array) for array in batch(500))
    own = slice(0, 180) if rank == 0 else slice(180, 500)
    for installed in (True, False):
        with metrics_class(installed) as kind:
            metrics = kind(COUNTS)
            # a call is that of one process
            for row in range(10 * rank):
                metrics(logits[own][row : row + 1], labels[own][row : row + 1])
            metrics.update(logits[own][10 * rank :], labels[own][10 * rank :])
            metrics.compute()
            # no other process needs to take part in this
            if rank == 0:
                (folder / f"{installed}.json").write_text(metrics.record())
    torch.distributed.destroy_process_group()
    # gloo's threads may outlive their group, and abort the process when the interpreter is torn down
    os._exit(0)


def test_two_processes_count_what_one_does(tmp_path):
    pytest.importorskip("torchmetrics")
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=process, args=(rank, tmp_path)) for rank in range(2)]
    for each in processes:
        each.start()
    for each in processes:
        each.join(120)
        assert each.exitcode == 0
    one = equipoise.Metrics(COUNTS)
    one.update(*batch(500))
    for installed in (True, False):
        assert (tmp_path / f"{installed}.json").read_text() == one.record()


def test_lightning_can_log_it():
    torchmetrics = pytest.importorskip("torchmetrics")
    import torch

    from equipoise.torch.metrics import Metrics

    collection = torchmetrics.MetricCollection({"test": Metrics(COUNTS)})
    logits, labels = batch(50)
    collection.update(torch.from_numpy(logits), torch.from_numpy(labels))
    found = collection.compute()
    assert {"top1", "group/Many"} <= {name.removeprefix("test_") for name in found}
    assert json.loads(collection["test"].record())["top1"] == pytest.approx(
        float(next(value for name, value in found.items() if name.endswith("top1"))), abs=1e-4
    )
    assert pickle.loads(pickle.dumps(collection)).compute().keys() == found.keys()
