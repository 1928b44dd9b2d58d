"""Where a series changed: how often the test is wrong, and how often it finds a change."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from gpuprof._results.change_point import MIN_SEGMENT, P_LIMIT, change_point
from gpuprof.results import HistoryChange

Noise = Callable[[random.Random], float]
NOISES: dict[str, Noise] = {
    "normal": lambda chance: chance.gauss(0.0, 0.02),
    "heavy tails": lambda chance: (
        0.01 * chance.gauss(0.0, 1.0) / math.sqrt(chance.gammavariate(1.0, 1.0))
    ),
    "two speeds": lambda chance: chance.gauss(0.0, 0.005) + 0.1 * (chance.random() < 0.3),
    "a coarse clock": lambda chance: 0.01 * round(chance.gauss(0.0, 1.0)),
}


def series(noise: Noise, chance: random.Random, count: int, at: int, change: float) -> list[float]:
    return [noise(chance) + change * (place >= at) for place in range(count)]


@pytest.mark.parametrize("count", [10, 20])
@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES.keys())
def test_runs_in_no_order_hardly_ever_changed(noise: Noise, count: int) -> None:
    chance = random.Random(11)
    found = sum(change_point(series(noise, chance, count, 0, 0.0)) is not None for _ in range(200))
    assert found <= 5  # 2 are to be expected at 1 %


@pytest.mark.parametrize(("count", "at"), [(20, 10), (20, 3), (20, 17), (12, 6)], ids=str)
@pytest.mark.parametrize("name", ["normal", "heavy tails"])
def test_a_change_is_found_where_it_was(name: str, count: int, at: int) -> None:
    chance = random.Random(12)
    trials, near = 20, 0
    for _ in range(trials):
        found = change_point(series(NOISES[name], chance, count, at, 0.1))
        near += found is not None and abs(found.index - at) <= 1
    assert near >= 0.8 * trials


def test_it_says_the_first_run_after_the_change_and_how_sure_it_is() -> None:
    values = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 1.2, 1.21, 1.19, 1.2, 1.22, 1.18]
    found = change_point(values)
    assert isinstance(found, HistoryChange)
    assert found.index == 6
    assert 0.0 < found.p < P_LIMIT
    assert change_point([-value for value in values]) == found


def test_the_same_runs_always_have_the_same_answer() -> None:
    values = series(NOISES["normal"], random.Random(1), 20, 10, 0.03)
    random.seed(1)
    first = change_point(values)
    random.seed(2)
    assert change_point(values) == first


def test_it_leaves_the_random_numbers_of_the_program_alone() -> None:
    state = random.getstate()
    change_point(series(NOISES["normal"], random.Random(1), 20, 10, 0.1))
    assert random.getstate() == state


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5, [1.0] * 20])
def test_few_or_equal_runs_have_no_change(values: list[float]) -> None:
    assert change_point(values) is None


def test_a_few_odd_runs_at_the_end_are_no_change() -> None:
    for odd in range(1, MIN_SEGMENT):
        assert change_point([1.0, 1.01, 0.99, 1.0] * 4 + [2.0] * odd) is None
