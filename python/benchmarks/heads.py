"""Heads on features: `equipoise train` beside a torch linear layer and scikit-learn's LogisticRegression.

    python python/benchmarks/heads.py target/release/equipoise [--rows 50000] [--width 768] [--classes 100]

All use the same features in 32 bits and as many threads. Speeds are training rows per second, of whole epochs with
shuffling, loss, gradient and update, in turn with torch's: products of f32 and of bf16 (torch: autocast), medians of
the rounds. Against scikit-learn the time to the same regularized loss counts: both minimize
the mean cross-entropy plus `weight_decay` / 2 times the squared norm of weights and biases (scikit-learn does not
penalize biases, which only makes its own minimum larger here by what they add).
Prints a table and JSON.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import numpy as np

DECAY = 1e-3


def make(rows, width, classes):
    """Classes of unequal sizes around random centers, with correlated noise as in real features."""
    random = np.random.default_rng(0)
    share = np.geomspace(1, 0.05, classes)
    labels = random.choice(classes, rows, p=share / share.sum())
    mixing = random.normal(size=(width, width)).astype(np.float32) * np.geomspace(1, 0.05, width, dtype=np.float32)
    noise = random.normal(size=(rows, width)).astype(np.float32) @ mixing.T
    centers = 0.35 * random.normal(size=(classes, width)).astype(np.float32) * noise.std(0)
    features = centers[labels] + noise
    return np.ascontiguousarray((features - features.mean(0)) / features.std(0), np.float32), labels


def ours(program, folder, threads, name, *options):
    output = folder / name
    command = [
        program,
        "train",
        folder / "x.npz",
        "--output",
        output,
        "--quiet",
        "--test-fraction",
        "0",
        "--criterion",
        "softmax",
    ]
    command += [
        "--set",
        "data.scaling=none",
        "--set",
        f"optimizer.weight_decay={DECAY}",
        "--threads",
        threads,
        *options,
    ]
    start = time.perf_counter()
    subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
    seconds = time.perf_counter() - start
    result = json.loads((output / "result.json").read_text())
    epochs = [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]
    return {
        "rows_per_second": result["images_per_second"],
        "seconds": result["seconds"],
        "process": seconds,
        # of the program itself: the system's figure for a child counts what this process had before
        "mib": result["peak_mb"],
        "loss": epochs[-1]["loss"],
    }


def torch_layer(features, labels, classes, threads, batch, bf16, epochs=3):
    import torch

    torch.set_num_threads(threads)
    x, y = torch.from_numpy(features), torch.from_numpy(labels)
    layer = torch.nn.Linear(x.shape[1], classes)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01, momentum=0.9, weight_decay=DECAY)
    speeds = []
    for _ in range(epochs):
        start = time.perf_counter()
        order = torch.randperm(len(y))
        for first in range(0, len(y), batch):
            rows = order[first : first + batch]
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                loss = torch.nn.functional.cross_entropy(layer(x[rows]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        speeds.append(len(y) / (time.perf_counter() - start))
    return max(speeds)


def sklearn_regression(features, labels, iterations):
    from sklearn.linear_model import LogisticRegression

    rows = len(labels)
    model = LogisticRegression(C=1 / (DECAY * rows), max_iter=iterations, tol=1e-12)
    start = time.perf_counter()
    model.fit(features, labels)
    seconds = time.perf_counter() - start
    logits = features.astype(np.float64) @ model.coef_.T + model.intercept_
    logits -= logits.max(1, keepdims=True)
    entropy = np.log(np.exp(logits).sum(1)) - logits[np.arange(rows), np.searchsorted(model.classes_, labels)]
    penalty = DECAY / 2 * ((model.coef_**2).sum() + (model.intercept_**2).sum())
    return {"seconds": seconds, "loss": float(entropy.mean() + penalty), "iterations": int(np.max(model.n_iter_))}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program", type=lambda path: Path(path).resolve())
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--classes", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--iterations", type=int, default=40)
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    features, labels = make(args.rows, args.width, args.classes)
    flops = 4 * args.width * args.classes
    table = {
        "rows": args.rows,
        "width": args.width,
        "classes": args.classes,
        "batch_size": args.batch_size,
        "threads": args.threads,
    }
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        np.savez(folder / "x.npz", features=features, labels=labels)
        kernels = subprocess.run(
            [args.program, "bench", "kernels", "--rounds", "1", "--json"], capture_output=True, text=True
        ).stdout
        table["peak_gflops"] = args.threads * json.loads(kernels.splitlines()[0])["peak"]
        speeds = {name: [] for name in ("equipoise f32", "torch f32", "equipoise bf16", "torch bf16")}
        for number in range(args.rounds):
            for precision in ("f32", "bf16"):
                options = ["--epochs", 6, "--batch-size", args.batch_size, "--set", "evaluate_every=6"]
                name = f"{precision}-{number}"
                sgd = ours(args.program, folder, args.threads, name, *options, "--precision", precision)
                speeds[f"equipoise {precision}"].append(sgd["rows_per_second"])
                is_bf16 = precision == "bf16"
                peer = torch_layer(features, labels, args.classes, args.threads, args.batch_size, is_bf16)
                speeds[f"torch {precision}"].append(peer)
                table[f"loss {precision}"] = sgd["loss"]
                table[f"mib_beside_features {precision}"] = sgd["mib"] - features.nbytes / 2**20
        table["rows_per_second"] = {name: [round(speed) for speed in values] for name, values in speeds.items()}
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        table["share_of_peak"] = medians["equipoise f32"] * flops / 1e9 / table["peak_gflops"]
        table["sklearn"] = sklearn_regression(features, labels, args.iterations)
        for iterations in (5, 10, 15, 20, 30, 40, 60, 80, 120, 160):
            options = [
                "--set",
                "optimizer.name=lbfgs",
                "--set",
                f"optimizer.iterations={iterations}",
                "--set",
                "optimizer.tolerance=0",
            ]
            solved = ours(args.program, folder, args.threads, f"lbfgs-{iterations}", *options)
            if solved["loss"] <= table["sklearn"]["loss"]:
                break
        table["equipoise_lbfgs"] = solved | {"iterations": iterations}
    table["times_torch"] = {
        f"{own} / {peer}": medians[f"equipoise {own}"] / medians[f"torch {peer}"]
        for own, peer in (("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"))
    }
    table["times_sklearn"] = table["sklearn"]["seconds"] / table["equipoise_lbfgs"]["seconds"]
    for name, value in table.items():
        print(f"{name}: {value}")
    print(json.dumps(table))


if __name__ == "__main__":
    main()
