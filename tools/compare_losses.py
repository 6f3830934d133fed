#!/usr/bin/env python3
"""Our criteria beside PyTorch's, in one run: the two programs take turns, and the best time of each is compared.

    compare_losses.py [--python PYTHON] [--rounds 5] [--threads 2] [--avx2] [BATCHxCLASSES ...]

PYTHON is an interpreter that has torch; --avx2 keeps both programs from using AVX-512. Build first: cargo build --release. Nothing else should be running.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys

here = os.path.dirname(os.path.abspath(__file__))
root = os.path.dirname(here)
parser = argparse.ArgumentParser()
parser.add_argument("--python", default=sys.executable)
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--threads", type=int, default=2)
parser.add_argument("--avx2", action="store_true")
parser.add_argument("sizes", nargs="*", default=["128x1000", "256x8142"])
args = parser.parse_args()
NAMES = ["softmax", "focal", "balanced-softmax", "seesaw", "cwap"]


def run(command, **more):
    out = subprocess.run(command, check=True, capture_output=True, text=True, **more).stdout
    return {line["criterion"]: line for line in map(json.loads, out.splitlines())}


for size in args.sizes:
    batch, classes = size.split("x")
    ours, theirs = {n: [] for n in NAMES}, {n: [] for n in NAMES}
    for _ in range(args.rounds):
        threads = str(args.threads)
        a = run([os.path.join(root, "target/release/equipoise"), "bench", "loss", "--batch", batch, "--classes", classes,
                 "--threads", threads, "--repeats", "50", "--criteria", ",".join(NAMES), "--json"] + ["--simd", "avx2"] * args.avx2)
        b = run([args.python, os.path.join(here, "losses_torch.py"), batch, classes],
                env=os.environ | {"OMP_NUM_THREADS": threads} | ({"ATEN_CPU_CAPABILITY": "avx2"} if args.avx2 else {}))
        for n in NAMES:
            ours[n].append(a[n])
            theirs[n].append(b[n])
    print(f"\n{batch} x {classes}, {args.threads} threads, {args.rounds} rounds in turn; microseconds, best (median of medians)\n")
    print("| criterion | equipoise | PyTorch | times as fast, best | median |\n|---|---|---|---|---|")
    for n in NAMES:
        best = lambda runs: min(r["best"] for r in runs[n])
        median = lambda runs: statistics.median(r["microseconds"] for r in runs[n])
        print(f"| {n} | {best(ours):.1f} ({median(ours):.1f}) | {best(theirs):.1f} ({median(theirs):.1f}) "
              f"| {best(theirs) / best(ours):.1f} | {median(theirs) / median(ours):.1f} |")
    ratio = min(r["best"] for r in ours["cwap"]) / min(r["best"] for r in ours["softmax"])
    print(f"\n`cwap` takes {ratio:.2f} times as long as `softmax`.")
