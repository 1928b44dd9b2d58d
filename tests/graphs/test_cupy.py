"""Captures of CuPy's work: memory of the graph's own, and CuPy's stream as it was."""

from __future__ import annotations

import functools
import gc
import sys
import types
import weakref
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from gpuprof._frameworks.cupy import CupyCapture, own_stream
from tests.fake_driver.control import FakeCuda
from tests.support.captures import captured


def state(cupy: Any) -> tuple[object, ...]:
    """Return this thread's streams and allocators."""
    thread = cupy.world.thread
    return thread.current, [*thread.streams], [*thread.allocators]


def test_cupy_takes_part_only_where_it_is_imported(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))  # as while it is imported
    captured(fake, stream).close()
    monkeypatch.delitem(sys.modules, "cupy")
    captured(fake, stream).close()
    assert "cupy" not in sys.modules


def test_the_body_allocates_memory_of_the_graphs_on_the_captured_stream(cupy: Any) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    before, waits = state(cupy), cupy.fake.calls("cuStreamWaitEvent")
    with gpuprof.capture(stream) as cap:
        assert cupy.cuda.get_current_stream() == stream
        kept, temporary = cupy.empty((64,)), cupy.empty((64,))
        address = temporary.data.ptr
        temporary[...] = 1.0
        del temporary
    assert state(cupy) == before
    assert cupy.fake.calls("cuStreamWaitEvent") == waits
    others = [cupy.empty((64,)) for _ in range(8)]
    assert address not in [each.data.ptr for each in others]  # the graph writes there
    allocated = cupy.fake.live("memory")
    cap.graph.close()
    assert cupy.fake.live("memory") == allocated - 1
    del kept
    assert cupy.fake.live("memory") == allocated - 2


def test_a_capture_without_memory_of_cupys_keeps_nothing(cupy: Any) -> None:
    with gpuprof.capture() as cap:
        cupy.launch()
    records = cupy.fake.calls("cuEventRecord")
    cap.graph.launch()
    assert cupy.fake.calls("cuEventRecord") == records
    cap.graph.close()


@pytest.mark.parametrize("end", ["abort", "drop", "raise"])
@pytest.mark.filterwarnings("ignore:a GraphCaptureGuard was dropped:ResourceWarning")
def test_a_capture_that_is_given_up_leaves_cupy_as_it_was(cupy: Any, end: str) -> None:
    before, allocated = state(cupy), cupy.fake.live("memory")
    if end == "raise":
        with pytest.raises(KeyError), gpuprof.capture():
            cupy.empty((64,))
            raise KeyError
    else:
        guard = gpuprof.GraphCaptureGuard()
        cupy.empty((64,))
        if end == "abort":
            guard.abort()
            guard.abort()
        del guard
    assert (state(cupy), cupy.fake.live("memory")) == (before, allocated)


@pytest.mark.parametrize(
    "step",
    [
        "MemoryPool",
        "using_allocator",
        "Stream.from_external",
        "Stream.__enter__",
        "Stream.record",
    ],
)
def test_a_begin_that_fails_leaves_cupy_as_it_was(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(step)

    *path, name = step.split(".")
    with cupy.world.null:
        before = state(cupy)
        capture = CupyCapture(own_stream().ptr)
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match=step) as caught:
            patch.setattr(functools.reduce(getattr, path, cupy.cuda), name, fail)
            capture.begin()
        assert state(cupy) == before
        assert caught.tb is not None  # whose frames would keep the capture


@pytest.mark.parametrize("how", ["end", "abort", "drop"])
def test_cupys_part_of_a_capture_is_undone_by_itself(cupy: Any, how: str) -> None:
    before, allocated = state(cupy), cupy.fake.live("memory")
    capture = CupyCapture(own_stream().ptr)
    capture.begin()
    cupy.empty((64,))
    if how == "drop":
        del capture
    else:
        getattr(capture, how)()
    assert (state(cupy), cupy.fake.live("memory")) == (before, allocated)


