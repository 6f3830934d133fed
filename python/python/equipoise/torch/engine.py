"""The engine of a training: a network, its optimizer and its EMA in torch, driven by the trainer of the crates."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from equipoise.torch.networks import ResNet
from equipoise.torch.norms import BatchNorm2d
from equipoise.torch.workers import Buckets, floats_at

Rates = tuple[float, float, float, float, "float | None"]
MOMENTUM = 0.1
"""Share of the newest batch in the running statistics."""
FIRST_SCALE = 65536.0
"""Factor of the loss with fp16, at the start."""
GROWTH_STEPS = 2000
"""Steps without an overflow before the factor is doubled."""


@dataclass(frozen=True)
class EngineOptions:
    """How an engine computes."""

    device: torch.device
    amp: str = "none"
    compile: bool = False
    sync_bn: bool = False
    channels_last: bool = True


def block_depths(names: list[str], head: str) -> list[int]:
    """The distance of each parameter's block from the head: 0 for the head, 1 for the last block, most for the stem."""

    def block(name: str) -> str:
        if name.startswith(head + "."):
            return head
        return ".".join(name.split(".")[:2]) if name.startswith("layer") else "stem"

    order = list(dict.fromkeys(map(block, names)))
    return [len(order) - 1 - order.index(block(name)) for name in names]


