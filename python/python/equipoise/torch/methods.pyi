# Written by tools/make_stubs.py.
from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch import distributed as dist

from equipoise.criterion import Params, Preset
from equipoise.torch.criterion import Criterion, Reduction

BY_METHOD: dict[str, type[Criterion]]

def class_name(method: str) -> str: ...
def keyword_name(parameter: str) -> str: ...

class Softmax(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        smoothing: float = ...,
    ) -> None: ...

class ClassBalanced(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        power: float = ...,
    ) -> None: ...

class EffectiveNumber(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        beta: float = ...,
    ) -> None: ...

class Focal(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        gamma: float = ...,
    ) -> None: ...

class Ghm(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        bins: int = ...,
        momentum: float = ...,
        form: str = ...,
        average: str = ...,
    ) -> None: ...

class Equalization(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        gamma: float = ...,
        lambda_: float = ...,
        form: str = ...,
        seed: int = ...,
    ) -> None: ...

class Seesaw(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        p: float = ...,
        q: float = ...,
        eps: float = ...,
    ) -> None: ...

class Cwap(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        bins: int = ...,
        alpha: float = ...,
        gamma: float = ...,
        regions: str = ...,
        intra: bool = ...,
        weighting: str = ...,
        kappa: float = ...,
        intra_start: int = ...,
        intra_alpha: float | None = ...,
        intra_hard: bool = ...,
        inter: bool = ...,
        margin: str = ...,
        normalize: str = ...,
        prior: float = ...,
        memory: str = ...,
        momentum: float = ...,
        norm: str = ...,
        cap: float | None = ...,
    ) -> None: ...

class BalancedSoftmax(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
    ) -> None: ...

class LogitAdjusted(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        tau: float = ...,
    ) -> None: ...

class Vs(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        gamma: float = ...,
        tau: float = ...,
    ) -> None: ...

class Cdt(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        gamma: float = ...,
    ) -> None: ...

class Ldam(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        scale: float = ...,
        max_margin: float = ...,
    ) -> None: ...

class LabelAwareSmoothing(Criterion):
    def __init__(
        self,
        counts: Sequence[int] | Tensor | Any,
        *,
        preset: Preset = "recommended",
        reduction: Reduction = "mean",
        drw: int | Params | None = None,
        threads: int | None = None,
        distributed: bool | None = None,
        process_group: dist.ProcessGroup | None = None,
        params: Params | None = None,
        head: float = ...,
        tail: float = ...,
    ) -> None: ...
