"""Criteria as modules of PyTorch, in eager mode."""

import copy
import io
import pickle
import warnings

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import autograd_reference
import equipoise
import equipoise.torch as et
import golden
from equipoise.torch import methods, runner

METHODS = [entry["id"] for entry in equipoise.criteria()]
STATEFUL = [entry["id"] for entry in equipoise.criteria() if entry["has_state"]]
COUNTS = [200, 80, 30, 9, 2]


def batch(seed=0, rows=32, classes=5):
    generator = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(rows, classes, generator=generator)
    return logits.requires_grad_(), torch.randint(0, classes, (rows,), generator=generator)


def same_state(a, b):
    a, b = a.state_dict(), b.state_dict()
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def test_golden_cases_are_those_of_arrays_bit_for_bit():
    for path in golden.CASES:
        case = golden.load(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours = et.Criterion(case["method"], case["counts"], **golden.options(case))
            theirs = equipoise.Criterion(case["method"], case["counts"], **golden.options(case))
        for step in case["steps"]:
            if step.get("end_epoch"):
                ours.end_epoch()
                theirs.end_epoch()
                continue
            training = step.get("train", True)
            logits, labels, second, share, examples = golden.arguments(step)
            if second is not None:
                # modules take a pair of equal labels for that label, as in dense targets
                share = np.where(labels == second, np.float32(1), share)
            mixed = None if second is None else (second, share)
            want = (theirs.train if training else theirs.evaluate)(logits, labels, mixed=mixed, examples=examples)
            z = torch.from_numpy(logits).requires_grad_()
            target = torch.from_numpy(labels)
            if mixed:
                target = (target, torch.from_numpy(second), torch.from_numpy(share))
            index = None if examples is None else torch.from_numpy(examples)
            loss = ours.train(training)(z, target, examples=index)
            loss.backward()
            assert loss.item() == np.float32(want.loss), path.name
            assert np.array_equal(z.grad.numpy(), want.grad), path.name
            assert np.array_equal(ours.weights.numpy(), want.weights), path.name


@pytest.mark.parametrize("method", METHODS)
def test_gradients_are_those_of_autograd_in_double_precision(method, reference):
    model = getattr(reference, methods.class_name(method))({"lambda": 0.05} if method == "equalization" else {}, COUNTS)
    criterion = et.Criterion(
        method, COUNTS, preset="printed", params={"lambda": 0.05} if method == "equalization" else None
    )
    for seed in range(6):
        z, y = batch(seed)
        rows = [(row, [(label, 1.0)], i) for i, (row, label) in enumerate(zip(z.tolist(), y.tolist(), strict=True))]
        model.late = [1.0] * len(COUNTS)
        model.begin(rows, seed // 3)
        double = z.detach().double().requires_grad_()
        want = autograd_reference.loss(model, double, y)
        want.backward()
        model.finish(rows)
        loss = criterion(z, y)
        loss.backward()
        assert loss.item() == pytest.approx(want.item(), rel=1e-5)
        torch.testing.assert_close(z.grad.double(), double.grad, rtol=1e-4, atol=2e-6)
        if seed == 2:
            model.end_epoch()
            criterion.end_epoch()


def test_softmax_is_cross_entropy():
    z, y = batch()
    loss = et.Softmax(COUNTS)(z, y)
    torch.testing.assert_close(loss, F.cross_entropy(z, y))
    (grad,) = torch.autograd.grad(loss, z)
    torch.testing.assert_close(grad, torch.autograd.grad(F.cross_entropy(z, y), z)[0])


@pytest.mark.parametrize("method", METHODS)
def test_losses_of_rows_average_to_the_loss_with_its_gradient(method):
    z, y = batch()
    rows = et.Criterion(method, COUNTS, reduction="none")(z, y)
    mean = et.Criterion(method, COUNTS)(z, y)
    assert rows.shape == (32,)
    torch.testing.assert_close(rows.mean(), mean)
    (a,) = torch.autograd.grad(rows.mean(), z)
    (b,) = torch.autograd.grad(mean, z)
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-8)
    # rows have gradients of their own: that of one row alone
    (one,) = torch.autograd.grad(et.Criterion(method, COUNTS, reduction="none")(z, y)[3], z)
    torch.testing.assert_close(one[3], 32 * b[3], rtol=1e-4, atol=1e-7)
    assert one[:3].abs().max() == 0 and one[4:].abs().max() == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_class_per_method(method):
    made = methods.BY_METHOD[method]
    assert getattr(et, made.__name__) is made and made.__name__ in et.__all__
    z, y = batch()
    criterion = made(COUNTS, preset="reference")
    assert torch.equal(criterion(z, y), et.Criterion(method, COUNTS, preset="reference")(z, y))
    entry = next(entry for entry in equipoise.criteria() if entry["id"] == method)
    for text in (*entry["sections"], *entry["parameters"], "Equation"):
        assert text in made.__doc__
    assert type(copy.deepcopy(criterion)) is made


def test_stubs_of_the_classes_are_up_to_date(monkeypatch):
    monkeypatch.syspath_prepend(golden.FOLDER.parents[3] / "python" / "tools")
    import make_stubs

    assert make_stubs.PATH.read_text() == make_stubs.stubs()


@pytest.mark.parametrize("method", METHODS)
def test_eval_never_counts(method):
    criterion = et.Criterion(method, COUNTS).eval()
    twin = copy.deepcopy(criterion)
    for seed in range(3):
        criterion(*batch(seed)).backward()
        with torch.no_grad():
            criterion(*batch(seed))
    assert same_state(criterion, twin)


@pytest.mark.parametrize(
    ("method", "params"), [*((m, {}) for m in METHODS), ("cwap", {"memory": "live"}), ("cwap", {"memory": "ema"})]
)
def test_state_dict_copy_and_pickle_continue_bit_for_bit(method, params):
    criterion = et.Criterion(method, COUNTS, **params)
    for seed in range(3):
        criterion(*batch(seed))
        criterion.end_epoch()
    criterion(*batch(3))
    file = io.BytesIO()
    torch.save(torch.nn.ModuleDict({"criterion": criterion}).state_dict(), file)
    file.seek(0)
    loaded = torch.nn.ModuleDict({"criterion": et.Criterion(method, COUNTS, **params)})
    loaded.load_state_dict(torch.load(file, weights_only=True))
    twins = [loaded["criterion"], copy.deepcopy(criterion), pickle.loads(pickle.dumps(criterion))]
    assert same_state(criterion, twins[0])
    z, y = batch(4)
    want = criterion(z, y)
    (gradient,) = torch.autograd.grad(want, z)
    for twin in twins:
        got = twin(z, y)
        assert torch.equal(got, want) and torch.equal(torch.autograd.grad(got, z)[0], gradient)
        assert same_state(twin, criterion) and twin.epoch == 3


def test_a_state_of_another_method_is_refused():
    with pytest.raises(RuntimeError, match="it belongs to 'seesaw', but the criterion is 'cwap'"):
        et.Cwap(COUNTS).load_state_dict(et.Seesaw(COUNTS).state_dict())
    with pytest.raises(RuntimeError, match="Unexpected key.*seesaw.seen"):
        et.Softmax(COUNTS).load_state_dict(et.Seesaw(COUNTS).state_dict())
    with pytest.raises(RuntimeError, match="state.*length"):
        et.Seesaw(COUNTS).load_state_dict(et.Seesaw([3, 2]).state_dict())
    criterion = et.Cwap(COUNTS)
    with pytest.raises(RuntimeError, match="Missing key.*cwap.counts"):
        criterion.load_state_dict({})
    criterion.load_state_dict({}, strict=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_other_precisions_go_in_and_float32_comes_out(dtype):
    z, y = batch()
    low = z.detach().to(dtype).requires_grad_()
    loss = et.Cwap(COUNTS)(low, y)
    loss.backward()
    assert loss.dtype is torch.float32 and low.grad.dtype is dtype
    z = low.detach().float().requires_grad_()
    want = et.Cwap(COUNTS)(z, y)
    want.backward()
    assert torch.equal(loss, want) and torch.equal(low.grad, z.grad.to(dtype))


def test_autocast():
    layer, criterion = torch.nn.Linear(7, 5), et.Seesaw(COUNTS)
    x, y = torch.randn(16, 7), torch.arange(16) % 5
    with torch.autocast("cpu", torch.bfloat16):
        logits = layer(x)
        loss = criterion(logits, y)
    assert logits.dtype is torch.bfloat16 and loss.dtype is torch.float32
    loss.backward()
    assert layer.weight.grad.dtype is torch.float32


def test_gradient_accumulation_and_loss_scales():
    z, y = batch()
    (want,) = torch.autograd.grad(et.Softmax(COUNTS)(z, y), z)
    for scale in (1.0, 0.25, 65536.0):
        z.grad = None
        (et.Softmax(COUNTS)(z, y) * scale).backward()
        torch.testing.assert_close(z.grad, want * scale)
    z.grad = None
    criterion = et.Softmax(COUNTS)
    for _ in range(4):
        (criterion(z, y) / 4).backward()
    torch.testing.assert_close(z.grad, want)


def test_the_graph_can_be_kept_and_used_again():
    z, y = batch()
    loss = et.Softmax(COUNTS)(z, y)
    first = torch.autograd.grad(3 * loss, z, retain_graph=True)[0]
    second = torch.autograd.grad(2 * loss, z, retain_graph=True)[0]
    torch.testing.assert_close(first / 3, second / 2)
    torch.autograd.grad(loss, z)
    with pytest.raises(RuntimeError, match="second time|used already"):
        torch.autograd.grad(loss, z)


def test_second_derivatives_are_refused():
    z, y = batch()
    with pytest.raises(RuntimeError, match="no second derivatives"):
        torch.autograd.grad(et.Softmax(COUNTS)(z, y), z, create_graph=True)


@pytest.mark.parametrize("method", METHODS)
def test_twice_in_one_step(method):
    criterion, one, two = (et.Criterion(method, COUNTS) for _ in range(3))
    (z1, y1), (z2, y2) = batch(1), batch(2)
    loss = criterion(z1, y1) + 2 * criterion(z2, y2)
    loss.backward()
    first = one(z1, y1)
    two.load_state_dict(one.state_dict())
    second = two(z2, y2)
    torch.testing.assert_close(loss, first + 2 * second)
    torch.testing.assert_close(z1.grad, torch.autograd.grad(first, z1)[0])
    torch.testing.assert_close(z2.grad, 2 * torch.autograd.grad(second, z2)[0])
    assert same_state(criterion, two)


def test_gradients_of_two_batches_have_memory_of_their_own():
    criterion = et.Softmax(COUNTS)
    (z1, y1), (z2, y2) = batch(1), batch(2)
    criterion(z1, y1).backward()
    kept = z1.grad.clone()
    criterion(z2, y2).backward()
    assert torch.equal(z1.grad, kept)


@pytest.mark.parametrize("method", METHODS)
def test_mixup_of_timm_is_the_pair_form(method):
    mixup = pytest.importorskip("timm.data.mixup")
    z, y = batch()
    lam = 0.3
    dense = mixup.mixup_target(y, 5, lam=lam, smoothing=0.0)
    a = et.Criterion(method, COUNTS)(z, dense)
    b = et.Criterion(method, COUNTS)(z, (y, y.flip(0), lam))
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
    grads = [torch.autograd.grad(loss, z)[0] for loss in (a, b)]
    torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-6)
    with pytest.raises(ValueError, match=r"target\[0\] has 5 non-zero entries.*Smoothing belongs to the criterion"):
        smooth = mixup.mixup_target(y, 5, lam=lam, smoothing=0.1)
        et.Criterion(method, COUNTS)(z, smooth)


def test_one_hot_targets_are_labels():
    z, y = batch()
    for dtype in (torch.float32, torch.float16, torch.float64):
        criterion, other = et.Cwap(COUNTS), et.Cwap(COUNTS)
        assert torch.equal(criterion(z, F.one_hot(y, 5).to(dtype)), other(z, y))
        assert same_state(criterion, other)


@pytest.mark.parametrize("method", METHODS)
def test_staging_gives_the_same_bits(method):
    plain, staged = et.Criterion(method, COUNTS), et.Criterion(method, COUNTS)
    staged._runner.staged = True
    z, y = batch()
    for reduction in ("mean", "none"):
        plain.reduction = staged.reduction = reduction
        losses = [criterion(z, y) for criterion in (plain, staged)]
        grads = [torch.autograd.grad(loss.sum(), z)[0] for loss in losses]
        assert torch.equal(*losses) and torch.equal(*grads) and torch.equal(plain.weights, staged.weights)
    assert torch.equal(plain(z, F.one_hot(y, 5).float()), staged(z, F.one_hot(y, 5).float()))
    assert same_state(plain, staged)


def test_staging_computes_on_copies_in_host_memory(monkeypatch):
    criterion, used = et.Softmax(COUNTS), []
    criterion._runner.staged = True
    local = runner.Runner.local

    def spy(self, host, *rest):
        used.append(host.logits.data_ptr())
        return local(self, host, *rest)

    monkeypatch.setattr(runner.Runner, "local", spy)
    z, y = batch()
    criterion(z, y).backward()
    assert used and used[0] != z.data_ptr()


def test_threads_follow_those_of_pytorch():
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert et.Softmax(COUNTS)._runner.num_threads() == 1
        torch.set_num_threads(3)
        assert et.Softmax(COUNTS)._runner.num_threads() == 3
        assert et.Softmax(COUNTS, threads=2)._runner.num_threads() == 2
    finally:
        torch.set_num_threads(before)


class Losses(torch.utils.data.Dataset):
    """Uses a criterion in the worker processes of a DataLoader."""

    def __init__(self):
        self.criterion = et.Cwap([300 - c for c in range(200)])
        self.z, self.y = batch(rows=200, classes=200)
        self.z = self.z.detach()
        self.want = self.criterion.eval()(self.z, self.y).item()

    def __len__(self):
        return 8

    def __getitem__(self, index):
        torch.set_num_threads(2)
        return self.criterion(self.z, self.y)


def test_fork():
    torch.set_num_threads(2)
    dataset = Losses()
    loader = torch.utils.data.DataLoader(dataset, 1, num_workers=2, multiprocessing_context="fork", timeout=60)
    for _ in range(2):
        assert [loss.item() for loss in loader] == [dataset.want] * 8
    # and this process goes on
    assert dataset.criterion(dataset.z, dataset.y).item() == dataset.want


def test_other_layouts_and_integers():
    z, y = batch()
    want = et.Softmax(COUNTS)(z, y)
    wide = torch.stack([z.detach(), z.detach()], 2)[..., 0].requires_grad_()
    loss = et.Softmax(COUNTS)(wide, y)
    loss.backward()
    assert not wide.is_contiguous() and torch.equal(loss, want)
    assert torch.equal(wide.grad, torch.autograd.grad(want, z)[0])
    for labels in (y.int(), y.to(torch.uint8), y.repeat_interleave(2)[::2]):
        assert torch.equal(et.Softmax(COUNTS)(z, labels), want)
    assert torch.equal(et.Softmax(torch.tensor(COUNTS))(z, y), want)


def test_repr():
    criterion = et.Criterion("cwap", COUNTS, preset="reference", bins=7, reduction="none")
    assert repr(criterion) == "Criterion('cwap (reference, bins 7)', classes=5, reduction='none')"
    assert repr(et.Seesaw(COUNTS)) == "Seesaw('seesaw', classes=5, reduction='mean')"
    assert repr(et.Seesaw(COUNTS, drw=160)) == "Seesaw('seesaw', classes=5, drw=160, reduction='mean')"
    assert "drw={" in repr(et.Seesaw(COUNTS, drw={"start_epoch": 160, "beta": 0.9})) and "0.9" in repr(
        et.Seesaw(COUNTS, drw={"start_epoch": 160, "beta": 0.9})
    )


Z, Y = batch(rows=4)
ERRORS = [
    (lambda: et.Criterion("cwapp", COUNTS), ValueError, "did you mean 'cwap'"),
    (lambda: et.Cwap(COUNTS, alhpa=1), TypeError, "alhpa: unknown parameter; did you mean 'alpha'"),
    (lambda: et.Cwap(COUNTS, reduction="sum"), ValueError, "reduction is 'sum'; it must be 'mean' or 'none'"),
    (lambda: et.Cwap(COUNTS, threads=1.5), TypeError, "threads must be a whole number"),
    (lambda: et.Cwap([0, 0]), ValueError, "counts: every class is empty"),
    (lambda: et.Cwap(torch.tensor([3.0, 2.0])), TypeError, "counts must be whole numbers"),
    (lambda: et.Cwap(COUNTS)(Z.tolist(), Y), TypeError, "logits must be a tensor, not list"),
    (lambda: et.Cwap(COUNTS)(Z.long(), Y), TypeError, "logits must be floating-point numbers, not torch.int64"),
    (lambda: et.Cwap(COUNTS)(Z[0], Y), ValueError, "logits must have 2 dimensions"),
    (lambda: et.Cwap(COUNTS)(Z[:, :3], Y), ValueError, "logits has 3 columns for 5 classes"),
    (lambda: et.Cwap(COUNTS)(Z, Y[:3]), ValueError, "target has 3 entries for 4 rows"),
    (lambda: et.Cwap(COUNTS)(Z, Y + 10), ValueError, r"target\[0\] is 1\d; there are 5 classes"),
    (lambda: et.Cwap(COUNTS)(Z, torch.full((4,), -100)), ValueError, r"target\[0\] is -100"),
    (lambda: et.Cwap(COUNTS)(Z[:0], Y[:0]), ValueError, "target: the batch is empty"),
    (lambda: et.Cwap(COUNTS)(Z, Y.tolist()), TypeError, "target must be a tensor or"),
    (lambda: et.Cwap(COUNTS)(Z, Y.float()), ValueError, "target must be class indices, or have 2 dimensions"),
    (lambda: et.Cwap(COUNTS)(Z, Y.bool()), TypeError, "target must be whole numbers, not torch.bool"),
    (lambda: et.Cwap(COUNTS)(Z, torch.zeros(4, 5)), ValueError, r"target\[0\] holds no class"),
    (lambda: et.Cwap(COUNTS)(Z, torch.ones(4, 5) / 2), ValueError, r"target\[0\] has 5 non-zero entries"),
    (lambda: et.Cwap(COUNTS)(Z, F.one_hot(Y, 5) * 0.5), ValueError, r"target\[0\] adds up to 0.5"),
    (lambda: et.Cwap(COUNTS)(Z, (Y, Y, 1.5)), ValueError, r"target\[2\]\[0\] is 1.5"),
    (lambda: et.Cwap(COUNTS)(Z, (Y, Y + 9, 0.5)), ValueError, r"target\[1\]\[0\] is "),
    (lambda: et.Cwap(COUNTS)(Z, (Y, Y)), TypeError, "target must be a tensor or"),
    (lambda: et.Cwap(COUNTS)(Z * torch.nan, Y), ValueError, r"logits\[0\]\[\d\] is NaN"),
    (lambda: et.Cwap(COUNTS)(Z, Y.to("meta")), ValueError, "target is on meta, logits are on cpu"),
    (lambda: et.Cwap(COUNTS)(Z.to("meta"), Y.to("meta")), TypeError, "logits must be a dense tensor with values"),
    (lambda: et.Cwap(COUNTS)(Z.to_sparse(), Y), TypeError, "logits must be a dense tensor with values"),
    (lambda: et.Cwap(COUNTS)(Z[None], Y), ValueError, "logits must have at most 2 dimensions, not 3"),
    (lambda: et.Cwap(COUNTS)(Z, Y, examples=Y[:2]), ValueError, "examples has 2 entries"),
    (lambda: et.Cwap(COUNTS)(Z, Y, examples=[1]), TypeError, "examples must be a tensor"),
    (
        lambda: et.Cwap(COUNTS)(Z, F.one_hot(Y, 5)),
        TypeError,
        "a dense target .* must be floating point, not torch.int64",
    ),
    (lambda: et.Cwap(COUNTS)(Z, F.one_hot(Y, 5).bool()), TypeError, "a dense target .* must be floating point"),
    (
        lambda: et.Cwap(COUNTS)(Z, torch.tensor(4 * [2**64 - 1], dtype=torch.uint64)),
        ValueError,
        r"is 18446744073709551615",
    ),
    (lambda: et.Cwap("cwap", COUNTS), TypeError, r"Cwap.__init__\(\) takes 2 positional arguments"),
    (lambda: et.Cwap(COUNTS, params=3), TypeError, "params must be a mapping from names to values, not int"),
    (lambda: et.Cwap(COUNTS, drw=-1), ValueError, "drw is -1; it must be in 0"),
    (lambda: et.Cwap(COUNTS, drw="160"), TypeError, "drw must be an epoch or a mapping with 'start_epoch', not str"),
    (lambda: et.Cwap(COUNTS, drw=True), TypeError, "drw must be an epoch or a mapping with 'start_epoch', not bool"),
    (lambda: et.Cwap(COUNTS, distributed="yes"), TypeError, "distributed must be True, False or None, not str"),
    (lambda: et.Cwap(COUNTS, process_group=3), TypeError, "process_group must be a process group of torch.distributed"),
    (lambda: et.Cwap(COUNTS, distributed=True)(Z, Y), RuntimeError, "distributed=True needs .*init_process_group"),
    (
        lambda: et.Softmax(COUNTS, label_smoothing=0.1),
        TypeError,
        "label_smoothing: unknown .* did you mean 'smoothing'",
    ),
    (lambda: et.Criterion("xyzzy", COUNTS), ValueError, r"method: unknown criterion 'xyzzy'; `equipoise.criteria\(\)`"),
    (lambda: et.Cwap(dict(enumerate(COUNTS))), TypeError, "counts must be a list with a number per class, not dict"),
    (lambda: et.Cwap(iter(COUNTS)), TypeError, "counts must be a list with a number per class, not list_iterator"),
    (lambda: setattr(et.Cwap(COUNTS), "epoch", 10**30), ValueError, "epoch is 10{30}; it must be in 0"),
    (
        lambda: et.Cwap(COUNTS).restore(et.Softmax(COUNTS).state()),
        ValueError,
        "state: it belongs to a criterion that counts nothing, such as 'softmax', but the criterion is 'cwap'",
    ),
    (
        lambda: et.Softmax(COUNTS).restore(et.Cwap(COUNTS).state()),
        ValueError,
        "state: it belongs to 'cwap', but the criterion is 'softmax'",
    ),
    (
        lambda: et.Cwap(COUNTS).load_state_dict({**et.Cwap(COUNTS).state_dict(), "cwap.counts": "three"}),
        RuntimeError,
        "cwap.counts must be a tensor, not str",
    ),
    (
        lambda: torch.func.grad(lambda z: et.Softmax(COUNTS)(z, Y))(Z),
        RuntimeError,
        "criteria do not work inside torch.func",
    ),
    (
        lambda: torch.func.vmap(lambda z, y: et.Softmax(COUNTS)(z[None], y[None]))(Z, Y),
        RuntimeError,
        "criteria do not work inside torch.func",
    ),
]


@pytest.mark.parametrize("columns", [1, 2, 4, 6])
@pytest.mark.parametrize("method", ["softmax", "cwap"])
def test_a_dense_target_has_a_column_per_class(method, columns):
    dense = torch.zeros(4, columns)
    dense[:, 0] = 1.0
    for criterion in (et.Criterion(method, COUNTS), torch.compile(et.Criterion(method, COUNTS), backend="aot_eager")):
        with pytest.raises(ValueError, match=f"target has {columns} columns for 5 classes"):
            criterion(Z, dense)


def test_a_class_without_images_is_warned_of():
    with pytest.warns(UserWarning, match="counts: class 1 has no training images"):
        criterion = et.BalancedSoftmax([5, 0, 1])
    z = torch.zeros(2, 3, requires_grad=True)
    loss = criterion(z, torch.tensor([0, 1]))
    loss.backward()
    assert loss.isfinite() and z.grad.isfinite().all()


@pytest.mark.parametrize("method", METHODS)
def test_a_pair_of_equal_labels_is_that_label(method):
    """Of equal labels and of others, as the dense form cannot tell the share of the first."""
    z, y = batch()
    second = torch.where(torch.arange(len(y)) % 2 == 0, y, y.flip(0))
    share = torch.linspace(0.1, 0.9, len(y))
    pairs, same, dense = (et.Criterion(method, COUNTS) for _ in range(3))
    pairs(z, (y, second, share))
    same(z, (y, second, torch.where(y == second, 1.0, share)))
    assert same_state(pairs, same)
    dense(z, share[:, None] * F.one_hot(y, 5) + (1 - share[:, None]) * F.one_hot(second, 5))
    if method != "ghm":  # the sums of ghm have another order
        assert same_state(pairs, dense)
    counted = pairs.state_dict().get("cwap.counts")
    if counted is not None:
        assert int(counted.sum()) == int((y == second).sum())


@pytest.mark.parametrize(("call", "kind", "message"), ERRORS, ids=[f"{i}" for i in range(len(ERRORS))])
def test_errors_name_the_argument(call, kind, message):
    with pytest.raises(kind, match=message):
        call()


def test_errors_count_nothing():
    criterion, twin = et.Seesaw(COUNTS), et.Seesaw(COUNTS)
    for call in (lambda: criterion(Z * torch.nan, Y), lambda: criterion(Z, Y + 10)):
        with pytest.raises(ValueError):
            call()
    assert same_state(criterion, twin)
