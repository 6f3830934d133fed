"""The criteria as modules for PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch import distributed as dist

from equipoise.criterion import Params, Preset, build_core, check_epoch, check_threads, described
from equipoise.torch import ops
from equipoise.torch.runner import Runner

Reduction: TypeAlias = Literal["mean", "none"]
Target: TypeAlias = Tensor | tuple[Tensor, Tensor, Tensor | float]
"""Class indices, dense targets that mix two classes, or (labels, second labels, share of the first)."""


class Criterion(nn.Module):
    """A training criterion.

        criterion = equipoise.torch.Criterion("cwap", counts)
        loss = criterion(model(images), labels)
        loss.backward()
        ...
        criterion.end_epoch()

    Batches are counted in training mode and never after `eval()`. `state_dict` holds what was counted. Logits may be of
    any floating-point type; the criterion computes in float32.
    """

    def __init__(
        self,
        method: str,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        **named: Any,
    ) -> None:
        """Builds a criterion.

        Args:
            method: The name of the criterion, one of those in `equipoise.criteria()`.
            counts: Number of training images per class.
            preset: A named choice of parameters: `recommended`, `reference` (as published), `printed` (the published
                equations to the letter, where that differs) or `paper` (as run for the tables of the GHM-CWAP paper).
            reduction: `mean` gives the loss of the batch, `none` a loss per row whose mean is the loss of the batch.
            drw: Deferred re-weighting: the first epoch with class weights, or a mapping with `start_epoch`, and
                optionally `beta` and `reduction`.
            threads: Threads that a large batch is split over. As many as PyTorch uses, unless given.
            distributed: Whether the batch is shared by the processes of `torch.distributed`. Unless given, it is if
                there are several. Only training batches are shared. `True` needs an initialized process group.
            process_group: The processes that share a batch. All of them, unless given.
            params: Parameters that override the preset. A parameter of the criterion that is called `reduction` must be
                given here.
            **named: The same, by name. A name that is a keyword of Python takes an underscore: `lambda_`.

        Raises:
            TypeError: A parameter does not exist, or has the wrong type.
            ValueError: A name is unknown, a parameter is out of range, or the counts cannot be used.
        """
        super().__init__()
        if reduction not in ("mean", "none"):
            hint = "; a parameter `reduction` of the criterion goes into params={'reduction': ...}"
            raise ValueError(f"reduction is {reduction!r}; it must be 'mean' or 'none'{hint}")
        if distributed is not None and not isinstance(distributed, bool):
            raise TypeError(f"distributed must be True, False or None, not {type(distributed).__name__}")
        if process_group is not None and not (dist.is_available() and isinstance(process_group, dist.ProcessGroup)):
            kind = type(process_group).__name__
            raise TypeError(f"process_group must be a process group of torch.distributed, not {kind}")
        if isinstance(counts, Tensor):
            counts = counts.detach().cpu().numpy()
        self.reduction = reduction
        core = build_core(method, counts, preset, params, named, drw, tensors=True)
        self._runner = Runner(core, None if threads is None else check_threads(threads), distributed)
        self._runner.group = process_group
        self._has_state = core.has_state

    if TYPE_CHECKING:

        def __call__(self, logits: Tensor, target: Target, *, examples: Tensor | None = None) -> Tensor:
            """`forward`."""

    def forward(self, logits: Tensor, target: Target, *, examples: Tensor | None = None) -> Tensor:
        """Computes the loss, and counts the batch in training mode.

        Args:
            logits: The outputs of the network, batch x classes.
            target: The class of each row; or, for mixup and CutMix, dense targets (batch x classes) with at most two
                classes per row, or a tuple of labels, second labels and the share of the first (one number, or one per
                row).
            examples: The index in the dataset of each row's example. Random draws (`equalization`) depend on it;
                without it, on the row number.

        Returns:
            The loss of the batch, or with `reduction="none"` one per row.

        Raises:
            TypeError: An argument has the wrong type.
            ValueError: Shapes do not fit, a label is out of range, or a logit is not finite. Nothing is counted then.
        """
        runner, per_row = self._runner, self.reduction == "none"
        if torch.compiler.is_compiling():
            args = _checked(logits, target, examples)
            loss: Tensor
            loss, _, weights = ops.criterion(*args, runner.version, runner.handle, self.training, per_row)
            if self.training and self._has_state:
                ops.count_(runner.version, args[0].detach(), *args[1:], runner.handle)
            runner.weights = weights
            return loss
        try:
            logits, labels, second, share, examples = _checked(logits, target, examples)
            if logits.layout is not torch.strided or logits.is_meta:
                raise TypeError("logits must be a dense tensor with values, not a sparse one or one of the meta device")
        except (TypeError, ValueError):
            runner.refuse(self.training)
            raise
        try:
            result: Tensor = ops.EagerCriterion.apply(
                logits.contiguous(), runner, labels.contiguous(), second, share, examples, self.training, per_row
            )
        except RuntimeError:
            if ops.transforms_active():
                raise RuntimeError(
                    "criteria do not work inside torch.func (grad, vmap, jacrev, ...); use loss.backward() or "
                    "torch.autograd.grad, and reduction='none' for a loss per row"
                ) from None
            raise
        return result

    def end_epoch(self) -> None:
        """Ends an epoch. Call it once, after the last batch, on every process."""
        self._runner.core.end_epoch()

    @property
    def weights(self) -> Tensor | None:
        """The weight of each example of the last batch in its loss. `None` before the first batch."""
        return self._runner.weights

    @property
    def method(self) -> str:
        """The name of the criterion."""
        return self._runner.core.method

    @property
    def classes(self) -> int:
        """The number of classes."""
        return self._runner.core.classes

    @property
    def epoch(self) -> int:
        """The epoch, counted from 0. `end_epoch` increases it."""
        return self._runner.core.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._runner.core.set_epoch(check_epoch(epoch))

    @property
    def config(self) -> dict[str, Any]:
        """The method, the value of every parameter, and `drw` if it is on."""
        return self._runner.core.config()

    def state(self) -> dict[str, Any]:
        """Everything that was counted, and the epoch: what `equipoise.Criterion.restore` takes."""
        return self._runner.core.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Puts a state of `state` back, bit for bit."""
        self._runner.core.restore(state)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.update({prefix + name: tensor for name, tensor in _flatten(self.state()).items()})

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Mapping[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        given = {name[len(prefix) :]: value for name, value in state_dict.items() if name.startswith(prefix)}
        wanted = _flatten(self.state())
        if wrong := [name for name, value in given.items() if not isinstance(value, Tensor)]:
            kind = type(given[wrong[0]]).__name__
            error_msgs.append(f"{prefix}{wrong[0]} must be a tensor, not {kind}")
            return
        missing = [prefix + name for name in wanted if name not in given]
        extra = [prefix + name for name in given if name not in wanted]
        if missing or extra:
            others = {name.split(".")[0] for name in given if "." in name} - {self.method}
            if others and self._has_state:
                error_msgs.append(f"state: it belongs to '{min(others)}', but the criterion is '{self.method}'")
            missing_keys.extend(missing)
            if strict:
                unexpected_keys.extend(extra)
            return
        try:
            self.restore(_unflatten(given, self.method))
        except (TypeError, ValueError) as error:
            error_msgs.append(str(error))

    def extra_repr(self) -> str:
        """The criterion with what differs from its preset."""
        return f"{described(self._runner.core)}, reduction={self.reduction!r}"


def _checked(
    logits: Any, target: Any, examples: Any
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """Logits, labels or a dense target, second labels, shares and examples, of the types that the operators take."""
    second: Tensor | None = None
    share: Tensor | None = None
    if type(target) is not Tensor or target.dtype is not torch.int64 or target.dim() != 1 or examples is not None:
        target, second, share, examples = _parts(target, examples)
    if not isinstance(logits, Tensor):
        raise TypeError(f"logits must be a tensor, not {type(logits).__name__}")
    if logits.dtype is not torch.float32:
        if not logits.is_floating_point():
            raise TypeError(f"logits must be floating-point numbers, not {logits.dtype}")
        logits = logits.float()
    if logits.device != target.device:
        raise ValueError(f"target is on {target.device}, logits are on {logits.device}")
    return logits, target, second, share, examples


def _parts(target: Any, examples: Any) -> tuple[Tensor, Tensor | None, Tensor | None, Tensor | None]:
    """The parts of a target as the operators take them."""
    if examples is not None:
        examples = _integers(examples, "examples").contiguous()
    if isinstance(target, Tensor):
        if target.is_floating_point():
            if target.dim() != 2:
                raise ValueError(
                    f"target must be class indices, or have 2 dimensions (batch x classes), not {target.dim()}"
                )
            return target, None, None, examples
        if target.dim() == 2:
            raise TypeError(
                f"target: a dense target (batch x classes) must be floating point, not {target.dtype}; "
                "class indices have 1 dimension"
            )
        return _integers(target, "target"), None, None, examples
    if not isinstance(target, (tuple, list)) or len(target) != 3:
        many = f" of {len(target)}" if isinstance(target, (tuple, list)) else ""
        raise TypeError(f"target must be a tensor or (labels, second labels, share), not {type(target).__name__}{many}")
    labels, second = _integers(target[0], "target[0]"), _integers(target[1], "target[1]")
    share = target[2]
    if isinstance(share, (int, float)) and not isinstance(share, bool):
        share = torch.full(labels.shape, float(share), device=labels.device)
    elif not isinstance(share, Tensor):
        raise TypeError(f"target[2] must be a number or a tensor, not {type(share).__name__}")
    elif not share.is_floating_point():
        raise TypeError(f"target[2] must be floating-point numbers, not {share.dtype}")
    elif share.dim() == 0:
        share = share.expand(labels.shape)
    share = share.detach().to(labels.device, torch.float32)
    second = second.to(labels.device)
    if share.shape == labels.shape == second.shape:
        # a pair of equal labels is that label, as in dense targets, which cannot tell the two apart
        share = torch.where((labels == second) & (share >= 0.0) & (share <= 1.0), 1.0, share)
    return labels, second.contiguous(), share.contiguous(), examples


def _integers(tensor: Any, name: str) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, not {type(tensor).__name__}")
    if tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool:
        raise TypeError(f"{name} must be whole numbers, not {tensor.dtype}")
    whole = tensor.to(torch.int64)
    if tensor.dtype is torch.uint64 and not torch.compiler.is_compiling() and bool((whole < 0).any()):
        row = int((whole < 0).flatten().int().argmax())
        raise ValueError(f"{name}[{row}] is {int(whole.flatten()[row]) + 2**64}; it must be below 2^63")
    return whole


def _flatten(state: Mapping[str, Any]) -> dict[str, Tensor]:
    """The tensors of a state by name: `epoch`, `cwap.counts`, `cwap.average.values`."""
    tensors = {"epoch": torch.tensor(state["epoch"])}
    rest = {name: value for name, value in state.items() if name not in ("epoch", "of") and value is not None}

    def add(prefix: str, fields: Mapping[str, Any]) -> None:
        for name, value in fields.items():
            if isinstance(value, Mapping):
                add(f"{prefix}.{name}", value)
            else:
                tensors[f"{prefix}.{name}"] = torch.as_tensor(value)

    add(state["of"], rest)
    return tensors


def _unflatten(tensors: Mapping[str, Tensor], method: str) -> dict[str, Any]:
    """The state that `_flatten` took apart."""
    stateful = any("." in name for name in tensors)
    state: dict[str, Any] = {"of": method if stateful else "stateless", "epoch": int(tensors["epoch"])}
    for path, tensor in tensors.items():
        _, *names = path.split(".")
        if not names:
            continue
        fields = state
        for name in names[:-1]:
            fields = fields.setdefault(name, {})
        array = tensor.detach().cpu().numpy()
        fields[names[-1]] = array if array.ndim else array.item()
    return state
