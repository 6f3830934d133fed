"""The interpreter survives whatever is passed: 100,000 random calls, most of them wrong."""

import random
import warnings

import numpy as np
import torch

import equipoise
import equipoise.torch as et

METHODS = [entry["id"] for entry in equipoise.criteria()]
ENTRIES = {entry["id"]: entry for entry in equipoise.criteria()}
EXPECTED = (TypeError, ValueError, RuntimeError, OverflowError, IndexError)


def junk(rng):
    """Something that hardly any argument can be."""
    choices = (
        None,
        True,
        -1,
        0,
        2**70,
        1.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        b"x",
        [],
        {},
        (1,),
        object(),
        [[1], 2],
    )
    arrays = (
        lambda: np.zeros(rng.randrange(4), rng.choice(["f4", "f8", "i8", "u8", "O", "U3", "?", "c8", "M8[s]"])),
        lambda: np.full((rng.randrange(4), 3), rng.choice([0, -1, np.nan, 1e38]), rng.choice(["f4", "f2", ">f4"])),
        lambda: np.frombuffer(bytes(25), np.float32, 6, offset=1).reshape(2, 3),
        lambda: np.zeros((2, 6), np.float32)[:, ::2],
    )
    return rng.choice(arrays)() if rng.random() < 0.4 else rng.choice(choices)


def make(rng, kind):
    method = rng.choice(METHODS)
    counts = [rng.randrange(50) for _ in range(rng.choice([0, 1, 3, 3, 3, 3]))]
    options = {}
    for name in rng.sample(sorted(ENTRIES[method]["parameters"]), min(2, len(ENTRIES[method]["parameters"]))):
        options[name] = rng.choice([0, 1, 2.5, -1, 1e300, "softmax", "live", True, None, junk(rng)])
    if rng.random() < 0.2:
        options[rng.choice(["preset", "drw", "threads", "params", "nothing"])] = junk(rng)
    return kind(method if rng.random() < 0.95 else junk(rng), counts if rng.random() < 0.95 else junk(rng), **options)


def call(rng, criterion):
    rows = rng.randrange(5)
    logits = np.array([[rng.gauss(0, 3) for _ in range(3)] for _ in range(rows)], np.float32).reshape(rows, 3)
    labels = np.array([rng.randrange(3) for _ in range(rows)], np.int64)
    if rng.random() < 0.3:
        logits = junk(rng)
    if rng.random() < 0.3:
        labels = junk(rng)
    if isinstance(criterion, equipoise.Criterion):
        mixed = rng.choice([None, None, junk(rng), (labels, 0.5), (labels, junk(rng)), (junk(rng), junk(rng))])
        run = criterion.train if rng.random() < 0.5 else criterion.evaluate
        return run(logits, labels, mixed=mixed, examples=rng.choice([None, None, None, labels, junk(rng)]))
    z = tensor(logits)
    y = rng.choice([tensor(labels), (tensor(labels), tensor(labels), rng.random()), labels, z])
    if isinstance(z, torch.Tensor) and z.is_floating_point() and rng.random() < 0.5:
        z.requires_grad_()
    loss = criterion.train(rng.random() < 0.5)(z, y)
    return loss.backward() if loss.requires_grad else loss


def tensor(value):
    try:
        return torch.from_numpy(value.copy())
    except (AttributeError, TypeError, ValueError):
        return value


def test_a_hundred_thousand_random_calls():
    rng = random.Random(0)
    worked = refused = 0
    criteria = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while worked + refused < 100_000:
            try:
                if not criteria or rng.random() < 0.03:
                    criteria.append(make(rng, rng.choice([equipoise.Criterion, et.Criterion])))
                    criteria = criteria[-20:]
                elif rng.random() < 0.02:
                    a, b = rng.choice(criteria), rng.choice(criteria)
                    a.restore(b.state() if rng.random() < 0.7 else junk(rng))
                elif rng.random() < 0.02:
                    rng.choice(criteria).end_epoch()
                else:
                    call(rng, rng.choice(criteria))
                worked += 1
            except EXPECTED as error:
                assert "panic" not in str(error).lower()
                refused += 1
    assert worked > 20_000 and refused > 20_000
