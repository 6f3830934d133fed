#!/usr/bin/env python3
"""Makes the further golden cases: other sizes, options and mixtures than the first set.

    make_golden.py DIR      writes DIR/more_*.json, with what reference.py expects

Logits come from a formula, so that nothing here depends on a random stream:
    z_ij = round(a sin(0.7 + 1.3 i + 2.1 j + 0.37 i j + 5 t) + b cos(0.9 j + 2 t), 4)   example i, class j, step t
"""
import json
import math
import os
import sys

import reference


def logits(rows, classes, t, a=3.0, b=1.0):
    return [[round(a * math.sin(0.7 + 1.3 * i + 2.1 * j + 0.37 * i * j + 5 * t) + b * math.cos(0.9 * j + 2 * t), 4)
             for j in range(classes)] for i in range(rows)]


def batch(rows, classes, t, **more):
    labels = [(3 * i * i + 5 * i + t) % classes for i in range(rows)]
    return {"logits": logits(rows, classes, t, **{k: more.pop(k) for k in ("a", "b") if k in more}), "labels": labels, **more}


def mixed(rows, classes, t):
    share = [[0.7, 0.25, 1.0, 0.5, 0.0, 0.9][(i + t) % 6] for i in range(rows)]
    return batch(rows, classes, t, mixed={"labels": [(7 * i + 2 * t + 1) % classes for i in range(rows)], "share": share})


def counts(classes, top=400, factor=100):
    return [max(1, int(top * factor ** (-c / (classes - 1)))) for c in range(classes)]


END = {"end_epoch": True}
CASES = {}


def case(name, method, n, steps, params=None, **more):
    CASES[name] = {"method": method, "params": params or {}, "counts": n, **more, "steps": steps}


for method in reference.METHODS:
    # past one vector of sixteen, mixed labels, two epochs
    case(f"{method}_17", method, counts(17), [batch(7, 17, 0), mixed(6, 17, 1), END, batch(5, 17, 2), mixed(6, 17, 3)])
    # an example of two classes, and a class without images
    case(f"{method}_2", method, [9, 2], [batch(1, 2, 0), END, batch(1, 2, 1)])
    zero = [40, 0, 7, 1]
    labels = {"labels": [0, 2, 3, 0, 2]}
    case(f"{method}_empty", method, zero, [batch(5, 4, 0) | labels, END, batch(5, 4, 1) | labels])
for method in ("softmax", "balanced-softmax", "seesaw", "cwap", "label-aware-smoothing", "vs"):
    # past one block of 512: labels in the first block, in the second and behind the last whole vector
    steps = [batch(3, 517, 0, b=4.0) | {"labels": [3, 514, 516]}, END, batch(2, 517, 1) | {"labels": [512, 511]}]
    case(f"{method}_517", method, counts(517, 1280, 256), steps, {"bins": 4} if method == "cwap" else {})
epochs = [batch(9, 6, 0), batch(9, 6, 1), END, batch(9, 6, 2), batch(9, 6, 3), END, batch(9, 6, 4), mixed(6, 6, 5)]
six = [500, 200, 80, 30, 12, 5]
for name, params in {
    "batch-mean": {"normalize": "batch-mean"}, "batch-mean_prior0": {"normalize": "batch-mean", "prior": 0.0},
    "cap": {"normalize": "none", "prior": 0.0, "cap": 4.0}, "sigmoid-own": {"norm": "sigmoid-own"},
    "ema": {"memory": "ema"}, "ema_uniform": {"memory": "ema", "regions": "uniform", "momentum": 0.9, "bins": 7},
    "ema_batch-mean": {"memory": "ema", "normalize": "batch-mean", "bins": 5}, "alpha0": {"alpha": 0.0},
    "ema_weight_only": {"memory": "ema", "inter": False, "prior": 0.0}, "wide": {"gamma": 60.0},
    "ema_decayed": {"memory": "ema", "prior": 0.0, "normalize": "valid-bins", "momentum": 0.3},
    "off": {"intra": False, "inter": False}, "one_bin": {"bins": 1},
    "late": {"intra_start": 2}, "late_ema": {"intra_start": 1, "memory": "ema"}, "intra_alpha": {"intra_alpha": 0.3},
    "hard": {"intra_hard": True}, "hard_valid-bins": {"intra_hard": True, "intra_alpha": 0.5, "normalize": "valid-bins"},
    "hard_ema": {"intra_hard": True, "memory": "ema", "bins": 4},
    "class-mean": {"normalize": "class-mean", "prior": 1.0}, "class-mean_ema": {"normalize": "class-mean", "memory": "ema"},
    "class-gradient_prior0": {"prior": 0.0},
    "two-sided": {"margin": "two-sided"}, "two-sided_wide": {"margin": "two-sided", "gamma": 60.0},
    "ema_5": {"memory": "ema", "bins": 5},
    "live": {"memory": "live", "intra": False, "alpha": 1.2, "momentum": 0.7, "bins": 10, "regions": "squared"},
    "live_sigmoid": {"memory": "live", "intra": False, "alpha": 1.2, "bins": 10, "regions": "squared", "norm": "sigmoid-own"},
    "live_uniform": {"memory": "live", "intra": False, "alpha": 1.2, "bins": 10, "regions": "uniform", "momentum": 0.9},
    "live_one_bin": {"memory": "live", "intra": False, "bins": 1, "alpha": 1.2, "momentum": 0.7},
    "live_two-sided": {"memory": "live", "intra": False, "margin": "two-sided"},
    "live_wide": {"memory": "live", "intra": False, "gamma": 6.0, "momentum": 0.1},
    "live_weights": {"memory": "live", "bins": 5}, "live_weights_sigmoid": {"memory": "live", "bins": 5, "norm": "sigmoid-own"},
    "live_weight_only": {"memory": "live", "inter": False, "prior": 0.0, "normalize": "valid-bins"},
    "live_power": {"memory": "live", "intra_alpha": 0.1, "prior": 0.0, "normalize": "batch-power", "regions": "uniform"},
    "live_unbiased": {"memory": "live", "intra": False, "margin": "unbiased", "bins": 10},
    "live_quantile": {"memory": "live", "weighting": "quantile", "norm": "adjusted", "kappa": 1.0, "bins": 10},
    "unbiased": {"margin": "unbiased"}, "adjusted": {"norm": "adjusted"}, "adjusted_ema": {"norm": "adjusted", "memory": "ema"},
    "quantile": {"weighting": "quantile", "kappa": 1.0, "bins": 10}, "squared": {"regions": "squared", "bins": 6},
    "quantile_adjusted": {"weighting": "quantile", "norm": "adjusted", "intra_start": 2},
    "quantile_ema": {"weighting": "quantile", "memory": "ema"},
    "power": {"normalize": "batch-power", "intra_alpha": 0.1, "prior": 0.0},
}.items():
    case(f"cwap_{name}", "cwap", six, epochs, params)
