"""Criteria on NumPy arrays."""

import copy
import json
import pickle
import subprocess
import threading
import warnings

import numpy as np
import pytest

import equipoise
import golden

METHODS = [entry["id"] for entry in equipoise.criteria()]
COUNTS = [200, 80, 30, 9, 2]


def batch(seed=0, rows=32, classes=5):
    rng = np.random.default_rng(seed)
    return rng.normal(0, 2, (rows, classes)).astype(np.float32), rng.integers(0, classes, rows)


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return np.array_equal(a, b) if isinstance(a, np.ndarray) else a == b


def run_case(case):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        criterion = equipoise.Criterion(case["method"], case["counts"], **golden.options(case))
    for step in case["steps"]:
        if step.get("end_epoch"):
            criterion.end_epoch()
            yield {"end_epoch": True, "state": criterion.state_summary()}
            continue
        logits, labels, second, share, examples = golden.arguments(step)
        call = criterion.train if step.get("train", True) else criterion.evaluate
        mixed = None if second is None else (second, share)
        loss, grad, weights = call(logits, labels, mixed=mixed, examples=examples)
        yield {"loss": loss, "grad": grad, "weights": weights}


def test_golden_cases_are_those_of_the_program_bit_for_bit(binary):
    assert len(golden.CASES) > 100
    for path in golden.CASES:
        case = golden.load(path)
        printed = subprocess.run([binary, "loss", path], capture_output=True, check=True, text=True).stdout
        for ours, theirs in zip(run_case(case), json.loads(printed)["steps"], strict=True):
            if "loss" in ours:
                assert ours["loss"] == theirs["loss"], path.name
                assert np.array_equal(ours["grad"], np.array(theirs["grad"], np.float32)), path.name
                assert np.array_equal(ours["weights"], np.array(theirs["weights"], np.float32)), path.name
            else:
                state = {name: np.asarray(value).tolist() for name, value in ours["state"].items()}
                assert state == theirs["state"], path.name


@pytest.mark.parametrize("path", golden.CASES, ids=lambda path: path.stem)
def test_golden_cases_have_the_expected_values(path):
    case = golden.load(path)
    for ours, want in zip(run_case(case), case["expected"], strict=True):
        if "loss" in ours:
            assert ours["loss"] == pytest.approx(want["loss"], rel=1e-5, abs=1e-6)
            np.testing.assert_allclose(ours["grad"], want["grad"], rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(ours["weights"], want["weights"], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_evaluate_counts_nothing_and_train_counts(method):
    criterion = equipoise.Criterion(method, COUNTS)
    logits, labels = batch()
    before = criterion.state()
    evaluated = criterion.evaluate(logits, labels)
    assert same(before, criterion.state())
    trained = criterion.train(logits, labels)
    assert evaluated.loss == trained.loss and np.array_equal(evaluated.grad, trained.grad)
    has_state = next(entry for entry in equipoise.criteria() if entry["id"] == method)["has_state"]
    assert same(before, criterion.state()) is not has_state


@pytest.mark.parametrize(
    ("method", "params"),
    [*((method, {}) for method in METHODS), ("cwap", {"memory": "live"}), ("cwap", {"memory": "ema"})],
)
def test_state_copies_and_pickles_continue_bit_for_bit(method, params):
    criterion = equipoise.Criterion(method, COUNTS, **params)
    for seed in range(3):
        criterion.train(*batch(seed))
        criterion.end_epoch()
    criterion.train(*batch(3))
    restored = equipoise.Criterion(method, COUNTS, **params)
    restored.restore(criterion.state())
    twins = [restored, copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))]
    want = criterion.train(*batch(4))
    for twin in twins:
        assert twin.epoch == 3
        got = twin.train(*batch(4))
        assert got.loss == want.loss and np.array_equal(got.grad, want.grad)
        assert np.array_equal(got.weights, want.weights)
        assert same(twin.state(), criterion.state())


