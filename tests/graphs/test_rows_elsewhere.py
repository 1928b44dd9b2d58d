"""What threads, other streams and the ends of things do to a capture or a graph."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver import control
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, await_no_capture, on_another_thread, suppressed
from tests.support.processes import check_cuda

# The thread that ends a capture


def test_a_guard_dropped_on_another_thread_ends_its_capture(fake: FakeCuda, stream: int) -> None:
    guards = [gpuprof.GraphCaptureGuard(stream)]
    fake.work(stream, US)
    with pytest.warns(ResourceWarning, match="dropped"):
        on_another_thread(guards.clear)
    assert fake.capture_status(stream) == control.NONE


# The capturing thread ends


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_captures_do_not_outlive_the_thread_that_began_them(
    fake: FakeCuda, stream: int, other: int, mode: str
) -> None:
    kept: list[gpuprof.GraphCaptureGuard] = []

    def begin() -> None:
        gpuprof.begin_capture(stream, mode=mode)  # type: ignore[arg-type]
        kept.append(gpuprof.GraphCaptureGuard(other, mode=mode))  # type: ignore[arg-type]

    assert on_another_thread(begin) is None
    for each in (stream, other):
        await_no_capture(fake, each)
    fake.memory_free(fake.memory_allocate(64))
    assert gpuprof.capture_info(stream).open_captures == ()
    with pytest.raises(errors.InvalidStateError):
        gpuprof.end_capture(stream)
    with pytest.raises(errors.InvalidStateError, match="over"):
        kept[0].finish()


def test_a_relaxed_capture_outlives_its_thread_and_is_ended_on_another(
    fake: FakeCuda, stream: int
) -> None:
    context = fake.current_context()

    def begin() -> None:
        fake.set_current(context)
        gpuprof.begin_capture(stream, mode="relaxed")
        fake.work(stream, US)

    assert on_another_thread(begin) is None
    (listed,) = gpuprof.capture_info(stream).open_captures
    assert listed.stream == stream
    graph = gpuprof.end_capture(stream)
    assert graph.num_nodes == 1
    graph.close()


def test_a_process_may_end_with_captures_open(fake_path: Path) -> None:
    body = """
    other = fake.stream_create()
    gpuprof.begin_capture(stream)
    guard = gpuprof.GraphCaptureGuard(other)
    for each in (stream, other):
        fake.work(each, 1000)
    """
    assert check_cuda(fake_path, body) == ""


# Forks and joins between streams


def unjoined(fake: FakeCuda, stream: int, other: int) -> None:
    fake.fork(stream, other)
    fake.work(other, US)


def ended_on_the_branch(fake: FakeCuda, stream: int, other: int) -> None:
    fake.fork(stream, other)
    suppressed(lambda: fake.end_capture(other))


def waiting_for_outside(fake: FakeCuda, stream: int, other: int) -> None:
    fake.work(other, US)
    suppressed(lambda: fake.join(stream, other))


def clear_events(fake: FakeCuda) -> None:
    """Destroy what `fork` and `join` left behind where the driver refused the wait."""
    for event in fake.report()["live"]["event"]:
        fake.event_destroy(int(event["handle"], 16))


def test_a_fork_that_is_not_joined_is_an_error_of_its_own_and_both_streams_are_freed(
    fake: FakeCuda, stream: int, other: int
) -> None:
    with pytest.raises(errors.CaptureUnjoinedError, match="wait_stream"), gpuprof.capture(stream):
        fake.work(stream, US)
        unjoined(fake, stream, other)
    assert fake.capture_status(other) == control.NONE


@pytest.mark.parametrize(
    ("body", "cause"),
    [
        (ended_on_the_branch, r"cuStreamEndCapture.*STREAM_CAPTURE_UNMATCHED"),
        (waiting_for_outside, r"cuStreamWaitEvent.*STREAM_CAPTURE_ISOLATION"),
    ],
)
def test_streams_that_are_wrongly_connected_are_named_as_the_cause_and_all_are_freed(
    fake: FakeCuda,
    stream: int,
    other: int,
    body: Callable[[FakeCuda, int, int], None],
    cause: str,
) -> None:
    with pytest.raises(errors.CaptureError, match=cause), gpuprof.capture(stream):
        fake.work(stream, US)
        body(fake, stream, other)
    assert fake.capture_status(other) == control.NONE
    clear_events(fake)


def test_two_captures_that_meet_are_both_broken_and_both_say_so(
    fake: FakeCuda, stream: int, other: int
) -> None:
    first, second = gpuprof.GraphCaptureGuard(stream), gpuprof.GraphCaptureGuard(other)
    fake.work(stream, US)
    suppressed(lambda: fake.fork(stream, other))
    for guard in (first, second):
        with pytest.raises(errors.CaptureError, match=r"cuStreamWaitEvent.*STREAM_CAPTURE_MERGE"):
            guard.finish()
    clear_events(fake)


def test_default_stream_work_that_meets_the_capture_of_a_blocking_stream_is_named(
    fake: FakeCuda,
) -> None:
    blocking = fake.stream_create(0)
    event = fake.event_create()
    with (
        pytest.raises(errors.CaptureError, match=r"cuEventRecord.*STREAM_CAPTURE_IMPLICIT"),
        gpuprof.capture(blocking),
    ):
        fake.work(blocking, US)
        suppressed(lambda: fake.event_record(event, control.LEGACY_STREAM))
    with gpuprof.capture(blocking) as cap:
        fake.work(blocking, US)
        with pytest.raises(errors.CaptureImplicitError):
            gpuprof.capture_status(control.LEGACY_STREAM)
        assert cap.status() is gpuprof.CaptureStatus.ACTIVE, "asking breaks nothing"
    cap.graph.close()
    fake.event_destroy(event)
    fake.stream_destroy(blocking)


# A stream that goes away


class OwnedStream:
    """A stream that lives as long as this object, as those of frameworks do."""

    def __init__(self, fake: FakeCuda) -> None:
        self._fake = fake
        self.handle = fake.stream_create()

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __del__(self) -> None:
        self._fake.stream_destroy(self.handle)


def test_a_stream_object_is_kept_while_it_is_captured_and_while_its_graph_lives(
    fake: FakeCuda,
) -> None:
    owned = OwnedStream(fake)
    handle = owned.handle
    with gpuprof.capture(owned) as cap:
        fake.work(handle, US)
        del owned
        gc.collect()
    assert fake.live("stream") == 1
    cap.graph.launch()
    fake.stream_synchronize(handle)
    cap.graph.close()
    del cap
    gc.collect()
    assert fake.live("stream") == 0


# Graphs that allocate


def test_a_graph_that_allocates_and_does_not_free_can_be_launched_again(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as cap:
        address = fake.stream_allocate(64, stream)
        fake.call("cuMemsetD8Async", address, 7, 64, stream)
    for _ in range(3):
        cap.graph.launch(stream)
    fake.stream_synchronize(stream)
    assert fake.read(address, 2) == b"\x07\x07"
    cap.graph.close()
    fake.memory_free(address)


# Addresses of streams that come back


def test_a_capture_whose_stream_is_gone_leaves_the_next_stream_of_that_address_alone(
    fake_path: Path,
) -> None:
    body = """
    warnings.simplefilter("ignore")

    def finish(guards):
        try:
            guards[0].finish()
        except gpuprof.errors.GpuprofError as error:
            assert "stream" in str(error)
        else:
            raise SystemExit("it took the other stream's capture")

    for end in (lambda guards: guards[0].abort(), list.clear, finish):
        guards = [gpuprof.GraphCaptureGuard(stream)]
        fake.stream_destroy(stream)  # which drops the capture without a word
        assert fake.stream_create() == stream
        with gpuprof.capture(stream) as cap:
            fake.work(stream, 1000)
            end(guards)
            assert cap.status() is gpuprof.CaptureStatus.ACTIVE, end
        assert cap.graph.num_nodes == 1, end
    """
    assert check_cuda(fake_path, body, FAKECUDA_CONFIG="reuse=1") == ""


def test_captures_whose_context_is_gone_are_let_go_without_touching_it(fake_path: Path) -> None:
    body = """
    warnings.simplefilter("ignore")
    aborted, dropped = (gpuprof.GraphCaptureGuard(each) for each in (stream, fake.stream_create()))
    for guard in (aborted, dropped):
        fake.work(guard.stream, 1000)
    fake.destroy_context(context)
    aborted.abort()
    del guard, dropped
    """
    assert check_cuda(fake_path, body) == ""
