#!/usr/bin/env python3
"""Makes the expected weights of the optimizers: crates/nn/tests/golden/optimizers.json.

    make_optimizers.py FILE      writes FILE; needs numpy

The updates are those that PyTorch documents for torch.optim.SGD (momentum, nesterov) and torch.optim.AdamW, in float64. Weights and
gradients come from SplitMix64 at a position (as `equipoise-random`). The learning rate changes with every step.
"""
import json
import sys

import numpy as np

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1
LENGTH = 10
STEPS = 6


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def random(length, salt):
    """Values between -1 and 1, rounded to f32: `Draws::new(11, salt, 0).unit(i)`."""
    key = 0
    for word in (11, salt, 0):
        key = mix(((key + GOLDEN) & MASK) ^ mix(word ^ GOLDEN))
    units = [(mix((key + GOLDEN * (i + 1)) & MASK) >> 11) / 2.0**53 for i in range(length)]
    return (2.0 * np.array(units) - 1.0).astype(np.float32).astype(np.float64)


def sgd(w, steps, momentum, nesterov, weight_decay):
    buffer = np.zeros_like(w)
    for rate, g in steps:
        g = g + weight_decay * w
        buffer = momentum * buffer + g
        w = w - rate * (g + momentum * buffer if nesterov else buffer)
        yield w


def adamw(w, steps, betas, epsilon, weight_decay):
    first, second = np.zeros_like(w), np.zeros_like(w)
    for t, (rate, g) in enumerate(steps, start=1):
        w = w - rate * weight_decay * w
        first = betas[0] * first + (1 - betas[0]) * g
        second = betas[1] * second + (1 - betas[1]) * g * g
        w = w - rate * (first / (1 - betas[0] ** t)) / (np.sqrt(second / (1 - betas[1] ** t)) + epsilon)
        yield w


def main():
    w = random(LENGTH, 500)
    steps = [(0.1 / (1 + t), random(LENGTH, 501 + t)) for t in range(STEPS)]
    cases = [
        {"momentum": 0.9, "nesterov": False, "weight_decay": 0.01},
        {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
        {"momentum": 0.5, "nesterov": True, "weight_decay": 0.0},
        {"betas": [0.9, 0.999], "epsilon": 1e-8, "weight_decay": 0.01},
        {"betas": [0.8, 0.9], "epsilon": 1e-3, "weight_decay": 0.1},
    ]
    for case in cases:
        update = adamw if "betas" in case else sgd
        case["weights"] = [list(w) for w in update(w, steps, **case)]
    with open(sys.argv[1], "w") as file:
        json.dump({"rates": [rate for rate, _ in steps], "cases": cases}, file, indent=1)
        file.write("\n")


main()