@pytest.mark.parametrize("method", METHODS)
def test_threads_do_not_change_a_bit(method):
    logits, labels = batch(rows=400, classes=100)
    counts = [300 - 2 * c for c in range(100)]
    results = [equipoise.Criterion(method, counts, threads=n).train(logits, labels) for n in (1, 2, 3)]
    for result in results[1:]:
        assert result.loss == results[0].loss and np.array_equal(result.grad, results[0].grad)


def test_deferred_weights_start_in_their_epoch():
    criterion = equipoise.Criterion("softmax", COUNTS, drw=1)
    logits, labels = batch()
    assert np.all(criterion.train(logits, labels).weights == 1)
    criterion.end_epoch()
    weights = criterion.train(logits, labels).weights
    assert weights[labels == 4].min() > weights[labels == 0].max()
    assert criterion.config["drw"] == {"start_epoch": 1, "beta": 0.9999, "reduction": "weights"}


def test_mixed_labels_mix_the_loss():
    criterion = equipoise.Criterion("balanced-softmax", COUNTS)
    logits, labels = batch()
    second = labels[::-1].copy()
    mixed = criterion.evaluate(logits, labels, mixed=(second, 0.25)).loss
    apart = [criterion.evaluate(logits, y).loss for y in (labels, second)]
    assert mixed == pytest.approx(0.25 * apart[0] + 0.75 * apart[1])
    per_row = np.full(len(labels), 0.25)
    assert criterion.evaluate(logits, labels, mixed=(second, per_row)).loss == mixed


def test_presets_and_parameters():
    assert equipoise.Criterion("cwap", COUNTS).config["params"]["gamma"] == 1.1
    assert equipoise.Criterion("cwap", COUNTS, preset="reference").config["params"]["gamma"] == 0.8
    criterion = equipoise.Criterion("cwap", COUNTS, preset="reference", bins=7)
    assert repr(criterion) == "equipoise.Criterion('cwap (reference, bins 7)', classes=5, epoch=0)"
    assert equipoise.Criterion("equalization", COUNTS, lambda_=0.1).config["params"]["lambda"] == 0.1


def test_other_types_of_numbers_are_converted():
    criterion = equipoise.Criterion("softmax", np.array(COUNTS, np.uint16))
    logits, labels = batch()
    want = criterion.evaluate(logits, labels)
    for z in (logits.astype(np.float64), np.asfortranarray(logits), logits.tolist(), logits.astype(">f4")):
        assert criterion.evaluate(z, labels).loss == want.loss
    for y in (labels.astype(np.uint8), labels.astype(np.int32), labels.tolist(), np.repeat(labels, 2)[::2]):
        assert criterion.evaluate(logits, y).loss == want.loss


def test_threads_of_python_may_share_a_criterion():
    criterion = equipoise.Criterion("seesaw", COUNTS)
    logits, labels = batch()

    def work():
        for _ in range(50):
            criterion.train(logits, labels)

    workers = [threading.Thread(target=work) for _ in range(4)]
    [worker.start() for worker in workers]
    [worker.join() for worker in workers]
    assert criterion.state()["seen"].sum() == 4 * 50 * len(labels)


def test_empty_classes_are_a_warning():
    with pytest.warns(UserWarning, match="class 2 has no training images: its weight is 0"):
        equipoise.Criterion("class-balanced", [5, 3, 0])


