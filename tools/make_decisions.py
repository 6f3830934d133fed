#!/usr/bin/env python3
"""Expected values for crates/decide, by plain and slow means that share nothing with the crate: `tools/make_decisions.py` writes
crates/decide/tests/decisions.json. Losses are minimized by golden-section search on the loss itself, intervals are found by bisection of the
score test, thresholds by trying every one."""

import json
import math
import pathlib


def logits(rows, classes, spread):
    """Logits that a formula makes, with labels in a long tail."""
    labels, values = [], []
    for i in range(rows):
        label = min(classes - 1, int(math.log2(1 + (i * 37 % rows) * (2**classes - 1) / rows)))
        label = classes - 1 - label
        row = [spread * math.sin(1.7 * i + 2.3 * j + 0.1 * i * j) for j in range(classes)]
        if i % 3:
            row[label] += 0.8 * spread
        labels.append(label)
        values.append([float(f"{z:.6f}") for z in row])
    return values, labels


def log_softmax(row):
    top = max(row)
    total = math.log(math.fsum(math.exp(z - top) for z in row)) + top
    return [z - total for z in row]


def balanced_loss(values, labels, temperature, offsets):
    by_class = {}
    for row, label in zip(values, labels):
        logs = log_softmax([z / temperature + o for z, o in zip(row, offsets)])
        by_class.setdefault(label, []).append(-logs[label])
    return math.fsum(math.fsum(losses) / len(losses) for losses in by_class.values()) / len(by_class)


def best_temperature(values, labels, offsets, weight):
    """The minimum of the loss of as many images as the class-balanced mean is worth, and of a prior with a weight."""
    counts = [labels.count(c) for c in set(labels)]
    images = len(counts) ** 2 / math.fsum(1 / n for n in counts)

    def objective(log):
        loss = balanced_loss(values, labels, math.exp(log), offsets)
        return images * loss + weight * (math.exp(-log) - 1 + log)

    low, high = math.log(0.1), math.log(10)
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(120):
        a, b = high - golden * (high - low), low + golden * (high - low)
        if objective(a) < objective(b):
            high = b
        else:
            low = a
    return math.exp((low + high) / 2)


def wilson(hits, n):
    """The rates that a score test at 5 % does not reject, by bisection."""
    z, p = 1.959963984540054, hits / n

    def rejects(q):
        return abs(p - q) > z * math.sqrt(q * (1 - q) / n)

    def edge(inside, outside):
        if not rejects(outside):
            return outside
        for _ in range(200):
            middle = (inside + outside) / 2
            inside, outside = (inside, middle) if rejects(middle) else (middle, outside)
        return inside

    return [edge(p, 0.0), edge(p, 1.0)]


def set_threshold(numbers, alpha):
    """The largest number below which so few others lie that a new one is below it with a probability of at most alpha."""
    best = None
    for candidate in sorted(numbers):
        # a new number is below the candidate in at most this many of n + 1 equally likely orders
        if sum(1 for x in numbers if x < candidate) + 1 <= alpha * (len(numbers) + 1) + 1e-9:
            best = candidate
    return best


def main():
    classes = 4
    values, labels = logits(96, classes, 2.5)
    counts = [labels.count(c) for c in range(classes)]
    prior = [math.log(n / len(labels)) for n in counts]
    temperatures = [
        {
            "offsets": offsets,
            "temperature": best_temperature(values, labels, offsets, 2),
            "likeliest": best_temperature(values, labels, offsets, 0),
        }
        for offsets in ([0.0] * classes, [-l for l in prior], [0.3 * c for c in range(classes)])
    ]
    uniform = [[math.exp(x) for x in log_softmax([z - l for z, l in zip(row, prior)])] for row in values]
    of_label = [[p[label], label] for p, label in zip(uniform, labels)]
    sets = []
    for alpha in (0.05, 0.1, 0.2):
        need = math.ceil(1 / alpha - 1e-9) - 1
        small = [p for p, label in of_label if counts[label] < need]
        thresholds, promises = [], []
        for c in range(classes):
            mine = [p for p, label in of_label if label == c]
            if len(mine) >= need:
                thresholds.append(set_threshold(mine, alpha))
                promises.append("class")
            elif len(small) >= need:
                thresholds.append(set_threshold(small, alpha))
                promises.append("pooled")
            else:
                thresholds.append(set_threshold([p for p, _ in of_label], alpha))
                promises.append("all")
        chosen = []
        for p in uniform:
            top = max(range(classes), key=lambda c: p[c])
            chosen.append(sorted(c for c in range(classes) if c == top or p[c] >= thresholds[c]))
        sets.append({"alpha": alpha, "promises": promises, "sets": chosen})
    judged = []
    for i, (row, label) in enumerate(zip(values, labels)):
        shown = log_softmax([z + l / 2 for z, l in zip(row, prior)])
        other = max((c for c in range(classes) if c != label), key=lambda c: shown[c])
        judged.append([log_softmax([z + l for z, l in zip(row, prior)])[label], i, other])
    suspects = []
    for log, i, other in judged:
        right = [math.exp(q) / (math.exp(q) + 0.15 / classes) for q, j, _ in judged if labels[j] == labels[i]]
        own = math.exp(log) / (math.exp(log) + 0.15 / classes)
        suspects.append([(sum(w for w in right if w < own) + own / 2) / sum(right), i, other])
    suspects.sort()
    out = {
        "classes": classes,
        "values": [z for row in values for z in row],
        "labels": labels,
        "log_prior": prior,
        "temperatures": temperatures,
        "intervals": [{"hits": h, "n": n, "interval": wilson(h, n)} for h, n in [(0, 7), (1, 7), (7, 7), (33, 50), (999, 1000)]],
        "own_probabilities": [p for p, _ in of_label],
        "sets": sets,
        "suspects": [[i, other, p_value] for p_value, i, other in suspects],
    }
    path = pathlib.Path(__file__).parent.parent / "crates/decide/tests/decisions.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(out) + "\n")


if __name__ == "__main__":
    main()
