#!/usr/bin/env python3
"""What every training criterion should give, in plain Python and double precision: slow, and easy to check by eye.

    reference.py CASE.json ...   writes "expected" into each case (the steps that `equipoise loss` should print)
    reference.py --check CASE.json ...   compares "expected" with what this program gives

A case is the input of `equipoise loss` (see `equipoise help loss`). The code follows the equations of docs/criteria and
the readings of docs/method.md, not the Rust code: one example and one class at a time, no stable forms beyond
log-sum-exp, margins and weights as nested loops.
"""
import copy
import json
import math
import sys


def lse(v):
    m = max(v)
    return m if m == -math.inf else m + math.log(sum(math.exp(a - m) for a in v))


def softmax(v):
    s = lse(v)
    return [math.exp(a - s) for a in v]


def sigmoid(a):
    return 1 / (1 + math.exp(-a)) if a >= 0 else math.exp(a) / (1 + math.exp(a))


def softplus(a):
    return max(a, 0.0) + math.log1p(math.exp(-abs(a)))


def one(j, y):
    return 1.0 if j == y else 0.0


def to_sum_of_classes(w):
    s = sum(w)
    return [a * len(w) / s for a in w]


def effective_number(n, beta):
    raw = [1.0 if beta == 0 else (1 - beta) / -math.expm1(a * math.log(beta)) for a in n if a]
    raw = iter(raw)
    return to_sum_of_classes([next(raw) if a else 0.0 for a in n])


def cross_entropy(z, y, w=1.0):
    """Loss, gradient and weight of w * CE(z, y)."""
    return w * (lse(z) - z[y]), [w * (q - one(j, y)) for j, q in enumerate(softmax(z))], w


def smoothed(z, y, e):
    """Cross-entropy with targets (1 - e) [j = y] + e / C."""
    ce, q, c = lse(z) - z[y], softmax(z), len(z)
    loss = (1 - e) * ce + e * (lse(z) - sum(z) / c)
    return loss, [b - (1 - e) * one(j, y) - e / c for j, b in enumerate(q)], 1.0


class Softmax:
    """A criterion: `begin` sees the whole batch (its parts), `part` gives loss, gradient and weight for one label."""

    def __init__(self, p, n):
        self.p, self.n = p, n
        self.setup(p, n)

    def setup(self, p, n):
        pass

    def divisor(self, y):
        """What an example of class y adds to the denominator."""
        return 1.0

    def begin(self, rows, epoch):
        """rows: (logits, [(label, share), ..], example)"""

    def part(self, z, y, example):
        return smoothed(z, y, self.p.get("smoothing", 0.0))

    def finish(self, rows):
        pass

    def end_epoch(self):
        return {}


class Weighted(Softmax):
    def divisor(self, y):
        return self.w[y] if self.p.get("reduction", "weights") == "weights" else 1.0

    def part(self, z, y, example):
        return cross_entropy(z, y, self.w[y])


class ClassBalanced(Weighted):
    def setup(self, p, n):
        self.w = to_sum_of_classes([a ** -p.get("power", 1.0) if a else 0.0 for a in n])


class EffectiveNumber(Weighted):
    def setup(self, p, n):
        self.w = effective_number(n, p.get("beta", 0.9999))


class Focal(Softmax):
    def part(self, z, y, example):
        g = self.p.get("gamma", 1.0)
        ce, q = lse(z) - z[y], softmax(z)
        hard = -math.expm1(-ce)
        w = hard ** g if g else 1.0
        k = w + (g * hard ** (g - 1) * math.exp(-ce) * ce if g and hard > 0 else 0.0)
        return w * ce, [k * (b - one(j, y)) for j, b in enumerate(q)], w


