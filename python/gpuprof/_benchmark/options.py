"""The options of `benchmark`, `compare` and `sweep`, checked before anything is measured.

An option is a line: its type with its check, and its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Annotated, Any

from gpuprof._common import checks
from gpuprof._common.peaks import dtype_name
from gpuprof._common.records import Checked, or_none
from gpuprof._distributed.lockstep import CHOICES
from gpuprof._results.fields import REQUESTED_MODES, amount

_seconds = partial(checks.number, least=0, most=checks.MOST_S)


@dataclass(frozen=True)
class Options(Checked):
    """The options of `benchmark`, checked; their defaults are the function's."""

    mode: Annotated[str, partial(checks.choice, known=REQUESTED_MODES)] = "auto"
    cold_l2: bool = False
    setup: Annotated[Callable[[], Any] | None, or_none(checks.function)] = None
    stream: object = None
    scopes: Annotated[bool, checks.flag] = False
    launches: Annotated[bool | None, or_none(checks.flag)] = None
    energy: Annotated[bool, checks.flag] = False
    warmup_s: Annotated[float, _seconds] = 0.2
    min_samples: Annotated[int, partial(checks.whole, most=2**63 - 1)] = 30
    min_time_s: Annotated[float, _seconds] = 0.1
    max_time_s: Annotated[float, partial(_seconds, above=True)] = 10.0
    rel_precision: Annotated[float, partial(checks.number, least=0)] = 0.01
    progress: bool | None = None
    name: Annotated[str | None, or_none(partial(checks.text, empty=False))] = None
    nbytes: Annotated[int | None, amount] = None
    flops: Annotated[int | None, amount] = None
    flops_dtype: Annotated[str | None, or_none(lambda _, value: dtype_name(value))] = None
    params: Annotated[Mapping[str, Any] | None, or_none(checks.mapping)] = None
    ranks: Annotated[str, partial(checks.choice, known=CHOICES)] = "together"


def checked_options(**given: Any) -> Options:
    """Return the options; a wrong one raises a TypeError or ValueError that names it."""
    known = [each.name for each in fields(Options)]
    for name in given:
        if name not in known:
            message = f"there is no option {name!r}; those of benchmark are {', '.join(known)}"
            raise TypeError(message)
    options = Options(**given)
    if options.setup is not None and options.mode in {"graph", "batched"}:
        message = (
            f"setup: mode {options.mode!r} runs many calls at once and has no place for it; "
            'use mode="isolated"'
        )
        raise ValueError(message)
    return options
