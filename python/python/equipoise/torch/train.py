"""Training with torch: ``python -m equipoise.torch.train``, alone or under ``torchrun``.

The options, the run folder and the exit codes are those of ``equipoise train``; ``--help`` lists them.
"""

from __future__ import annotations

import os
import sys

import torch
import torch.distributed as dist

from equipoise._equipoise import TrainOptions
from equipoise.torch.engine import EngineOptions, TorchEngine
from equipoise.torch.workers import Alone, Workers, join, world


class UsageError(Exception):
    """Options that cannot be used here; the message says what to do."""


def environment(name: str, default: int) -> int:
    """A number that torchrun sets."""
    value = os.environ.get(name, "")
    return int(value) if value.isdigit() else default


def choose_device(name: str | None, local_rank: int) -> torch.device:
    """The device of this process."""
    if name is None:
        return torch.device("cuda", local_rank) if torch.cuda.is_available() else torch.device("cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"--device {name}: must be cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"--device {name}: must be cpu, cuda or cuda:N")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UsageError(f"--device {name}: torch finds no CUDA device; use --device cpu")
        index = local_rank if device.index is None else device.index
        if index >= torch.cuda.device_count():
            count = torch.cuda.device_count()
            raise UsageError(f"--device {name}: this process needs device {index}, but torch finds {count}")
        device = torch.device("cuda", index)
    return device


def default_threads(local_size: int) -> int:
    """Threads of this process: `OMP_NUM_THREADS`, or its part of the cores.

    For several processes torchrun sets the variable to 1 itself, so it then says nothing about what the user wants.
    """
    chosen = environment("OMP_NUM_THREADS", 0)
    if chosen > 0 and local_size == 1:
        return min(chosen, 1024)
    return max(1, (os.cpu_count() or 1) // local_size)


def main(arguments: list[str] | None = None) -> int:
    """Trains, and returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    rank, size = environment("RANK", 0), environment("WORLD_SIZE", 1)
    local_rank, local_size = environment("LOCAL_RANK", 0), environment("LOCAL_WORLD_SIZE", 1)
    options, code = TrainOptions.parse(arguments, rank == 0)
    if options is None:
        return code
    try:
        device = choose_device(options.device, local_rank)
        if options.amp == "fp16" and device.type != "cuda":
            raise UsageError("--amp fp16 needs a CUDA device; use --amp bf16")
    except UsageError as error:
        if rank == 0:
            print(f"equipoise: {error}", file=sys.stderr)
        return 2
    threads = options.threads or default_threads(local_size)
    torch.set_num_threads(threads)
    if device.type == "cuda":
        torch.cuda.set_device(device)
        torch.backends.cudnn.benchmark = True
    workers: Alone | Workers = Alone()
    if size > 1:
        join("nccl" if device.type == "cuda" else "gloo")
        workers = Workers()
    group = world() if size > 1 else None
    how = EngineOptions(device, options.amp, options.compile, options.sync_bn, options.channels_last)

    def make_engine(description: str) -> TorchEngine:
        return TorchEngine(description, how, group)

    restarted = environment("TORCHELASTIC_RESTART_COUNT", 0) > 0
    code = options.train(threads, restarted, workers, make_engine)
    if size > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        # with an error, the others may wait for this process: it ends without asking them
        if code == 0:
            dist.destroy_process_group()
        # gloo's threads may outlive their group, and abort the process when the interpreter is torn down
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