literal = {"normalize": "none", "prior": 0.0}
case("cwap_literal_empty", "cwap", [40, 0, 7], [batch(5, 3, 0), END, batch(5, 3, 1)], literal)
case("cwap_unbiased_517", "cwap", counts(517, 1280, 256), [batch(3, 517, 0, b=4.0)], {"margin": "unbiased", "bins": 4})
case("cwap_reference", "cwap", six, epochs,
     {"memory": "live", "momentum": 0.7, "norm": "sigmoid-own", "alpha": 1.2, "intra_alpha": 0.9})
case("cwap_live_evaluate", "cwap", six, [batch(9, 6, 0), batch(9, 6, 1, train=False), batch(9, 6, 2)], {"memory": "live"})
case("seesaw_wide", "seesaw", six, epochs, {"p": 40.0})
case("seesaw_wide_mitigation", "seesaw", six, epochs, {"p": 40.0, "q": 0.0})
case("seesaw_eps1", "seesaw", six, epochs, {"eps": 1.0, "q": 0.5})
# scores far above the label's: the compensation dominates
case("seesaw_far", "seesaw", counts(40), [batch(6, 40, 0, a=40.0), batch(6, 40, 1, a=12.0)])
case("seesaw_evaluate", "seesaw", six, [batch(9, 6, 0), batch(9, 6, 1, train=False), batch(9, 6, 1)])
case("cwap_evaluate", "cwap", six, [batch(9, 6, 0, train=False), END, batch(9, 6, 1)], {"memory": "ema"})
case("ghm_sigmoid_mixed", "ghm", six, epochs, {"form": "sigmoid", "average": "samples"})
case("ghm_one_bin", "ghm", six, epochs, {"bins": 1, "momentum": 0.0})
case("equalization_sigmoid", "equalization", six, epochs, {"form": "sigmoid"})
case("softmax_smoothing", "softmax", six, epochs, {"smoothing": 0.1})
drawn = [batch(8, 17, 0, examples=[11, 7, 5, 3, 2, 1, 0, 99]), END, batch(8, 17, 0, examples=[11, 7, 5, 3, 2, 1, 0, 99])]
case("equalization_drawn", "equalization", counts(17), drawn, {"gamma": 0.5, "lambda": 0.05, "seed": 3})
for method in ("softmax", "class-balanced", "ldam", "cwap", "ghm", "equalization"):
    case(f"drw_{method}", method, six, epochs, drw={"start_epoch": 1, "beta": 0.99})
case("drw_batch", "softmax", six, epochs, drw={"start_epoch": 2, "reduction": "batch"})
case("drw_sigmoid_equalization", "equalization", six, epochs, {"form": "sigmoid"}, drw={"start_epoch": 0, "beta": 0.99})
case("drw_sigmoid", "ghm", six, epochs, {"form": "sigmoid"}, drw={"start_epoch": 1})

if __name__ == "__main__":
    for name, body in CASES.items():
        body["expected"] = reference.run(body)
        with open(os.path.join(sys.argv[1], f"more_{name}.json"), "w") as out:
            json.dump(body, out)
            out.write("\n")
