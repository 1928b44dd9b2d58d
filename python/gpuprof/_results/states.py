"""The states of a machine that a baseline shows, such as two clocks or two kinds of memory pages.

A run that was in another state from its first sample to its last has another level, and would raise
the noise floor to the distance between the states. Such runs are told from the rest where the
baseline shows that it is a state and no outlier: at least two runs have been there for a tenth of
their samples, and between it and the next state there is a gap without any run.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from gpuprof._results.level import share_near
from gpuprof._results.result import BenchResult

# Of a run's samples: fewer do not bring its median there by chance, as those of a pause do not.
VISIT = 0.3
_VISITS = 2
_LEAST_SHARE = 0.6  # of the runs, in the main state


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