class TorchEngine:
    """A network with everything that a training changes.

    Addresses are those of 32-bit floats in memory of the CPU, which are read or written during the call only.
    """

    def __init__(self, description: str, options: EngineOptions, group: dist.ProcessGroup | None = None) -> None:
        """Builds the network of a description. Gradients are summed over the group, if there is one."""
        self.options = options
        self.group = group
        model = ResNet(description).to(options.device)
        self.format = torch.channels_last if options.channels_last else torch.contiguous_format
        self.model = model.to(memory_format=self.format)
        self.norms = [module for module in model.modules() if isinstance(module, BatchNorm2d)]
        if options.sync_bn:
            for norm in self.norms:
                norm.group = group
        self.compiled: Callable[[Tensor], Tensor] = torch.compile(self.model) if options.compile else self.model
        named = dict(model.named_parameters())
        self.parameters = [named[name] for name in model.parameter_names]
        buffers = dict(model.named_buffers())
        self.statistics = [buffers[name] for name in model.statistic_names]
        self.is_head = [name.startswith(model.head_name + ".") for name in model.parameter_names]
        self.depths = block_depths(model.parameter_names, model.head_name)
        self.is_scale = [name == model.head_name + ".scale" for name in model.parameter_names]
        self.momentum = [torch.zeros_like(p) for p in self.parameters]
        self.second_moment: list[Tensor] = []
        self.ema: tuple[list[Tensor], list[Tensor]] | None = None
        self.before_ascent: list[Tensor] | None = None
        self.optimizer: torch.optim.Optimizer | None = None
        self.logits: Tensor | None = None
        self.returned = torch.empty(0)
        self.staging: Tensor | None = None
        self.loss_scale = FIRST_SCALE
        self.good_steps = 0
        self.buckets = Buckets([], None)
        self.frozen_norms = False
        self.freeze_backbone(False)

    def freeze_backbone(self, frozen: bool) -> None:
        """Trains the head only, or everything. Of a head with scales of its classes, only the scales are trained."""
        self.frozen = frozen
        only_scales = self.model.head.kind == "lws"
        trained = []
        for parameter, head, scale in zip(self.parameters, self.is_head, self.is_scale, strict=True):
            train = (scale or not only_scales) if head else not frozen
            parameter.requires_grad_(train)
            parameter.grad = None
            if train:
                trained.append(parameter)
        self.buckets.close()
        self.buckets = Buckets(trained, self.group)
        self.optimizer = None

    def freeze_batch_norm(self, frozen: bool) -> None:
        """Lets batch norms use their running statistics in training, or those of the batch."""
        self.frozen_norms = frozen
        self.logits = None

    # passes

    def images(self, address: int, number: int) -> Tensor:
        """Images on the device. Those for a GPU go through pinned memory, so that the copy does not wait."""
        shape = (number, *self.model.shape)
        source = floats_at(address, number * self.model.conv1.in_channels * shape[2] * shape[3]).reshape(shape)
        if self.options.device.type != "cuda":
            return torch.empty(shape, memory_format=self.format).copy_(source)
        if self.staging is None or self.staging.numel() < source.numel():
            self.staging = torch.empty(source.numel(), pin_memory=True)
        # the copy of the batch before has ended: its logits have come back
        pinned = self.staging[: source.numel()].reshape(shape)
        pinned.copy_(source)
        return pinned.to(self.options.device, non_blocking=True).to(memory_format=self.format)

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision of passes in training."""
        if self.options.amp == "none":
            return contextlib.nullcontext()
        dtype = torch.bfloat16 if self.options.amp == "bf16" else torch.float16
        return torch.autocast(self.options.device.type, dtype)

    def set_momentum(self, share: float) -> None:
        """The share of the next batch in the running statistics."""
        for norm in self.norms:
            if norm.momentum != share:
                norm.momentum = share

    def train_logits(self, images: Tensor, model: Callable[[Tensor], Tensor]) -> Tensor:
        """Logits in training."""
        if self.frozen:
            self.model.eval()
            with torch.no_grad(), self.autocast():
                features = self.model.features(images)
            with self.autocast():
                return cast(Tensor, self.model.head(features)).float()
        self.model.train()
        if self.frozen_norms:
            for norm in self.norms:
                norm.eval()
        self.set_momentum(MOMENTUM if self.before_ascent is None else 0.0)
        with self.autocast():
            return model(images).float()

    def forward(self, address: int, number: int, train: bool) -> tuple[int, int]:
        """Logits of images: their address and their number."""
        images = self.images(address, number)
        if train:
            self.logits = self.train_logits(images, self.compiled)
            logits = self.logits.detach()
        else:
            self.logits = None
            self.model.eval()
            with torch.inference_mode():
                logits = self.model(images)
        self.returned = logits.to("cpu", torch.float32).contiguous()
        return self.returned.data_ptr(), self.returned.numel()

    def backward(self, address: int, length: int) -> None:
        """Gradients of all parameters, summed over all workers."""
        if self.logits is None:
            raise RuntimeError("a backward pass needs a forward pass in training before it")
        gradient = floats_at(address, length).reshape(self.logits.shape).to(self.options.device, copy=True)
        self.pass_back(gradient)

    def pass_back(self, gradient: Tensor) -> None:
        """Goes back through the network, and sums."""
        logits, self.logits = self.logits, None
        self.buckets.zero()
        if logits is not None:
            fp16 = self.options.amp == "fp16"
            logits.backward(gradient * self.loss_scale if fp16 else gradient)  # type: ignore[no-untyped-call]
        self.buckets.finish()
        if self.options.amp == "fp16":
            self.buckets.scale(1.0 / self.loss_scale)

    def forward_without_images(self) -> None:
        """Takes part in a forward pass of others: batch norms over all workers need it."""
        self.logits = None
        if self.options.sync_bn and not self.frozen and not self.frozen_norms:
            empty = torch.empty((0, *self.model.shape), device=self.options.device)
            self.logits = self.train_logits(empty, self.model)

    def backward_without_images(self) -> None:
        """Takes part in a backward pass of others."""
        self.pass_back(torch.empty((0, self.model.classes), device=self.options.device))

    def estimate_statistics(self, address: int, number: int, share: float) -> None:
        """Moves the running statistics by a share of those of images."""
        self.logits = None
        images = self.images(address, number)
        self.model.train()
        self.set_momentum(share)
        with torch.no_grad():
            self.model.features(images)

    # the optimizer

    def step_sgd(self, rates: Rates, momentum: float, nesterov: bool) -> float:
        """A step of SGD. Returns the norm of the gradients before they were clipped."""
        if not isinstance(self.optimizer, torch.optim.SGD):
            self.optimizer = torch.optim.SGD(self.groups(), lr=0.0, **self.kernels())
            for parameter, buffer in self.states(self.momentum):
                self.optimizer.state[parameter]["momentum_buffer"] = buffer
        options = {"momentum": momentum, "nesterov": nesterov}
        return self.step(self.optimizer, rates, options)

    def step_adamw(self, rates: Rates, betas: tuple[float, float], epsilon: float, step: int) -> float:
        """A step of AdamW. Returns the norm of the gradients before they were clipped."""
        if not isinstance(self.optimizer, torch.optim.AdamW):
            self.start_second_moment()
            self.optimizer = torch.optim.AdamW(self.groups(), lr=0.0, **self.kernels())
            for parameter, buffer in self.states(self.momentum):
                self.optimizer.state[parameter]["exp_avg"] = buffer
            for parameter, buffer in self.states(self.second_moment):
                self.optimizer.state[parameter]["exp_avg_sq"] = buffer
                device = self.options.device if self.options.device.type == "cuda" else "cpu"
                self.optimizer.state[parameter]["step"] = torch.zeros((), device=device)
        for state in self.optimizer.state.values():
            state["step"].fill_(step - 1)
        return self.step(self.optimizer, rates, {"betas": betas, "eps": epsilon})

    def kernels(self) -> dict[str, Any]:
        """The fastest kernels of torch's optimizers."""
        return {"fused": True} if self.options.device.type == "cuda" else {"foreach": True}

    def states(self, buffers: list[Tensor]) -> list[tuple[nn.Parameter, Tensor]]:
        """Trained parameters with their buffers."""
        pairs = zip(self.parameters, buffers, strict=True)
        return [(parameter, buffer) for parameter, buffer in pairs if parameter.requires_grad]

    def groups(self) -> list[dict[str, Any]]:
        """The trained parameters by how they are updated: head, scales of the head, blocks of the backbone."""
        groups: dict[tuple[int, bool], list[nn.Parameter]] = {}
        for parameter, depth, scale in zip(self.parameters, self.depths, self.is_scale, strict=True):
            if parameter.requires_grad:
                groups.setdefault((depth, scale), []).append(parameter)
        return [{"params": members, "depth": depth, "scale": scale} for (depth, scale), members in groups.items()]

    def step(self, optimizer: torch.optim.Optimizer, rates: Rates, options: dict[str, Any]) -> float:
        """Updates the parameters unless the norm is not finite."""
        learning_rate, backbone_factor, layer_decay, weight_decay, clip = rates
        norm = self.buckets.norm()
        if norm != norm or norm == float("inf"):
            return self.overflow(norm)
        self.return_from_ascent()
        if clip is not None and norm > clip:
            self.buckets.scale(clip / norm)
        for group in optimizer.param_groups:
            depth = group["depth"]
            group["lr"] = learning_rate * (backbone_factor * layer_decay**depth if depth else 1.0)
            group["weight_decay"] = 0.0 if group["scale"] else weight_decay
            group.update(options)
        optimizer.step()
        self.good_steps += 1
        if self.good_steps % GROWTH_STEPS == 0:
            self.loss_scale = min(2.0 * self.loss_scale, 2.0**24)
        return norm

    def overflow(self, norm: float) -> float:
        """With fp16, a gradient that is not finite asks for a smaller factor of the loss: the step is left out."""
        if self.options.amp != "fp16" or self.loss_scale <= 1.0:
            return norm
        self.return_from_ascent()
        self.loss_scale /= 2.0
        self.good_steps = 0
        return 0.0

    def ascend(self, rho: float) -> float:
        """Moves the parameters along the gradients, until the next step."""
        self.return_from_ascent()
        norm = self.buckets.norm()
        if norm != norm or norm == float("inf"):
            return norm if self.options.amp != "fp16" else 0.0
        with torch.no_grad():
            self.before_ascent = [p.detach().clone() for p in self.parameters]
            factor = rho / norm if norm > 0.0 else 0.0
            for parameter in self.parameters:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=factor)
        return norm

    def return_from_ascent(self) -> None:
        """Restores the parameters before an ascent."""
        if self.before_ascent is not None:
            with torch.no_grad():
                torch._foreach_copy_(list[Tensor](self.parameters), self.before_ascent)
            self.before_ascent = None

    def start_second_moment(self) -> None:
        """Allocates the second moment of AdamW."""
        if not self.second_moment:
            self.second_moment = [torch.zeros_like(p) for p in self.parameters]

    # the EMA

    def start_ema(self) -> None:
        """Starts an EMA as a copy of the weights."""
        self.ema = ([p.detach().clone() for p in self.parameters], [s.clone() for s in self.statistics])

    def kept_ema(self) -> tuple[list[Tensor], list[Tensor]]:
        """The EMA."""
        if self.ema is None:
            raise RuntimeError("the engine keeps no EMA of the weights; call `start_ema` first")
        return self.ema

    def weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """Parameters and running statistics."""
        return list[Tensor](self.parameters), self.statistics

    def update_ema(self, decay: float) -> None:
        """Moves the EMA toward the weights."""
        with torch.no_grad():
            for average, current in zip(self.kept_ema(), self.weights(), strict=True):
                torch._foreach_mul_(average, decay)
                torch._foreach_add_(average, current, alpha=1.0 - decay)

    def swap_ema(self) -> None:
        """Exchanges the EMA with the weights."""
        self.logits = None
        with torch.no_grad():
            for average, current in zip(self.kept_ema(), self.weights(), strict=True):
                for kept, used in zip(average, current, strict=True):
                    swapped = kept.clone()
                    kept.copy_(used)
                    used.copy_(swapped)

    # tensors in and out

    def kind(self, name: str) -> list[Tensor]:
        """A list of tensors by its name."""
        if name == "gradients":
            return [torch.zeros_like(p) if p.grad is None else p.grad for p in self.parameters]
        if name.startswith("ema_"):
            if self.ema is None:
                return []
            return self.ema[0] if name == "ema_parameters" else self.ema[1]
        lists: dict[str, list[Tensor]] = {
            "parameters": list(self.parameters),
            "momentum": self.momentum,
            "second_moment": self.second_moment,
            "statistics": self.statistics,
        }
        return lists[name]

    def tensors(self, name: str) -> list[Tensor]:
        """Copies of tensors on the CPU, in the usual order of values."""
        return [torch.empty(tensor.shape).copy_(tensor.detach()) for tensor in self.kind(name)]

    def set_tensors(self, name: str, values: list[tuple[int, int]]) -> None:
        """Replaces tensors by the floats at these addresses."""
        if name == "second_moment":
            self.start_second_moment()
        if name.startswith("ema_"):
            self.kept_ema()
        self.logits = None
        if name == "parameters":
            self.before_ascent = None
        with torch.no_grad():
            for tensor, (address, length) in zip(self.kind(name), values, strict=True):
                tensor.copy_(floats_at(address, length).reshape(tensor.shape))
