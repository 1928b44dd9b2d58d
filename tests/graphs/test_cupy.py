"""Captures of CuPy's work: memory of the graph's own, and CuPy's stream as it was."""

from __future__ import annotations

import gc
import sys
import threading
import types
import weakref
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from gpuprof._frameworks import cupy as frameworks_cupy
from gpuprof._frameworks import loaded
from gpuprof._frameworks.cupy import CupyCapture, own_stream, relaxed
from tests.support.stand_in_cupy import MemoryPointer, UnownedMemory

RELAXED = 2


class Log(list[str]):
    """What happened, in order."""


class StandIn:
    """A CuPy without a GPU: its current stream with the stack under it, allocator and pools."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.log = Log()
        self.mode = 0
        self.failing = ""
        self.allocator: object = "the usual one"
        self.current: Any = None
        self.stack: list[Any] = []
        self.cupy: Any = types.ModuleType("cupy")
        self.cupy.cuda = self._cuda()
        monkeypatch.setitem(sys.modules, "cupy", self.cupy)
        monkeypatch.setattr(_core, "_exchange_capture_mode", self.exchange, raising=False)

    def exchange(self, mode: int) -> int:
        before, self.mode = self.mode, mode
        return before

    def step(self, name: str) -> None:
        if self.failing == name:
            self.failing = ""
            raise RuntimeError(name)

    def state(self) -> tuple[object, ...]:
        return (self.allocator, self.current, list(self.stack), self.mode)

    def _cuda(self) -> Any:
        world = self

        class Stream:
            def __init__(self, ptr: int, device: int = 0) -> None:
                world.step("ExternalStream")
                self.ptr = ptr
                self.device_id = device

            def record(self) -> int:
                world.step("record")
                return self.ptr

            def wait_event(self, event: int) -> None:
                world.log.append(f"{self.ptr} waits for {event}")

            def __eq__(self, other: object) -> bool:
                return isinstance(other, Stream) and self.ptr == other.ptr

            __hash__ = None  # type: ignore[assignment]

            def use(self) -> None:
                world.current = self

            def __enter__(self) -> None:
                world.step("enter the stream")
                world.stack.append(self)
                world.current = self

            def __exit__(self, *_error: object) -> None:
                world.stack.pop()
                world.current = world.stack[-1]

        class MemoryPool:
            def __init__(self, allocator: Any) -> None:
                world.step("MemoryPool")
                self.allocator = allocator

            def malloc(self, size: int) -> Any:
                return self.allocator(size)

            def free_all_blocks(self) -> None:
                world.step("free_all_blocks")
                world.log.append("the pool is emptied")

        class UsingAllocator:
            def __init__(self, allocator: object) -> None:
                self.allocator = allocator

            def __enter__(self) -> None:
                world.step("using_allocator")
                self.before, world.allocator = world.allocator, self.allocator

            def __exit__(self, *_error: object) -> None:
                world.allocator = self.before

        def malloc(_size: int) -> int:
            world.step("malloc")
            world.log.append(f"allocated in mode {world.mode}")
            return 0x700

        def free(address: int) -> None:
            world.step("free")
            assert address == 0x700
            world.log.append(f"freed in mode {world.mode}")

        class Device:
            def __init__(self, number: int) -> None:
                assert number == 0

            def __enter__(self) -> None: ...
            def __exit__(self, *_error: object) -> None: ...

        default = Stream(0)
        self.stack.append(default)
        self.current = default
        return types.SimpleNamespace(
            ExternalStream=Stream,
            Stream=lambda non_blocking: Stream(0x40 if non_blocking else 0x30),
            MemoryPool=MemoryPool,
            using_allocator=UsingAllocator,
            UnownedMemory=UnownedMemory,
            MemoryPointer=MemoryPointer,
            Device=Device,
            get_current_stream=lambda: world.current,
            runtime=types.SimpleNamespace(getDevice=lambda: 0, malloc=malloc, free=free),
        )


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> StandIn:
    return StandIn(monkeypatch)


def test_cupy_takes_part_only_where_it_is_imported(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert loaded.cupy() is not None
    monkeypatch.setitem(sys.modules, "cupy", types.ModuleType("cupy"))
    assert loaded.cupy() is None
    monkeypatch.delitem(sys.modules, "cupy")
    assert loaded.cupy() is None
    assert "cupy" not in sys.modules


def test_the_body_allocates_from_the_graphs_pool_on_the_captured_stream(world: StandIn) -> None:
    before = world.state()
    capture = CupyCapture(0x50)
    capture.begin()
    assert world.current.ptr == 0x50
    array = world.allocator(64)  # type: ignore[operator]
    assert world.log == [f"allocated in mode {RELAXED}"]
    assert world.mode == 0
    memory = capture.end()
    assert world.state() == before
    assert isinstance(memory, frameworks_cupy.CupyMemory)
    del array
    assert world.log == [f"allocated in mode {RELAXED}"]  # the graph writes there
    del memory, capture
    assert f"freed in mode {RELAXED}" in world.log
    assert world.mode == 0


def test_the_pool_lives_as_long_as_what_the_end_gives(world: StandIn) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    world.allocator(64)  # type: ignore[operator]
    memory = capture.end()
    del capture
    allocated = f"allocated in mode {RELAXED}"
    assert world.log == [allocated]
    del memory
    assert world.log == [allocated, f"freed in mode {RELAXED}", "the pool is emptied"]
    assert world.mode == 0


def test_a_capture_without_work_of_cupys_keeps_nothing(world: StandIn) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    assert capture.end() is None
    assert world.log == ["the pool is emptied"]


def test_an_abort_gives_the_memory_back(world: StandIn) -> None:
    before = world.state()
    capture = CupyCapture(0x50)
    capture.begin()
    capture.abort()
    assert world.state() == before
    assert world.log == ["the pool is emptied"]
    capture.abort()
    assert world.log == ["the pool is emptied"]


def test_a_capture_that_is_dropped_leaves_cupy_as_it_was(world: StandIn) -> None:
    before = world.state()
    capture = CupyCapture(0x50)
    capture.begin()
    del capture
    assert world.state() == before
    assert world.log == ["the pool is emptied"]


@pytest.mark.parametrize(
    "step", ["MemoryPool", "using_allocator", "ExternalStream", "enter the stream"]
)
def test_a_begin_that_fails_leaves_cupy_as_it_was(world: StandIn, step: str) -> None:
    before = world.state()
    world.failing = step
    with pytest.raises(RuntimeError, match=step):
        CupyCapture(0x50).begin()
    assert world.state() == before


def test_a_stream_that_was_made_current_for_good_is_so_again(world: StandIn) -> None:
    world.cupy.cuda.ExternalStream(0x70).use()
    before = world.state()
    capture = CupyCapture(0x50)
    capture.begin()
    capture.end()
    assert world.state() == before
    assert world.current.ptr == 0x70


def test_the_own_stream_is_one_for_the_thread_and_waits_both_ways(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks_cupy, "_own_streams", threading.local())
    own = own_stream()
    assert own is own_stream()
    assert own.ptr == 0x40  # which does not wait for the default stream by itself
    capture = CupyCapture(own.ptr)
    capture.begin()
    assert world.log == ["64 waits for 0"]
    capture.end()
    assert world.log == ["64 waits for 0", "0 waits for 64", "the pool is emptied"]
    assert world.current.ptr == 0


def test_a_stream_of_somebodys_waits_for_nothing(world: StandIn) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    capture.end()
    assert world.log == ["the pool is emptied"]


def test_an_own_stream_that_cannot_wait_leaves_cupy_as_it_was(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frameworks_cupy, "_own_streams", threading.local())
    capture = CupyCapture(own_stream().ptr)
    before = world.state()
    world.failing = "record"
    with pytest.raises(RuntimeError, match="record"):
        capture.begin()
    assert world.state() == before


def test_an_allocation_that_fails_puts_the_threads_mode_back(world: StandIn) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    world.failing = "malloc"
    with pytest.raises(RuntimeError, match="malloc"):
        world.allocator(64)  # type: ignore[operator]
    assert world.mode == 0
    capture.abort()


@pytest.mark.parametrize("before", [0, 1, 2])
def test_relaxed_puts_back_the_mode_that_it_found(world: StandIn, before: int) -> None:
    world.mode = before
    with relaxed():
        assert world.mode == RELAXED
    assert world.mode == before


def test_memory_that_cannot_be_freed_raises_into_nobodys_code(world: StandIn) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    array = world.allocator(64)  # type: ignore[operator]
    world.failing = "free_all_blocks"
    capture.abort()
    world.failing = "free"
    del array
    assert world.failing == ""
    assert world.mode == 0


def test_memory_is_freed_though_the_driver_refuses_the_relaxed_mode(
    world: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = CupyCapture(0x50)
    capture.begin()
    array = world.allocator(64)  # type: ignore[operator]
    capture.abort()

    def refuse(_mode: int) -> int:
        raise gpuprof.errors.CudaError(
            999, "CUDA_ERROR_UNKNOWN", "cuThreadExchangeStreamCaptureMode", ""
        )

    monkeypatch.setattr(_core, "_exchange_capture_mode", refuse)
    del array
    assert "freed in mode 0" in world.log


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
