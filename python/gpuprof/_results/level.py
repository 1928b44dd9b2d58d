"""What of a run is compared, its median or its lower decile, and the states that runs were in.

The median of a run jumps where the machine has two states, such as two clocks, and a run is now
mostly in the one and now mostly in the other. The lower decile, which a tenth of the samples stays
below, stays in the faster state as long as a tenth of each run is.

A run that was in another state from its first sample to its last has another level, and would raise
the noise floor to the distance between the states. Such runs are told from the rest where the
baseline shows that it is a state and no outlier: at least two runs have been there for a tenth of
their samples, and between it and the next state there is a gap without any run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuprof._results import statistics
from gpuprof._results.result import BenchResult

MEDIAN = 0.5
LOWER = 0.1
# Of a run's samples: fewer do not bring its median there by chance, as those of a pause do not.
VISIT = 0.3
_VISITS = 2
_LEAST_SHARE = 0.6  # of the runs, in the main state


def level_log(run: BenchResult, quantile: float) -> float:
    return math.log(run.median_ms if quantile == MEDIAN else run.p10_ms)


def interval_ms(run: BenchResult, quantile: float) -> tuple[float, float]:
    """Return the 95 % interval of the quantile, as wide as the run's samples are alike."""
    if quantile == MEDIAN:
        return run.interval_ms
    independent = run.independent_samples
    return statistics.median_interval(
        run.samples_ms, tick=run.tick_ms, independent=independent, q=quantile
    )


def share_near(run: BenchResult, log: float, reach: float) -> float:
    """Return which share of a run's samples is within `reach` of a level; both are logarithms."""
    low, high = math.exp(log - reach), math.exp(log + reach)
    return sum(low <= sample <= high for sample in run.samples_ms) / run.count


def half_of(samples: Sequence[float], quantile: float) -> list[float]:
    """Return the samples that a change of this level must show in: all, or the lower half."""
    if quantile == MEDIAN:
        return list(samples)
    return sorted(samples)[: (len(samples) + 1) // 2]


def main_state(base: Sequence[BenchResult], gap: float) -> list[BenchResult]:
    """Return the runs of the state that most runs are in; all of them if there is no other.

    `gap` is the least distance of two states, as a logarithm. A run's state is that of its lower
    decile; it has visited those of its median and of its upper decile, too.
    """
    seen = sorted(
        (math.log(value), place)
        for place, run in enumerate(base)
        for value in (run.p10_ms, run.median_ms, run.p90_ms)
    )
    groups: list[list[tuple[float, int]]] = [[]]
    for each in seen:
        if groups[-1] and each[0] - groups[-1][-1][0] > gap:
            groups.append([])
        groups[-1].append(each)
    levels = [math.log(run.p10_ms) for run in base]
    of_states = [
        {place for _, place in group if group[0][0] <= levels[place] <= group[-1][0]}
        for group in groups
    ]
    main = max(of_states, key=len)
    if len(main) < _LEAST_SHARE * len(base):
        return list(base)
    kept = set(main)
    for group, members in zip(groups, of_states, strict=True):
        if len({place for _, place in group}) < _VISITS:
            kept |= members  # an outlier is noise
    return [run for place, run in enumerate(base) if place in kept]


def is_a_state(base: list[BenchResult], middle: float, change: float, limit: float) -> bool:
    """Return whether runs of the baseline have been at the new level, and not just on the way.

    It is a state if two runs, or the only one, spent 3 in 10 of their samples there, and less
    half-way to it.
    """
    reach = min(limit / 2, abs(change) / 4)
    visits = 0
    for run in base:
        there = share_near(run, middle + change, reach)
        visits += there >= VISIT and there > 2 * share_near(run, middle + change / 2, reach)
    return visits >= min(_VISITS, len(base))