class Ghm(Softmax):
    def setup(self, p, n):
        self.bins, self.momentum = p.get("bins", 30), p.get("momentum", 0.75)
        self.acc = [0.0] * self.bins

    def bin_of(self, g):
        return min(int(g * self.bins), self.bins - 1)

    def harmonize(self, norms):
        """norms: (g, share)"""
        count = [0.0] * self.bins
        for g, share in norms:
            count[self.bin_of(g)] += share
        valid = sum(c > 0 for c in count)
        mass = count
        if self.momentum > 0:
            mass = [self.momentum * a + (1 - self.momentum) * c if c else a for a, c in zip(self.acc, count)]
            self.acc = mass
        total = sum(share for _, share in norms)
        self.gain = [total / (m * valid) if c else 0.0 for m, c in zip(mass, count)]

    def begin(self, rows, epoch):
        if self.p.get("form", "softmax") == "softmax":
            self.harmonize([(1 - softmax(z)[y], share) for z, labels, _ in rows for y, share in labels])
        else:
            self.harmonize([(abs(sigmoid(a) - t), 1.0) for z, labels, _ in rows for a, t in zip(z, targets(z, labels, self.late))])

    def part(self, z, y, example):
        return cross_entropy(z, y, self.gain[self.bin_of(1 - softmax(z)[y])])

    def whole(self, z, labels):
        """The sigmoid form of a row."""
        if self.p.get("form", "softmax") == "softmax":
            return None
        d = len(z) if self.p.get("average", "elements") == "elements" else 1
        t = targets(z, labels, self.late)
        w = [self.gain[self.bin_of(abs(sigmoid(a) - b))] for a, b in zip(z, t)]
        loss = sum(k * (softplus(a) - b * a) for k, a, b in zip(w, z, t)) / d
        return loss, [k * (sigmoid(a) - b) / d for k, a, b in zip(w, z, t)], sum(w) / len(w)


def targets(z, labels, late):
    """The labels' shares, deferred weights included, so that a row is the sum of its parts."""
    t, total = [0.0] * len(z), sum(share * late[y] for y, share in labels)
    for y, share in labels:
        t[y] += share * late[y] / total if total else share
    return t


class Equalization(Softmax):
    def begin(self, rows, epoch):
        self.epoch = epoch

    def part(self, z, y, example):
        gamma, limit = self.p.get("gamma", 0.9), self.p.get("lambda", 5e-3) * sum(self.n)
        draws = Draws(self.p.get("seed", 0), self.epoch, example)
        kept = [j == y or not (self.n[j] <= limit and (draws.at(j) >> 32) < int(gamma * 2**32)) for j in range(len(z))]
        return cross_entropy([a if k else -math.inf for a, k in zip(z, kept)], y)

    def whole(self, z, labels):
        if self.p.get("form", "softmax") == "softmax":
            return None
        t = targets(z, labels, self.late)
        return sum(softplus(a) - b * a for a, b in zip(z, t)), [sigmoid(a) - b for a, b in zip(z, t)], 1.0


class Draws:
    """SplitMix64 at a position, keyed by (seed, epoch, example)."""

    GOLDEN, MASK = 0x9E3779B97F4A7C15, 2**64 - 1

    @staticmethod
    def mix(x):
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & Draws.MASK
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & Draws.MASK
        return x ^ (x >> 31)

    def __init__(self, *words):
        self.key = 0
        for w in words:
            self.key = self.mix(((self.key + self.GOLDEN) & self.MASK) ^ self.mix(w ^ self.GOLDEN))

    def at(self, position):
        return self.mix((self.key + self.GOLDEN * (position + 1)) & self.MASK)


class Seesaw(Softmax):
    def setup(self, p, n):
        self.seen = [0] * len(n)

    def begin(self, rows, epoch):
        for _, labels, _ in rows:
            # the label with the larger share, the first one of two equals
            self.seen[max(labels, key=lambda part: part[1])[0]] += 1

    def part(self, z, y, example):
        p, q, eps = self.p.get("p", 0.8), self.p.get("q", 2.0), self.p.get("eps", 1e-2)
        s, row = softmax(z), []
        for j in range(len(z)):
            b = 0.0
            if j != y:
                b += p * min(0.0, math.log(max(self.seen[j], 1) / max(self.seen[y], 1)))
                b += q * max(0.0, math.log(s[j] / max(s[y], eps))) if s[j] > 0 else 0.0
            row.append(z[j] + b)
        return cross_entropy(row, y)

    def end_epoch(self):
        return {"seen": self.seen}


def adjusted(z, y, a, b, m):
    """Cross-entropy of a_j (z_j - m [j = y]) + b_j."""
    row = [a[j] * (z[j] - m * one(j, y)) + b[j] for j in range(len(z))]
    loss, grad, w = cross_entropy(row, y)
    return loss, [a[j] * g for j, g in enumerate(grad)], w


def log_prior(n):
    return [math.log(max(a, 1) / sum(n)) for a in n]


