"""Where a series of runs changed, if it did.

The statistic is the energy distance between what lies before and after a place, weighted by how
much lies on each side, at the place where it is largest: one step of E-divisive (D. Matteson,
N. James: A nonparametric approach for multiple change point analysis of multivariate data, JASA
109, 2014), which MongoDB uses for the same question (D. Daly et al.: The use of change point
detection to identify software performance regressions in a continuous integration system, ICPE
2020). It assumes no distribution. Unlike the ranks of Pettitt's test it sees how large a change is,
so it finds one with three runs after it.

The p value is the share of random orders of the same values with as large a statistic; the orders
come of a fixed seed, so that the same runs always have the same answer. Series without a change
need few of them: counting ends when enough orders had as large a statistic (J. Besag, P. Clifford:
Sequential Monte Carlo p-values, Biometrika 78, 1991).

It assumes that runs without a change could have come in any order. Runs that drift from day to day
could not: of those, more than 1 in 100 are said to have changed.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from gpuprof._common import checks
from gpuprof._common.records import Record, in_results

P_LIMIT = 0.01
MIN_SEGMENT = 3  # runs before the change, and from it on
ORDERS = 999
_ENOUGH = 20  # orders that are as extreme, after which p is surely above the limit
_SEED = 1


@in_results
@dataclass(frozen=True)
class HistoryChange(Record):
    """Where a series changed.

    Attributes
    ----------
    index : int
        The first point of the series that belongs to what came after.
    p : float
        The share of random orders of the points that look as much like a change.
    """

    index: int
    p: float

    _CHECKS = MappingProxyType(
        {"index": checks.whole, "p": partial(checks.number, least=0.0, most=1.0)}
    )


def change_point(values: Sequence[float]) -> HistoryChange | None:
    """Return where the values changed, if p is below 0.01; they come in the order of time."""
    count = len(values)
    if count < 2 * MIN_SEGMENT:
        return None
    distances = [[abs(one - other) for other in values] for one in values]
    order = list(range(count))
    index, seen = _best_split(distances, order)
    if seen <= 0.0:
        return None
    chance = random.Random(_SEED)
    as_extreme, limit = 0, seen * (1.0 - 1e-9)  # sums in another order differ by rounding
    tried = 0
    while tried < ORDERS and as_extreme < _ENOUGH:
        chance.shuffle(order)
        as_extreme += _best_split(distances, order)[1] >= limit
        tried += 1
    p_value = (as_extreme + 1) / (tried + 1)
    return HistoryChange(index, p_value) if p_value < P_LIMIT else None


def _best_split(distances: Sequence[Sequence[float]], order: Sequence[int]) -> tuple[int, float]:
    """Return the split with the largest weighted energy distance between its two sides."""
    count = len(order)
    # Sums of the distances within the first part, between the two, and within the second.
    within, between = 0.0, 0.0
    beyond = sum(
        distances[one][other] for place, one in enumerate(order) for other in order[:place]
    )
    best = (0, 0.0)
    for size in range(1, count - MIN_SEGMENT + 1):
        row = distances[order[size - 1]]
        to_first = sum([row[other] for other in order[: size - 1]])
        to_rest = sum([row[other] for other in order[size:]])
        within += to_first
        between += to_rest - to_first
        beyond -= to_rest
        if size < MIN_SEGMENT:
            continue
        rest = count - size
        energy = 2.0 * between / (size * rest)
        energy -= 2.0 * within / (size * (size - 1)) + 2.0 * beyond / (rest * (rest - 1))
        weighted = energy * size * rest / count
        if weighted > best[1]:
            best = (size, weighted)
    return best
