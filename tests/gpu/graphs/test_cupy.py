"""Captures of CuPy's work: temporaries that stay the graph's, and CuPy as it was afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import CaptureInvalidatedError
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import cupy_or_skip


@pytest.fixture
def cupy() -> Iterator[Any]:
    cupy = cupy_or_skip()
    values = cupy.arange(1024, dtype=cupy.float32)
    float(((values + 1) * (values - 1) * 3).sum())  # loads the kernels
    cupy.cuda.Device().synchronize()
    allocator = cupy.cuda.get_allocator()
    stream = cupy.cuda.get_current_stream()
    yield cupy
    assert cupy.cuda.get_allocator() == allocator
    assert cupy.cuda.get_current_stream() == stream
    assert cupy.cuda.runtime.streamIsCapturing(stream.ptr) == 0


@pytest.fixture
def stream(cupy: Any) -> Any:
    return cupy.cuda.Stream(non_blocking=True)


def work(given: Any, result: Any) -> None:
    """Compute with several temporaries of the size of `given`."""
    result[...] = (given + 1) * (given - 1) + (given * 2) * 3


def test_temporaries_are_right_while_other_work_allocates(cupy: Any, stream: Any) -> None:
    given = cupy.zeros(1 << 18, dtype=cupy.float32)
    result = cupy.zeros_like(given)
    cupy.cuda.Device().synchronize()
    with gpuprof.capture(stream) as cap:
        work(given, result)
    noise = []
    for step in range(100):
        with stream:
            given.fill(step)
        cap.graph.launch(stream)
        # What a pool shared with the graph would hand out is written to.
        noise.append(cupy.full(1 << 18, -1.0, dtype=cupy.float32))
        if len(noise) > 8:
            noise.clear()
        stream.synchronize()
        assert float(result[0]) == (step + 1) * (step - 1) + step * 6
        assert float(result[-1]) == float(result[0])


def test_an_array_of_the_body_outlives_the_graph(cupy: Any, stream: Any) -> None:
    given = cupy.full(1 << 16, 3.0, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with gpuprof.capture(stream) as cap:
        result = given + 4
    cap.graph.launch(stream)
    stream.synchronize()
    cap.graph.close()
    cupy.full(1 << 16, -1.0, dtype=cupy.float32)
    assert float(result[5]) == 7.0


def test_a_body_may_free_an_array_of_a_graph_that_is_closed(cupy: Any, stream: Any) -> None:
    given = cupy.full(1 << 16, 3.0, dtype=cupy.float32)
    out = cupy.zeros_like(given)
    cupy.cuda.Device().synchronize()
    with gpuprof.capture(stream) as first:
        result = given + 4
    first.graph.close()
    with gpuprof.capture(stream) as second:
        del result
        out[...] = given
    second.graph.launch(stream)
    stream.synchronize()
    assert float(out[5]) == 3.0


def test_captures_in_a_loop_replace_the_last_ones_arrays(cupy: Any, stream: Any) -> None:
    given = cupy.full(1 << 16, 3.0, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with stream:
        result = (given * 2).sum()[None] + 1  # loads the kernels
    for step in range(20):
        with gpuprof.capture(stream) as cap:
            result = (given * step).sum()[None] + 1
        cap.graph.launch(stream)
        stream.synchronize()
        assert float(result[0]) == 3.0 * step * given.size + 1


def test_an_array_of_a_closed_graph_is_nobody_elses(cupy: Any, stream: Any) -> None:
    given = cupy.full(1 << 16, 3.0, dtype=cupy.float32)
    cupy.cuda.Device().synchronize()
    with gpuprof.capture(stream) as cap:
        temporary = given * 2
        result = temporary[: 1 << 12] + 1
        del temporary
    cap.graph.launch(stream)
    stream.synchronize()
    del cap
    gpuprof.flush()  # sees that the replay is over, so that the graph's memory can go
    others = [cupy.full(1 << 16, -1.0, dtype=cupy.float32) for _ in range(8)]
    cupy.cuda.Device().synchronize()
    assert float(result[5]) == 7.0
    assert all(float(each[5]) == -1.0 for each in others)


@pytest.mark.parametrize("how", ["given", "current", "of the block"])
def test_a_host_function_runs_at_each_replay(cupy: Any, stream: Any, how: str) -> None:
    seen: list[list[int]] = []
    values = cupy.zeros(16)
    cupy.cuda.Device().synchronize()
    with stream:
        captured = {"given": stream, "current": None}.get(how, stream.ptr)
        with gpuprof.capture(captured, backend="driver") as cap:
            values += 1
            user = cupy.cuda.get_current_stream() if how == "of the block" else stream
            user.launch_host_func(seen.append, [7])  # a list that nobody else keeps
            values += 1
    gc.collect()
    for _ in range(3):
        cap.graph.launch(stream)
    stream.synchronize()
    assert seen == [[7]] * 3
    assert float(values[0]) == 6.0
    # Without a capture it is CuPy's as before.
    stream.launch_host_func(seen.append, [8])
    stream.synchronize()
    assert seen[3:] == [[8]]


def test_the_default_stream_is_stood_in_for_by_one_of_gpuprofs(cupy: Any) -> None:
    given = cupy.zeros(1 << 20, dtype=cupy.float32)
    result = cupy.zeros_like(given)
    for step in range(10):
        given.fill(step)
        with gpuprof.capture(backend="driver") as cap:
            assert cupy.cuda.get_current_stream().ptr == cap.stream
            work(given, result)
        cap.graph.launch()
        cupy.cuda.Device().synchronize()
        assert float(result[0]) == (step + 1) * (step - 1) + step * 6


def test_what_breaks_the_capture_is_named_and_cupy_is_as_it_was(cupy: Any, stream: Any) -> None:
    values = cupy.zeros(16)
    cupy.cuda.Device().synchronize()
    with pytest.raises(CaptureInvalidatedError) as caught:
        with gpuprof.capture(stream):
            values += 1
            with pytest.raises(RuntimeError):
                stream.synchronize()
    assert str(caught.value.first_refused).startswith("cuStreamSynchronize")
    with gpuprof.capture(stream) as cap:
        values += 1
    cap.graph.launch(stream)
    stream.synchronize()
    assert float(values[0]) == 1.0


@needs_the_gpu_alone
def test_closed_and_failed_captures_give_their_memory_back(cupy: Any, stream: Any) -> None:
    given = cupy.zeros(4 << 20, dtype=cupy.float32)
    result = cupy.zeros_like(given)
    cupy.cuda.Device().synchronize()

    def cycle(fail: bool) -> None:
        try:
            with gpuprof.capture(stream) as cap:
                work(given, result)
                if fail:
                    raise KeyError
        except KeyError:
            return
        cap.graph.launch(stream)
        cap.graph.close()

    def free() -> int:
        gc.collect()
        stream.synchronize()
        gpuprof.flush()  # sees that the last replays of closed graphs are over
        cupy.get_default_memory_pool().free_all_blocks()
        return int(cupy.cuda.runtime.memGetInfo()[0])

    for fail in (False, True):
        cycle(fail)
    before = free()
    for step in range(60):
        cycle(fail=step % 2 == 1)
    assert before - free() <= 4 << 20
