#!/usr/bin/env python3
"""Measures torchvision's augmentation of small images: 32 x 32 color images (random bytes), in images per second on one thread.

    changes_torch.py      prints a JSON line per measurement; needs torch, torchvision and Pillow

Compare with `equipoise bench data --policy jitter` and `--policy randaugment`, `--threads 1` and `--threads 2`, taking turns.
"""
import json
import time

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import v2

torch.set_num_threads(1)
bytes_ = np.random.default_rng(0).integers(0, 256, (2000, 32, 32, 3), dtype=np.uint8)
pil = [Image.fromarray(x) for x in bytes_]
tensors = [torch.from_numpy(x).permute(2, 0, 1).contiguous() for x in bytes_]
usual = [v2.RandomCrop(32, padding=4), v2.RandomHorizontalFlip()]
last = [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))]
for name, change in {"crop": [], "jitter": [v2.ColorJitter(0.4, 0.4, 0.4, 0.1)], "randaugment": [v2.RandAugment(2, 9)]}.items():
    policy = v2.Compose(usual + change + last)
    for kind, images in {"PIL": pil, "tensor": tensors}.items():
        rates = []
        for _ in range(3):
            start = time.perf_counter()
            for image in images:
                policy(image)
            rates.append(len(images) / (time.perf_counter() - start))
        print(json.dumps({"policy": name, "images": kind, "images_per_second": round(max(rates))}), flush=True)
