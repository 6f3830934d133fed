"""The residual networks of the crates as torch modules, with the same names and shapes of parameters.

The state dict of a :class:`ResNet` is that of ``equipoise export --format safetensors``, and for ``resnet18`` and
``resnet50`` that of torchvision.
"""

from __future__ import annotations

import json
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from equipoise._equipoise import network as describe
from equipoise.torch.norms import BatchNorm2d


class Block(nn.Module):
    """A residual block: two or three convolutions with batch norms, and a shortcut."""

    def __init__(self, layers: list[dict[str, Any]], projection: dict[str, Any] | None) -> None:
        """Builds a block of these layers, with a 1 x 1 convolution on the shortcut if there is a projection."""
        super().__init__()
        self.depth = len(layers)
        for number, layer in enumerate(layers, 1):
            setattr(self, f"conv{number}", convolution(layer))
            setattr(self, f"bn{number}", BatchNorm2d(layer["outputs"]))
        self.downsample = None
        if projection is not None:
            self.downsample = nn.Sequential(convolution(projection), BatchNorm2d(projection["outputs"]))
        self.stride = 1
        for layer in layers:
            self.stride *= layer["stride"]
        self.zeros = (layers[-1]["outputs"] - layers[0]["inputs"]) // 2

    def forward(self, x: Tensor) -> Tensor:
        """The output of the block."""
        y = x
        for number in range(1, self.depth + 1):
            y = getattr(self, f"bn{number}")(getattr(self, f"conv{number}")(y))
            if number < self.depth:
                y = functional.relu(y)
        return functional.relu(y + self.shortcut(x))

    def shortcut(self, x: Tensor) -> Tensor:
        """The input in the shape of the output: projected, or strided with zero channels on both sides."""
        if self.downsample is not None:
            return cast(Tensor, self.downsample(x))
        if self.stride > 1:
            x = x[:, :, :: self.stride, :: self.stride]
        if self.zeros > 0:
            x = functional.pad(x, (0, 0, 0, 0, self.zeros, self.zeros))
        return x


def convolution(layer: dict[str, Any]) -> nn.Conv2d:
    """A convolution without a bias."""
    sizes = (layer["inputs"], layer["outputs"], layer["kernel"])
    return nn.Conv2d(*sizes, stride=layer["stride"], padding=layer["pad"], bias=False)


class Head(nn.Module):
    """The last layer: linear, linear with a learned factor of every class (LWS), or cosines times a scale."""

    def __init__(self, kind: Any, features: int, classes: int) -> None:
        """Builds the head that a description names."""
        super().__init__()
        self.weight = nn.Parameter(torch.empty(classes, features))
        self.kind = kind if isinstance(kind, str) else next(iter(kind))
        self.fixed_scale = 1.0
        if self.kind == "cosine":
            self.fixed_scale = float(kind["cosine"]["scale"])
            if kind["cosine"].get("learned", False):
                self.scale = nn.Parameter(torch.full((1,), self.fixed_scale))
        else:
            self.bias = nn.Parameter(torch.zeros(classes))
            if self.kind == "lws":
                self.scale = nn.Parameter(torch.ones(classes))
        nn.init.kaiming_normal_(self.weight)

    def forward(self, features: Tensor) -> Tensor:
        """Logits."""
        if self.kind == "cosine":
            cosines = functional.linear(functional.normalize(features), functional.normalize(self.weight))
            return cosines * (self.scale if hasattr(self, "scale") else self.fixed_scale)
        logits = functional.linear(features, self.weight, self.bias)
        return logits * self.scale if self.kind == "lws" else logits


class ResNet(nn.Module):
    """A residual network of a description by :func:`equipoise._equipoise.network`."""

    def __init__(self, description: str) -> None:
        """Builds the network; its weights are random, but not those of the crates."""
        super().__init__()
        parts = json.loads(description)
        network, layers = parts["network"], parts["layers"]
        self.description = description
        self.head_name: str = parts["head"]
        self.shape = (network["channels"], *network["size"])
        self.classes: int = network["classes"]
        self.parameter_names: list[str] = [tensor["name"] for tensor in parts["parameters"]]
        self.statistic_names: list[str] = [tensor["name"] for tensor in parts["statistics"]]
        self.conv1 = convolution(layers[0])
        self.bn1 = BatchNorm2d(layers[0]["outputs"])
        self.pool = network["stem"]["pool"]
        blocks = iter(parts["blocks"])
        self.stages = len(network["stages"])
        for number, stage in enumerate(network["stages"], 1):
            members = []
            for _ in range(stage["blocks"]):
                block = next(blocks)
                projection = block["projection"]
                inner = [layers[i] for i in block["layers"]]
                members.append(Block(inner, None if projection is None else layers[projection]))
            setattr(self, f"layer{number}", nn.Sequential(*members))
        setattr(self, self.head_name, Head(network["head"], parts["features"], self.classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight)

    @property
    def head(self) -> Head:
        """The last layer."""
        return cast(Head, getattr(self, self.head_name))

    def features(self, images: Tensor) -> Tensor:
        """The input of the head."""
        x = functional.relu(self.bn1(self.conv1(images)))
        if self.pool:
            x = functional.max_pool2d(x, 3, 2, 1)
        for number in range(1, self.stages + 1):
            x = getattr(self, f"layer{number}")(x)
        return x.mean((2, 3))

    def forward(self, images: Tensor) -> Tensor:
        """Logits of images, n x channels x height x width."""
        return cast(Tensor, self.head(self.features(images)))


def resnet(name: str, classes: int, channels: int = 3, image_size: int | tuple[int, int] | None = None) -> ResNet:
    """A network by name: ``resnet8`` to ``resnet56`` for small images, ``resnet18`` or ``resnet50`` for photographs.

    Raises:
        ValueError: for an unknown name, or numbers out of range.
    """
    if image_size is None:
        image_size = 224 if name in ("resnet18", "resnet50") else 32
    height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
    return ResNet(describe(name, channels, height, width, classes))
