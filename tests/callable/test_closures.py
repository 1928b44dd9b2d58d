"""Functions that take nothing: captured when the callable is made, launched like a graph."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.callables import Counted, twice


def test_the_body_runs_exactly_once(cupy: Any) -> None:
    runs = Counted()
    x, out = cupy.array([1.0]), cupy.array([0.0])

    def body() -> Any:
        runs.note()
        out[...] = x
        return out

    fast = gpuprof.make_graphed_callable(body, ())
    assert (runs(), out.tolist()) == (1, [0.0])
    result = fast()
    assert (runs(), result.tolist(), out.tolist()) == (1, [1.0], [1.0])
    assert result is not out
    x[...] = cupy.array([2.0])
    fast.launch()
    assert (out.tolist(), result.tolist()) == ([2.0], [1.0])
    assert fast.graph.num_replays == 2
    assert fast.stats().replays == 2
    fast.graph.launch()
    assert runs() == 1


@pytest.mark.parametrize(
    ("verify", "writes", "ran"), [("off", (), 3), ("capture", "auto", 3), ("capture", (), 4)]
)
def test_warm_ups_are_run_where_they_are_asked_for(
    cupy: Any, verify: Any, writes: Any, ran: int
) -> None:
    runs = Counted()

    def body() -> None:
        runs.note()
        cupy.launch()

    gpuprof.make_graphed_callable(body, (), warmup=2, verify=verify, writes=writes)
    assert runs() == ran


def test_a_closure_without_a_framework_is_captured_on_the_stream_that_was_named(
    fake: FakeCuda, stream: int
) -> None:
    runs = Counted()

    def body() -> str:
        runs.note()
        fake.kernel(stream, "step_k")
        return "done"

    fast = gpuprof.make_graphed_callable(body, (), stream=stream)
    assert fast() == "done"
    fast.launch()
    fast.launch(stream)
    assert fast.graph.kernel_names() == ["step_k"]
    assert (runs(), fast.graph.num_replays) == (1, 3)


def test_empty_keywords_alone_are_a_closure_too(cupy: Any) -> None:
    runs = Counted()
    fast = gpuprof.make_graphed_callable(runs.note, None, {})
    assert (runs(), fast()) == (1, None)


def test_a_launch_on_a_stream_is_ordered_with_calls_on_others(cupy: Any) -> None:
    x, out = cupy.array([1.0]), cupy.array([0.0])

    def body() -> None:
        cupy.launch("long", 1_000_000)
        out[...] = x

    fast = gpuprof.make_graphed_callable(body, ())
    other = cupy.cuda.Stream(non_blocking=True)
    before = cupy.fake.now()
    fast.launch()
    fast.launch(other)
    other.synchronize()
    assert cupy.fake.now() - before >= 2_000_000


def test_launch_is_for_functions_without_arrays(cupy: Any) -> None:
    x = cupy.array([1.0])
    fast = gpuprof.make_graphed_callable(twice(cupy), (x,))
    with pytest.raises(errors.InvalidStateError, match=r"takes args\[0\]; call it with them"):
        fast.launch()


def test_there_is_nothing_to_launch_before_the_first_capture(cupy: Any) -> None:
    fast = gpuprof.make_graphed_callable(lambda: None)
    with pytest.raises(errors.InvalidStateError, match="nothing was captured yet"):
        fast.launch()


def test_timers_inside_tell_of_the_last_replay(cupy: Any) -> None:
    def body() -> None:
        with gpuprof.timer("inside", backend="cuda"):
            cupy.launch("work", 50_000)

    fast = gpuprof.make_graphed_callable(body, ())
    fast.launch()
    assert fast.timings()["inside"].values[0] == pytest.approx(0.05, rel=0.2)
