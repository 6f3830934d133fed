#!/usr/bin/env python3
"""Prints the hashes of long-tailed subsets that the test of `longtail.rs` holds, made by NumPy's legacy generator.

    make_subsets.py

One stream over all classes: the ascending positions of each class are shuffled, and the first n_c kept. The hash is FNV-1a
over the positions as little-endian words of 32 bits, in the order they were drawn.
"""
import argparse

import numpy as np

IMAGES, CLASSES = 50_000, 10


def draw(labels, imbalance, profile, seed):
    np.random.seed(seed)
    most, kept = IMAGES / CLASSES, []
    for c in range(CLASSES):
        if profile == "exp":
            # the last class exactly: the power could fall just below an integer
            quota = most / imbalance if c == CLASSES - 1 else most * imbalance ** (-c / (CLASSES - 1))
        else:
            quota = most if c < CLASSES // 2 else most / imbalance
        positions = np.where(labels == c)[0]
        np.random.shuffle(positions)
        kept.extend(positions[:int(quota)])
    return np.array(kept, dtype="<u4")


def fnv(body):
    h = 0xCBF29CE484222325
    for b in body:
        h = ((h ^ b) * 0x100000001B3) % 2**64
    return h


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    i = np.arange(IMAGES, dtype=np.uint64)
    sets = {"striped": i % 10, "mixed": ((i * 2_654_435_761) % 2**32 >> 16) % 10}
    for name, labels in sets.items():
        for profile in ["exp", "step"]:
            for imbalance in [10, 100]:
                for seed in [0, 1]:
                    kept = draw(labels, imbalance, profile, seed)
                    print(name, profile, imbalance, seed, len(kept), f"0x{fnv(kept.tobytes()):016x}")
