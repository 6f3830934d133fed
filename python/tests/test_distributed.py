"""Two processes (gloo) against one: equal state, equal loss, equal gradients."""

import copy
import os
import pickle
import socket
import subprocess
import sys

import pytest
import torch
from torch import distributed as dist

import equipoise
import equipoise.torch as et

COUNTS = [200, 80, 30, 9, 2]
CASES = [(entry["id"], {}) for entry in equipoise.criteria()] + [
    ("cwap", {"memory": "live"}),
    ("cwap", {"memory": "ema"}),
    ("cwap", {"normalize": "batch-mean"}),
    ("ghm", {"form": "sigmoid"}),
    ("equalization", {"lambda": 0.2}),
    ("class-balanced", {"drw": 1}),
]
# rows of rank 0 and rank 1 in each step: equal, unequal, and none at all
SIZES = [(8, 8), (11, 5), (16, 0), (3, 13)]


def make(method, params, **options):
    params = dict(params)
    return et.Criterion(method, COUNTS, drw=params.pop("drw", None), params=params, **options)


def data(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(16, 7, generator=generator), torch.randint(0, 5, (16,), generator=generator)


def network():
    torch.manual_seed(0)
    return torch.nn.Linear(7, 5)


def own(tensor, rank, size):
    return tensor[: size[0]] if rank == 0 else tensor[size[0] :]


def target_of(y, mixed):
    return (y, (y + 1) % 5, 0.3) if mixed else y


def alone(method, params):
    """What one process gets."""
    layer, criterion = network(), make(method, params)
    for step, _ in enumerate(SIZES):
        x, y = data(step)
        layer.zero_grad()
        loss = criterion(layer(x), target_of(y, step == 3))
        loss.backward()
        yield loss.item(), layer.weight.grad.clone(), criterion.weights, criterion.state_dict()
        if step == 1:
            criterion.end_epoch()


def together(rank, method, params, compiled=False):
    """What one of two processes gets, with DistributedDataParallel."""
    layer, criterion = torch.nn.parallel.DistributedDataParallel(network()), make(method, params)
    call = torch.compile(criterion, fullgraph=True, backend="aot_eager") if compiled else criterion
    for step, size in enumerate(SIZES):
        x, y = (own(tensor, rank, size) for tensor in data(step))
        layer.zero_grad()
        loss = call(layer(x), target_of(y, step == 3))
        loss.backward()
        yield loss.item(), layer.module.weight.grad.clone(), criterion.weights, criterion.state_dict()
        if step == 1:
            criterion.end_epoch()


def rows_alone(rank, method):
    """The losses of rows: their mean over both processes is the loss."""
    criterion = make(method, {}, reduction="none")
    x, y = data(0)
    z = own(x[:, :5].clone(), rank, (8, 8)).requires_grad_()
    losses = criterion(z, own(y, rank, (8, 8)))
    losses.mean().backward()
    return losses.detach(), z.grad


# what rank 1 gets wrong, and how its error begins
BAD = {
    "columns": (lambda z, y: (z[:, :3], y), "ValueError: logits have shape"),
    "nan": (lambda z, y: (z * torch.nan, y), "ValueError: logits[0]"),
    "nan in row 3": (
        lambda z, y: (torch.where((torch.arange(8) == 3)[:, None], torch.nan, z), y),
        "ValueError: logits[3]",
    ),
    "labels": (lambda z, y: (z, y + 9), "ValueError: target[0]"),
    "share": (lambda z, y: (z, (y, y, 1.5)), "ValueError: target[2][0]"),
    "list": (lambda z, y: (z, y.tolist()), "TypeError: target must be a tensor"),
    "tuple of 2": (lambda z, y: (z, (y, y)), "TypeError: target must be a tensor"),
    "float labels": (lambda z, y: (z, y.float()), "ValueError: target must be class indices"),
    "dense columns": (lambda z, y: (z, torch.ones(8, 2) / 2), "ValueError: target has 2 columns for 5 classes"),
    "dense integers": (lambda z, y: (z, torch.nn.functional.one_hot(y, 5)), "TypeError: target: a dense target"),
    "NumPy logits": (lambda z, y: (z.numpy(), y), "TypeError: logits must be a tensor"),
    "integer logits": (lambda z, y: (z.long(), y), "TypeError: logits must be floating-point"),
    "3 dimensions": (lambda z, y: (z[None], y), "ValueError: logits has shape"),
    "examples": (lambda z, y: (z, y, [1]), "TypeError: examples must be a tensor"),
    "negative example": (lambda z, y: (z, y, torch.arange(8) - 5), "ValueError: examples[0]"),
}


def failures(rank):
    """A process with a bad batch has its own error; the other one does not wait for it."""
    messages = {}
    for method in ("softmax", "cwap"):
        criterion = make(method, {})
        for name, (bad, _) in BAD.items():
            x, y = data(0)
            z, y = x[:8, :5], y[:8]
            logits, target, *examples = bad(z, y) if rank == 1 else (z, y)
            # examples count if every process has them
            examples = examples[0] if examples else torch.arange(8)
            try:
                criterion(logits, target, examples=examples)
            except (TypeError, ValueError, RuntimeError) as error:
                messages[method, name] = f"{type(error).__name__}: {error}"
        messages[method, "state"] = criterion.state_dict()
        # the next batch is good again
        messages[method, "loss"] = criterion(z, y).item()
    return messages


def worker(rank, path):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    results = {(method, str(params)): list(together(rank, method, params)) for method, params in CASES}
    for method in ("softmax", "seesaw"):
        results["compiled", method] = list(together(rank, method, {}, compiled=True))
        results["rows", method] = rows_alone(rank, method)
    staged = make("cwap", {})
    staged._runner.staged = True
    x, y = data(0)
    results["staged"] = staged(own(x[:, :5], rank, (8, 8)), own(y, rank, (8, 8))).item()
    results["failures"] = failures(rank)
    evaluating = make("seesaw", {}).eval()
    if rank == 0:
        # no other process takes part
        results["eval"] = evaluating(x[:8, :5], y[:8]).item()
        results["local"] = make("seesaw", {}, distributed=False)(x[:8, :5], y[:8]).item()
    results["copy"] = copy.deepcopy(make("cwap", {}))(own(x[:, :5], rank, (8, 8)), own(y, rank, (8, 8))).item()
    with open(f"{path}/{rank}", "wb") as file:
        pickle.dump(results, file)
    dist.destroy_process_group()
    # gloo's threads may outlive their group, and abort the process when the interpreter is torn down
    os._exit(0)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory):
    path = tmp_path_factory.mktemp("ranks")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, __file__]
    processes = [subprocess.Popen([*command, str(rank), str(path)], env=environment) for rank in range(2)]
    try:
        for process in processes:
            assert process.wait(timeout=300) == 0
    finally:
        for process in processes:
            process.kill()
    results = []
    for rank in range(2):
        with open(path / str(rank), "rb") as file:
            results.append(pickle.load(file))
    return results