LOGITS, LABELS = batch(rows=2)
ERRORS = [
    (lambda: equipoise.Criterion("cwapp", COUNTS), ValueError, "unknown criterion 'cwapp'; did you mean 'cwap'?"),
    (lambda: equipoise.Criterion(3, COUNTS), TypeError, "method must be a string, not int"),
    (lambda: equipoise.Criterion("cwap", COUNTS, preset="papr"), ValueError, "preset is 'papr'"),
    (
        lambda: equipoise.Criterion("cwap", COUNTS, alhpa=1),
        TypeError,
        "alhpa: unknown parameter; did you mean 'alpha'?",
    ),
    (lambda: equipoise.Criterion("cwap", COUNTS, bins="a"), TypeError, "bins: invalid type"),
    (lambda: equipoise.Criterion("cwap", COUNTS, bins=0), ValueError, "bins is 0; it must be from 1 to 10000"),
    (lambda: equipoise.Criterion("cwap", COUNTS, alpha=float("nan")), ValueError, "alpha must be finite"),
    (lambda: equipoise.Criterion("cwap", COUNTS, margin="both"), ValueError, "margin: unknown value 'both'"),
    (lambda: equipoise.Criterion("cwap", COUNTS, params={"bins": 3}, bins=4), TypeError, "bins: given twice"),
    (lambda: setattr(equipoise.Criterion("cwap", COUNTS), "epoch", -1), ValueError, "epoch is -1"),
    (lambda: setattr(equipoise.Criterion("cwap", COUNTS), "epoch", 1.5), TypeError, "epoch must be a whole number"),
    (lambda: equipoise.Criterion("cwap", COUNTS, threads=-1), ValueError, "threads is -1"),
    (lambda: equipoise.Criterion("cwap", COUNTS, drw={"start": 1}), ValueError, "drw: unknown name 'start'"),
    (
        lambda: equipoise.Criterion("cwap", COUNTS, drw="late"),
        TypeError,
        "drw must be an epoch or a mapping with 'start_epoch', not str",
    ),
    (lambda: equipoise.Criterion("cwap", [5]), ValueError, "counts: got 1 classes"),
    (lambda: equipoise.Criterion("cwap", [0, 0]), ValueError, "counts: every class is empty"),
    (lambda: equipoise.Criterion("cwap", [5, -1]), ValueError, r"counts\[1\] is -1"),
    (lambda: equipoise.Criterion("cwap", [5.5, 1.0]), TypeError, "counts must be whole numbers, not float64"),
    (lambda: equipoise.Criterion("cwap", [[5, 1]]), ValueError, "counts must have 1 dimension, not 2"),
    (lambda: equipoise.Criterion("cwap", "many"), TypeError, "counts must be whole numbers"),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS[0], LABELS), ValueError, "logits must have 2 dim"),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS[:, :4], LABELS), ValueError, "4 columns for 5 cl"),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS[:1]),
        ValueError,
        "labels has 1 entries for 2",
    ),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, [0, 5]),
        ValueError,
        r"labels\[1\] is 5; there are 5",
    ),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, [0, -1]), ValueError, r"labels\[1\] is -1"),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, [0.0, 1.0]), TypeError, "labels must be whole"),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS * np.nan, LABELS),
        ValueError,
        r"logits\[0\]\[\d\] is N",
    ),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS.astype(str), LABELS), TypeError, "logits must be fl"),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS[:0], LABELS[:0]),
        ValueError,
        "labels: the batch is e",
    ),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS, mixed=(LABELS, 1.5)),
        ValueError,
        r"d\[1\]\[0\]",
    ),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS, mixed=([0, 9], 0.5)),
        ValueError,
        r"d\[0\]\[1\]",
    ),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS, mixed=3), TypeError, "mixed must be a tuple"),
    (lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS, examples=[0]), ValueError, "examples has 1"),
    (
        lambda: equipoise.Criterion("softmax", COUNTS).train(LOGITS, LABELS, examples=[0, -2]),
        ValueError,
        r"examples\[1\]",
    ),
    (lambda: equipoise.Criterion("cwap", COUNTS).restore(3), TypeError, "state must be a mapping, not int"),
    (lambda: equipoise.Criterion("cwap", COUNTS).restore({}), ValueError, "state: 'epoch' is missing"),
    (
        lambda: equipoise.Criterion("cwap", COUNTS).restore(equipoise.Criterion("seesaw", COUNTS).state()),
        ValueError,
        "state: it belongs to 'seesaw', but the criterion is 'cwap'",
    ),
    (
        lambda: equipoise.Criterion("cwap", COUNTS).restore(equipoise.Criterion("cwap", COUNTS, bins=3).state()),
        ValueError,
        "state",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_errors_name_the_argument(call, kind, message):
    with pytest.raises(kind, match=message):
        call()
