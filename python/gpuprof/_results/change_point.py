"""Where a series of runs changed: each step, and each stretch that drifts.

docs/history.md has the method: binary segmentation with the two tests of circular binary
segmentation (A. Olshen and others: Circular binary segmentation for the analysis of array-based DNA
copy number data, Biostatistics 5, 2004), where a line that describes a stretch better by the
Bayesian information criterion takes the place of its steps. Counting random orders ends when p is
surely above its limit (J. Besag, P. Clifford: Sequential Monte Carlo p-values, Biometrika 78,
1991).

What is put in another order are the values less the part that the run before explains. That
dependence is measured beside the change that is tested, where a few runs show too little of it; the
allowance for that was found by simulation, in benchmarks/history_power.py.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise
from operator import sub
from typing import Annotated

from gpuprof._common import checks
from gpuprof._common.records import Checked, in_results, or_none
from gpuprof._results.statistics import beside_line, exp, mad, median

P_LIMIT = 0.01
MIN_SEGMENT = 3  # runs between two changes, and at both ends
ORDERS = 999
_STEP_LIMIT = 0.006
_FOR_BUMP = 14  # fewer values hold no part whose p value could be small enough
_SEED = 1
_LEAST = 1e-30  # what a sum of squares may be before its logarithm is taken
_MOST_DEPENDENT = 0.9
_ALIKE = 2.0  # standard errors by which two levels may differ and be called the same
_CLIP = 6.0 * 1.4826  # median absolute deviations: six standard deviations of normal noise
# The autocorrelation of a few values beside their level is too small by this, and by some more for
# each further step: a constant, and a part of their number.
_ALLOWANCE, _ALLOWANCE_BY_COUNT = 0.3, 2.0
_MORE, _MORE_BY_COUNT = 0.07, 1.5
_MOST_STEPS = 4


@in_results
@dataclass(frozen=True)
class HistoryChange(Checked):
    """Where a series changed.

    Attributes
    ----------
    index : int
        The first point of the series that belongs to what came after; of a drift, the first that
        drifts.
    p : float
        The share of random orders of the points that look as much like a change.
    ratio : float
        The level after over the level before; of a drift, its end over its start.
    kind : str
        ``"step"``, or ``"drift"`` where a line describes the points better than steps do.
    last : int or None
        The last point of a drift; None for a step.
    back_to : int or None
        For a step back to an earlier level: the first point that no longer had that level.
    """

    index: Annotated[int, partial(checks.whole, least=0)]
    p: Annotated[float, partial(checks.number, least=0.0, most=1.0)]
    ratio: Annotated[float, partial(checks.number, least=0.0, above=True)]
    kind: Annotated[str, partial(checks.choice, known=("step", "drift"))] = "step"
    last: Annotated[int | None, or_none(partial(checks.whole, least=0))] = None
    back_to: Annotated[int | None, or_none(checks.whole)] = None


@dataclass(frozen=True)
class _Segment:
    """A stretch of values with one level, or a drift from one level to another.

    `p` is of the change at its start or, of a drift, of the drift.
    """

    start: int
    end: int
    first: float
    last: float
    p: float = 1.0
    is_drift: bool = False


def changes(
    values: Sequence[float], threshold: float = 0.0, places: Sequence[int] | None = None
) -> tuple[HistoryChange, ...]:
    """Return the changes of values, the newest first; smaller ones than `threshold` are left out.

    The values are logarithms, in the order of time; `places` are theirs in the series.
    """
    found: list[HistoryChange] = []
    places = range(len(values)) if places is None else places
    divided = _divided(values, 0, len(values), 1.0)
    least = math.log1p(threshold)
    for place, segment in enumerate(divided):
        apart = segment.first - divided[place - 1].last
        # Where a drift begins or ends there is a step only if the two sides are apart.
        if place and not segment.is_drift and abs(apart) >= max(least, 1e-12):
            left = _back_to(values, divided[: place + 1], abs(apart), least)
            back = None if left is None else places[left]
            found.append(HistoryChange(places[segment.start], segment.p, exp(apart), back_to=back))
        drifted = segment.last - segment.first
        if segment.is_drift and abs(drifted) >= least:
            start, last = places[segment.start], places[segment.end - 1]
            found.append(HistoryChange(start, segment.p, exp(drifted), "drift", last))
    return tuple(reversed(found))


def _back_to(
    values: Sequence[float], before: Sequence[_Segment], apart: float, least: float
) -> int | None:
    """Return where the level of the last segment was left before, if it was there."""
    *earlier, now = before
    for old, after in reversed([*pairwise(earlier)]):
        if old.is_drift:
            continue
        rest = [
            value - each.first for each in (old, now) for value in values[each.start : each.end]
        ]
        error = 1.2533 * 1.4826 * mad(rest)  # of a median of normal noise
        error *= math.sqrt(1.0 / (old.end - old.start) + 1.0 / (now.end - now.start))
        if abs(now.first - old.last) <= min(max(least, _ALIKE * error), apart / 2.0):
            return after.start
    return None


def _divided(values: Sequence[float], start: int, end: int, p_before: float) -> list[_Segment]:
    """Return the segments of a stretch; `p_before` is of the change at its start."""
    stretch = values[start:end]
    places, p_value = _changes(stretch)
    level = median(stretch) if stretch else 0.0
    if not places:
        return [_Segment(start, end, level, level, p_before)]
    bounds = [start, *(start + place for place in places), end]
    found = [
        segment
        for place, (low, high) in enumerate(pairwise(bounds))
        for segment in _divided(values, low, high, p_value if place else p_before)
    ]
    line, slope = _line(stretch)
    steps = sum(_apart(values, segment) for segment in found)
    # A level is one parameter, a line two, and so is where one ends and the next begins.
    parameters = sum(2 + segment.is_drift for segment in found) - 1
    as_line = _Segment(start, end, line, line + slope * (len(stretch) - 1), p_value, is_drift=True)
    of_line = _criterion(_apart(values, as_line), len(stretch), 2)
    return [as_line] if of_line <= _criterion(steps, len(stretch), parameters) else found


def _apart(values: Sequence[float], segment: _Segment) -> float:
    """Return the sum of the distances from a segment's level."""
    count = segment.end - segment.start
    slope = (segment.last - segment.first) / max(count - 1, 1)
    return math.fsum(
        abs(values[segment.start + place] - segment.first - slope * place) for place in range(count)
    )


