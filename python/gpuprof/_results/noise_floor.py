"""The noise floor: how large a change of stored runs must be before it is one.

It comes from how the runs of the baseline differ among themselves; `_results.verdict` says how and
why. On the CPU clock the runs also record what the machine did to them, which can be taken off.
Levels are logarithms of medians, so that factors add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import plural
from gpuprof._common.units import percent, percent_change
from gpuprof._results import statistics
from gpuprof._results.level import MEDIAN, level_log
from gpuprof._results.result import BenchResult

ENOUGH_RUNS = 5
THRESHOLD = 0.05
THRESHOLD_FEW_RUNS = 0.10
CPU_FLOOR = 0.20
SIGMAS = 3.0
MOST_SIGMAS = 12.0
TICKS = 2.0
P_LIMIT = 0.01

MIN_FOR_TREND = 8
KEPT_OF_TREND = 5
# A busy neighbour slows down some code as much as the loop, and other code by less.
SHARES = (0.5, 1.0)
_TREND_CHANCE = 0.001
_MOST_LOST = 0.95
_WORTH_SAYING = 0.05


@dataclass(frozen=True)
class Floor:
    """The noise floor as a fraction, what decided it, and the change that it is for."""

    floor: float
    why: str
    change: float  # a logarithm
    share: float = 0.0  # of what the machine added that is taken off

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
    quantile: float = MEDIAN,
) -> Floor:
    runs = in_runs(base)
    terms = [least]
    sigmas = _sigmas(base, quantile)
    reach = sigmas * statistics.stddev(base_logs)
    terms.append((exp(reach) - 1.0, f"{sigmas:.2g} standard deviations of {runs}"))
    middle = statistics.median(base_logs)
    reach, which = max(base_logs) - middle, "slowest"
    if change < 0:
        reach, which = middle - min(base_logs), "fastest"
    terms.append((exp(reach) - 1.0, f"the {which} of {runs}"))
    ticks = TICKS * max(run.tick_ms / run.median_ms for run in (*base, *new))
    terms.append((ticks, f"{TICKS:g} ticks of the clock"))
    floor, why = max(terms, key=lambda term: term[0])
    return Floor(min(floor, exp(math.inf)), why, change, share)


def _sigmas(base: list[BenchResult], quantile: float) -> float:
    """Return by how many standard deviations of the baseline's runs unchanged code may differ.

    On the CPU clock, where runs differ a lot, 99 of 100 further runs stay below it; and of the
    lower decile, which is compared where its spread came out smaller than the median's.
    """
    count = len(base)
    if count < 2 or (base[-1].clock != "cpu" and quantile == MEDIAN):
        return SIGMAS
    return min(max(SIGMAS, _prediction(count)), MOST_SIGMAS)


def _prediction(count: int) -> float:
    return statistics.student_quantile(count - 1, 1.0 - P_LIMIT) * math.sqrt(1.0 + 1.0 / count)


def least_floor(
    base: list[BenchResult], threshold: float | None, quantile: float = MEDIAN
) -> tuple[float, str, str]:
    """Return the floor of a baseline without noise, its name, and why it is not the threshold."""
    count = len(base)
    if threshold is None:
        least = THRESHOLD if count >= ENOUGH_RUNS else THRESHOLD_FEW_RUNS
        named = f"the threshold with {in_runs(base)}"
    else:
        least, named = threshold, "the threshold"
    if base[-1].clock != "cpu" or least >= CPU_FLOOR:
        return least, named, ""
    refused = "" if threshold is None else _not_carried(base, threshold, quantile)
    if threshold is not None and not refused:
        return least, named, ""
    return CPU_FLOOR, "the least on the CPU clock", refused


def _not_carried(base: list[BenchResult], threshold: float, quantile: float) -> str:
    """Return why runs on the CPU clock cannot show a change as small as the threshold."""
    count = len(base)
    if count < ENOUGH_RUNS:
        why = f"there are {in_runs(base)}, and it takes {ENOUGH_RUNS}"
    else:
        logs = [level_log(run, quantile) for run in base]
        without = [levels(base, share, quantile) for share in SHARES]
        spread = min(statistics.stddev(each) for each in (logs, *without) if each)
        needed = _prediction(count) * spread
        if needed <= math.log1p(threshold):
            return ""
        why = f"another run of unchanged code may differ by {percent(exp(needed) - 1.0)}"
    return (
        f"the threshold of {percent(threshold)} is not kept to on the CPU clock, where "
        f"{percent(CPU_FLOOR)} is the least: {why}"
    )


def in_runs(base: list[BenchResult]) -> str:
    return plural(len(base), "baseline run")


def exp(power: float) -> float:
    """Return e to that power, clamped to what a float holds: files may hold any numbers."""
    return math.exp(min(max(power, -700.0), 700.0))


def took_longer(run: BenchResult) -> float | None:
    """Return by how much the machine made the run's median longer; None if that is not recorded.

    Waiting for a CPU makes a sample longer by at most the share of time that the thread waited, and
    at most the share that it was on no CPU: a function that sleeps is on none, and waits for none.
    Everything else slows down the reference loop too.
    """
    noise = run.noise
    if "loop_ms" not in noise or noise["loop_ms"] <= 0.0:
        return None
    lost = min(max(_waited(run), noise.get("stolen", 0.0)), _MOST_LOST)
    return math.log(noise["loop_ms"]) - math.log1p(-lost)


def levels(
    runs: Sequence[BenchResult], share: float = 1.0, quantile: float = MEDIAN
) -> list[float] | None:
    """Return the levels without a share of what the machine added; None if a run lacks it."""
    found = []
    for run in runs:
        added = took_longer(run)
        if added is None:
            return None
        found.append(level_log(run, quantile) - share * added)
    return found


def are_alike(runs: Sequence[BenchResult]) -> bool:
    """Return whether the loop is comparable in all runs: each Python has its own speed."""
    return len({run.machine.get("python") for run in runs}) == 1


def in_words(base: Sequence[BenchResult], new: Sequence[BenchResult]) -> str:
    """Describe what the machine did in the new runs but not in those of the baseline."""
    said = []
    for what, share in (
        ("the thread waited for a CPU", _waited),
        ("the host of this virtual machine took the CPU", _stolen),
    ):
        old, now = (statistics.median([share(run) for run in runs]) for runs in (base, new))
        if now - old > _WORTH_SAYING:
            said.append(f"{what} for {percent(now)} of a sample, before for {percent(old)}")
    loops = [statistics.median([run.noise["loop_ms"] for run in runs]) for runs in (base, new)]
    ratio = loops[1] / loops[0]
    if abs(ratio - 1.0) > _WORTH_SAYING or not said:
        said.append(f"a loop that is always the same took {percent_change(ratio)} time")
    switches = statistics.median([run.noise.get("switches_per_s", 0.0) for run in new])
    if switches >= 1.0:
        said.append(f"{switches:,.0f} involuntary context switches a second")
    return ", ".join(said)


def _waited(run: BenchResult) -> float:
    return min(run.noise.get("waited", 0.0), run.noise.get("off_cpu", 0.0))


def _stolen(run: BenchResult) -> float:
    return run.noise.get("stolen", 0.0)


def recent(runs: list[BenchResult]) -> tuple[list[BenchResult], str]:
    """Return the last runs of a baseline that trends, with a sentence; else all runs."""
    count = len(runs)
    if count < MIN_FOR_TREND:
        return runs, ""
    logs = [math.log(run.median_ms) for run in runs]
    places = [place - (count - 1) / 2 for place in range(count)]
    mean, squares = math.fsum(logs) / count, math.fsum(place * place for place in places)
    slope = math.fsum(place * log for place, log in zip(places, logs, strict=True)) / squares
    rest = [log - mean - slope * place for place, log in zip(places, logs, strict=True)]
    error = math.sqrt(math.fsum(each * each for each in rest) / (count - 2) / squares)
    if abs(slope) <= statistics.student_quantile(count - 2, 1.0 - _TREND_CHANCE / 2) * error:
        return runs, ""
    said = (
        f"the baseline trends: each of its {count} runs takes {percent_change(math.exp(slope))} "
        f"time than the one before, on average; the last {KEPT_OF_TREND} are compared with"
    )
    return runs[-KEPT_OF_TREND:], said
