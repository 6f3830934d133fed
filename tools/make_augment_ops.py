#!/usr/bin/env python3
"""Makes the expected values of the augmentation operations: crates/data/tests/golden/augment_ops.json.

    make_augment_ops.py FILE      writes FILE; needs torch, torchvision and Pillow

Images come from a formula, so that nothing here depends on a random stream. Everything but hue is what torchvision makes of Pillow
images; hue is what it makes of tensors. Pixels are channel after channel, row after row, as hexadecimal digits.
"""
import json
import math
import sys

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import functional as F


def image(channels, height, width, low, high):
    """A value for every channel, row and column: waves with some coarse noise, between two levels."""
    c, y, x = np.meshgrid(np.arange(channels), np.arange(height), np.arange(width), indexing="ij")
    wave = np.sin(0.9 + 1.7 * c + 0.8 * y + 0.31 * x * (c + 1)) * 0.35 + ((7 * x * x + 5 * y * y * (c + 2) + 3 * x * y) % 17 - 8) / 25
    return np.clip(np.round((low + high) / 2 + (high - low) / 2 * wave), 0, 255).astype(np.uint8)


IMAGES = {"colour": image(3, 9, 7, -60, 320), "pale": image(3, 6, 8, 150, 200), "grey": image(1, 9, 7, 10, 250),
          "large": image(3, 24, 20, 0, 300), "large grey": image(1, 24, 24, 40, 180)}
# colors at the corners of the cube and between them: gray, primary, two channels alike
IMAGES["colour"][:, 0, :] = np.array([[0, 255, 255, 0, 90, 200, 10], [0, 0, 255, 0, 90, 200, 10], [0, 0, 0, 255, 90, 30, 240]])

SHEAR = lambda level: math.degrees(math.atan(level))
OPS = {
    "brightness": (F.adjust_brightness, [0.0, 0.1, 0.63, 1.0, 1.37, 1.9]),
    "contrast": (F.adjust_contrast, [0.0, 0.1, 0.63, 1.0, 1.37, 1.9]),
    "saturation": (F.adjust_saturation, [0.0, 0.1, 0.63, 1.37, 1.9]),
    "sharpness": (F.adjust_sharpness, [0.0, 0.1, 0.63, 1.37, 1.9]),
    "hue": (None, [-0.5, -0.31, -0.1, 0.0, 0.05, 0.2, 0.4, 0.5]),
    "posterize": (F.posterize, [1, 4, 5, 8]),
    "solarize": (F.solarize, [0, 77, 128, 255]),
    "autocontrast": (lambda im, _: F.autocontrast(im), [0]),
    "equalize": (lambda im, _: F.equalize(im), [0]),
    "rotate": (F.rotate, [-30, -9, 1, 17, 45, 90, 180]),
    "shear-x": (lambda im, x: F.affine(im, 0.0, [0, 0], 1.0, [SHEAR(x), 0.0], center=[0, 0]), [-0.3, 0.09, 0.3]),
    "shear-y": (lambda im, x: F.affine(im, 0.0, [0, 0], 1.0, [0.0, SHEAR(x)], center=[0, 0]), [-0.3, 0.09, 0.3]),
    "translate-x": (lambda im, x: F.affine(im, 0.0, [x, 0], 1.0, [0.0, 0.0]), [-3, 2]),
    "translate-y": (lambda im, x: F.affine(im, 0.0, [0, x], 1.0, [0.0, 0.0]), [-3, 2]),
}


def applied(name, pixels, strength):
    op, _ = OPS[name]
    if op is None:
        return F.adjust_hue(torch.from_numpy(pixels), strength).numpy()
    pil = Image.fromarray(pixels[0] if len(pixels) == 1 else pixels.transpose(1, 2, 0))
    out = np.asarray(op(pil, strength))
    return out[None] if out.ndim == 2 else out.transpose(2, 0, 1)


def text(pixels):
    return np.ascontiguousarray(pixels).tobytes().hex()


cases = []
for where, pixels in IMAGES.items():
    for name, (_, strengths) in OPS.items():
        if where.startswith("large"):
            # what small images cannot show: enough pixels for an equalised histogram, a finer rotation
            strengths = {"equalize": [0], "autocontrast": [0], "rotate": [9]}.get(name, [])
        for strength in strengths:
            cases.append({"op": name, "strength": strength, "image": where, "want": text(applied(name, pixels, strength))})
images = {name: {"height": p.shape[1], "width": p.shape[2], "pixels": text(p)} for name, p in IMAGES.items()}
with open(sys.argv[1], "w") as file:
    rows = ",\n".join("  " + json.dumps(case) for case in cases)
    shapes = ",\n".join(f"  {json.dumps(name)}: {json.dumps(shape)}" for name, shape in images.items())
    file.write(f'{{"images": {{\n{shapes}\n}}, "cases": [\n{rows}\n]}}\n')
