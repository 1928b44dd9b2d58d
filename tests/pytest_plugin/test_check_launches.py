"""``check_launches`` on the fake driver: functions and graphs that are really counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import saved
from tests.support.pytest_projects import fixture_of

US = 1_000
KEY = "test_it.py::test_step"
Make = Callable[..., gpuprof.GpuBenchmark]


@pytest.fixture
def fixture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Make the fixture of a test that compares with the baseline ``main``."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def make(*, compare: bool = True) -> gpuprof.GpuBenchmark:
        wanted = frozenset({"slow", "launches"})
        return fixture_of(KEY, tmp_path, compare="main" if compare else None, fail_on=wanted)

    return make


def save(folder: Path, benchmark: gpuprof.GpuBenchmark) -> None:
    assert benchmark.result is not None
    result = benchmark.result
    saved("main", result.created, result, folder=folder)


@pytest.fixture
def captured(fake: FakeCuda, stream: int) -> Iterator[Callable[[int], gpuprof.CapturedGraph]]:
    graphs: list[gpuprof.CapturedGraph] = []

    def capture(kernels: int) -> gpuprof.CapturedGraph:
        with gpuprof.capture(stream) as cap:
            for _ in range(kernels):
                fake.kernel(stream, "step_k", US)
        graphs.append(cap.graph)
        return cap.graph

    yield capture
    for graph in graphs:
        graph.close()


def test_a_graph_with_one_more_node_fails(
    captured: Callable[[int], gpuprof.CapturedGraph], fixture: Make, tmp_path: Path
) -> None:
    first = fixture(compare=False)
    launches = first.check_launches(captured(2))
    assert launches is not None
    assert (dict(launches.kernels), launches.source) == ({"step_k": 2}, "graph")
    assert launches.versions["gpu"] == "Fake GPU"
    assert (first.decision, first.failure) == (None, None)
    save(tmp_path, first)
    same, more = fixture(), fixture()
    same.check_launches(captured(2))
    assert same.failure is None
    assert same.decision is not None
    assert same.decision.verdict is gpuprof.Verdict.SAME
    more.check_launches(captured(3))
    assert more.failure is not None
    assert more.failure.startswith(
        "LAUNCHES: test_step: launches more: +1 step_k, 2 -> 3 kernels\n"
    )


def test_a_function_is_counted_with_its_arguments(cupy: Any, fixture: Make) -> None:
    def step(kernels: int, *, name: str) -> None:
        for _ in range(kernels):
            cupy.fake.kernel(cupy.cuda.get_current_stream().ptr, name, US)

    launches = fixture(compare=False).check_launches(step, 3, name="step_k")
    assert launches is not None
    assert dict(launches.kernels) == {"step_k": 3}


def test_a_function_without_gpu_work_cannot_be_checked(fixture: Make) -> None:
    with pytest.raises(InvalidStateError, match=r"check_launches: it gives no GPU any work"):
        fixture(compare=False).check_launches(lambda: None)


def test_a_graph_takes_no_arguments(
    captured: Callable[[int], gpuprof.CapturedGraph], fixture: Make
) -> None:
    with pytest.raises(TypeError, match="a graph takes no arguments"):
        fixture().check_launches(captured(1), 2)


@pytest.mark.parametrize("what", [3, None, "step"])
def test_what_is_neither_is_refused(fixture: Make, what: Any) -> None:
    with pytest.raises(TypeError, match="cannot be called"):
        fixture().check_launches(what)
