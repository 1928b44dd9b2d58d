"""The calls of a sample on the CPU's clock: how many, how they are made, what is not in them."""

from __future__ import annotations

import dis
import itertools
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof

QUICK: dict[str, Any] = {"warmup_s": 0.0, "min_time_s": 0.0, "min_samples": 6, "max_time_s": 0.5}


class Clock:
    """A clock that only moves when told: a reading costs 300 ns, and a call what it says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ns = 0
        for module in ("harness", "samplers"):
            monkeypatch.setattr(f"gpuprof._benchmark.{module}.perf_counter_ns", self.read)

    def read(self) -> int:
        self.ns += 300
        return self.ns

    def takes(self, *ns: int) -> Callable[[], None]:
        """Return a function whose calls take so long, the last time for good."""
        left = itertools.chain(ns, itertools.repeat(ns[-1]))
        return lambda: setattr(self, "ns", self.ns + next(left))


def test_a_pause_while_the_calls_of_a_sample_are_chosen_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    undisturbed = gpuprof.benchmark(clock.takes(100), **QUICK)
    disturbed = gpuprof.benchmark(clock.takes(100, 100, 25_000_000, 100), **QUICK)
    assert disturbed.calls_per_sample == undisturbed.calls_per_sample == 2048
    assert disturbed.median_ms == pytest.approx(1e-4)


def test_calls_of_a_sample_are_chosen_again_where_the_warm_up_shows_that_they_are_too_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = Clock(monkeypatch)
    pauses = [100, 100, *[25_000_000] * 2, 100]
    result = gpuprof.benchmark(clock.takes(*pauses), **{**QUICK, "warmup_s": 0.01})
    assert result.calls_per_sample == 2048
    slower = [*[100] * 10_000, 1_000_000]
    result = gpuprof.benchmark(clock.takes(*slower), **{**QUICK, "warmup_s": 0.01})
    assert result.calls_per_sample == 1


@pytest.mark.parametrize("setup", [None, lambda: None])
def test_what_reading_the_clock_costs_is_not_in_the_result(
    monkeypatch: pytest.MonkeyPatch, setup: Any
) -> None:
    clock = Clock(monkeypatch)
    result = gpuprof.benchmark(clock.takes(1_000_000), setup=setup, **QUICK)
    assert result.calls_per_sample == 1
    assert (result.min_ms, result.max_ms) == pytest.approx((1.0, 1.0), rel=1e-9)


@pytest.mark.parametrize(
    ("args", "kwargs"), [((), {}), ((1,), {}), ((1, 2), {"key": 3}), ((), {"lambda": 1, "ﬁ": 2})]
)
def test_each_call_gets_the_arguments_as_they_were_given(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    seen: list[Any] = []

    def function(*args: Any, **kwargs: Any) -> None:
        seen.append((args, kwargs))

    gpuprof.benchmark(function, args, kwargs, **QUICK)
    assert all(each == (args, kwargs) for each in seen)


@pytest.mark.parametrize(("args", "kwargs"), [((), {}), ((1,), {}), ((1,), {"key": 2})])
def test_no_call_of_a_sample_unpacks_arguments(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    callers = []

    def function(_first: int = 0, key: int = 0) -> int:
        callers.append(sys._getframe(1).f_code)
        return key

    gpuprof.benchmark(function, args, kwargs, **QUICK)
    steps = [step.opname for step in dis.get_instructions(callers[-1])]
    assert "CALL_FUNCTION_EX" not in steps
