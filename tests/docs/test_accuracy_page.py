"""What the page on accuracy shows of a result, and how the profiler's figures are read."""

from __future__ import annotations

import importlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def profiler(benchmark_scripts: Path) -> Any:
    return importlib.import_module("support.profiler")


@pytest.fixture
def script(benchmark_scripts: Path) -> Any:
    return importlib.import_module("benchmark_accuracy")


@pytest.fixture
def readings(script: Any, profiler: Any) -> Any:
    case = script.Case("torch.mm 32", max, ())
    found = script.Readings(case)
    found.by_state = {
        "in a graph": profiler.Reference(4.0, 3.9, 2),
        "in a stream": profiler.Reference(5.0, 3.9, 2),
        "flushed": profiler.Reference(6.0, 4.9, 2),
    }
    found.by_tool = {
        "gpuprof graph": 4.25,
        "gpuprof batched": 5.75,
        "triton do_bench_cudagraph": 5.0,
        "torch events": 9.0,
        "triton do_bench": 6.1,
    }
    return found


@pytest.fixture
def result(result: Any, script: Any, readings: Any) -> Any:
    return replace(result, script="benchmark_accuracy", rows=script.rows(readings))


def trace(*activities: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [{"cat": category, "ts": at, "dur": took} for category, at, took in activities]


def test_a_reading_is_compared_with_the_profiler_in_its_own_state(result: Any) -> None:
    errors = {row.name.partition(": ")[2]: row.value for row in result.rows}
    assert errors["gpuprof graph"] == pytest.approx(0.25)
    assert errors["gpuprof batched"] == pytest.approx(0.75)
    assert errors["triton do_bench"] == pytest.approx(0.1)


def test_the_nearest_peer_is_one_in_the_same_l2_state(result: Any) -> None:
    row = next(row for row in result.rows if "nearest" in row.name)
    assert row.ratio_to == "torch.mm 32: triton do_bench_cudagraph"
    assert row.ratio == pytest.approx(0.25)
    assert row.met


def test_what_the_profiler_disturbs_is_held_to_batched_readings(script: Any, readings: Any) -> None:
    readings.case = replace(readings.case, disturbed=True)
    targets = [row for row in script.rows(readings) if row.target is not None]
    assert [row.name for row in targets] == ["torch.mm 32: from graph to batched"]
    assert targets[0].value == pytest.approx(1.5)
    assert not targets[0].met


def test_a_calls_time_is_from_its_first_kernel_to_its_last(profiler: Any) -> None:
    events = trace(
        ("kernel", 0.0, 20_000.0),  # the one that waits
        ("kernel", 20_020.0, 1.0),
        ("gpu_memset", 20_010.0, 1.0),
        ("kernel", 20_012.0, 2.0),
        ("cpu_op", 20_011.0, 50.0),
        ("kernel", 20_023.0, 2.0),
    )
    found = profiler._reference(profiler._in_order(events), 2)
    assert found == profiler.Reference(span=4.5, busy=3.0, kernels=2)


def test_kernels_that_flush_are_no_part_of_the_call(profiler: Any) -> None:
    events = trace(("kernel", 0.0, 60.0), ("kernel", 61.0, 2.0)) + trace(
        ("kernel", 70.0, 60.0), ("kernel", 131.0, 2.0)
    )
    found = profiler._reference(profiler._in_order(events), 2, 1)
    assert found == profiler.Reference(span=2.0, busy=2.0, kernels=1)


def test_calls_that_cannot_be_told_apart_are_refused(profiler: Any) -> None:
    events = profiler._in_order(trace(("kernel", 0.0, 1.0), ("kernel", 2.0, 1.0)) * 2)
    with pytest.raises(RuntimeError, match="saw 4 kernels of 3 calls"):
        profiler._reference(events, 3)