def _criterion(apart: float, count: int, parameters: int) -> float:
    # Of noise with a Laplace distribution, because single runs are far off.
    return 2.0 * count * math.log(max(apart, 1e-12)) + parameters * math.log(count)


def _line(values: Sequence[float]) -> tuple[float, float]:
    """Return the start and the slope of a line through values: the medians (Theil and Sen)."""
    slopes = [
        (values[late] - values[early]) / (late - early)
        for late in range(len(values))
        for early in range(late)
    ]
    slope = median(slopes)
    return median([value - slope * place for place, value in enumerate(values)]), slope


def _changes(values: Sequence[float]) -> tuple[list[int], float]:
    """Return where values step, or step and come back, with the p value; no place without."""
    count = len(values)
    if count < 2 * MIN_SEGMENT:
        return [], 1.0
    around, middle = _CLIP * mad(values), median(values)
    clipped = [
        min(max(value, middle - around), middle + around) if around else value for value in values
    ]
    tests: list[tuple[Find, float]] = [(_step, P_LIMIT)]
    if count >= _FOR_BUMP:
        tests = [(_step, _STEP_LIMIT), (_bump, P_LIMIT - _STEP_LIMIT)]
    for find, limit in tests:
        share, places = find(clipped)
        if places:
            dependence = min(max(_dependence(clipped, places), 0.0), _MOST_DEPENDENT)
            p_value = _p_value(clipped, find, share, dependence, limit)
            if p_value < limit:
                return places, p_value
    return [], 1.0


def _dependence(values: Sequence[float], places: Sequence[int]) -> float:
    """Return the autocorrelation beside steps at these places and more, or beside a line."""
    count = len(values)
    cost = 2.0 * math.log(count)  # of one more step: where it is, and its level
    bounds = [0, *places, count]
    rest = _beside_levels(values, bounds)
    while len(bounds) < _MOST_STEPS + 2:
        gain, place = max(map(partial(_gain, rest), bounds, bounds[1:]))
        left = count * math.log(max(_squares(rest) - gain, _LEAST))
        if _criterion_of_squares(rest) - cost <= left:
            break
        bounds = sorted([*bounds, place])
        rest = _beside_levels(rest, bounds)
    more = len(bounds) - 3
    _, line = beside_line(values)
    if _criterion_of_squares(line) < _criterion_of_squares(rest) + cost * (more + 0.5):
        rest, more = line, 0
    products = sum([one * other for one, other in pairwise(rest)])
    allowance = _ALLOWANCE + more * _MORE + (_ALLOWANCE_BY_COUNT + more * _MORE_BY_COUNT) / count
    return products / max(_squares(rest), _LEAST) + allowance