@pytest.mark.parametrize(("method", "params"), CASES, ids=[f"{method}{params or ''}" for method, params in CASES])
def test_two_processes_are_one(ranks, method, params):
    exact = make(method, params)._runner.core.has_state
    steps = zip(alone(method, params), *(result[method, str(params)] for result in ranks), strict=True)
    for (loss, grad, weights, state), first, second in steps:
        assert first[0] == second[0]
        assert loss == first[0] if exact else loss == pytest.approx(first[0], rel=1e-6)
        torch.testing.assert_close(first[1], grad, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(second[1], grad, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(torch.cat([first[2], second[2]]), weights, rtol=0, atol=0)
        for theirs in (first[3], second[3]):
            assert theirs.keys() == state.keys() and all(torch.equal(theirs[name], state[name]) for name in state)


@pytest.mark.parametrize("method", ["softmax", "seesaw"])
def test_compiled(ranks, method):
    for (loss, grad, _, state), first in zip(alone(method, {}), ranks[0]["compiled", method], strict=True):
        assert loss == pytest.approx(first[0], rel=1e-6)
        torch.testing.assert_close(first[1], grad, rtol=1e-5, atol=1e-7)
        assert all(torch.equal(first[3][name], state[name]) for name in state)


@pytest.mark.parametrize("method", ["softmax", "seesaw"])
def test_losses_of_rows(ranks, method):
    criterion = make(method, {}, reduction="none")
    x, y = data(0)
    z = x[:, :5].clone().requires_grad_()
    losses = criterion(z, y)
    losses.mean().backward()
    torch.testing.assert_close(torch.cat([result["rows", method][0] for result in ranks]), losses.detach())
    # each process takes the mean over its half, and DistributedDataParallel that of both
    torch.testing.assert_close(torch.cat([result["rows", method][1] for result in ranks]) / 2, z.grad)


@pytest.mark.parametrize("method", ["softmax", "cwap"])
def test_a_bad_batch_stops_every_process(ranks, method):
    good, bad = (result["failures"] for result in ranks)
    for name, (_, begin) in BAD.items():
        assert bad[method, name].startswith(begin), name
        assert good[method, name] == "RuntimeError: rank 1 could not use its batch; its own error says why", name
    fresh = make(method, {}).state_dict()
    for result in (good, bad):
        assert all(torch.equal(result[method, "state"][name], value) for name, value in fresh.items())
    x, y = data(0)
    want = make(method, {})(x[:8, :5].repeat(2, 1), y[:8].repeat(2)).item()
    assert good[method, "loss"] == bad[method, "loss"] == pytest.approx(want, rel=1e-6)


def test_evaluation_and_local_batches_need_no_other_process(ranks):
    x, y = data(0)
    want = make("seesaw", {})(x[:8, :5], y[:8]).item()
    assert ranks[0]["eval"] == ranks[0]["local"] == want


def test_staging_and_copies(ranks):
    x, y = data(0)
    want = make("cwap", {})(x[:, :5], y).item()
    assert [result[name] for result in ranks for name in ("staged", "copy")] == [want] * 4


if __name__ == "__main__":
    worker(int(sys.argv[1]), sys.argv[2])
