#!/usr/bin/env python3
"""Makes the expected figures of whole networks: crates/nn/tests/golden/networks.json.

    make_networks.py FILE      writes FILE; needs torch and torchvision

ResNet-32 is written out here, ResNet-18 and ResNet-50 are torchvision's; all run in float64. Images, weights and the gradient of the
logits come from SplitMix64 at a position (as `equipoise-random`), so that nothing has to be stored. For every tensor the norm of
its gradient and its product with a random direction are given; logits are given in full.
"""
import json
import sys

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def random(length, salt):
    """Values between -1 and 1, rounded to f32: `Draws::new(11, salt, 0).unit(i)`."""
    key = 0
    for word in (11, salt, 0):
        key = mix(((key + GOLDEN) & MASK) ^ mix(word ^ GOLDEN))
    with np.errstate(over="ignore"):
        x = np.uint64(key) + np.uint64(GOLDEN) * np.arange(1, length + 1, dtype=np.uint64)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    unit = (x >> np.uint64(11)).astype(np.float64) / 2.0**53
    return (2.0 * unit - 1.0).astype(np.float32).astype(np.float64)


class Block(nn.Module):
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


class Small(nn.Module):
    def __init__(self, blocks, classes, channels=3):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        inputs = 16
        for number, (width, stride) in enumerate([(16, 1), (32, 2), (64, 2)]):
            stage = [Block(inputs if b == 0 else width, width, stride if b == 0 else 1) for b in range(blocks)]
            setattr(self, f"layer{number + 1}", nn.Sequential(*stage))
            inputs = width
        self.linear = nn.Linear(64, classes)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.linear(x.mean((2, 3)))


def figures(name, model, shape, classes):
    model = model.double().train()
    for number, (key, tensor) in enumerate(model.named_parameters()):
        noise = random(tensor.numel(), 100 + number).reshape(tensor.shape)
        if tensor.dim() == 1:
            start = 1.0 if key.endswith("weight") else 0.0
            values = (start + 0.3 * noise).astype(np.float32)
        else:
            fan_in = tensor[0].numel()
            # uniform with He's variance
            values = (noise * np.float64(np.float32(np.sqrt(6.0 / fan_in)))).astype(np.float32)
        tensor.data = torch.from_numpy(values.astype(np.float64))
    images = torch.from_numpy(random(int(np.prod(shape)), 1).reshape(shape))
    weights = torch.from_numpy(random(shape[0] * classes, 2).reshape(shape[0], classes))
    logits = model(images)
    (logits * weights).sum().backward()
    tensors = []
    for number, (key, tensor) in enumerate(model.named_parameters()):
        gradient = tensor.grad.flatten().numpy()
        direction = random(gradient.size, 10_000 + number)
        tensors.append({"name": key, "shape": list(tensor.shape), "norm": float(np.linalg.norm(gradient)), "along": float(gradient @ direction)})
    with torch.no_grad():
        evaluated = model.eval()(images)
    size = {"name": name, "images": shape[0], "channels": shape[1], "size": shape[2], "classes": classes}
    return {**size, "logits": logits.flatten().tolist(), "evaluated": evaluated.flatten().tolist(), "tensors": tensors}


if __name__ == "__main__":
    import torchvision

    torch.manual_seed(0)
    cases = [
        figures("resnet32", Small(5, 10), (6, 3, 32, 32), 10),
        figures("resnet14", Small(2, 10, channels=1), (6, 1, 28, 28), 10),
        figures("resnet20", Small(3, 100), (4, 3, 64, 64), 100),
        figures("resnet18", torchvision.models.resnet18(num_classes=7), (3, 3, 224, 224), 7),
        figures("resnet50", torchvision.models.resnet50(num_classes=7), (3, 3, 224, 224), 7),
    ]
    with open(sys.argv[1], "w") as out:
        json.dump({"made_by": "tools/make_networks.py", "cases": cases}, out)
        out.write("\n")
