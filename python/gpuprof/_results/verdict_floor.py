"""The noise floor: how large a change of stored runs must be before it is one.

It comes from how the runs of the baseline differ among themselves; `_verdict` says how and why.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuprof._results import statistics
from gpuprof._results import verdict_machine as machine
from gpuprof._results.decision import percent
from gpuprof._results.significance import student_quantile

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

ENOUGH_RUNS = 5
THRESHOLD = 0.05
THRESHOLD_FEW_RUNS = 0.10
CPU_FLOOR = 0.20
SIGMAS = 3.0
MOST_SIGMAS = 12.0
TICKS = 2.0
P_LIMIT = 0.01


@dataclass(frozen=True)
class Floor:
    """The noise floor as a fraction, what decided it, and the change that it is for."""

    floor: float
    why: str
    change: float  # a logarithm
    share: float = 0.0  # of what the machine did that is taken off

    @property
    def limit(self) -> float:
        return math.log1p(self.floor)


def floor_of(
    base: list[BenchResult],
    new: list[BenchResult],
    base_logs: list[float],
    change: float,
    *,
    least: tuple[float, str],
    share: float = 0.0,
) -> Floor:
    """Return the noise floor for that change of runs at these levels."""
    runs = in_runs(base)
    terms = [least]
    reach = _sigmas(base) * statistics.stddev(base_logs)
    terms.append((exp(reach) - 1.0, f"{_sigmas(base):.2g} standard deviations of {runs}"))
    middle = statistics.median(base_logs)
    reach, which = max(base_logs) - middle, "slowest"
    if change < 0:
        reach, which = middle - min(base_logs), "fastest"
    terms.append((exp(reach) - 1.0, f"the {which} of {runs}"))
    ticks = TICKS * max(run.tick_ms / run.median_ms for run in (*base, *new))
    terms.append((ticks, f"{TICKS:g} ticks of the clock"))
    floor, why = max(terms, key=lambda term: term[0])
    return Floor(min(floor, exp(math.inf)), why, change, share)


def _sigmas(base: list[BenchResult]) -> float:
    """Return how many standard deviations of the baseline's runs unchanged code may go.

    On the CPU's clock, where runs differ by much, as many as 99 of 100 further runs stay below.
    """
    count = len(base)
    if base[-1].clock != "cpu" or count < 2:
        return SIGMAS
    return min(max(SIGMAS, _prediction(count)), MOST_SIGMAS)


def _prediction(count: int) -> float:
    return student_quantile(count - 1, 1.0 - P_LIMIT) * math.sqrt(1.0 + 1.0 / count)


def least_floor(base: list[BenchResult], threshold: float | None) -> tuple[float, str, str]:
    """Return the floor of a baseline without noise, its name, and why it is not the threshold."""
    count = len(base)
    if threshold is None:
        least = THRESHOLD if count >= ENOUGH_RUNS else THRESHOLD_FEW_RUNS
        named = f"the threshold with {in_runs(base)}"
    else:
        least, named = threshold, "the threshold"
    if base[-1].clock != "cpu" or least >= CPU_FLOOR:
        return least, named, ""
    refused = "" if threshold is None else _not_carried(base, threshold)
    if threshold is not None and not refused:
        return least, named, ""
    return CPU_FLOOR, "the least on the CPU clock", refused


def _not_carried(base: list[BenchResult], threshold: float) -> str:
    """Return why runs on the CPU's clock cannot tell a change as small as the threshold."""
    count = len(base)
    if count < ENOUGH_RUNS:
        why = f"there are {in_runs(base)}, and it takes {ENOUGH_RUNS}"
    else:
        logs = [math.log(run.median_ms) for run in base]
        spread = min(
            map(
                statistics.stddev,
                filter(None, (logs, *(machine.levels(base, s) for s in machine.SHARES))),
            )
        )
        needed = _prediction(count) * spread
        if needed <= math.log1p(threshold):
            return ""
        why = f"another run of unchanged code may differ by {percent(exp(needed) - 1.0)}"
    return (
        f"the threshold of {percent(threshold)} is not kept to on the CPU clock, where "
        f"{percent(CPU_FLOOR)} is the least: {why}"
    )


def in_runs(base: list[BenchResult]) -> str:
    return f"{len(base)} baseline run{'s' * (len(base) > 1)}"


def exp(power: float) -> float:
    """Return e to that power, within what a float holds: files may hold any numbers."""
    return math.exp(min(max(power, -700.0), 700.0))
