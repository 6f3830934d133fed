"""Training with torch: the engine beside that of the crates, run folders, several processes, restarts, bad input."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from equipoise._equipoise import TrainOptions
from equipoise.torch.engine import EngineOptions, TorchEngine
from equipoise.torch.networks import resnet
from equipoise.torch.selftest import torchrun
from equipoise.torch.workers import Alone, agree_on_start

SMALL = ["--model", "resnet8", "--threads", "1", "--quiet", "--device", "cpu"]


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Batches this small are not worth two threads, which wait for each other at every operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def command(launcher: list[str], folder: Path, *options: str) -> list[str]:
    return [*launcher, "-m", "equipoise.torch.train", *SMALL, "-o", str(folder), *options]


def train(launcher: list[str], folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(launcher, folder, *options), capture_output=True, text=True, timeout=120)


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / "metrics.jsonl").read_text().splitlines()]


def start(options: list[str], engine: type[TorchEngine] | None = TorchEngine, **how: Any) -> int:
    """A training in this process, with torch or, without an engine, with that of the crates."""
    parsed, code = TrainOptions.parse(options, True)
    if parsed is None:
        return code
    if engine is None:
        return parsed.train_without_torch(1)
    made = EngineOptions(torch.device("cpu"), **how)
    return parsed.train(1, False, Alone(), lambda description: engine(description, made))


def in_this_process(folder: Path, *options: str, engine: type[TorchEngine] | None = TorchEngine, **how: Any) -> int:
    return start([*SMALL, "-o", str(folder), *options], engine, **how)


@pytest.mark.parametrize(
    "options",
    [
        ["optimizer.nesterov=true", "optimizer.clip_grad_norm=1"],
        ["optimizer.name=adamw", "optimizer.learning_rate=0.001"],
        ["optimizer.ema_decay=0.9", "optimizer.ema_bn_images=200"],
        ["optimizer.sam.rho=0.05"],
    ],
    ids=["sgd", "adamw", "ema", "sam"],
)
def test_the_optimizers_are_those_of_the_crates(options: list[str], tmp_path: Path) -> None:
    # few steps of the same batches: after many, rounding has grown into another run
    few = ["--epochs", "1", "--batch-size", "256", "--criterion", "softmax", "--set", "augment.cutmix=0.5"]
    few += [argument for option in options for argument in ("--set", option)]
    both = []
    for engine in (TorchEngine, None):
        folder = tmp_path / str(engine)
        assert in_this_process(folder, *few, engine=engine) == 0
        both.append(losses(folder)[0])
    assert abs(both[0] / both[1] - 1.0) < 2e-3, both


def test_either_engine_continues_the_others_run(tmp_path: Path) -> None:
    """The learning rate is constant, so that a run of one epoch is the first half of a run of two."""
    steps = '{ name = "multi-step", warmup_epochs = 0, milestones = [] }'
    base = ["--criterion", "softmax", "--batch-size", "256", "--set", f"optimizer.schedule={steps}"]
    results = {}
    for first, second in [(TorchEngine, TorchEngine), (TorchEngine, None), (None, TorchEngine)]:
        folder = tmp_path / f"{first}-{second}"
        assert in_this_process(folder, *base, "--epochs", "1", engine=first) == 0
        assert start(["--resume", str(folder), "--epochs", "2", "--quiet"], second) == 0
        assert (folder / "result.json").exists() and (folder / "report.html").exists()
        results[first, second] = losses(folder)
    for got in results.values():
        assert len(got) == 2
        assert abs(got[1] / results[TorchEngine, TorchEngine][1] - 1.0) < 0.02, results


def test_two_processes_train_like_one_and_rank_0_writes(tmp_path: Path) -> None:
    """Each process has a current folder of its own, so that whatever rank 1 writes stays there.

    With batch norms over all rows, two processes differ from one by rounding; without, by their batch norms.
    """
    options = ["--epochs", "2", "--batch-size", "250", "--criterion", "softmax"]
    assert in_this_process(tmp_path / "one", *options) == 0
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in (0, 1):
        own = tmp_path / str(rank)
        own.mkdir()
        places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2", "RANK": str(rank)}
        started = command([sys.executable], Path("run"), *options, "--sync-bn")
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(started, cwd=own, env={**os.environ, **places}, **pipes))
    printed = [process.communicate(timeout=120) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], printed
    assert "last epoch" in printed[0][0] and printed[1] == ("", ""), printed
    assert list((tmp_path / "1").iterdir()) == []
    two, one = losses(tmp_path / "0" / "run"), losses(tmp_path / "one")
    assert len(two) == 2
    for got, want in zip(two, one, strict=True):
        assert abs(got / want - 1.0) < 5e-3, (two, one)


def test_a_start_of_the_group_knows_nothing_of_dead_processes() -> None:
    """torchrun keeps its store over restarts: here with the call of a rank 1 that died, and of one that had started."""
    store = torch.distributed.HashStore()
    with ThreadPoolExecutor(3) as ranks:
        for expected in (1, 2):
            started = [ranks.submit(agree_on_start, store, rank, 3) for rank in (0, 2, 1)]
            assert [start.result(timeout=30) for start in started] == [expected] * 3
            store.set("call of 1", "call of the dead")


def test_a_killed_process_is_restarted_from_the_checkpoint(tmp_path: Path) -> None:
    """kill -9 of one of two processes: torchrun starts both again, and the run ends as if nothing had happened."""
    options = ["--epochs", "3", "--criterion", "cwap", "--batch-size", "250", "--checkpoint-minutes", "100"]
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


INTERRUPTED = """
import sys, time
from equipoise.torch.train import main
code = main(sys.argv[1:])
time.sleep(2.5)  # Python may take its time to end
sys.exit(code)
"""


def test_an_interrupted_training_says_so_once(tmp_path: Path) -> None:
    options = [*SMALL, "--epochs", "1000", "-o", str(tmp_path / "run")]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    process = subprocess.Popen([sys.executable, "-c", INTERRUPTED, *options], **pipes)
    try:
        deadline = time.monotonic() + 60
        while not (tmp_path / "run" / "metrics.jsonl").exists():
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        printed = process.communicate(timeout=60)[0]
    finally:
        process.kill()
    assert process.returncode == 130, printed
    assert printed.count("stopped") == printed.count("To continue: ") == 1, printed


def test_threads_do_not_wait_busily_for_long() -> None:
    """In the trainer; a program that uses the package decides for itself."""
    code = "import equipoise.torch, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    clean = {name: value for name, value in os.environ.items() if name not in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")}
    for arguments, given, want in (
        ([], {}, "None"),
        (["equipoise.torch.train"], {}, "10000"),
        (["equipoise.torch.train"], {"OMP_WAIT_POLICY": "active"}, "None"),
        (["equipoise.torch.train"], {"GOMP_SPINCOUNT": "7"}, "7"),
    ):
        started = [sys.executable, "-c", code, *arguments]
        run = subprocess.run(started, env={**clean, **given}, capture_output=True, text=True, timeout=120)
        assert run.stdout.strip() == want, run.stderr


def test_the_number_of_threads(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    from equipoise.torch.train import default_threads

    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    assert [default_threads(size) for size in (1, 2, 16)] == [8, 4, 1]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    assert default_threads(1) == 3
    # torchrun has set it
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert default_threads(2) == 4
    assert TrainOptions.parse(["--help"], True) == (None, 0)
    printed = " ".join(capfd.readouterr().out.split())
    assert "Torch's last bits depend on it" in printed and "Results do not depend on it" not in printed


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

    assert in_this_process(tmp_path / "run", engine=Broken) == 1
    assert "RuntimeError: CUDA error: device-side assert triggered" in capfd.readouterr().err


def test_a_checkpoint_within_an_epoch_is_continued(tmp_path: Path) -> None:
    """`--checkpoint-minutes 0` saves after every step; a run that breaks off goes on there, to the same bits."""

    class BreaksOff(TorchEngine):
        steps = 0

        def backward(self, address: int, length: int) -> None:
            self.steps += 1
            if self.steps == 5:
                raise RuntimeError("the machine is needed by others")
            super().backward(address, length)

    options = ["--epochs", "1", "--batch-size", "250", "--criterion", "cwap", "--checkpoint-minutes", "0"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    assert in_this_process(whole, *options) == 0
    assert in_this_process(broken, *options, engine=BreaksOff) == 1
    assert not (broken / "result.json").exists()

    class Counts(TorchEngine):
        seen = 0

        def backward(self, address: int, length: int) -> None:
            Counts.seen += 1
            super().backward(address, length)

    assert in_this_process(broken, *options, engine=Counts) == 0
    assert Counts.seen == 2, "of six steps, four were saved"
    assert (broken / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()


@pytest.mark.parametrize("how", [{"amp": "bf16"}, {"compile": True}, {"channels_last": False}], ids=str)
def test_ways_to_compute_train_alike(how: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled without code generation, which takes half a minute: `selftest` has that."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    options = ["--epochs", "1", "--batch-size", "250", "--criterion", "softmax"]
    assert in_this_process(tmp_path / "plain", *options) == 0
    assert in_this_process(tmp_path / "other", *options, **how) == 0
    got, want = losses(tmp_path / "other")[0], losses(tmp_path / "plain")[0]
    assert abs(got / want - 1.0) < (0.03 if "amp" in how else 5e-3), (got, want)


def test_the_program_takes_runs_of_torch(binary: Path, tmp_path: Path) -> None:
    """evaluate, predict, export and report, as for a run of its own engine."""
    folder = tmp_path / "run"
    assert in_this_process(folder, "--epochs", "2", "--criterion", "balanced-softmax") == 0

    def program(*arguments: str) -> str:
        ended = subprocess.run([binary, *arguments], capture_output=True, text=True, cwd=tmp_path, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    result = json.loads((folder / "metrics.jsonl").read_text().splitlines()[-1])
    evaluated = json.loads(program("evaluate", str(folder), "--json"))
    assert abs(evaluated["metrics"]["top1"] - result["test"]["top1"]) < 0.21, "at most two of 1,000 images"
    program("report", str(folder), "--output", "page.html")
    assert "run" in (tmp_path / "page.html").read_text()
    program("export", str(folder), "-o", "weights.safetensors")
    program("export", str(folder), "-o", "network.onnx")
    safetensors = pytest.importorskip("safetensors.torch")
    model = resnet("resnet8", 10, channels=1, image_size=16)
    missing = model.load_state_dict(safetensors.load_file(tmp_path / "weights.safetensors"), strict=False)
    assert missing.unexpected_keys == [] and all("num_batches" in key for key in missing.missing_keys)
    image = pytest.importorskip("PIL.Image")
    image.new("L", (28, 28), 90).save(tmp_path / "gray.png")
    predicted = program("predict", str(folder), "gray.png")
    assert "gray.png" in predicted


def test_commands_of_published_tables_are_understood(binary: Path, tmp_path: Path) -> None:
    arguments = [binary, "reproduce", "table2", "--engine", "torch", "--nproc-per-node", "4"]
    ended = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path, timeout=60)
    assert ended.returncode == 0, ended.stderr
    commands = [line.split() for line in ended.stdout.splitlines() if line.startswith("torchrun")]
    assert len(commands) == 12
    for words in commands:
        assert words[:4] == ["torchrun", "--standalone", "--nproc-per-node", "4"]
        options = words[words.index("equipoise.torch.train") + 1 :]
        config = options.index("--config") + 1
        options[config] = str(tmp_path / options[config])
        parsed, code = TrainOptions.parse([*options, "--print-config"], False)
        assert parsed is None and code == 0, words
