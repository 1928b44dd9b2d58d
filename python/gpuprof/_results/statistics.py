"""The figures of a series of samples, and the significance tests that verdicts use.

No figure assumes a distribution. The interval of the median comes from the order statistics (the
sign test): the median lies between the k-th smallest and the k-th largest sample unless fewer than
k of n fall on one side of it, which has a binomial probability. That holds for any distribution,
and is exact for a continuous one. A clock with a tick makes many samples equal; the interval is
never narrower than a tick. Successive samples are often correlated, and then say less than
independent ones: the interval is that of `independent_count` samples.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from statistics import linear_regression

from gpuprof._common.quantiles import quantile

CONFIDENCE = 0.95
P_LIMIT = 0.01  # of a verdict
TICKS = 2.0  # of the clock, that a change must be larger than
# With fewer, not even the smallest and the largest sample hold the median in 95 of 100 cases.
MIN_FOR_INTERVAL = 6
_MIN_FOR_CORRELATION = 12
_LEAST_SHARE = 0.2  # of values above the median, or below
_BEYOND_CHANCE = 2.5  # standard deviations


def exp(power: float) -> float:
    """Return e to that power, clamped to what a float holds: files may hold any numbers."""
    return math.exp(min(max(power, -700.0), 700.0))


def median(values: Sequence[float]) -> float:
    """Return the middle value, or the mean of the two middle ones; NaN of nothing."""
    return quantile(values, 0.5)


def mad(values: Sequence[float]) -> float:
    """Return the median absolute deviation from the median, as it is: not scaled to a sigma."""
    middle = median(values)
    return median([abs(value - middle) for value in values])


def stddev(values: Sequence[float]) -> float:
    """Return the sample's standard deviation (n - 1); 0 of a single value, NaN of nothing."""
    if len(values) < 2:
        return 0.0 if values else math.nan
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def beside_line(values: Sequence[float]) -> tuple[float, list[float]]:
    """Return the slope of the line of least squares through values, and the values less it."""
    slope, start = linear_regression(range(len(values)), values)
    return slope, [value - start - slope * place for place, value in enumerate(values)]


@lru_cache(maxsize=256)
def interval_rank(count: int, confidence: float = CONFIDENCE, q: float = 0.5) -> int:
    """Return the largest k so that the quantile is below the k-th smallest only by chance, or 0."""
    tail = (1.0 - confidence) / 2.0 * (1.0 + 1e-9)  # rounding must not decide an exact tie
    # What lies further out than 20 standard deviations is nothing in a float.
    rank = max(0, math.floor(q * count - 10.0 * math.sqrt(count)))
    mass = 0.0
    while mass <= tail:
        ways = math.lgamma(count + 1) - math.lgamma(rank + 1) - math.lgamma(count - rank + 1)
        mass += math.exp(ways + rank * math.log(q) + (count - rank) * math.log1p(-q))
        rank += 1
    return rank - 1