def inverse_delta(n, gamma):
    return [(max(n) / max(a, 1)) ** -gamma for a in n]


class BalancedSoftmax(Softmax):
    def part(self, z, y, example):
        return adjusted(z, y, [1.0] * len(z), log_prior(self.n), 0.0)


class LogitAdjusted(Softmax):
    def part(self, z, y, example):
        return adjusted(z, y, [1.0] * len(z), [self.p.get("tau", 1.0) * b for b in log_prior(self.n)], 0.0)


class Vs(Softmax):
    def part(self, z, y, example):
        b = [self.p.get("tau", 1.0) * b for b in log_prior(self.n)]
        return adjusted(z, y, inverse_delta(self.n, self.p.get("gamma", 0.3)), b, 0.0)


class Cdt(Softmax):
    def part(self, z, y, example):
        return adjusted(z, y, inverse_delta(self.n, self.p.get("gamma", 0.3)), [0.0] * len(z), 0.0)


class Ldam(Softmax):
    def part(self, z, y, example):
        raw = [max(a, 1) ** -0.25 for a in self.n]
        m = self.p.get("max_margin", 0.5) * raw[y] / max(raw)
        return adjusted(z, y, [self.p.get("scale", 30.0)] * len(z), [0.0] * len(z), m)


class LabelAwareSmoothing(Softmax):
    def part(self, z, y, example):
        head, tail, lo, hi = self.p.get("head", 0.4), self.p.get("tail", 0.1), min(self.n), max(self.n)
        e = tail + (head - tail) * math.sin((self.n[y] - lo) * math.pi / (2 * (hi - lo))) if hi > lo else tail
        return smoothed(z, y, e)


def region(width, g):
    edge = 0.0
    for i, d in enumerate(width):
        edge += d
        if g < edge:
            return i
    return len(width) - 1


def cut(values):
    raw = [1 / math.log(math.e + v) for v in values]
    return [d / sum(raw) for d in raw]


