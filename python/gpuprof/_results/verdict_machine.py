"""What the machine did to runs on the CPU's clock, as far as they tell, and runs that trend.

Logarithms of medians throughout, so that what comes together adds up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuprof._results import statistics
from gpuprof._results.decision import percent, percent_change
from gpuprof._results.significance import student_quantile

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

MIN_FOR_TREND = 8
KEPT_OF_TREND = 5
# A busy neighbour slows down some code as much as the loop, and other code by less.
SHARES = (0.5, 1.0)
_TREND_CHANCE = 0.001
_MOST_LOST = 0.95
_WORTH_SAYING = 0.05


def took_longer(run: BenchResult) -> float | None:
    """Return by how much the machine made the run's median longer; None if it does not tell.

    A sample is longer for waiting by no more than the share in which the thread was on no CPU, and
    by no more than it waited for one: a function that sleeps is on none, and waits for none. What
    else the machine does, it does to a loop too, which is always the same.
    """
    noise = run.noise
    if "loop_ms" not in noise or noise["loop_ms"] <= 0.0:
        return None
    lost = min(max(_waited(run), noise.get("stolen", 0.0)), _MOST_LOST)
    return math.log(noise["loop_ms"]) - math.log1p(-lost)


def levels(runs: Sequence[BenchResult], share: float = 1.0) -> list[float] | None:
    """Return the medians without a share of what the machine added; None if a run tells nothing."""
    found = []
    for run in runs:
        added = took_longer(run)
        if added is None:
            return None
        found.append(math.log(run.median_ms) - share * added)
    return found


def are_alike(runs: Sequence[BenchResult]) -> bool:
    """Tell whether the loop is the same in all runs: each Python has its own speed."""
    return len({run.machine.get("python") for run in runs}) == 1


def in_words(base: Sequence[BenchResult], new: Sequence[BenchResult]) -> str:
    """Say what the machine did in the new runs that it did not in those of the baseline."""
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
    """Return the last runs of a baseline that trends, and that in words; else all of them."""
    count = len(runs)
    if count < MIN_FOR_TREND:
        return runs, ""
    logs = [math.log(run.median_ms) for run in runs]
    places = [place - (count - 1) / 2 for place in range(count)]
    mean, squares = math.fsum(logs) / count, math.fsum(place * place for place in places)
    slope = math.fsum(place * log for place, log in zip(places, logs, strict=True)) / squares
    rest = [log - mean - slope * place for place, log in zip(places, logs, strict=True)]
    error = math.sqrt(math.fsum(each * each for each in rest) / (count - 2) / squares)
    if abs(slope) <= student_quantile(count - 2, 1.0 - _TREND_CHANCE / 2) * error:
        return runs, ""
    said = (
        f"the baseline trends: each of its {count} runs takes {percent_change(math.exp(slope))} "
        f"time than the one before, by and large; the last {KEPT_OF_TREND} are compared with"
    )
    return runs[-KEPT_OF_TREND:], said
