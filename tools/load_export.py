"""Loads a file that `equipoise export` wrote: the network, the preprocessing and the names of the classes.

    model, preprocess, classes = load("weights.safetensors")
    probabilities = model(preprocess(Image.open("photo.jpg"))[None]).softmax(1)

Needs torch, safetensors, numpy and Pillow; torchvision for resnet18 and resnet50 only. docs/export.md explains the metadata.
"""

import json

import numpy as np
import torch
import torch.nn.functional as F
from PIL import ImageOps
from safetensors import safe_open
from torch import nn


class Block(nn.Module):
    """A residual block; the shortcut adds zero channels where shapes differ (option A of He et al., CVPR 2016)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.stride, self.zeros = stride, (outputs - inputs) // 2

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.stride != 1:
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.zeros, self.zeros))
        return F.relu(x + y)


class SmallResNet(nn.Module):
    """ResNet-8 to ResNet-56 for small images, without the head."""

    def __init__(self, depth, channels, width):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)
        inputs = width
        for number, (width, stride) in enumerate([(width, 1), (2 * width, 2), (4 * width, 2)]):
            blocks = [Block(inputs if b == 0 else width, width, stride if b == 0 else 1) for b in range((depth - 2) // 6)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
            inputs = width

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        return self.layer3(self.layer2(self.layer1(x))).mean((2, 3))


class Model(nn.Module):
    """A backbone with the head of the file; its logits are those of `equipoise predict`."""

    def __init__(self, tensors, metadata):
        super().__init__()
        name, classes = metadata["network"], len(json.loads(metadata["classes"]))
        if name in ("resnet18", "resnet50"):
            import torchvision

            backbone, head = getattr(torchvision.models, name)(num_classes=classes), "fc"
            backbone.fc = nn.Identity()
        else:
            depth, width = int(name.removeprefix("resnet").split("x")[0]), tensors["conv1.weight"].shape[0]
            backbone, head = SmallResNet(depth, int(metadata["channels"]), width), "linear"
        self.weight, self.bias = tensors.pop(f"{head}.weight"), tensors.pop(f"{head}.bias", None)
        factors = tensors.pop(f"{head}.scale", None)
        backbone.load_state_dict(tensors)
        self.backbone = backbone.eval()
        self.cosine, self.scale = metadata["head"] == "cosine", float(metadata["head_scale"])
        if metadata["head"] == "lws":
            self.scale = factors
        self.offsets = torch.tensor(json.loads(metadata.get("logit_offsets", "[0]")))
        self.temperature = float(metadata.get("temperature", 1))

    def forward(self, x):
        features, weight = self.backbone(x), self.weight
        if self.cosine:
            features, weight = F.normalize(features), F.normalize(weight)
        return (self.scale * F.linear(features, weight, self.bias) + self.offsets) / self.temperature


def preprocess_of(metadata):
    """The function from a Pillow image to the input of the network."""
    from PIL import Image

    mean, std = (torch.tensor(json.loads(metadata[name])).reshape(-1, 1, 1) for name in ("mean", "std"))
    crop, resize = int(metadata["height"]), int(metadata["resize"])

    def preprocess(image):
        # photographs are turned as their EXIF orientation says
        image = ImageOps.exif_transpose(image).convert("RGB")
        width, height = image.size
        short = min(width, height)
        size = (int(resize * width / short), int(resize * height / short))
        image = image.resize(size, Image.Resampling.BILINEAR)
        left, top = (round((side - crop) / 2) for side in image.size)
        pixels = np.asarray(image.crop((left, top, left + crop, top + crop)), dtype=np.float32) / 255
        if metadata["channels"] == "1":
            pixels = (pixels @ np.array([0.299, 0.587, 0.114], dtype=np.float32))[..., None]
        return (torch.from_numpy(pixels).permute(2, 0, 1) - mean) / std

    return preprocess


def load(path):
    """The model, the preprocessing and the names of the classes."""
    with safe_open(path, framework="pt") as file:
        metadata = file.metadata()
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    return Model(tensors, metadata), preprocess_of(metadata), json.loads(metadata["classes"])
