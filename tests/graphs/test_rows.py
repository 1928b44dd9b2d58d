"""What breaks a capture on its own stream, and what gpuprof makes of it."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.support.captures import MODES, US, graph_of, on_another_thread, usable_stream
from tests.support.held import relaxed_collections
from tests.support.processes import check_cuda

# The legacy default stream


@pytest.mark.parametrize("legacy", [0, control.LEGACY_STREAM])
@pytest.mark.parametrize(
    "begin",
    [
        gpuprof.GraphCaptureGuard,
        gpuprof.begin_capture,
        lambda stream: gpuprof.capture(stream).__enter__(),
        lambda _: gpuprof.capture(None).__enter__(),
    ],
    ids=["guard", "begin_capture", "capture", "current"],
)
def test_the_legacy_stream_is_refused_with_what_to_do_and_without_the_driver(
    fake: FakeCuda, begin: Callable[[int], object], legacy: int
) -> None:
    before = fake.calls("cuStreamBeginCapture")
    with pytest.raises(errors.CaptureUnsupportedError, match="stream=") as caught:
        begin(legacy)
    assert caught.value.code == 900
    assert fake.calls("cuStreamBeginCapture") == before


# An exception in the body


class MineError(Exception):
    pass


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", [MineError, KeyboardInterrupt, GeneratorExit, SystemExit])
def test_an_exception_in_the_body_leaves_no_graph_and_passes_unchanged(
    fake: FakeCuda, stream: int, mode: str, kind: type[BaseException]
) -> None:
    mine = kind("mine")
    with pytest.raises(kind) as caught, gpuprof.capture(stream, mode=mode) as cap:  # type: ignore[arg-type]
        fake.work(stream, US)
        raise mine
    assert caught.value is mine
    assert getattr(mine, "__notes__", []) == []
    with pytest.raises(errors.InvalidStateError, match="abort"):
        _ = cap.graph
    with pytest.raises(errors.InvalidStateError, match="abort"):
        cap.finish()
    assert (fake.live("graph"), fake.live("exec")) == (0, 0)


# Default streams, which are others on another thread and another device


def test_a_capture_of_a_default_stream_ends_after_a_change_of_device(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
second = fake.context_create(1)

def body():
    fake.kernel(2, "add_k", 5_000_000)
    fake.set_current(second)

def by_block():
    with gpuprof.capture(2) as cap:
        body()
    return cap.graph

def by_guard():
    cap = gpuprof.GraphCaptureGuard(2)
    body()
    return cap.finish()

def by_functions():
    gpuprof.begin_capture(2)
    body()
    return gpuprof.end_capture(2)

for capture in (by_block, by_guard, by_functions):
    fake.set_current(context)
    graph = capture()
    assert fake.current_context() == second
    assert (graph.device, graph.num_nodes) == (0, 1)
    fake.set_current(context)
    assert fake.capture_status(2) == 0
    fake.set_current(second)
    graph.launch(2)
    assert fake.stream_query(2) == 0, f"{capture}: it ran on the wrong device"
    fake.set_current(context)
    assert fake.stream_query(2) == 600
    fake.stream_synchronize(2)
    graph.close()
""",
        FAKECUDA_CONFIG="device_count=2",
    )


def test_two_threads_capture_their_own_default_streams_at_once(fake: FakeCuda) -> None:
    context = fake.current_context()

    def capture(kernel: str, meanwhile: Callable[[], object]) -> list[str]:
        fake.set_current(context)
        gpuprof.begin_capture(control.PER_THREAD_STREAM)
        fake.kernel(control.PER_THREAD_STREAM, kernel)
        meanwhile()
        with gpuprof.end_capture(control.PER_THREAD_STREAM) as graph:
            return graph.kernel_names()

    def capture_there() -> None:
        assert on_another_thread(lambda: capture("inner_k", lambda: None)) == ["inner_k"]

    assert capture("outer_k", capture_there) == ["outer_k"]


# The garbage collector, and what gpuprof itself destroys


class FreesMemory:
    """Device memory that a call frees which no capture allows."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self._address = fake.memory_allocate(256)
        self._me = self  # a cycle

    def __del__(self) -> None:
        self._fake.memory_free(self._address)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("thread", ["capturing", "another"])
def test_a_collection_breaks_no_capture(
    fake: FakeCuda, stream: int, mode: gpuprof.CaptureMode, thread: str
) -> None:
    garbage: list[object] = [graph_of(fake, stream), FreesMemory(fake)]
    garbage.append(garbage)
    alive = weakref.ref(garbage[1])
    with gpuprof.capture(stream, mode=mode) as cap:
        fake.work(stream, US)
        del garbage
        if thread == "another":
            assert isinstance(on_another_thread(gc.collect), int)
        else:
            gc.collect()
        assert alive() is None
        assert cap.status() is gpuprof.CaptureStatus.ACTIVE
    cap.graph.close()


def test_the_collector_finds_a_capture_that_was_left_open_in_a_cycle(fake: FakeCuda) -> None:
    def fail(stream: int) -> None:
        guard = gpuprof.GraphCaptureGuard(stream)
        fake.work(guard.stream, US)
        raise MineError

    def leave_behind(stream: int) -> None:
        try:
            fail(stream)
        except MineError as error:
            kept = error  # a cycle: its traceback has this frame
            assert kept.__traceback__ is not None

    with usable_stream(fake) as stream, pytest.warns(ResourceWarning, match="dropped"):
        leave_behind(stream)
        assert fake.capture_status(stream) == control.ACTIVE
        young = []
        while fake.capture_status(stream) == control.ACTIVE and len(young) < 1_000_000:
            young.append([young])  # sooner or later the collector runs
        young.clear()


@pytest.mark.parametrize("enabled", [True, False])
def test_captures_leave_the_collector_as_it_is(fake: FakeCuda, stream: int, enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    callbacks = list(gc.callbacks)
    try:
        with suppress(MineError), gpuprof.capture(stream):
            assert gc.isenabled() is enabled
            raise MineError
        guard = gpuprof.GraphCaptureGuard(stream)
        assert gc.isenabled() is enabled
        guard.abort()
        assert gc.isenabled() is enabled
        assert gc.callbacks == callbacks
    finally:
        gc.enable()


def test_a_capture_that_a_collection_drops_takes_its_callback_away_later(
    fake: FakeCuda, stream: int
) -> None:
    callbacks = list(gc.callbacks)
    phases: list[str] = []
    cycle: list[object] = [gpuprof.GraphCaptureGuard(stream)]
    cycle.append(cycle)
    del cycle

    def note(phase: str, _info: object) -> None:
        phases.append(phase)

    gc.callbacks.append(note)
    try:
        with pytest.warns(ResourceWarning, match="dropped"):
            gc.collect()
        assert phases[-2:] == ["start", "stop"]
        assert relaxed_collections() == 0
        graph_of(fake, stream).close()
    finally:
        gc.callbacks.remove(note)
    assert gc.callbacks == callbacks


# Polling while something is captured


def test_a_global_capture_keeps_its_guard_over_the_programs_own_calls(
    fake: FakeCuda, stream: int
) -> None:
    with pytest.raises(errors.CaptureError), gpuprof.capture(stream, mode="global"):
        fake.work(stream, US)
        context = fake.current_context()

        def allocate() -> None:
            fake.set_current(context)
            fake.memory_allocate(64)

        answer = on_another_thread(allocate)
        assert isinstance(answer, DriverCallError)
        assert answer.code == 900
