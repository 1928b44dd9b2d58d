"""The options of `benchmark`, `compare` and `sweep`, checked before anything is measured."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from gpuprof._common import checks
from gpuprof._common.peaks import dtype_name
from gpuprof._distributed.lockstep import CHOICES
from gpuprof._results.fields import REQUESTED_MODES

_AMOUNTS_BELOW = 2**63


@dataclass(frozen=True)
class Options:
    """The options of `benchmark`, checked; their defaults are the function's."""

    mode: str = "auto"
    cold_l2: bool = False
    setup: Callable[[], Any] | None = None
    stream: object = None
    scopes: bool = False
    launches: bool | None = None
    warmup_s: float = 0.2
    min_samples: int = 30
    min_time_s: float = 0.1
    max_time_s: float = 10.0
    rel_precision: float = 0.01
    progress: bool | None = None
    name: str | None = None
    nbytes: int | None = None
    flops: int | None = None
    flops_dtype: str | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    ranks: str = "together"


def _is_text_mapping(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(key, str) for key in value)


def _is_text(value: object) -> bool:
    return isinstance(value, str) and value != ""


_TYPES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "setup": (lambda value: value is None or callable(value), "a function or None"),
    "scopes": (lambda value: isinstance(value, bool), "True or False"),
    "launches": (lambda value: value is None or isinstance(value, bool), "True, False or None"),
    "params": (_is_text_mapping, "a mapping of text to values, or None"),
    "name": (lambda value: value is None or _is_text(value), "text that is not empty"),
}


def checked_options(**given: Any) -> Options:
    """Return the options; a wrong one raises a TypeError or ValueError that names it."""
    known = [each.name for each in fields(Options)]
    unknown = [name for name in given if name not in known]
    if unknown:
        message = f"there is no option {unknown[0]!r}; those of benchmark are {', '.join(known)}"
        raise TypeError(message)
    if given.get("params") is None:
        given.pop("params", None)
    if "min_samples" in given:
        given["min_samples"] = _whole("min_samples", given["min_samples"], least=1)
    for name in ("nbytes", "flops"):
        if given.get(name) is not None:
            given[name] = _whole(name, given[name], least=0)
    if given.get("flops_dtype") is not None:
        given["flops_dtype"] = dtype_name(given["flops_dtype"])
    options = Options(**given)
    if options.mode not in REQUESTED_MODES:
        message = f"mode: expected one of {REQUESTED_MODES}, got {options.mode!r}"
        raise ValueError(message)
    checks.choice("ranks", options.ranks, CHOICES)
    for name, (is_valid, expected) in _TYPES.items():
        if not is_valid(getattr(options, name)):
            message = f"{name}: expected {expected}, got {getattr(options, name)!r}"
            raise TypeError(message)
    if options.setup is not None and options.mode in {"graph", "batched"}:
        message = (
            f"setup: mode {options.mode!r} runs many calls at once and has no place for it; "
            'use mode="isolated"'
        )
        raise ValueError(message)
    for name in ("warmup_s", "min_time_s", "max_time_s", "rel_precision"):
        _number(name, getattr(options, name), above_0=name == "max_time_s")
    return options


def _number(name: str, value: Any, *, above_0: bool) -> None:
    expected = f"a finite number {'above' if above_0 else 'from'} 0"
    message = f"{name}: expected {expected}, got {value!r}"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(message)
    if not 0.0 <= value <= sys.float_info.max or (above_0 and value == 0.0):
        raise ValueError(message)


def _whole(name: str, value: Any, *, least: int) -> int:
    """Return `value` as an int; NumPy's integers are accepted."""
    message = f"{name}: expected a whole number from {least} below 2**63, got {value!r}"
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(message)
    number = operator.index(value)
    if not least <= number < _AMOUNTS_BELOW:
        raise ValueError(message)
    return number
