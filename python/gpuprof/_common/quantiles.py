"""Quantiles: linear between the order statistics, as NumPy has them unless told otherwise.

This is the one definition, of samples and of bins; `src/timing/quantiles.cpp` has the same for the
samples of a process. Where samples are gone and their bins are left, an order statistic is the
middle of its bin: within 0.8 %.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

# As in src/timing/quantiles.cpp.
_BINS_PER_OCTAVE = 64
_LOWEST_EXPONENT = -30


def quantile(values: Sequence[float], q: float) -> float:
    """Return the quantile of values in any order; NaN of nothing."""
    if not 0.0 <= q <= 1.0:
        message = f"q is {q!r}; expected a number from 0 to 1"
        raise ValueError(message)
    return _between(sorted(values).__getitem__, len(values), q)


def quantile_of_bins(bins: Sequence[tuple[int, int]], q: float) -> float:
    """Return the quantile of what is in bins, as a `Summary` has them; NaN of nothing."""
    upto = [*accumulate(count for _, count in bins)]

    def at(rank: int) -> float:
        octave, step = divmod(bins[bisect_right(upto, rank)][0], _BINS_PER_OCTAVE)
        return math.ldexp(1.0 + (step + 0.5) / _BINS_PER_OCTAVE, octave + _LOWEST_EXPONENT)

    return _between(at, upto[-1] if upto else 0, q)


def _between(at: Callable[[int], float], count: int, q: float) -> float:
    if not count:
        return math.nan
    rank = q * (count - 1)
    below = math.floor(rank)
    low, high = at(below), at(min(below + 1, count - 1))
    # So written, equal neighbours give exactly themselves.
    return min(max(low + (high - low) * (rank - below), low), high)