def test_a_stream_is_taken_as_cupy_13_takes_it(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = cupy.cuda.Stream
    make = lambda handle, _device: kind._of(handle)  # noqa: E731
    monkeypatch.setattr(cupy.cuda, "ExternalStream", make, raising=False)
    monkeypatch.delattr(kind, "from_external")
    with gpuprof.capture(kind(non_blocking=True)) as cap:
        cupy.launch()
    assert cap.graph.kernel_names() == ["work"]
    cap.graph.close()


def test_a_stream_that_was_made_current_for_good_is_so_again(cupy: Any) -> None:
    cupy.cuda.Stream(non_blocking=True).use()
    before = state(cupy)
    with gpuprof.capture(cupy.cuda.Stream(non_blocking=True), allow_empty=True):
        pass
    assert state(cupy) == before


def test_the_own_stream_is_one_for_the_thread_and_waits_both_ways(cupy: Any) -> None:
    streams = set()
    with cupy.world.null:
        for _ in range(2):
            waits = cupy.fake.calls("cuStreamWaitEvent")
            with gpuprof.capture() as cap:
                assert cupy.fake.calls("cuStreamWaitEvent") == waits + 1
                cupy.world.null.record()  # a stream that waits for the default one forbids it
                cupy.launch()
            assert cupy.fake.calls("cuStreamWaitEvent") == waits + 2
            streams.add(cap.stream)
            cap.graph.close()
    assert len(streams) == 1


@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_threads_capture_mode_is_put_back(cupy: Any, mode: int) -> None:
    cupy.fake.exchange_mode(mode)
    with gpuprof.capture(allow_empty=True) as cap:
        cupy.empty((64,))
    cap.graph.close()
    assert cupy.fake.exchange_mode(0) == mode


def test_memory_that_cannot_be_freed_raises_into_nobodys_code(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    free, failed = cupy.cuda.runtime.free, []

    def fail(*address: int) -> None:
        failed.append(address)
        for each in address:
            free(each)
        raise RuntimeError

    with gpuprof.capture(allow_empty=True) as cap:
        array = cupy.empty((64,))
    with monkeypatch.context() as patch:
        patch.setattr(cupy.cuda.MemoryPool, "free_all_blocks", lambda _pool: fail())
        patch.setattr(cupy.cuda.runtime, "free", fail)
        cap.graph.close()
        del array, cap
        gc.collect()
    assert {len(address) for address in failed} == {0, 1}


def test_memory_is_freed_though_the_driver_refuses_the_relaxed_mode(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gpuprof.capture(allow_empty=True) as cap:
        array = cupy.empty((64,))
    cap.graph.close()
    allocated = cupy.fake.live("memory")

    def refuse(_mode: int) -> int:
        raise gpuprof.errors.CudaError(
            999, "CUDA_ERROR_UNKNOWN", "cuThreadExchangeStreamCaptureMode", ""
        )

    monkeypatch.setattr(_core, "_exchange_capture_mode", refuse)
    del array
    assert cupy.fake.live("memory") == allocated - 1


def test_a_body_may_free_an_array_of_a_graph_that_is_closed(cupy: Any) -> None:
    given, other = cupy.array([1.0]), cupy.array([0.0])
    with gpuprof.capture() as first:
        result = cupy.empty_like(given)
        result[...] = given
    first.graph.close()
    allocated = cupy.fake.live("memory")
    with gpuprof.capture() as second:
        del result
        other[...] = given
    assert cupy.fake.live("memory") == allocated - 1
    second.graph.launch()
    assert other.tolist() == [1]


@pytest.mark.parametrize("outlives", [False, True], ids=["to 14.0", "from 14.1"])
def test_an_array_of_the_body_outlives_its_graph(cupy: Any, outlives: bool) -> None:
    cupy.world.memory_outlives_its_pool = outlives
    given = cupy.array([1.0])
    with gpuprof.capture() as cap:
        result = cupy.empty_like(given)
        result[...] = given
    cap.graph.launch()
    cap.graph.close()
    gpuprof.flush()
    others = [cupy.array([9.0]) for _ in range(8)]
    assert result.tolist() == [1]
    assert [each.tolist() for each in others] == [[9]] * 8


class _Given:
    """What a host function is given, which can be referred to weakly."""


@pytest.mark.parametrize("how", ["given", "current", "another object"])
def test_a_host_function_is_captured_and_kept_as_long_as_its_graph(cupy: Any, how: str) -> None:
    stream = cupy.cuda.Stream(non_blocking=True)
    seen: list[_Given] = []
    with stream:
        given = {"given": stream, "current": None, "another object": stream.ptr}[how]
        argument = _Given()
        gone = weakref.ref(argument)
        with gpuprof.capture(given) as cap:
            current = cupy.cuda.get_current_stream()
            user = current if how == "another object" else stream
            user.launch_host_func(seen.append, argument)
    del argument
    gc.collect()
    assert gone() is not None
    assert stream._graph_host_funcargs is None
    assert cap.graph.kernel_names() == ["host function"]
    cap.graph.close()
    del cap
    gpuprof.flush()
    gc.collect()
    assert gone() is None


def test_a_capture_that_fails_lets_go_of_its_host_functions(cupy: Any) -> None:
    argument = _Given()
    gone = weakref.ref(argument)
    stream = cupy.cuda.get_current_stream()
    with pytest.raises(KeyError), gpuprof.capture():
        stream.launch_host_func(print, argument)
        raise KeyError
    del argument
    gc.collect()
    assert gone() is None
    assert stream._graph_host_funcargs is None


def test_where_memory_runs_short_what_the_graph_writes_to_stays(cupy: Any) -> None:
    """CuPy empties its pool and tries again."""
    with gpuprof.capture(allow_empty=True) as cap:
        temporary = cupy.empty((1 << 10,))
        address = temporary.data.ptr
        del temporary
        with cupy.fake.faults("cuMemAlloc@1=2"):
            cupy.empty((1 << 12,))
    others = [cupy.fake.memory_allocate(4 << 10) for _ in range(8)]
    assert address not in others
    for each in others:
        cupy.fake.memory_free(each)
    cap.graph.close()
