#!/usr/bin/env python3
"""Makes the expected values of the augmentation policies: crates/data/tests/golden/augment_policies.json.

    make_augment_policies.py FILE      writes FILE; needs torch, torchvision and Pillow

Every operation of torchvision's RandAugment and TrivialAugmentWide at every magnitude, and every step of the 25 sub-policies of its
AutoAugment for CIFAR-10, applied with both signs to one Pillow image that comes from a formula. Only the CRC-32 of the pixels is kept
(channel after channel, row after row, as eight hexadecimal digits): first of the positive, then of the negative magnitude.
"""
import json
import sys
import zlib

import numpy as np
from PIL import Image
from torchvision.transforms import AutoAugment, AutoAugmentPolicy, InterpolationMode, RandAugment, TrivialAugmentWide
from torchvision.transforms.autoaugment import _apply_op

HEIGHT, WIDTH = 20, 32
c, y, x = np.meshgrid(np.arange(3), np.arange(HEIGHT), np.arange(WIDTH), indexing="ij")
WAVE = np.sin(0.9 + 1.7 * c + 0.8 * y + 0.31 * x * (c + 1)) * 0.35 + ((7 * x * x + 5 * y * y * (c + 2) + 3 * x * y) % 17 - 8) / 25
PIXELS = np.clip(np.round(130 + 190 * WAVE), 0, 255).astype(np.uint8)
IMAGE = Image.fromarray(PIXELS.transpose(1, 2, 0))


def checksums(op, magnitude, signed):
    """Of the image after an operation, with both signs if it has one."""
    signs = [1, -1] if signed else [1]
    changed = [np.asarray(_apply_op(IMAGE, op, sign * magnitude, InterpolationMode.NEAREST, None)) for sign in signs]
    return "".join(f"{zlib.crc32(np.ascontiguousarray(image.transpose(2, 0, 1)).tobytes()):08x}" for image in changed)


def magnitude(magnitudes, step):
    return float(magnitudes[step].item()) if magnitudes.ndim > 0 else 0.0


def every_magnitude(space):
    return {op: "".join(checksums(op, magnitude(magnitudes, step), signed) for step in range(31 if magnitudes.ndim > 0 else 1))
            for op, (magnitudes, signed) in space.items()}


def sub_policies():
    policy = AutoAugment(AutoAugmentPolicy.CIFAR10)
    space = policy._augmentation_space(10, (HEIGHT, WIDTH))

    def step(op, probability, at):
        magnitudes, signed = space[op]
        return [op, probability, checksums(op, magnitude(magnitudes, at or 0), signed)]

    return [[step(*one) for one in pair] for pair in policy.policies]


golden = {
    "height": HEIGHT,
    "width": WIDTH,
    "pixels": PIXELS.tobytes().hex(),
    "randaugment": every_magnitude(RandAugment()._augmentation_space(31, (HEIGHT, WIDTH))),
    "trivialaugment": every_magnitude(TrivialAugmentWide()._augmentation_space(31)),
    "autoaugment-cifar10": sub_policies(),
}
with open(sys.argv[1], "w") as file:
    json.dump(golden, file, indent=1)
    file.write("\n")
