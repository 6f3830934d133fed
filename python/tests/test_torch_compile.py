"""Criteria under torch.compile, and the checks of their operators."""

import copy

import pytest
import torch

import equipoise
import equipoise.torch as et
from equipoise.torch import ops

METHODS = [entry["id"] for entry in equipoise.criteria()]
COUNTS = [200, 80, 30, 9, 2]


def batch(seed=0, rows=16):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 7, generator=generator), torch.randint(0, 5, (rows,), generator=generator)


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize("method", METHODS)
def test_opcheck(method):
    criterion = et.Criterion(method, COUNTS)
    x, y = batch()
    runner, z = criterion._runner, x[:, :5].clone().requires_grad_()
    for per_row in (False, True):
        args = (z, y, None, None, None, runner.version, runner.handle, True, per_row)
        assert set(torch.library.opcheck(ops.criterion, args).values()) == {"SUCCESS"}
    mixed = (z, y, y.flip(0), torch.full((16,), 0.3), torch.arange(16), runner.version, runner.handle, True, False)
    assert set(torch.library.opcheck(ops.criterion, mixed).values()) == {"SUCCESS"}
    counting = (runner.version, z.detach(), y, None, None, None, runner.handle)
    assert set(torch.library.opcheck(ops.count_, counting).values()) == {"SUCCESS"}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


# the compiler's own backend needs a C++ compiler and much more time; one test uses it
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_compiled_is_eager_bit_for_bit(method, reduction):
    layer = torch.nn.Linear(7, 5)
    criterion = et.Criterion(method, COUNTS, reduction=reduction)
    twin = copy.deepcopy(criterion)

    def step(criterion, x, y):
        return criterion(layer(x), y).mean()

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        results = []
        for run, module in ((step, criterion), (compiled, twin)):
            layer.zero_grad()
            loss = run(module, *batch(seed))
            loss.backward()
            results.append((loss.detach(), layer.weight.grad.clone(), module.weights))
        for a, b in zip(*results, strict=True):
            torch.testing.assert_close(
                a, b, rtol=0 if reduction == "mean" else 1e-6, atol=0 if reduction == "mean" else 1e-8
            )
        assert same_state(criterion, twin)
    criterion.eval(), twin.eval()
    before = copy.deepcopy(twin)
    assert torch.equal(step(criterion, *batch(9)), compiled(twin, *batch(9)))
    assert same_state(before, twin)


def test_each_call_counts_once_in_the_order_of_the_program():
    """A computation that the next one must not overtake."""
    criterion = et.Seesaw(COUNTS)
    twin = copy.deepcopy(criterion)

    def step(criterion, a, b, y):
        return criterion(a, y) + criterion(b, y) + criterion(a, y)

    compiled = torch.compile(step, fullgraph=True, backend="aot_eager")
    (a, y), (b, _) = batch(0), batch(1)
    a, b = a[:, :5].clone(), b[:, :5].clone()
    for _ in range(2):
        assert torch.equal(step(criterion, a, b, y), compiled(twin, a, b, y))
        assert same_state(criterion, twin)
    assert int(twin._runner.version) == 6


def test_targets_of_every_form_compile():
    criterion = et.Cwap(COUNTS)
    compiled = torch.compile(criterion, fullgraph=True, backend="aot_eager")
    x, y = batch()
    z = x[:, :5].clone()
    dense = 0.3 * torch.nn.functional.one_hot(y, 5) + 0.7 * torch.nn.functional.one_hot(y.flip(0), 5)
    for target in (y, y.int(), dense, (y, y.flip(0), 0.3), (y, y.flip(0), torch.full((16,), 0.3))):
        twin = copy.deepcopy(criterion)
        assert torch.equal(compiled(z, target), twin(z, target))
        assert same_state(criterion, twin)
    assert torch.equal(compiled(z.bfloat16(), y), twin(z.bfloat16(), y))


def test_the_whole_compiler():
    layer, criterion = torch.nn.Linear(7, 5), et.Seesaw(COUNTS)
    twin = copy.deepcopy(criterion)

    @torch.compile(fullgraph=True)
    def step(x, y):
        with torch.autocast("cpu", torch.bfloat16):
            return criterion(layer(x), y)

    for seed in range(2):
        x, y = batch(seed)
        layer.zero_grad()
        loss = step(x, y)
        loss.backward()
        got = layer.weight.grad.clone()
        layer.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            want = twin(layer(x), y)
        want.backward()
        torch.testing.assert_close(loss, want, rtol=1e-2, atol=1e-2)
        torch.testing.assert_close(got, layer.weight.grad, rtol=2e-2, atol=2e-2)
        assert same_state(criterion, twin)


def test_a_batch_that_was_not_computed_last_is_computed_again():
    criterion, twin = et.Seesaw(COUNTS), et.Seesaw(COUNTS)
    x, y = batch()
    z, runner = x[:, :5].clone(), criterion._runner
    ops.criterion(z, y, None, None, None, runner.version, runner.handle, True, False)
    ops.criterion(-z, y.flip(0), None, None, None, runner.version, runner.handle, True, False)
    ops.count_(runner.version, z, y, None, None, None, runner.handle)
    twin(z, y)
    assert same_state(criterion, twin)


def test_a_criterion_that_is_gone():
    x, y = batch()
    with pytest.raises(RuntimeError, match="does not exist any more"):
        ops.criterion(x[:, :5], y, None, None, None, torch.zeros((), dtype=torch.int64), 10**9, True, False)