def independent_count(values: Sequence[float]) -> float:
    """Return how many independent values would say as much about the median as these.

    It is their number over the autocorrelation time of which of them are above the median; the
    values come in the order in which they were taken. That time exceeds 1 only where the
    correlation is beyond chance; of few values or very long memory it comes out too short.
    """
    count = len(values)
    middle = median(values)
    if count < _MIN_FOR_CORRELATION:
        return float(count)
    # A clock's tick makes values equal to the median: they go where the halves are more alike.
    halves = [value > middle for value in values], [value >= middle for value in values]
    above = min(halves, key=lambda half: abs(2 * sum(half) - count))
    share = sum(above) / count
    variance = share * (1.0 - share)
    if min(share, 1.0 - share) < _LEAST_SHARE:
        return float(count)
    bits = int("".join("01"[each] for each in above), 2)

    def correlation(lag: int) -> float:
        pairs = count - lag
        differ = ((bits ^ (bits >> lag)) & ((1 << pairs) - 1)).bit_count()
        return 1.0 - differ / pairs / (2.0 * variance)

    few = max(1, count // 10)
    first = [correlation(lag) for lag in range(1, few + 1)]
    excess = max(first[0] * math.sqrt(count), math.fsum(first) * math.sqrt(count / few))
    if excess < _BEYOND_CHANCE:
        return float(count)
    # Pairs of neighbouring lags, as long as they are above 0: what follows is noise (Geyer).
    lags, total = 1, correlation(1)
    while lags + 2 < count // 2:
        pair = correlation(lags + 1) + correlation(lags + 2)
        if pair <= 0.0:
            break
        lags, total = lags + 2, total + pair
    time = 1.0 + 2.0 * total
    # The median of the values themselves takes a share of the correlation away.
    time += 2.0 * lags * time / count
    return min(max(count / time, 1.0), float(count))


def median_interval(
    values: Sequence[float],
    confidence: float = CONFIDENCE,
    tick: float = 0.0,
    *,
    independent: float | None = None,
    q: float = 0.5,
) -> tuple[float, float]:
    """Return the interval that holds the median, or another quantile, by order statistics.

    With too few values for the confidence (5 or fewer for 95 %) it is from the smallest to the
    largest; of nothing it is NaN. It reaches at least `tick`, the smallest step between two values,
    to both sides of the median. `independent` is as how many independent values they count. For
    other quantiles see Hahn and Meeker, "Statistical Intervals", 1991, section 5.2.
    """
    if not values:
        return math.nan, math.nan
    ordered = sorted(values)
    count = len(ordered)
    if independent is not None:
        count = max(1, min(count, math.floor(independent)))
    below, above = (
        max(interval_rank(count, confidence, each) * (len(ordered) + 1) // (count + 1), 1)
        for each in (q, 1.0 - q)
    )
    middle = quantile(ordered, q)
    return min(ordered[below - 1], middle - tick), max(ordered[-above], middle + tick)


def mann_whitney(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the two-sided p value of the Mann-Whitney test, in its normal approximation.

    It is that of ``scipy.stats.mannwhitneyu``. Ties are corrected for. With 30 samples on both
    sides it is close.
    """
    old, now, every = len(base), len(new), sorted([*base, *new])
    count = len(every)
    # The middle of the ranks that equal samples share.
    ranks = (bisect_left(every, each) + bisect_right(every, each) + 1 for each in new)
    excess = abs(sum(ranks) / 2 - now * (count + 1) / 2)
    tied = sum(ties**3 - ties for ties in Counter(every).values()) / (count * (count - 1))
    variance = old * now / 12 * (count + 1 - tied)
    if variance <= 0.0:  # all samples are equal
        return 1.0
    return min(1.0, math.erfc((excess - 0.5) / math.sqrt(2 * variance)))


def sign_test(logs: Sequence[float]) -> float:
    """Return the two-sided p value of as many above 0 as below; equal ones say nothing."""
    above, below = sum(log > 0 for log in logs), sum(log < 0 for log in logs)
    count = above + below
    ways = sum(math.comb(count, k) for k in range(min(above, below) + 1))
    return min(1.0, 2 * ways / (1 << count))


def student_p(t: float, freedom: int) -> float:
    """Return the two-sided p value of Student's t, for whole degrees of freedom.

    The finite series of Abramowitz and Stegun, 26.7.3 and 26.7.4: no SciPy is needed for it. It is
    exact to about 1e-15, so a smaller p value is 0.
    """
    angle = math.atan2(abs(t), math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term, total = (cosine, cosine) if odd else (1.0, 1.0)
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine * cosine * (k - 1) / k
        total += term
    if odd:
        inside = 2.0 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))
    else:
        inside = sine * total
    return min(max(1.0 - inside, 0.0), 1.0)


@lru_cache(maxsize=64)
def student_quantile(freedom: int, probability: float) -> float:
    """Return a quantile above the median of Student's t distribution, by bisection."""
    tail = 2.0 * (1.0 - probability)
    low, high = 0.0, 1.0
    while student_p(high, freedom) > tail:
        high *= 2.0
    for _ in range(80):
        middle = (low + high) / 2.0
        low, high = (middle, high) if student_p(middle, freedom) > tail else (low, middle)
    return (low + high) / 2.0


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number, by Holm's step-down method."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted
