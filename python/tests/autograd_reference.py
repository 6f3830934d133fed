"""Every criterion in double precision, differentiated by autograd. Weights and margins come from tools/reference.py."""

import torch
import torch.nn.functional as F


def loss(model, z, y):
    """The loss of a batch under a criterion of tools/reference.py that has seen `begin`."""
    rows = list(range(len(y)))
    total = sum(row(model, z[i], int(y[i]), i) for i in rows)
    return total / sum(model.divisor(int(y[i])) for i in rows)


def row(model, z, y, number):
    name = type(model).__name__
    one = F.one_hot(torch.tensor(y), len(z)).double()
    target = torch.tensor(y)

    def ce(logits):
        return F.cross_entropy(logits, target)

    if name == "Focal":
        return (1 - F.softmax(z, 0)[y]) ** model.p.get("gamma", 1.0) * ce(z)
    if name in ("ClassBalanced", "EffectiveNumber"):
        return model.w[y] * ce(z)
    if name == "Ghm":
        return model.gain[model.bin_of(1 - float(F.softmax(z.detach(), 0)[y]))] * ce(z)
    if name == "Equalization":
        kept = torch.tensor(kept_classes(model, z, y, number))
        return ce(z.masked_fill(~kept, -torch.inf))
    if name == "Seesaw":
        seen = torch.tensor([max(n, 1) for n in model.seen]).double()
        scores = F.softmax(z.detach(), 0)
        margin = 0.8 * (seen / seen[y]).clamp(max=1).log() + 2 * (scores / scores[y].clamp(min=1e-2)).clamp(min=1).log()
        return ce(z + margin * (1 - one))
    if name == "Cwap":
        weight = model.weight(z.detach().tolist(), y) if model.intra else 1.0
        return weight * ce(z + torch.tensor(model.margin(y)).double())
    counts = torch.tensor(model.n).double()
    prior = (counts / counts.sum()).log()
    delta = (counts.max() / counts) ** -0.3
    if name in ("BalancedSoftmax", "LogitAdjusted"):
        return ce(z + prior)
    if name == "Vs":
        return ce(delta * z + prior)
    if name == "Cdt":
        return ce(delta * z)
    if name == "Ldam":
        margin = 0.5 * (counts.min() / counts[y]) ** 0.25
        return ce(30 * (z - margin * one))
    if name == "LabelAwareSmoothing":
        share = (counts[y] - counts.min()) / (counts.max() - counts.min())
        smooth = 0.1 + 0.3 * torch.sin(share * torch.pi / 2)
        return (1 - smooth) * ce(z) - smooth * F.log_softmax(z, 0).mean()
    assert name == "Softmax"
    return ce(z)


def kept_classes(model, z, y, number):
    """The classes that `equalization` does not drop: those whose logit has a gradient."""
    _, grad, _ = model.part(z.detach().tolist(), y, number)
    return [g != 0 for g in grad]
