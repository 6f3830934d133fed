#!/usr/bin/env python3
"""Measures torchvision and Pillow on photographs: read, decode, random resized crop to 224, flip, normalize.

    photos_torch.py DIR      makes 200 JPEG files in DIR if it is not there, then prints a JSON line per measurement

The files are generated: soft random colors with some noise, two of three 500 x 375, the others 640 x 480, quality
88, about 65 kB each. Compare with `equipoise bench data DIR/*.jpg --threads 1` and `--threads 2`, taking turns.
"""
import glob
import json
import os
import sys
import time

import numpy as np
import torch
from PIL import Image
from torchvision import transforms as T

folder = sys.argv[1]
if not os.path.isdir(folder):
    os.makedirs(folder)
    rng = np.random.default_rng(0)
    for i in range(200):
        w, h = (500, 375) if i % 3 else (640, 480)
        soft = Image.fromarray(rng.integers(0, 255, (h // 8, w // 8, 3), dtype=np.uint8)).resize((w, h), Image.BICUBIC)
        noise = Image.fromarray(rng.integers(0, 40, (h, w, 3), dtype=np.uint8))
        Image.blend(soft, noise, 0.2).save(f"{folder}/{i:03}.jpg", quality=88)
files = sorted(glob.glob(f"{folder}/*.jpg"))
change = T.Compose([T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor(),
                    T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))])


class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 5 * len(files)

    def __getitem__(self, i):
        return change(Image.open(files[i % len(files)]).convert("RGB"))


torch.set_num_threads(1)
for workers in (0, 2):
    rates = []
    for _ in range(3):
        batches = iter(torch.utils.data.DataLoader(Files(), batch_size=16, num_workers=workers))
        next(batches)
        start = time.perf_counter()
        images = sum(len(batch) for batch in batches)
        rates.append(images / (time.perf_counter() - start))
    print(json.dumps({"workers": workers, "images_per_second": round(sorted(rates)[1]), "best": round(max(rates))}))
