"""What of a run is compared: its median, or its lower decile.

The median of a run jumps where the machine has two states, such as two clocks, and a run is now
mostly in the one and now mostly in the other. The lower decile, which a tenth of the samples stays
below, stays in the faster state as long as a tenth of each run is. It is what the minimum is to
pytest-benchmark and Python's `timeit`, but no single sample decides it.

The interval of a quantile comes from the order statistics, as that of the median does (Hahn and
Meeker, "Statistical Intervals", 1991, section 5.2): as many of n independent samples are below the
quantile q as a binomial with n and q says.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

from gpuprof._results.result import BenchResult

MEDIAN = 0.5
LOWER = 0.1
CONFIDENCE = 0.95


def level_ms(run: BenchResult, quantile: float) -> float:
    """Return the quantile of a run's samples."""
    return run.median_ms if quantile == MEDIAN else run.p10_ms


def level_log(run: BenchResult, quantile: float) -> float:
    return math.log(level_ms(run, quantile))


def interval_ms(run: BenchResult, quantile: float) -> tuple[float, float]:
    """Return the 95 % interval of the quantile, as wide as the run's samples are alike."""
    if quantile == MEDIAN:
        return run.interval_ms
    ordered, count = sorted(run.samples_ms), run.count
    independent = max(1, min(count, math.floor(run.independent_samples)))
    low, high = _ranks(independent, quantile)
    scale = (count + 1) / (independent + 1)
    middle = level_ms(run, quantile)
    below = ordered[max(math.floor(low * scale), 1) - 1]
    above = ordered[min(math.ceil(high * scale), count) - 1]
    return min(below, middle - run.tick_ms), max(above, middle + run.tick_ms)


@lru_cache(maxsize=256)
def _ranks(count: int, quantile: float) -> tuple[int, int]:
    """Return the ranks, from 0 to count + 1, between which the quantile lies."""
    tail, mass = (1.0 - CONFIDENCE) / 2.0, 0.0
    low = high = 0
    for below in range(count + 1):
        ways = math.lgamma(count + 1) - math.lgamma(below + 1) - math.lgamma(count - below + 1)
        power = below * math.log(quantile) + (count - below) * math.log1p(-quantile)
        mass += math.exp(ways + power)
        if mass <= tail:
            low = below + 1
        high = below + 1
        if mass >= 1.0 - tail:
            break
    return low, high


def share_near(run: BenchResult, log: float, reach: float) -> float:
    """Return which share of a run's samples is within `reach` of a level; both are logarithms."""
    low, high = math.exp(log - reach), math.exp(log + reach)
    return sum(low <= sample <= high for sample in run.samples_ms) / run.count


def half_of(samples: Sequence[float], quantile: float) -> list[float]:
    """Return the samples that a change of this level must show in: all, or the lower half."""
    if quantile == MEDIAN:
        return list(samples)
    return sorted(samples)[: (len(samples) + 1) // 2]
