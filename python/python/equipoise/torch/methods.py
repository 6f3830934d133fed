"""A class per criterion, made from the list of criteria and its documentation."""

from __future__ import annotations

import inspect
from keyword import iskeyword
from typing import Any

from equipoise.criterion import criteria
from equipoise.torch.criterion import Criterion


def class_name(method: str) -> str:
    """The name of a criterion's class: `class-balanced` becomes `ClassBalanced`."""
    return "".join(word.capitalize() for word in method.split("-"))


def keyword_name(parameter: str) -> str:
    """The name of a parameter as an argument: `lambda` becomes `lambda_`."""
    return f"{parameter}_" if iskeyword(parameter) else parameter


def _documentation(entry: dict[str, Any]) -> str:
    lines = [f"{entry['idea'][:1].upper()}{entry['idea'][1:]}", ""]
    if entry["parameters"]:
        lines.append("Args:")
    for name, parameter in entry["parameters"].items():
        presets = dict(parameter["presets"])
        default = presets.pop("recommended")
        changed = "".join(f", {value} in preset {preset}" for preset, value in presets.items() if value != default)
        given = " Given in `params`, as `reduction` is that of the module." if name == "reduction" else ""
        lines.append(f"    {keyword_name(name)}: {parameter['doc']} Default: {default}{changed}.{given}")
    for heading, text in entry["sections"].items():
        body = "\n".join(f"    {line}".rstrip() for line in text.splitlines() if not line.startswith("```"))
        lines += ["", f"{heading}:", body]
    return "\n".join(lines)


def _signature(entry: dict[str, Any]) -> inspect.Signature:
    general = [p for p in inspect.signature(Criterion).parameters.values() if p.name not in ("method", "named")]
    known = {parameter.name for parameter in general}
    own = [
        inspect.Parameter(keyword_name(name), inspect.Parameter.KEYWORD_ONLY, default=...)
        for name in entry["parameters"]
        if name not in known
    ]
    return inspect.Signature(general + own)


def _make(entry: dict[str, Any]) -> type[Criterion]:
    method = entry["id"]

    def __init__(self: Criterion, counts: Any, **options: Any) -> None:
        Criterion.__init__(self, method, counts, **options)

    name = class_name(method)
    __init__.__qualname__ = f"{name}.__init__"
    members = {
        "__init__": __init__,
        "__doc__": _documentation(entry),
        "__module__": __name__,
        "__qualname__": name,
        "__signature__": _signature(entry),
    }
    return type(name, (Criterion,), members)


BY_METHOD = {entry["id"]: _make(entry) for entry in criteria()}
globals().update({made.__name__: made for made in BY_METHOD.values()})
__all__ = ["BY_METHOD", "class_name", "keyword_name", *(made.__name__ for made in BY_METHOD.values())]
