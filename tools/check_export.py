"""Compares an exported network in PyTorch with `equipoise predict`.

    equipoise export RUN -o weights.safetensors
    equipoise predict RUN IMAGES --json --top 100000 > predictions.jsonl
    python3 tools/check_export.py weights.safetensors predictions.jsonl

Probabilities determine logits up to a constant, which is compared here: the largest difference of log-probabilities, among classes
with at least a probability of 1e-6. Use square PNG images whose side is the `resize` of the metadata: they are neither decoded nor resized
differently, and agree to 1e-4. Pillow rounds resized images to 8 bits, which `equipoise` does not for photographs.
"""

import json
import math
import sys

import torch
from PIL import Image

from load_export import load


def main(weights, predictions):
    model, preprocess, classes = load(weights)
    largest, images = 0.0, 0
    with open(predictions) as lines, torch.no_grad():
        for line in map(json.loads, lines):
            logits = model(preprocess(Image.open(line["path"]))[None])[0].log_softmax(0)
            for prediction in line["predictions"]:
                if prediction["probability"] >= 1e-6:
                    ours = math.log(prediction["probability"])
                    largest = max(largest, abs(ours - logits[classes.index(prediction["label"])].item()))
            images += 1
    print(f"{images} images, {len(classes)} classes: log-probabilities differ by at most {largest:.2g}")
    sys.exit(largest > 1e-3 or images == 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
