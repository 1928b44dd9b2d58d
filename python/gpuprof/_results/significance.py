"""The significance tests that verdicts use: on samples, on signs, and on many at once.

NumPy and SciPy are imported by the functions that need them, when they are called.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Sequence
from typing import Any


def mann_whitney(base: Sequence[float], new: Sequence[float]) -> float:
    """Return the two-sided p value of the Mann-Whitney test, in its normal approximation.

    It is that of ``scipy.stats.mannwhitneyu``, which takes a second to import and is meant for
    arrays of tests. Ties are corrected for. With 30 samples on both sides it is close.
    """
    numpy, special = _need("numpy"), _need("scipy.special")
    old, now = numpy.asarray(base, dtype=float), numpy.asarray(new, dtype=float)
    ordered = numpy.sort(numpy.concatenate([old, now]))
    # Twice the rank, so that equal ones in the middle of their ranks stay whole numbers.
    ranks = ordered.searchsorted(now, "left") + ordered.searchsorted(now, "right") + 1
    excess = ranks.sum() / 2 - now.size * (ordered.size + 1) / 2
    ties = numpy.unique(ordered, return_counts=True)[1].astype(float)
    tied = (ties**3 - ties).sum() / (ordered.size * (ordered.size - 1.0))
    variance = old.size * now.size / 12 * (ordered.size + 1 - tied)
    if variance <= 0.0:  # all samples are equal
        return 1.0
    return min(1.0, 2.0 * float(special.ndtr((0.5 - abs(excess)) / math.sqrt(variance))))


def sign_test(logs: Sequence[float]) -> float:
    """Return the two-sided p value of as many above 0 as below; equal ones say nothing."""
    above, below = sum(log > 0 for log in logs), sum(log < 0 for log in logs)
    count = above + below
    ways = sum(math.comb(count, k) for k in range(min(above, below) + 1))
    return min(1.0, 2 * ways / (1 << count))


def student_quantile(freedom: int, probability: float) -> float:
    """Return the quantile of Student's t distribution."""
    return float(_need("scipy.special").stdtrit(freedom, probability))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p values corrected for their number, by Holm's step-down method."""
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[place]))
        adjusted[place] = highest
    return adjusted


def _need(module: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.partition(".")[0]
        message = (
            f"a verdict on stored runs needs {package}, which is not installed: "
            "pip install 'gpuprof[bench]'"
        )
        raise ModuleNotFoundError(message, name=package) from error
