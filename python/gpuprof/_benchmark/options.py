"""The options of `benchmark`, `compare` and `sweep`, checked before anything is measured."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from gpuprof._common import checks
from gpuprof._common.peaks import dtype_name
from gpuprof._common.records import Check, or_none
from gpuprof._distributed.lockstep import CHOICES
from gpuprof._results.fields import AMOUNT, REQUESTED_MODES


@dataclass(frozen=True)
class Options:
    """The options of `benchmark`, checked; their defaults are the function's."""

    mode: str = "auto"
    cold_l2: bool = False
    setup: Callable[[], Any] | None = None
    stream: object = None
    scopes: bool = False
    launches: bool | None = None
    energy: bool = False
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


_seconds = partial(checks.number, least=0, most=checks.MOST_S)
_CHECKS: dict[str, Check] = {
    "mode": partial(checks.choice, known=REQUESTED_MODES),
    "ranks": partial(checks.choice, known=CHOICES),
    "setup": or_none(checks.function),
    "scopes": checks.flag,
    "launches": or_none(checks.flag),
    "energy": checks.flag,
    "params": lambda name, value: {} if value is None else checks.mapping(name, value),
    "name": or_none(partial(checks.text, empty=False)),
    "min_samples": partial(checks.whole, most=2**63 - 1),
    "nbytes": AMOUNT,
    "flops": AMOUNT,
    "flops_dtype": or_none(lambda _, value: dtype_name(value)),
    "warmup_s": _seconds,
    "min_time_s": _seconds,
    "max_time_s": partial(_seconds, above=True),
    "rel_precision": partial(checks.number, least=0),
}


def checked_options(**given: Any) -> Options:
    """Return the options; a wrong one raises a TypeError or ValueError that names it."""
    known = [each.name for each in fields(Options)]
    for name, value in given.items():
        if name not in known:
            message = f"there is no option {name!r}; those of benchmark are {', '.join(known)}"
            raise TypeError(message)
        if name in _CHECKS:
            given[name] = _CHECKS[name](name, value)
    options = Options(**given)
    if options.setup is not None and options.mode in {"graph", "batched"}:
        message = (
            f"setup: mode {options.mode!r} runs many calls at once and has no place for it; "
            'use mode="isolated"'
        )
        raise ValueError(message)
    return options