def _gain(values: Sequence[float], low: int, high: int) -> tuple[float, int]:
    """Return by how much a step in a stretch lessens the sum of squares, and where it is."""
    if high - low < 2 * MIN_SEGMENT:
        return 0.0, low
    stretch = values[low:high]
    share, places = _step(stretch, or_line=False)
    return share * _squares(stretch), low + (places[0] if places else 0)


def _criterion_of_squares(values: Sequence[float]) -> float:
    return len(values) * math.log(max(_squares(values), _LEAST))


def _beside_levels(values: Sequence[float], bounds: Sequence[int]) -> list[float]:
    """Return what is left of values without the mean of each stretch."""
    return [
        value - sum(values[low:high]) / (high - low)
        for low, high in pairwise(bounds)
        for value in values[low:high]
    ]


def _squares(values: Sequence[float]) -> float:
    return sum([value * value for value in values])


Find = Callable[[Sequence[float]], tuple[float, list[int]]]


def _p_value(
    values: Sequence[float], find: Find, share: float, dependence: float, limit: float
) -> float:
    """Return the share of series with the same dependence that look as much like a change."""
    chance = random.Random(_SEED)
    mean = sum(values) / len(values)
    centred = [value - mean for value in values]
    new = [value - dependence * before for before, value in pairwise(centred)]
    new.append(centred[0] * math.sqrt(1.0 - dependence * dependence))
    # The first value of a series is as far from its mean as all others.
    wider = 1.0 / math.sqrt(1.0 - dependence * dependence)
    as_extreme, enough = 0, limit * (ORDERS + 1) - 1
    share *= 1.0 - 1e-9  # sums in another order differ by rounding
    for _ in range(ORDERS):
        chance.shuffle(new)
        made = new
        if dependence:
            made = [*accumulate(new[1:], lambda x, y: dependence * x + y, initial=wider * new[0])]
        as_extreme += find(made)[0] >= share
        if as_extreme >= enough:
            return 1.0
    return (as_extreme + 1) / (ORDERS + 1)


def _sums(values: Sequence[float]) -> tuple[list[float], float]:
    """Return the sums of the first values, less their mean, and the sum of all squares."""
    mean = sum(values) / len(values)
    centred = [value - mean for value in values]
    return [0.0, *accumulate(centred)], _squares(centred)


def _step(values: Sequence[float], *, or_line: bool = True) -> tuple[float, list[int]]:
    """Return how much of the variance one step explains, or a line, and where the step is."""
    count = len(values)
    sums, squares = _sums(values)
    gains = [
        sums[place] ** 2 / (place * (count - place))
        for place in range(MIN_SEGMENT, count - MIN_SEGMENT + 1)
    ]
    most = max(gains)
    if not squares > 0.0 or not most > 0.0:
        return 0.0, []
    place = MIN_SEGMENT + gains.index(most)
    of_step = count * most
    of_line = 12.0 * sum(sums) ** 2 / (count**3 - count) if or_line else 0.0
    return max(of_step, of_line) / squares, [place]


def _bump(values: Sequence[float]) -> tuple[float, list[int]]:
    """Return how much of the variance a part explains that differs from all before and after."""
    count = len(values)
    sums, squares = _sums(values)
    if count < 3 * MIN_SEGMENT or not squares > 0.0:
        return 0.0, []
    ends = sums[MIN_SEGMENT : count - MIN_SEGMENT + 1]
    most, found = 0.0, (0, 0)
    for size in range(MIN_SEGMENT, len(ends)):
        inside = [*map(sub, ends[size:], ends)]
        high = max(*inside, -min(inside))
        gain = high * high / (size * (count - size))
        if gain > most:
            most, found = gain, (size, inside.index(high if high in inside else -high))
    size, first = found
    if not size:
        return 0.0, []
    start = MIN_SEGMENT + first
    return count * most / squares, [start, start + size]
