"""What is over after a capture block, whatever its end raised; and captures nobody has ended."""

from __future__ import annotations

import _thread
import gc
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, await_no_capture, on_another_thread
from tests.support.held import open_captures, relaxed_collections


@contextmanager
def interrupted_watch(*_arguments: object) -> Iterator[None]:
    try:
        yield None
    finally:
        raise KeyboardInterrupt


@pytest.mark.parametrize("body_raises", [True, False])
def test_an_interrupt_as_debugging_ends_leaves_nothing_open(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch, body_raises: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("gpuprof._graphs.debug.watch", interrupted_watch)
        with pytest.raises(KeyboardInterrupt), gpuprof.capture(stream, debug=True) as cap:
            fake.work(stream, US)
            if body_raises:
                raise KeyError
    assert not cap.is_open
    assert fake.capture_status(stream) == 0
    assert gc.isenabled()
    assert relaxed_collections() == 0


def kept(stream: int) -> int:
    """Return how many captures of the stream something keeps."""
    guards = [each for each in gc.get_objects() if type(each) is gpuprof.GraphCaptureGuard]
    return sum(guard.stream == stream for guard in guards)


class Interrupt:
    """``del interrupt[signal.SIGINT]`` is a Ctrl-C, heard where Python next looks for signals."""

    __delitem__ = _thread.interrupt_main  # no function of Python's, which would hear it itself


def test_a_ctrl_c_as_the_block_ends_leaves_nothing_open(fake: FakeCuda, stream: int) -> None:
    interrupt = Interrupt()
    with pytest.raises(KeyboardInterrupt) as caught, gpuprof.capture(stream) as cap:
        fake.work(stream, US)
        del interrupt[signal.SIGINT]  # type: ignore[attr-defined]
    assert caught.tb is not None  # whose frames would keep the capture
    assert not cap.is_open
    assert fake.capture_status(stream) == 0
    assert open_captures() == []


def test_a_warning_of_a_block_that_is_made_an_error_leaves_its_graph(
    fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = "gpuprof._graphs.debug.CaptureWatch.report_outside"
    monkeypatch.setattr(report, lambda _watch: "work ran outside")
    with pytest.raises(RuntimeWarning, match="outside"), gpuprof.capture(stream, debug=True) as cap:
        fake.work(stream, US)
    assert not cap.is_open
    assert cap.graph.num_nodes == 1
    cap.graph.close()


def test_a_block_that_is_left_on_another_thread_leaves_nothing_open(
    fake: FakeCuda, stream: int
) -> None:
    block = gpuprof.capture(stream)
    cap = block.__enter__()
    fake.work(stream, US)
    error = on_another_thread(lambda: block.__exit__(None, None, None))
    assert isinstance(error, gpuprof.errors.CaptureWrongThreadError)
    assert not cap.is_open
    assert relaxed_collections() == 0


def capture_a_block(stream: int) -> None:
    with gpuprof.capture(stream, allow_empty=True) as cap:
        pass
    cap.graph.close()


def begin_and_end(stream: int) -> None:
    gpuprof.begin_capture(stream)
    with pytest.raises(gpuprof.errors.EmptyGraphError):
        gpuprof.end_capture(stream)


@pytest.mark.parametrize(
    "again",
    [capture_a_block, lambda stream: gpuprof.GraphCaptureGuard(stream).abort(), begin_and_end],
    ids=["capture", "GraphCaptureGuard", "begin_capture"],
)
def test_the_next_capture_lets_go_of_one_whose_thread_ended_without_ending_it(
    fake: FakeCuda, stream: int, other: int, again: Callable[[int], None]
) -> None:
    thread = threading.Thread(target=gpuprof.begin_capture, args=(other,))
    thread.start()
    thread.join()
    await_no_capture(fake, other)
    assert kept(other) == 1
    again(stream)
    assert kept(other) == 0
    assert gc.isenabled()
    assert relaxed_collections() == 0


def test_a_block_lets_go_of_a_capture_whose_thread_ended_meanwhile(
    fake: FakeCuda, stream: int, other: int
) -> None:
    with gpuprof.capture(stream, allow_empty=True) as cap:
        on_another_thread(lambda: gpuprof.begin_capture(other))
        await_no_capture(fake, other)
    assert kept(other) == 0
    assert gc.isenabled()
    cap.graph.close()
