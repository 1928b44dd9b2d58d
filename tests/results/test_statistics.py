"""The figures of a series: quantiles, spread, and the exact interval of the median."""

from __future__ import annotations

import math
import random
import statistics as reference
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof._results.statistics import (
    MIN_FOR_INTERVAL,
    independent_count,
    interval_rank,
    mad,
    median,
    median_interval,
    quantile,
    stddev,
)

TIMES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60)


def coverage(count: int, rank: int) -> Fraction:
    """The probability that the median lies between the rank-th smallest and largest of `count`."""
    outside = sum(math.comb(count, below) for below in range(rank))
    return 1 - Fraction(2 * outside, 2**count)


@settings(deadline=None, derandomize=True)
@given(TIMES, st.floats(0, 1))
def test_a_quantile_lies_among_the_values_and_grows_with_q(values: list[float], q: float) -> None:
    assert min(values) <= quantile(values, q) <= max(values)
    assert quantile(values, q / 2) <= quantile(values, q)
    assert quantile(values, q) == quantile(values[::-1], q)


@settings(deadline=None, derandomize=True)
@given(TIMES)
def test_the_median_and_the_quartiles_are_those_of_the_standard_library(
    values: list[float],
) -> None:
    assert median(values) == pytest.approx(reference.median(values), rel=1e-12, abs=1e-9)
    if len(values) > 1:
        quartiles = [quantile(values, q) for q in (0.25, 0.5, 0.75)]
        expected = reference.quantiles(values, n=4, method="inclusive")
        assert quartiles == pytest.approx(expected, rel=1e-12, abs=1e-9)
        expected_deviation = pytest.approx(reference.stdev(values), rel=1e-9, abs=1e-9)
        assert stddev(values) == expected_deviation


@settings(deadline=None, derandomize=True)
@given(TIMES, st.floats(-1e3, 1e3))
def test_the_mad_does_not_change_when_all_values_move(values: list[float], by: float) -> None:
    assert mad([value + by for value in values]) == pytest.approx(mad(values), abs=1e-6)


def test_the_mad_of_few_outliers_is_that_of_the_others() -> None:
    assert mad([1.0, 2.0, 3.0, 4.0, 1e9]) == 1.0


def test_equal_values_have_exactly_that_value_as_every_figure() -> None:
    values = [0.1] * 7
    assert {quantile(values, q / 10) for q in range(11)} == {0.1}
    assert (mad(values), stddev(values)) == (0.0, 0.0)
    assert median_interval(values) == (0.1, 0.1)


def test_of_nothing_the_figures_are_nan() -> None:
    assert all(math.isnan(value) for value in (median([]), mad([]), stddev([])))
    assert all(math.isnan(end) for end in median_interval([]))


@pytest.mark.parametrize("q", [-0.01, 1.01, math.nan])
def test_a_quantile_outside_of_0_to_1_is_an_error(q: float) -> None:
    with pytest.raises(ValueError, match="expected a number from 0 to 1"):
        quantile([1.0], q)


@pytest.mark.parametrize("confidence", ["1/2", "9/10", "19/20", "99/100", "999/1000"])
def test_the_interval_is_the_narrowest_that_covers_the_median_as_the_binomial_has_it(
    confidence: str,
) -> None:
    wanted = Fraction(confidence)
    for count in range(130):
        rank = interval_rank(count, float(wanted))
        assert rank == 0 or coverage(count, rank) >= wanted
        assert coverage(count, rank + 1) < wanted


def test_of_all_orders_of_signs_at_most_a_twentieth_leaves_the_median_outside() -> None:
    """Brute force, without the binomial: each sample is above or below the median."""
    count = 10
    values = [float(value) for value in range(1, count + 1)]
    outside = 0
    for signs in range(2**count):
        below = signs.bit_count()
        # With so many of the samples below it, the median lies between these two ranks.
        true_median = below + 0.5
        low, high = median_interval(values)
        outside += not low <= true_median <= high
    assert outside / 2**count == pytest.approx(1 - float(coverage(count, 2)))
    assert outside / 2**count <= 0.05


def test_six_samples_are_the_fewest_for_an_interval_inside_of_them() -> None:
    assert MIN_FOR_INTERVAL == 6
    assert [interval_rank(count) for count in range(5, 10)] == [0, 1, 1, 1, 2]
    values = [5.0, 1.0, 3.0, 2.0, 9.0]
    assert median_interval(values) == (1.0, 9.0)


def test_the_interval_of_very_many_samples_is_narrow() -> None:
    rank = interval_rank(1_000_000)
    assert rank == pytest.approx(500_000 - 1.96 * 500, abs=1)


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 20), min_size=1, max_size=100), st.floats(1e-3, 10))
def test_the_interval_never_says_more_than_the_clock_can_resolve(
    ticks: list[int], tick: float
) -> None:
    values = [count * tick for count in ticks]
    low, high = median_interval(values, tick=tick)
    middle = median(values)
    assert low <= middle - tick
    assert high >= middle + tick
    plain_low, plain_high = median_interval(values)
    assert (low, high) == (min(plain_low, middle - tick), max(plain_high, middle + tick))


@settings(deadline=None, derandomize=True)
@given(TIMES, st.floats(0.5, 0.99))
def test_the_interval_holds_the_median_and_grows_with_the_confidence(
    values: list[float], confidence: float
) -> None:
    low, high = median_interval(values, confidence)
    assert low <= median(values) <= high
    wider_low, wider_high = median_interval(values, 0.999)
    assert wider_low <= low
    assert wider_high >= high


def wandering(count: int, memory: float, seed: int) -> list[float]:
    """Return values of which each keeps that share of the one before it (AR(1))."""
    chance = random.Random(seed)
    values = [chance.gauss(0.0, 1.0)]
    while len(values) < count:
        fresh = math.sqrt(1 - memory**2) * chance.gauss(0.0, 1.0)
        values.append(memory * values[-1] + fresh)
    return values


@pytest.mark.parametrize(("count", "least"), [(100, 0.85), (500, 0.9)])
def test_the_interval_of_samples_that_are_alike_holds_the_median(count: int, least: float) -> None:
    held = {True: 0, False: 0}
    for seed in range(100):
        values = wandering(count, 0.9, seed)
        for aware in held:
            known = independent_count(values) if aware else None
            low, high = median_interval(values, independent=known)
            held[aware] += low <= 0.0 <= high
    assert held[False] < 60
    assert held[True] >= 100 * least


def test_independent_samples_count_as_they_are() -> None:
    counts = [independent_count(wandering(200, 0.0, seed)) for seed in range(100)]
    assert sum(count == 200.0 for count in counts) >= 95
    assert min(counts) > 40


@pytest.mark.parametrize(
    "values", [[], [1.0], [1.0] * 50, [1.0, 2.0] * 50, list(range(8)), [1.0] * 49 + [2.0]]
)
def test_samples_without_a_memory_are_all_independent(values: list[float]) -> None:
    assert independent_count(values) == len(values)


def test_a_steady_rise_tells_little_about_the_median() -> None:
    rise = [float(place) for place in range(1000)]
    assert independent_count(rise) < 5
    known = independent_count(rise)
    assert median_interval(rise, independent=known) == (0.0, 999.0)
