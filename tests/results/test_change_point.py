"""Where a series changed: how often the test is wrong, and how often it finds a change."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from gpuprof._results.change_point import MIN_SEGMENT, P_LIMIT, changes
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
    found = sum(bool(changes(series(noise, chance, count, 0, 0.0))) for _ in range(200))
    assert found <= 5  # 2 are to be expected at 1 %


def dependent(chance: random.Random, count: int, share: float) -> list[float]:
    """Return noise of which each value keeps a share of the one before."""
    found = [chance.gauss(0.0, 0.02)]
    for _ in range(count - 1):
        new = chance.gauss(0.0, 0.02 * math.sqrt(1.0 - share * share))
        found.append(share * found[-1] + new)
    return found


@pytest.mark.parametrize("share", [0.3, 0.5])
@pytest.mark.parametrize("count", [20, 40])
def test_runs_that_depend_on_those_before_hardly_ever_changed(count: int, share: float) -> None:
    chance = random.Random(13)
    found = sum(bool(changes(dependent(chance, count, share))) for _ in range(200))
    assert found <= 10  # 4 are allowed at 2 %


@pytest.mark.parametrize(("count", "at"), [(20, 10), (20, 3), (20, 17), (12, 6)], ids=str)
@pytest.mark.parametrize("name", ["normal", "heavy tails"])
def test_a_change_is_found_where_it_was(name: str, count: int, at: int) -> None:
    chance = random.Random(12)
    trials, near = 20, 0
    for _ in range(trials):
        found = changes(series(NOISES[name], chance, count, at, 0.1))
        near += len(found) == 1 and abs(found[0].index - at) <= 1
    assert near >= 0.8 * trials


@pytest.mark.parametrize(
    ("levels", "places"),
    [
        ([0.0] * 15 + [0.1] * 10 + [0.0] * 15, [15, 25]),
        ([0.0] * 13 + [0.1] * 13 + [0.2] * 14, [13, 26]),
        ([0.0] * 10 + [0.2] * 10 + [0.1] * 10 + [0.3] * 10, [10, 20, 30]),
    ],
)
def test_all_changes_are_found_the_newest_first(levels: list[float], places: list[int]) -> None:
    chance, trials, near = random.Random(14), 15, 0
    for _ in range(trials):
        found = changes([level + chance.gauss(0.0, 0.02) for level in levels])
        apart = [abs(one.index - at) for one, at in zip(found, reversed(places), strict=False)]
        near += len(found) == len(places) and max(apart) <= 1
    assert near >= 0.6 * trials


def test_a_drift_is_called_a_drift_and_not_a_step() -> None:
    chance, trials, drifts = random.Random(15), 15, 0
    for _ in range(trials):
        values = [0.005 * place + chance.gauss(0.0, 0.02) for place in range(40)]
        found = changes(values)
        drifts += [each.kind for each in found] == ["drift"]
    assert drifts >= 0.75 * trials


def test_a_level_that_comes_back_is_said_to() -> None:
    noise = [0.01, -0.01, 0.0, 0.005, -0.005]
    levels = [0.0] * 10 + [0.2] * 10 + [0.4] * 10 + [0.0] * 10
    found = changes([level + noise[place % 5] for place, level in enumerate(levels)])
    assert [(each.index, each.back_to) for each in found] == [(30, 10), (20, None), (10, None)]


def test_it_says_the_first_run_after_the_change_and_how_sure_it_is() -> None:
    values = [1.0, 1.01, 0.99, 1.0, 1.02, 1.0, 1.2, 1.21, 1.19, 1.2, 1.22, 1.18]
    (found,) = changes(values)
    assert isinstance(found, HistoryChange)
    assert (found.index, found.kind) == (6, "step")
    assert 0.0 < found.p < P_LIMIT
    assert found.ratio == pytest.approx(math.exp(0.2), rel=0.02)
    (other,) = changes([-value for value in values])
    assert (other.index, other.p) == (found.index, found.p)


def test_the_same_runs_always_have_the_same_answer() -> None:
    values = series(NOISES["normal"], random.Random(1), 20, 10, 0.03)
    random.seed(1)
    first = changes(values)
    random.seed(2)
    assert changes(values) == first


def test_it_leaves_the_random_numbers_of_the_program_alone() -> None:
    state = random.getstate()
    changes(series(NOISES["normal"], random.Random(1), 20, 10, 0.1))
    assert random.getstate() == state


@pytest.mark.parametrize("values", [[], [1.0], [1.0] * 5, [1.0] * 20])
def test_few_or_equal_runs_have_no_change(values: list[float]) -> None:
    assert changes(values) == ()


def test_a_few_odd_runs_at_the_end_are_no_change() -> None:
    for odd in range(1, MIN_SEGMENT):
        assert changes([1.0, 1.01, 0.99, 1.0] * 4 + [2.0] * odd) == ()
