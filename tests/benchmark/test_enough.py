"""When samples are enough: by their precision, and by how alike they are."""

from __future__ import annotations

import random

from gpuprof._benchmark.loop import MIN_INDEPENDENT, are_enough, next_check


def _samples(memory: float, count: int, sigma: float = 0.002) -> list[float]:
    chance, value, found = random.Random(2), 0.0, []
    for _ in range(count):
        value = memory * value + chance.gauss(0.0, sigma * (1.0 - memory**2) ** 0.5)
        found.append(1.0 + value)
    return found


def test_independent_samples_are_enough_once_they_are_precise() -> None:
    assert are_enough(_samples(0.0, 30), 0.01)
    assert not are_enough(_samples(0.0, 30, sigma=0.2), 0.01)


def test_samples_that_are_alike_need_to_be_more() -> None:
    few = _samples(0.95, 100)
    assert not are_enough(few, 0.01)
    assert are_enough(few, 0.01, extended=True)  # the time for that is over
    assert are_enough(_samples(0.95, 100 * MIN_INDEPENDENT), 0.01)


def test_more_time_does_not_replace_precision() -> None:
    assert not are_enough(_samples(0.95, 100, sigma=0.2), 0.01, extended=True)


def test_checks_come_at_growing_distances() -> None:
    assert next_check(30) == 40
    assert next_check(1000) == 1200
