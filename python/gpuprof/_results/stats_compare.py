"""Whether scopes became slower, from two saved statistics: a weaker rule than that on runs.

Saved `Stats` hold summaries: no samples to test, one run on each side, so nothing is known of how
far runs of the same code differ, and nothing of the machine. So the medians are compared, with a
wide floor:

1. A row needs 30 samples on both sides and the same clock.
2. The noise floor is the largest of the threshold (10 % unless the caller asks for another; at
   least 20 % where the time is the host's), two ticks of a coarse clock (2 µs), and what the median
   of so many samples can be off: z standard errors, where the distance from the median to the 90th
   percentile stands for the spread, and z leaves 1 % for all rows together.
3. SLOW (FAST) is a median beyond the floor with a 90th percentile that moved the same way by more
   than half the floor: else the mix of calls changed rather than their speed. SAME is a median
   within half the floor, AMBIGUOUS what is left.

The interval of the ratio holds the spread within each run only, and takes it to be normal.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import NormalDist
from typing import TYPE_CHECKING

from gpuprof._results.decision import Decision, Verdict, check_threshold, percent, percent_change
from gpuprof._results.verdict import MIN_SAMPLES
from gpuprof._results.verdict_floor import CPU_FLOOR, P_LIMIT, THRESHOLD_FEW_RUNS

if TYPE_CHECKING:
    from gpuprof._timing.stats import Row, Stats, Summary

COARSE_TICKS_MS = 0.002
WEAKER = (
    "saved statistics are summaries of one run each, of a machine that they do not name: these "
    "verdicts are weaker than those on benchmark runs"
)
_P90 = NormalDist().inv_cdf(0.9)
_MEDIAN_ERROR = math.sqrt(math.pi / 2)  # of a normal sample's median, in errors of its mean


def judge_stats(
    base: Stats, new: Stats, *, threshold: float | None = None
) -> dict[tuple[tuple[str, ...], str], Decision]:
    """Decide on each row that both sides have, by the names of its path and its clock.

    A path that they measured on different clocks is INCOMPARABLE, under the new clock.
    """
    if threshold is not None:
        check_threshold(threshold)
    pairs = list(_pairs(base, new))
    compared = max(1, sum(old.clock == row.clock for row, old in pairs))
    return {
        (row.names, row.clock): _other_clock(old, row)
        if old.clock != row.clock
        else _judge(old, row, threshold, compared)
        for row, old in pairs
    }


def _pairs(base: Stats, new: Stats) -> Iterator[tuple[Row, Row]]:
    """Yield each new row of a known path with its old one, of another clock if it has to be."""
    old_rows, new_rows = (_by_names(stats) for stats in (base, new))
    for names, rows in new_rows.items():
        old = old_rows.get(names)
        if old is None:
            continue
        shared = old.keys() & rows.keys()
        for clock, row in rows.items():
            if clock in shared:
                yield row, old[clock]
            elif not shared:
                yield row, next(iter(old.values()))


def _by_names(stats: Stats) -> dict[tuple[str, ...], dict[str, Row]]:
    found: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in stats.values():
        found.setdefault(row.names, {})[row.clock] = row
    return found


def _other_clock(old: Row, row: Row) -> Decision:
    rule = f"the baseline has another clock: {old.clock}, not {row.clock}"
    return Decision(Verdict.INCOMPARABLE, rule=rule)


def _judge(old: Row, row: Row, threshold: float | None, comparisons: int) -> Decision:
    base, new = old.time, row.time
    warnings = tuple(
        f"{count:,} samples of the {side} side were dropped or failed"
        for side, count in (("base", old.dropped + old.failed), ("new", row.dropped + row.failed))
        if count
    )
    for side, summary in (("baseline", base), ("new side", new)):
        why = _why_unusable(side, summary)
        if why:
            return Decision(Verdict.NODATA, rule=why, warnings=warnings)
    if not row.on_gpu and threshold is not None and threshold < CPU_FLOOR:
        warnings += (
            f"the threshold of {percent(threshold)} is not kept to on the CPU clock, where "
            f"{percent(CPU_FLOOR)} is the least: statistics hold a single run",
        )
    change = math.log(new.p50 / base.p50)
    error = math.hypot(_relative_error(base), _relative_error(new))
    z = NormalDist().inv_cdf(1 - P_LIMIT / comparisons / 2)
    floor = max(
        THRESHOLD_FEW_RUNS if threshold is None else threshold,
        0.0 if row.on_gpu else CPU_FLOOR,
        COARSE_TICKS_MS / min(base.p50, new.p50),
        math.expm1(min(z * error, 1.0)),
    )
    limit = math.log1p(floor)
    tail = math.log(new.p90 / base.p90)
    moved = f"the median takes {percent_change(math.exp(change))} time"
    if abs(change) < limit / 2:
        verdict, how = Verdict.SAME, f"within half the noise floor of {percent(floor)}"
    elif abs(change) <= limit:
        verdict, how = Verdict.AMBIGUOUS, f"between half and all of the floor of {percent(floor)}"
    elif math.copysign(1.0, change) * tail > limit / 2:
        verdict = Verdict.SLOW if change > 0 else Verdict.FAST
        how = (
            f"beyond the noise floor of {percent(floor)}, and the 90th percentile "
            f"{percent_change(math.exp(tail))}"
        )
    else:
        verdict = Verdict.AMBIGUOUS
        how = (
            f"beyond the noise floor of {percent(floor)}, but the 90th percentile "
            f"{percent_change(math.exp(tail))}: the mix of calls may have changed"
        )
    reach = 1.96 * error
    return Decision(
        verdict,
        base.p50,
        new.p50,
        math.exp(change),
        (math.exp(change - reach), math.exp(change + reach)),
        floor,
        None,
        1,
        f"{moved}, {how} (summaries of {base.count:,} and {new.count:,} samples)",
        warnings,
    )


def _relative_error(summary: Summary) -> float:
    """Return the standard error of the median as a fraction of it, 1 at most."""
    spread = (summary.p90 / summary.p50 - 1) / _P90
    return min(_MEDIAN_ERROR * spread / math.sqrt(summary.count), 1.0)


def _why_unusable(side: str, summary: Summary) -> str | None:
    if summary.count < MIN_SAMPLES:
        return f"the {side} has {summary.count} samples; a verdict needs {MIN_SAMPLES}"
    if not 0.0 < summary.p50 <= summary.p90 < math.inf:
        return f"the {side} has no usable median: p50 {summary.p50} ms, p90 {summary.p90} ms"
    return None
