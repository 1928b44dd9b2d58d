"""What fields of a `BenchResult` may hold."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from gpuprof._common import checks
from gpuprof._common.records import by_name, each_of, or_none

MODES = ("graph", "batched", "isolated", "synchronized", "cpu")
REQUESTED_MODES = ("auto", "graph", "batched", "isolated")
GATES = ("gated", "ungated", "n/a")
MEMORY = ("peak_bytes", "change_bytes")
ENERGY = ("joules", "watts", "resolution", "step_joules", "block_s")
PEAKS = ("bytes_per_s", "flops_per_s", "dtype")

_MOST = 1e12  # of milliseconds: 30 years
_MOST_A_SECOND = 1e21  # of bytes, or of operations
not_negative = partial(checks.number, least=0, most=_MOST)
amount = or_none(partial(checks.whole, least=0, most=2**63 - 1))


def samples(name: str, value: Any) -> Any:
    # Slopes of two noisy times may be below 0.
    found = each_of(partial(checks.number, least=-_MOST, most=_MOST))(name, value)
    if not found:
        raise checks.value_error(value, name, "at least one sample")
    return found


def memory(name: str, value: Any) -> dict[str, int]:
    found = checks.mapping(name, value)
    if found and found.keys() != {*MEMORY}:
        raise checks.value_error(value, name, f"an empty mapping, or one of {', '.join(MEMORY)}")
    return {
        key: checks.whole(f"{name}[{key!r}]", item, 0 if key == "peak_bytes" else -(2**62), 2**62)
        for key, item in found.items()
    }


def energy(name: str, value: Any) -> dict[str, float]:
    found: dict[str, float] = by_name(not_negative)(name, value)
    if found and found.keys() != {*ENERGY}:
        raise checks.value_error(value, name, f"an empty mapping, or one of {', '.join(ENERGY)}")
    return found


def peaks(name: str, value: Any) -> dict[str, Any]:
    found = checks.mapping(name, value)
    for key, item in found.items():
        what = f"{name}[{key!r}]"
        checks.choice(f"{name}: a key", key, PEAKS)
        if not key.endswith("_per_s"):
            checks.text(what, item)
        else:
            checks.number(what, item, 0, _MOST_A_SECOND, above=True)
    return found


def time_or_nan(name: str, value: Any) -> float:
    is_none = value is None or (isinstance(value, float) and math.isnan(value))
    return math.nan if is_none else checks.number(name, value)
