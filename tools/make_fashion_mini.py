#!/usr/bin/env python3
"""Makes the embedded set `fashion-mini` from Fashion-MNIST.

    make_fashion_mini.py [SOURCE] [TARGET]     default: /usr/share/datasets/fashion-mnist (Debian: dataset-fashion-mnist)
                                               and crates/data/embedded
    make_fashion_mini.py --check [SOURCE]      compares what is embedded with what would be made

Training images: the first 600, 359, 215, ... of class 0, 1, 2, ... in the original order, trunc(600 * 100^(-c/9)) of
class c, so the imbalance is 100. Test images: the first 100 of every class. Order and pixels are left as they are.
Only the contents are compared by --check: another zlib may pack them otherwise.
"""
import argparse
import gzip
import os
import struct

LARGEST, IMBALANCE, TEST = 600, 100, 100


def read(folder, name):
    with gzip.open(os.path.join(folder, name)) as f:
        return f.read()


def cut(folder, prefix, quotas):
    images, labels = read(folder, f"{prefix}-images-idx3-ubyte.gz"), read(folder, f"{prefix}-labels-idx1-ubyte.gz")[8:]
    size = 28 * 28
    taken, keep = [0] * 10, []
    for i, label in enumerate(labels):
        if taken[label] < quotas[label]:
            taken[label] += 1
            keep.append(i)
    assert taken == quotas, taken
    pixels = b"".join(images[16 + i * size:16 + (i + 1) * size] for i in keep)
    return {
        f"{prefix}-images-idx3-ubyte.gz": struct.pack(">IIII", 0x803, len(keep), 28, 28) + pixels,
        f"{prefix}-labels-idx1-ubyte.gz": struct.pack(">II", 0x801, len(keep)) + bytes(labels[i] for i in keep),
    }


def fnv(body):
    """FNV-1a, which the test of the embedded set uses as well."""
    h = 0xCBF29CE484222325
    for b in body:
        h = ((h ^ b) * 0x100000001B3) % 2**64
    return h


if __name__ == "__main__":
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("source", nargs="?", default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("target", nargs="?", default=os.path.join(here, "crates/data/embedded"))
    args = parser.parse_args()
    check, source, target = args.check, args.source, args.target
    # c = 9 exactly, as the power could fall below an integer
    quotas = [int(LARGEST * IMBALANCE ** (-c / 9)) for c in range(9)] + [LARGEST // IMBALANCE]
    files = cut(source, "train", quotas) | cut(source, "t10k", [TEST] * 10)
    for name, body in files.items():
        path = os.path.join(target, name)
        if check:
            assert gzip.open(path).read() == body, f"{name} is not what this script makes"
        else:
            with open(path, "wb") as out:
                out.write(gzip.compress(body, 9, mtime=0))
    for name, body in files.items():
        print(name, "FNV-1a behind the header:", fnv(body[16 if "images" in name else 8:]))
    print(f"fashion-mini: {sum(quotas)} training images {quotas}, {10 * TEST} test images", "as embedded" if check else "")
