"""Rounds of exact calls on the fake driver: which clock counts, and how often the function runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof._benchmark.rounds import measure_rounds
from tests.fake_driver.control import FakeCuda
from tests.support.captures import usable_stream

US = 1_000


def taken(
    fn: Callable[[], object], stream: int, counts: tuple[int, int, int], **options: Any
) -> gpuprof.BenchResult:
    _, result = measure_rounds((fn, (), {}), {"stream": stream, **options}, counts, lambda: None)
    return result


@pytest.mark.parametrize(
    ("counts", "calls"), [((0, 1, 1), 1), ((2, 5, 1), 7), ((1, 3, 4), 17), ((0, 40, 1), 40)]
)
@pytest.mark.parametrize("mode", ["auto", "graph"])
def test_each_call_is_one_that_was_asked_for(
    fake: FakeCuda, stream: int, counts: tuple[int, int, int], calls: int, mode: str
) -> None:
    called = []

    def step() -> None:
        called.append(1)
        fake.kernel(stream, "step_k", 5 * US)

    result = taken(step, stream, counts, mode=mode)
    assert len(called) == calls
    assert (result.mode, result.clock, result.l2, result.gate) == (
        "isolated",
        "cuda",
        "hot",
        "gated",
    )
    assert (result.count, result.calls_per_sample) == counts[1:]
    assert result.median_ms * 1e3 == pytest.approx(5, abs=0.1)
    assert any("'graph'" in text for text in result.warnings) == (mode == "graph")


def test_without_gpu_work_the_cpus_clock_counts(fake: FakeCuda, stream: int) -> None:
    called: list[int] = []
    result = taken(lambda: called.append(1), stream, (1, 3, 1))
    assert len(called) == 4
    assert (result.mode, result.clock, result.gate) == ("cpu", "cpu", "n/a")
    assert "no GPU work was seen; the CPU's clock was used" in result.warnings


def test_a_function_that_waits_is_called_no_more_often(fake: FakeCuda) -> None:
    called = []
    with usable_stream(fake) as stream:

        def step() -> None:
            called.append(1)
            fake.kernel(stream, "step_k", 5 * US)
            fake.stream_synchronize(stream)

        result = taken(step, stream, (0, 3, 1))
    assert len(called) == 3
    assert (result.clock, result.gate) == ("cuda", "ungated")
    assert any("waits for the GPU" in text for text in result.warnings)


def test_the_work_of_a_set_up_is_not_in_the_time(fake: FakeCuda, stream: int) -> None:
    made = []

    def setup() -> None:
        made.append(1)
        fake.kernel(stream, "setup_k", 900 * US)

    result = taken(
        lambda: fake.kernel(stream, "step_k", 5 * US), stream, (1, 4, 1), setup=setup, cold_l2=True
    )
    assert len(made) == 5
    assert result.l2 == "flushed"
    assert result.median_ms * 1e3 == pytest.approx(5, abs=0.1)
