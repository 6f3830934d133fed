"""How far two engines are from exact arithmetic, step by step: the engine of the crates, and that of torch.

Training amplifies rounding: some gradients of the first step already differ by a thousandth (probably two engines
disagree about the slope of a ReLU whose input is 0 up to rounding), and the next steps multiply that. A difference
between two engines after ten steps therefore says little. The arbiter is torch with 64 bits: an engine is right if it
is about as far from the arbiter as torch with 32 bits is.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from equipoise._equipoise import CpuEngine
from equipoise._equipoise import network as describe
from equipoise.torch.engine import EngineOptions, TorchEngine
from equipoise.torch.networks import ResNet
from equipoise.torch.workers import floats_at

CLASSES = 10
MOMENTUM = 0.9
SMOOTH_GAIN = 0.1
"""The factor of the last batch norm of a block with which ten steps amplify rounding little."""


class Task(NamedTuple):
    """A short training on noise, the same for every engine."""

    network: str
    image_size: int
    batch_size: int
    learning_rate: float
    steps: int = 10
    gain: float = 1.0
    """The factor of the last batch norm of every block. Near 0, every block starts near the identity."""
    weight_decay: float = 0.01
    """Large, so that ten steps show it."""
    seed: int = 1

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        """Images and one-hot labels of a step."""
        generator = torch.Generator().manual_seed(1000 * self.seed + step)
        images = torch.randn(self.batch_size, 3, self.image_size, self.image_size, generator=generator)
        labels = torch.randint(0, CLASSES, (self.batch_size,), generator=generator)
        return images, functional.one_hot(labels, CLASSES)


class Distances(NamedTuple):
    """Distances of the engines from the arbiter, and from each other."""

    crates: list[float]
    """The largest difference of a logit between the crates and the arbiter, before the first step and after each."""
    torch: list[float]
    """The same of torch's engine."""
    between: list[float]
    """The same between both engines."""
    crates_update: float
    """The distance of the crates' weights at the end from the arbiter's, as a part of the way of the arbiter."""
    torch_update: float
    """The same of torch's engine."""


class Arbiter:
    """Torch with 64 bits on the CPU."""

    def __init__(self, description: str, task: Task, weights: list[Tensor]) -> None:
        """Starts from these weights."""
        self.model = ResNet(description)
        named = dict(self.model.named_parameters())
        self.parameters = [named[name] for name in self.model.parameter_names]
        with torch.no_grad():
            for parameter, values in zip(self.parameters, weights, strict=True):
                parameter.copy_(values.reshape(parameter.shape))
        self.model.double().train()
        options: dict[str, Any] = {"momentum": MOMENTUM, "weight_decay": task.weight_decay}
        self.optimizer = torch.optim.SGD(self.parameters, task.learning_rate, **options)

    def forward(self, images: Tensor) -> Tensor:
        """Logits."""
        self.logits = cast(Tensor, self.model(images.double()))
        return self.logits.detach()

    def step(self, gradient: Tensor) -> None:
        """A step along a gradient of the logits."""
        self.optimizer.zero_grad()
        self.logits.backward(gradient)  # type: ignore[no-untyped-call]
        self.optimizer.step()


def start(description: str, task: Task, crates: CpuEngine) -> list[Tensor]:
    """Gives the engine of the crates its first weights, and returns them."""
    names = ResNet(description).parameter_names
    values = crates.parameters()
    last = "bn3.weight" if any(name.endswith("bn3.weight") for name in names) else "bn2.weight"
    for name, array in zip(names, values, strict=True):
        if name.endswith(last):
            array.fill(task.gain)
    crates.set_parameters(values)
    return [torch.from_numpy(array) for array in values]


def slope(logits: Tensor, target: Tensor) -> Tensor:
    """The gradient of cross-entropy."""
    return (logits.double().softmax(1) - target) / len(logits)


def distances(task: Task, options: EngineOptions, convolution: str = "winograd") -> Distances:
    """Trains three times on the same batches, each engine by its own logits, and compares."""
    description = describe(task.network, 3, task.image_size, task.image_size, CLASSES)
    crates = CpuEngine(description, task.batch_size, task.seed, torch.get_num_threads(), convolution)
    first = start(description, task, crates)
    engine = TorchEngine(description, options)
    engine.set_tensors("parameters", [(values.data_ptr(), values.numel()) for values in first])
    arbiter = Arbiter(description, task, first)
    found: list[list[float]] = []
    for step in range(task.steps + 1):
        images, target = task.batch(step)
        want = arbiter.forward(images)
        ours = torch.from_numpy(crates.forward(images.numpy().ravel(), True)).reshape(want.shape)
        theirs = floats_at(*engine.forward(images.data_ptr(), task.batch_size, True)).reshape(want.shape).clone()
        pairs = [(ours, want), (theirs, want), (ours, theirs)]
        found.append([float((a.double() - b.double()).abs().max()) for a, b in pairs])
        if step < task.steps:
            arbiter.step(slope(want, target))
            crates.backward(slope(ours, target).float().numpy().ravel())
            crates.sgd(task.learning_rate, MOMENTUM, task.weight_decay)
            gradient = slope(theirs, target).float().contiguous()
            engine.backward(gradient.data_ptr(), gradient.numel())
            engine.step_sgd((task.learning_rate, 1.0, 1.0, task.weight_decay, None), MOMENTUM, False)
    begin = flat(first)
    way = flat(arbiter.parameters) - begin
    ours_way = torch.from_numpy(np.concatenate(crates.parameters())).double() - begin
    theirs_way = flat(engine.tensors("parameters")) - begin
    parts = [float((other - way).norm() / way.norm()) for other in (ours_way, theirs_way)]
    crates_logits, torch_logits, between_logits = (list(column) for column in zip(*found, strict=True))
    return Distances(crates_logits, torch_logits, between_logits, *parts)


def flat(tensors: list[Any]) -> Tensor:
    """All values in a row."""
    return torch.cat([tensor.detach().cpu().reshape(-1).double() for tensor in tensors])
