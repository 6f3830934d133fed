"""What an owner of GPUs runs to check what cannot be checked without them: ``python -m equipoise.torch.selftest``.

Every check prints a line; the last line is the verdict. The exit code is 1 if a check failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from equipoise.torch.agreement import SMOOTH_GAIN, Task, distances
from equipoise.torch.engine import EngineOptions


class SkipCheckError(Exception):
    """A check that cannot be made here; the message says why."""


def need_cuda(count: int = 1) -> None:
    """Skips the check unless there are this many CUDA devices."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if found < count:
        raise SkipCheckError(f"needs {count} CUDA device{'s' if count > 1 else ''}, torch finds {found}")


SHORT = Task("resnet32", 32, 16, 0.01, gain=SMOOTH_GAIN)
"""Ten steps that amplify rounding little."""


def check_agreement(options: EngineOptions, bound: float = 1e-4, task: Task = SHORT) -> str:
    """Some steps beside the engine of the crates and beside exact arithmetic."""
    found = distances(task, options)
    difference = max(found.between)
    if not difference < bound:
        raise AssertionError(f"logits differ by {difference:.2e}; at most {bound:.0e} is allowed")
    exact = max(found.torch)
    return f"logits within {difference:.1e} over {task.steps} steps, and within {exact:.1e} of 64 bits"


def exact(device: str) -> EngineOptions:
    """Options without reduced precision."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return EngineOptions(torch.device(device))


def run_training(launcher: list[str], *options: str) -> str:
    """A short training on the built-in dataset, in processes of its own."""
    with tempfile.TemporaryDirectory() as folder:
        run = str(Path(folder) / "run")
        arguments = ["--model", "resnet8", "--epochs", "2", "--quiet", "-o", run, *options]
        command = [*launcher, "-m", "equipoise.torch.train", *arguments]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=900)
        if ended.returncode != 0:
            raise AssertionError((ended.stderr.strip().splitlines() or ["no message"])[-1])
        return ended.stdout.strip().splitlines()[0]


def torchrun(count: int) -> list[str]:
    """The command that starts processes on this machine."""
    return [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]


def cuda_agreement() -> str:
    """Agreement on the GPU."""
    need_cuda()
    return check_agreement(exact("cuda"))


def cuda_bf16() -> str:
    """Mixed precision: the first logits are near those of 32 bits."""
    need_cuda()
    options = EngineOptions(torch.device("cuda"), amp="bf16")
    return check_agreement(options, 0.1, SHORT._replace(steps=0))


def compiled(device: str) -> str:
    """A compiled network."""
    if device == "cuda":
        need_cuda()
    options = EngineOptions(torch.device(device), compile=True)
    return check_agreement(options, task=Task("resnet8", 32, 8, 0.01, 2, SMOOTH_GAIN))


def cuda_training(*options: str) -> str:
    """A training on one GPU."""
    need_cuda()
    return run_training([sys.executable], "--device", "cuda", *options)


def nccl_training(*options: str) -> str:
    """A training on all GPUs of this machine."""
    need_cuda(2)
    return run_training(torchrun(torch.cuda.device_count()), "--device", "cuda", *options)


def checks() -> list[tuple[str, Callable[[], str]]]:
    """All checks with their names."""
    cpu = ("--device", "cpu", "--threads", "1")
    quick = os.environ.get("EQUIPOISE_SELFTEST_QUICK") == "1"
    all_checks: list[tuple[str, Callable[[], str]]] = [
        ("agreement with the CPU engine, CPU", lambda: check_agreement(exact("cpu"))),
        ("training, CPU", lambda: run_training([sys.executable], *cpu)),
        ("training, CPU, bf16", lambda: run_training([sys.executable], *cpu, "--amp", "bf16")),
        ("training, CPU, 2 processes over gloo", lambda: run_training(torchrun(2), *cpu)),
        ("training, CPU, 2 processes, batch norms of all", lambda: run_training(torchrun(2), *cpu, "--sync-bn")),
        ("agreement with the CPU engine, CPU, compiled", lambda: compiled("cpu")),
        ("agreement with the CPU engine, CUDA", cuda_agreement),
        ("agreement with the CPU engine, CUDA, bf16", cuda_bf16),
        ("agreement with the CPU engine, CUDA, compiled", lambda: compiled("cuda")),
        ("training, CUDA", cuda_training),
        ("training, CUDA, bf16", lambda: cuda_training("--amp", "bf16")),
        ("training, CUDA, fp16", lambda: cuda_training("--amp", "fp16")),
        ("training, CUDA, bf16, compiled", lambda: cuda_training("--amp", "bf16", "--compile")),
        ("training, all GPUs over NCCL", nccl_training),
        ("training, all GPUs over NCCL, batch norms of all", lambda: nccl_training("--sync-bn")),
    ]
    return [check for check in all_checks if not quick or check[0] != "agreement with the CPU engine, CPU, compiled"]


def main() -> int:
    """Makes all checks, and returns the exit code."""
    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [torch.cuda.get_device_name(i) for i in range(found)]
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, CUDA devices: {', '.join(devices) or 'none'}")
    counts = {"passed": 0, "failed": 0, "skipped": 0}
    for name, check in checks():
        try:
            word, text = "passed", check()
        except SkipCheckError as reason:
            word, text = "skipped", str(reason)
        except Exception as error:
            word, text = "failed", f"{type(error).__name__}: {error}"
            if os.environ.get("EQUIPOISE_SELFTEST_TRACE"):
                traceback.print_exc()
        counts[word] += 1
        print(f"{word:8} {name}: {text}", flush=True)
    print(", ".join(f"{number} {word}" for word, number in counts.items()))
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
