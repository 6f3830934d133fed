"""Training with torch: the engine beside that of the crates, run folders, several processes, restarts, bad input."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from equipoise._equipoise import TrainOptions
from equipoise._equipoise import network as describe
from equipoise.torch.engine import EngineOptions, TorchEngine
from equipoise.torch.networks import ResNet, resnet
from equipoise.torch.norms import BatchNorm2d
from equipoise.torch.selftest import largest_difference, put, torchrun

SMALL = ["--model", "resnet8", "--criterion", "cwap", "--threads", "1", "--quiet", "--device", "cpu"]
PLAIN = [sys.executable]


def command(launcher: list[str], folder: Path, *options: str) -> list[str]:
    return [*launcher, "-m", "equipoise.torch.train", *SMALL, "-o", str(folder), *options]


def train(launcher: list[str], folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(launcher, folder, *options), capture_output=True, text=True, timeout=120)


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def in_this_process(folder: Path, *options: str, torch_engine: bool = True) -> int:
    parsed, code = TrainOptions.parse([*SMALL, "-o", str(folder), *options], True)
    if parsed is None:
        return code
    if not torch_engine:
        return parsed.train_without_torch(1)

    class Alone:
        rank, size = 0, 1

        def broadcast(self, message: bytes) -> bytes:
            return message

    how = EngineOptions(torch.device("cpu"))
    return parsed.train(1, False, Alone(), lambda description: TorchEngine(description, how))


@pytest.mark.parametrize(("name", "size", "batch"), [("resnet32", 32, 16), ("resnet18", 64, 4)])
def test_logits_are_those_of_the_crates_after_each_of_ten_steps(name: str, size: int, batch: int) -> None:
    assert largest_difference(name, size, batch, 10, EngineOptions(torch.device("cpu"))) < 2e-3


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_names_and_shapes_are_those_of_torchvision(name: str) -> None:
    models = pytest.importorskip("torchvision.models")
    theirs = {key: value.shape for key, value in getattr(models, name)().state_dict().items()}
    assert {key: value.shape for key, value in resnet(name, 1000).state_dict().items()} == theirs


SMALL_NETWORKS = ["resnet8", "resnet14", "resnet20", "resnet32x2", "resnet32x4", "resnet44", "resnet56"]


@pytest.mark.parametrize("name", SMALL_NETWORKS)
def test_names_and_shapes_are_those_of_the_crates(name: str) -> None:
    parts = json.loads(describe(name, 1, 28, 28, 10))
    wanted = {tensor["name"]: tuple(tensor["shape"]) for tensor in parts["parameters"] + parts["statistics"]}
    model = resnet(name, 10, channels=1, image_size=28)
    got = {key: tuple(value.shape) for key, value in model.state_dict().items() if "num_batches" not in key}
    assert got == wanted
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_unknown_networks_are_refused() -> None:
    with pytest.raises(ValueError, match="did you mean 'resnet32'"):
        resnet("resnet-32", 10)


@pytest.mark.parametrize("head", ["lws", {"cosine": {"scale": 16.0}}, {"cosine": {"scale": 16.0, "learned": True}}])
def test_heads_step_and_keep_what_is_not_trained(head: object) -> None:
    parts = json.loads(describe("resnet8", 1, 16, 16, 5))
    parts["network"]["head"] = head
    kept = ["linear.weight"] if head != "lws" else ["linear.weight", "linear.bias"]
    scale = [] if head == {"cosine": {"scale": 16.0}} else [("linear.scale", [5 if head == "lws" else 1])]
    names = [t for t in parts["parameters"] if not t["name"].startswith("linear")]
    names += [{"name": n, "shape": [5, 64] if n.endswith("weight") else [5]} for n in kept]
    parts["parameters"] = names + [{"name": n, "shape": s} for n, s in scale]
    engine = TorchEngine(json.dumps(parts), EngineOptions(torch.device("cpu")))
    engine.freeze_backbone(True)
    before = engine.tensors("parameters")
    images, gradient = torch.randn(3, 1, 16, 16), torch.randn(3, 5)
    for _ in range(2):
        engine.forward(images.data_ptr(), 3, True)
        engine.backward(gradient.data_ptr(), 15)
        assert engine.step_sgd((0.1, 1.0, 0.01, 1.0), 0.9, True) > 0.0
    for name, old, new in zip(engine.model.parameter_names, before, engine.tensors("parameters"), strict=True):
        trained = name.startswith("linear") and (head != "lws" or name.endswith("scale"))
        assert torch.equal(old, new) != trained, name


def test_one_value_per_channel_has_no_variance() -> None:
    norm = BatchNorm2d(3)
    x = torch.randn(1, 3, 1, 1, requires_grad=True)
    y = norm(x)
    assert torch.equal(y, torch.zeros_like(y))
    y.sum().backward()
    assert torch.equal(norm.running_var, torch.full((3,), 0.9))
    assert norm.bias.grad is not None and torch.equal(norm.bias.grad, torch.ones(3))


def test_the_optimizers_are_those_of_the_crates(tmp_path: Path) -> None:
    for name, options in {
        "sgd": ["--set", "optimizer.nesterov=true", "--set", "optimizer.clip_grad_norm=1"],
        "adamw": ["--set", "optimizer.name=adamw", "--lr", "0.001"],
        "ema": ["--set", "optimizer.ema_decay=0.9", "--set", "optimizer.ema_bn_images=200"],
        "sam": ["--set", "optimizer.sam.rho=0.05"],
    }.items():
        both = []
        for torch_engine in [True, False]:
            folder = tmp_path / f"{name}-{torch_engine}"
            # few steps of the same batches: after many, rounding has grown into another run
            few = ["--criterion", "softmax", "--epochs", "1", "--batch-size", "256", "--set", "augment.cutmix=0.5"]
            options_of = [option for option in few + options]
            parsed, code = TrainOptions.parse(["--model", "resnet8", "--quiet", "-o", str(folder), *options_of], True)
            assert parsed is not None and code == 0
            if torch_engine:
                how = EngineOptions(torch.device("cpu"))
                workers = type("Alone", (), {"rank": 0, "size": 1, "broadcast": lambda self, message: message})()
                assert parsed.train(2, False, workers, lambda text, how=how: TorchEngine(text, how)) == 0
            else:
                assert parsed.train_without_torch(2) == 0
            both.append(losses(folder)[0])
        assert abs(both[0] / both[1] - 1.0) < 2e-3, (name, both)


def test_either_engine_continues_the_others_run(tmp_path: Path) -> None:
    """The schedule has milestones only, so that a run of one epoch is the first half of a run of two."""
    steps = '{ name = "multi-step", warmup_epochs = 0, milestones = [{ epoch = 9, factor = 0.1 }] }'
    base = ["--criterion", "softmax", "--batch-size", "256", "--set", f"optimizer.schedule={steps}"]
    results = {}
    for first, second in [(True, True), (True, False), (False, True)]:
        folder = tmp_path / f"{first}-{second}"
        assert in_this_process(folder, *base, "--epochs", "1", torch_engine=first) == 0
        parsed, code = TrainOptions.parse(["--resume", str(folder), "--epochs", "2", "--quiet"], True)
        assert parsed is not None and code == 0
        if second:
            how = EngineOptions(torch.device("cpu"))
            workers = type("Alone", (), {"rank": 0, "size": 1, "broadcast": lambda self, message: message})()
            assert parsed.train(1, False, workers, lambda text, how=how: TorchEngine(text, how)) == 0
        else:
            assert parsed.train_without_torch(1) == 0
        assert (folder / "result.json").exists() and (folder / "report.html").exists()
        results[first, second] = losses(folder)
    for got in results.values():
        assert len(got) == 2
        assert abs(got[1] / results[True, True][1] - 1.0) < 0.02, results


def test_two_processes_train_like_one(tmp_path: Path) -> None:
    """With batch norms over all rows, two processes differ from one by rounding; without, by their batch norms."""
    options = ["--epochs", "2", "--batch-size", "250", "--criterion", "softmax"]
    one, two = tmp_path / "one", tmp_path / "two"
    assert in_this_process(one, *options) == 0
    ended = train(torchrun(2), two, *options, "--sync-bn")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.count("last epoch") == 1, "rank 0 prints"
    for got, want in zip(losses(two), losses(one), strict=True):
        assert abs(got / want - 1.0) < 5e-3, (losses(two), losses(one))


def test_a_killed_process_is_restarted_from_the_checkpoint(tmp_path: Path) -> None:
    """kill -9 of one of two processes: torchrun starts both again, and the run ends as if nothing had happened."""
    options = ["--epochs", "4", "--batch-size", "250", "--checkpoint-minutes", "100"]
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    launcher = [*torchrun(2), "--max-restarts", "2"]
    process = subprocess.Popen(command(launcher, killed, *options), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + 60
        while not (killed / "metrics.jsonl").exists() or len(losses(killed)) < 1:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        os.kill(worker_of(process.pid), signal.SIGKILL)
        _, stderr = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 0, stderr.decode()[-2000:]
    assert train(torchrun(2), whole, *options).returncode == 0
    assert (killed / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


def worker_of(launcher: int) -> int:
    """The process of rank 1."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
                environ = (entry / "environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if parent == launcher and b"RANK=1" in environ:
                return int(entry.name)
    raise AssertionError("no worker of rank 1")


def test_a_finished_run_is_shown_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    options = ["--epochs", "1", "--batch-size", "500"]
    assert in_this_process(folder, *options) == 0
    first = capfd.readouterr().out
    assert in_this_process(folder, *options) == 0
    assert capfd.readouterr().out.splitlines()[0] == first.splitlines()[0]
    # another run does not go into the same folder
    assert in_this_process(folder, "--epochs", "2", "--batch-size", "500") == 2
    assert "this folder holds a run with another 'epochs'" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--device", "cuda:77"], "--device cuda:77: torch finds no CUDA device"),
        (["--device", "tpu"], "--device tpu: must be cpu, cuda or cuda:N"),
        (["--amp", "fp16", "--device", "cpu"], "--amp fp16 needs a CUDA device"),
        (["no-such-dataset"], "no-such-dataset"),
        (["--set", "lerning_rate=1"], "unknown setting 'lerning_rate'"),
        (["--config", "missing.toml"], "missing.toml: no such file"),
        (["--checkpoint-minutes", "-1"], "--checkpoint-minutes"),
        (["--bf17"], "--bf17"),
    ],
)
def test_bad_input_is_one_sentence(options: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    from equipoise.torch.train import main

    if "cuda" in message and torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    assert main(["--epochs", "1", *options]) == 2
    assert message in capfd.readouterr().err


def test_a_failing_device_is_reported(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    class Broken(TorchEngine):
        def backward(self, address: int, length: int) -> None:
            raise RuntimeError("CUDA error: device-side assert triggered")

    parsed, _ = TrainOptions.parse(["--model", "resnet8", "--quiet", "-o", str(tmp_path / "run")], True)
    assert parsed is not None
    workers = type("Alone", (), {"rank": 0, "size": 1, "broadcast": lambda self, message: message})()
    how = EngineOptions(torch.device("cpu"))
    assert parsed.train(1, False, workers, lambda text: Broken(text, how)) == 1
    assert "RuntimeError: CUDA error: device-side assert triggered" in capfd.readouterr().err


def test_weights_round_trip_through_a_state_dict() -> None:
    engine = TorchEngine(describe("resnet8", 1, 28, 28, 10), EngineOptions(torch.device("cpu")))
    values = [torch.randn_like(tensor) for tensor in engine.tensors("parameters")]
    put(engine, "parameters", [value.flatten().tolist() for value in values])
    other = ResNet(describe("resnet8", 1, 28, 28, 10))
    other.load_state_dict(engine.model.state_dict())
    named = dict(other.named_parameters())
    assert all(torch.equal(named[name], value) for name, value in zip(other.parameter_names, values, strict=True))