class Cwap(Softmax):
    def setup(self, p, n):
        self.N = p.get("bins", 30)
        self.alpha, self.gamma = p.get("alpha", 0.9), p.get("gamma", 0.8)
        self.normalize, self.prior, self.cap = p.get("normalize", "class-gradient"), p.get("prior", 5.0), p.get("cap")
        self.memory, self.m = p.get("memory", "epoch"), p.get("momentum", 0.75)
        self.adaptive, self.quantile = p.get("regions", "adaptive") == "adaptive", p.get("weighting") == "quantile"
        first = [1 / self.N] * self.N
        if p.get("regions") == "squared":
            first = [((i + 1) / self.N) ** 2 - (i / self.N) ** 2 for i in range(self.N)]
        self.width, self.counts = [first[:] for _ in n], [[0] * self.N for _ in n]
        self.snap_width, self.snap = [first[:] for _ in n], [[a / self.N] * self.N for a in n]
        # moving averages of memory ema (densities) and live (examples)
        self.ema_width, self.average = [first[:] for _ in n], [[0.0] * self.N for _ in n]

    def norm(self, z, y):
        kind = self.p.get("norm", "softmax")
        if kind == "adjusted":
            return 1 - softmax([a + b for a, b in zip(z, self.margin(y))])[y]
        return 1 - softmax(z)[y] if kind == "softmax" else 1 - sigmoid(z[y])

    def size(self, c):
        if self.memory == "live":
            return max(sum(k ** self.alpha for k in self.average[c] if k > 0), 1e-6)
        return max(sum(v ** self.alpha for v in self.snap[c] if v > 0), 1.0)

    def margin(self, m):
        if not self.p.get("inter", True):
            return [0.0] * len(self.n)
        sizes, kind = [self.size(c) for c in range(len(self.n))], self.p.get("margin", "one-sided")
        if kind == "unbiased":
            return [-math.log(2 * sizes[m] / s - 1) if sizes[m] > s else 0.0 for s in sizes]
        most = math.inf if kind == "two-sided" else 1.0
        return [self.gamma * math.log(min(most, s / sizes[m])) for s in sizes]

    def densities(self, c):
        """Widths and densities behind the weights of a class."""
        if self.memory == "epoch" or self.quantile:
            return self.snap_width[c], self.snap[c]
        if self.memory == "ema":
            return self.ema_width[c], self.average[c]
        return self.ema_width[c], [k / (self.N * d) for k, d in zip(self.average[c], self.ema_width[c])]

    def weight(self, z, y):
        width, v = self.densities(y)
        count = [a * self.N * d for a, d in zip(v, width)]
        total, i = sum(count), region(width, self.norm(z, y))
        if total == 0:
            return 1.0
        if self.quantile:
            return 1 + self.p.get("kappa", 0.5) * ((sum(count[:i]) + count[i] / 2) / total - 0.5)
        moving = self.memory != "epoch"
        smooth = [a + self.prior * total / self.N for a in v]
        one = [(1 - self.m if moving else 1) / (self.N * d) for d in width]
        held = [max(s, o) if moving and self.prior == 0 else s or o for s, o in zip(smooth, one)]
        alpha = self.p["intra_alpha"] if self.p.get("intra_alpha") is not None else self.alpha
        raw = [h ** -alpha for h in held]
        if self.p.get("intra_hard"):
            median = next(i for i in range(self.N) if 2 * sum(count[:i + 1]) >= total)
            raw = [raw[max(i, median)] for i in range(self.N)]
        if self.normalize == "batch-power":
            return raw[i]
        if self.normalize == "class-mean":
            return raw[i] * total / sum(k * r for k, r in zip(count, raw))
        if self.normalize == "class-gradient":
            mass = [k * (sum(width[:j]) + width[j] / 2) for j, k in enumerate(count)]
            return raw[i] * sum(mass) / sum(m * r for m, r in zip(mass, raw))
        w = sum(s ** alpha for s in smooth if s > 0) * raw[i]
        return w / max(sum(s > 0 for s in smooth), 1) if self.normalize == "valid-bins" else w

    def begin(self, rows, epoch):
        self.intra = self.p.get("intra", True) and epoch >= max(self.p.get("intra_start", 0), self.quantile)
        if self.memory == "live":
            self.fade(rows)
        elif self.memory == "ema" and self.intra and not self.quantile:
            self.move(rows)
        self.mean = 1.0
        if self.intra and self.normalize in ("batch-mean", "batch-power"):
            self.mean = sum(share * self.weight(z, y) for z, labels, _ in rows for y, share in labels) / len(rows)

    def fade(self, rows):
        """All classes lose a share of their examples, then the batch adds its own."""
        self.average = [[self.m * k for k in c] for c in self.average]
        for z, labels, _ in rows:
            if len(labels) == 1:
                y = labels[0][0]
                g = 1 - sigmoid(z[y]) if self.p.get("norm") == "sigmoid-own" else 1 - softmax(z)[y]
                self.average[y][region(self.ema_width[y], g)] += 1 - self.m

    def move(self, rows):
        """The classes of the batch move towards what it holds."""
        counts = {}
        for z, labels, _ in rows:
            if len(labels) == 1:
                y = labels[0][0]
                counts.setdefault(y, [0] * self.N)[region(self.ema_width[y], self.norm(z, y))] += 1
        for y, k in counts.items():
            density = [a / (self.N * d) for a, d in zip(k, self.ema_width[y])]
            self.average[y] = [self.m * a + (1 - self.m) * b for a, b in zip(self.average[y], density)]

    def part(self, z, y, example):
        w = self.weight(z, y) / self.mean if self.intra else 1.0
        w = min(w, self.cap) if self.cap else w
        return cross_entropy([a + b for a, b in zip(z, self.margin(y))], y, w)

    def finish(self, rows):
        for z, labels, _ in rows:
            if len(labels) == 1:
                y = labels[0][0]
                self.counts[y][region(self.width[y], self.norm(z, y))] += 1

    def end_epoch(self):
        for c in range(len(self.n)):
            if sum(self.counts[c]) == 0:
                continue
            self.snap_width[c] = self.width[c]
            self.snap[c] = [k / (self.N * d) for k, d in zip(self.counts[c], self.width[c])]
            if self.adaptive:
                self.width[c] = cut(self.snap[c])
            self.counts[c] = [0] * self.N
        if self.memory != "epoch" and self.adaptive:
            for c in range(len(self.n)):
                self.recut(c)
        return {"sizes": [self.size(c) for c in range(len(self.n))], "values": self.snap, "widths": self.width}

    def recut(self, c):
        old = self.ema_width[c]
        to_density = [1 / (self.N * d) if self.memory == "live" else 1.0 for d in old]
        v = [a * b for a, b in zip(self.average[c], to_density)]
        if any(v):
            new = cut(v)
            self.average[c], self.ema_width[c] = overlap(v, old, new), new
            if self.memory == "live":
                self.average[c] = [a * self.N * d for a, d in zip(self.average[c], new)]


