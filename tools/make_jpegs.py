#!/usr/bin/env python3
"""Makes JPEG files and what libjpeg-turbo decodes them to: crates/data/tests/golden/jpegs.json.

    make_jpegs.py FILE      writes FILE; needs NumPy and Pillow

Images come from a formula. Files and pixels (red, green and blue of every pixel, row after row) are hexadecimal digits.
"""
import io
import json
import sys

import numpy as np
from PIL import Image, features


def image(height, width):
    """Smooth colors with an edge and some texture."""
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    edge = np.where(x + y > 0.9 * width, 70, 0)
    waves = [np.sin(0.21 * x + 0.5) + np.cos(0.17 * y), np.cos(0.13 * x - 0.2 * y), np.sin(0.3 * y + 1) - np.cos(0.11 * x)]
    planes = [120 + 45 * wave + sign * edge + (3 * x * y + c * x) % 7 for c, (wave, sign) in enumerate(zip(waves, (1, -1, 0)))]
    return np.clip(np.stack(planes, axis=-1), 0, 255).astype(np.uint8)


CASES = [
    ("gray", (20, 24), dict(quality=85), True),
    ("4:4:4", (20, 24), dict(quality=90, subsampling=0), False),
    ("4:2:2", (20, 24), dict(quality=85, subsampling=1), False),
    ("4:2:0", (32, 32), dict(quality=85, subsampling=2), False),
    ("4:2:0, odd size", (27, 21), dict(quality=75, subsampling=2), False),
    ("4:2:0, progressive", (27, 21), dict(quality=85, subsampling=2, progressive=True), False),
]
cases = []
for name, (height, width), options, gray in CASES:
    file = io.BytesIO()
    picture = Image.fromarray(image(height, width))
    (picture.convert("L") if gray else picture).save(file, "JPEG", **options)
    pixels = np.asarray(Image.open(io.BytesIO(file.getvalue())).convert("RGB"))
    cases.append({"name": name, "width": width, "height": height, "file": file.getvalue().hex(), "pixels": pixels.tobytes().hex()})
about = f"Pillow with libjpeg-turbo {features.version('libjpeg_turbo')}; made by tools/make_jpegs.py"
with open(sys.argv[1], "w") as out:
    json.dump({"about": about, "cases": cases}, out, indent=0)
    out.write("\n")
