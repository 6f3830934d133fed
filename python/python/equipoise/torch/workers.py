"""The other workers of a training, over ``torch.distributed``.

Numbers, logits and messages go over gloo, from memory of the CPU. Gradients are summed on the device, in buckets that
start as soon as the backward pass has finished with them. Own buckets take the place of DistributedDataParallel because
a worker may have no rows of a short batch, a frozen backbone has no gradients, and the criterion has seen the whole
batch, so that gradients are summed and not averaged.
"""

from __future__ import annotations

import ctypes
import time
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

BUCKET_BYTES = 25 << 20
TIMEOUT = timedelta(minutes=10)


def join(backend: str) -> None:
    """Initializes the default process group, as ``torchrun`` or the environment describes it.

    torchrun keeps its store when it restarts workers, and gloo would find the addresses of the killed ones in it. So
    each start of the group has keys of its own.
    """
    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    own = PrefixStore(f"start {agree_on_start(store, rank, size)}", store)
    dist.init_process_group(backend, store=own, rank=rank, world_size=size, timeout=TIMEOUT)


def agree_on_start(store: Store, rank: int, size: int) -> int:
    """The number of this start of the group, the same for every process that is alive.

    Rank 0 counts the starts and answers every call until each rank has confirmed. Calls of processes that are dead are
    answered too, and nobody confirms those.
    """
    if rank > 0:
        call = f"call {uuid.uuid4()}"
        store.set(f"call of {rank}", call)
        start = int(store.get(call))
        store.set(f"confirmed {start} {rank}", "")
        return start
    start = int(store.add("starts", 1))
    missing = set(range(1, size))
    deadline = time.monotonic() + TIMEOUT.total_seconds()
    while missing:
        for other in sorted(missing):
            if store.check([f"confirmed {start} {other}"]):
                missing.discard(other)
            elif store.check([f"call of {other}"]):
                store.set(store.get(f"call of {other}").decode(), str(start))
        if missing and time.monotonic() > deadline:
            raise dist.DistStoreError(f"no word from rank {min(missing)} for {TIMEOUT.total_seconds():.0f} s")
        time.sleep(0.01)
    return start


def floats_at(address: int, length: int) -> Tensor:
    """The floats at an address, without a copy. They must not be used after the call that passed the address."""
    if length == 0:
        return torch.empty(0)
    return torch.frombuffer((ctypes.c_float * length).from_address(address), dtype=torch.float32)


def world() -> dist.ProcessGroup:
    """The group of all processes."""
    return cast(dist.ProcessGroup, dist.group.WORLD)


class Alone:
    """The only worker."""

    rank = 0
    size = 1

    def broadcast(self, message: bytes) -> bytes:
        """The own message."""
        return message


class Workers:
    """The workers of the default process group."""

    def __init__(self) -> None:
        """Joins the group, which must be initialized."""
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()
        self.control = (
            world() if dist.get_backend() == "gloo" else cast(dist.ProcessGroup, dist.new_group(backend="gloo"))
        )

    def max(self, number: int) -> int:
        """The largest number of all workers."""
        value = torch.tensor([number], dtype=torch.int64)
        dist.all_reduce(value, dist.ReduceOp.MAX, group=self.control)
        return int(value)

    def gather(self, own: int, lengths: list[int], to: int) -> None:
        """Writes the floats of all workers, by rank, to an address."""
        longest = max(lengths)
        padded = torch.zeros(longest)
        padded[: lengths[self.rank]] = floats_at(own, lengths[self.rank])
        parts = [torch.empty(longest) for _ in lengths]
        dist.all_gather(parts, padded, group=self.control)
        torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)], out=floats_at(to, sum(lengths)))

    def exchange(self, own: bytes) -> list[bytes]:
        """The messages of all workers."""
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        dist.all_gather(sizes, torch.tensor([len(own)]), group=self.control)
        longest = max(1, *(int(size) for size in sizes))
        padded = torch.zeros(longest, dtype=torch.uint8)
        if own:
            padded[: len(own)] = torch.frombuffer(bytearray(own), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather(parts, padded, group=self.control)
        return [part[: int(size)].numpy().tobytes() for part, size in zip(parts, sizes, strict=True)]

    def broadcast(self, message: bytes) -> bytes:
        """The message of rank 0."""
        size = torch.tensor([len(message)])
        dist.broadcast(size, 0, group=self.control)
        if int(size) == 0:
            return b""
        data = torch.empty(int(size), dtype=torch.uint8)
        if self.rank == 0:
            data.copy_(torch.frombuffer(bytearray(message), dtype=torch.uint8))
        dist.broadcast(data, 0, group=self.control)
        return data.numpy().tobytes()

    def sum(self, address: int, length: int) -> None:
        """Sums floats over all workers, in place."""
        if length > 0:
            dist.all_reduce(floats_at(address, length), group=self.control)


class Buckets:
    """Gradients in flat buckets, summed over the workers while the backward pass goes on."""

    def __init__(self, parameters: list[nn.Parameter], group: dist.ProcessGroup | None) -> None:
        """Makes buckets of these parameters, the last of which have their gradients first."""
        self.group = group
        self.flat: list[Tensor] = []
        self.sizes: list[int] = []
        self.missing: list[int] = []
        self.started = 0
        self.work: list[dist.Work] = []
        self.hooks: list[torch.utils.hooks.RemovableHandle] = []
        bucket: list[nn.Parameter] = []
        for parameter in reversed(parameters):
            bucket.append(parameter)
            if sum(member.numel() for member in bucket) * 4 >= BUCKET_BYTES:
                self.add(bucket)
                bucket = []
        if bucket:
            self.add(bucket)

    def add(self, members: list[nn.Parameter]) -> None:
        """Adds a bucket, whose parts are the gradients of its members."""
        flat = torch.zeros(sum(member.numel() for member in members), device=members[0].device)
        number, start = len(self.flat), 0
        for member in members:
            # dense strides, those of the parameter
            member.grad = flat.as_strided(member.size(), member.stride(), start)
            start += member.numel()
            self.hooks.append(cast(Any, member).register_post_accumulate_grad_hook(self.ready(number)))
        self.flat.append(flat)
        self.sizes.append(len(members))

    def ready(self, bucket: int) -> Callable[[Tensor], None]:
        """What happens when a gradient of a bucket is there."""

        def hook(_: Tensor) -> None:
            self.missing[bucket] -= 1
            # in the same order everywhere
            while self.started < len(self.flat) and self.missing[self.started] == 0:
                self.start()

        return hook

    def start(self) -> None:
        """Starts to sum the next bucket."""
        if self.group is not None:
            work = dist.all_reduce(self.flat[self.started], group=self.group, async_op=True)
            if work is not None:
                self.work.append(work)
        self.started += 1

    def zero(self) -> None:
        """Before a backward pass."""
        for flat in self.flat:
            flat.zero_()
        self.missing = list(self.sizes)
        self.started = 0

    def finish(self) -> None:
        """After a backward pass: sums what is left, and waits."""
        while self.started < len(self.flat):
            self.start()
        for work in self.work:
            work.wait()
        self.work.clear()

    def norm(self) -> float:
        """The global norm of the gradients."""
        squares = [torch.linalg.vector_norm(flat, dtype=torch.float64).square() for flat in self.flat]
        return float(torch.stack(squares).sum().sqrt()) if squares else 0.0

    def scale(self, factor: float) -> None:
        """Multiplies all gradients."""
        torch._foreach_mul_(self.flat, factor)

    def close(self) -> None:
        """Removes the hooks."""
        for hook in self.hooks:
            hook.remove()