def overlap(values, old, new):
    """Densities over the new regions of what is spread evenly within each old one."""
    def edges(width):
        out = [0.0]
        for d in width:
            out.append(out[-1] + d)
        return out
    a, b = edges(old), edges(new)
    common = lambda i, j: max(0.0, min(a[i + 1], b[j + 1]) - max(a[i], b[j]))
    return [sum(values[i] * common(i, j) for i in range(len(old))) / new[j] for j in range(len(new))]


METHODS = {
    "softmax": Softmax, "class-balanced": ClassBalanced, "effective-number": EffectiveNumber, "focal": Focal,
    "ghm": Ghm, "equalization": Equalization, "seesaw": Seesaw, "cwap": Cwap, "balanced-softmax": BalancedSoftmax,
    "logit-adjusted": LogitAdjusted, "vs": Vs, "cdt": Cdt, "ldam": Ldam, "label-aware-smoothing": LabelAwareSmoothing,
}


def step(m, drw, s, epoch):
    """One batch: mixes labels, applies deferred weights, divides."""
    rows = []
    for i, (z, y) in enumerate(zip(s["logits"], s["labels"])):
        labels = [(y, 1.0)]
        if "mixed" in s:
            y2, share = s["mixed"]["labels"][i], s["mixed"]["share"][i]
            labels = [(a, b) for a, b in ((y, share), (y2, 1 - share)) if b > 0]
        rows.append((z, labels, s["examples"][i] if "examples" in s else i))
    on = drw if drw and epoch >= drw["start_epoch"] else None
    late = effective_number(m.n, on.get("beta", 0.9999)) if on else [1.0] * len(m.n)
    divides = on and on.get("reduction", "weights") == "weights"
    d = sum(share * m.divisor(y) * (late[y] if divides else 1.0) for _, labels, _ in rows for y, share in labels)
    m.late = late
    m.begin(rows, epoch)
    loss, grad, weights = 0.0, [], []
    for z, labels, example in rows:
        g, w = [0.0] * len(z), 0.0
        whole = m.whole(z, labels) if hasattr(m, "whole") else None
        gain = sum(share * late[y] for y, share in labels)
        parts = [(whole, gain)] if whole else [(m.part(z, y, example), share * late[y]) for y, share in labels]
        for (l, row, weight), k in parts:
            loss += k * l / d if d else 0.0
            g = [a + k * b / d if d else 0.0 for a, b in zip(g, row)]
            w += k * weight
        grad.append(g)
        weights.append(w)
    if s.get("train", True):
        m.finish(rows)
    return {"loss": loss, "grad": grad, "weights": weights}


def run(case):
    m, epoch, out = METHODS[case["method"]](case.get("params", {}), case["counts"]), 0, []
    for s in case["steps"]:
        if s.get("end_epoch"):
            out.append({"end_epoch": True, "state": copy.deepcopy(m.end_epoch())})
            epoch += 1
        elif s.get("train", True):
            out.append(step(m, case.get("drw"), s, epoch))
        else:
            out.append(step(copy.deepcopy(m), case.get("drw"), s, epoch))
    return out


def differs(a, b, path=""):
    if isinstance(b, dict):
        return next((d for k in b if (d := differs(a.get(k), b[k], f"{path}.{k}"))), None)
    if isinstance(b, list):
        if len(a) != len(b):
            return f"{path}: length {len(a)}, not {len(b)}"
        return next((d for i, (x, y) in enumerate(zip(a, b)) if (d := differs(x, y, f"{path}[{i}]"))), None)
    return None if a == b or abs(a - b) <= 1e-12 + 1e-9 * abs(b) else f"{path}: {a}, not {b}"


if __name__ == "__main__":
    check, bad = "--check" in sys.argv, 0
    for path in (a for a in sys.argv[1:] if a != "--check"):
        case = json.load(open(path))
        got = run(case)
        if not check:
            case["expected"] = got
            json.dump(case, open(path, "w"))
        elif d := differs(got, case["expected"]):
            print(f"{path}: {d}")
            bad = 1
    sys.exit(bad)
