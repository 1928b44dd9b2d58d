"""Captures through torch: what they take, and that torch is as it was whatever fails."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import gpuprof
from gpuprof import _core
from gpuprof._frameworks.torch_capture import TorchCapture
from gpuprof.errors import (
    CaptureInvalidatedError,
    CaptureUnjoinedError,
    CaptureUnmatchedError,
    CaptureUnsupportedError,
    InvalidStateError,
)
from tests.support.captures import on_another_thread
from tests.support.stand_in_torch import InjectedError, World, install

VERSIONS = ["2.8.0", "2.11.0", "2.12.0", "2.14.0"]


@pytest.fixture(params=VERSIONS)
def any_world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> World:
    return install(monkeypatch, request.param)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return install(monkeypatch)


@pytest.fixture(autouse=True)
def forget_own_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpuprof._frameworks.cupy._own_streams", threading.local())


def begun(mode: str = "thread_local", pool: gpuprof.CapturePool | None = None) -> TorchCapture:
    capture = TorchCapture(None, mode, pool)
    capture.begin()
    return capture


def ended(mode: str = "thread_local", pool: gpuprof.CapturePool | None = None) -> TorchCapture:
    capture = begun(mode, pool)
    capture.end()
    return capture


def test_on_the_default_stream_a_stream_of_its_own_is_captured(any_world: World) -> None:
    world = any_world
    before = world.state()
    capture = TorchCapture(None, "thread_local")
    handle = capture.begin()
    assert handle != 0
    assert world.current.cuda_stream == handle
    assert world.waits == [(handle, 0)]
    assert world.state()["capturing"] == {handle}
    capture.end()
    assert world.waits == [(handle, 0), (0, handle)]
    assert world.state() == before | {"pools held": {(0, 1): 1}}
    assert capture.graph.mode == "thread_local"
    capture.graph.reset()
    assert world.state() == before


def test_the_own_stream_of_a_device_is_used_again(world: World) -> None:
    handles = set()
    for _ in range(3):
        capture = TorchCapture(None, "thread_local")
        handles.add(capture.begin())
        capture.end()
    assert len(handles) == 1


def test_threads_have_own_streams_of_their_own(world: World) -> None:
    handles = []

    def capture() -> None:
        one = TorchCapture(None, "thread_local")
        handles.append(one.begin())
        one.end()

    capture()
    on_another_thread(capture)
    assert len(set(handles)) == 2


def capture_in(pool: gpuprof.CapturePool) -> Any:
    return ended("relaxed", pool).graph


def test_a_pool_that_torch_has_let_go_is_made_anew(any_world: World) -> None:
    # Torch refuses captures for a pool whose last graph is gone.
    pool = gpuprof.CapturePool()
    assert capture_in(pool).pool() == (0, 1)
    assert capture_in(pool).pool() == (0, 2)
    broken = begun(pool=pool)
    any_world.break_capture()
    with pytest.raises(CaptureInvalidatedError):
        broken.end()
    assert capture_in(pool).pool() == (0, 4)


@pytest.mark.parametrize("shares", [False, True])
def test_pools_of_graphs_that_are_gone_are_given_back_at_the_next_capture(
    any_world: World, shares: bool
) -> None:
    pool = gpuprof.CapturePool() if shares else None
    kept = ended(pool=gpuprof.CapturePool())
    for _ in range(5):
        ended(pool=pool).graph.replay()
    assert len(any_world.held) == 2, "that of the last graph, and of the one that is kept"
    del kept
    ended(pool=pool)
    assert len(any_world.held) == 1


def test_where_torch_cannot_give_back_a_capture_goes_on_and_the_next_one_tries_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended()
    with monkeypatch.context() as refusing:
        refusing.setattr(world.torch.cuda, "empty_cache", lambda: 1 / 0)
        ended()
    assert len(world.held) == 2
    ended()
    assert len(world.held) == 1


def test_a_pool_with_an_open_capture_is_refused_and_the_capture_goes_on(world: World) -> None:
    pool = gpuprof.CapturePool()
    first = TorchCapture(world.torch.cuda.Stream(), "relaxed", pool)
    first.begin()
    before = world.state()
    with pytest.raises(InvalidStateError, match="pool: another capture with it is open"):
        TorchCapture(world.torch.cuda.Stream(), "relaxed", pool).begin()
    assert world.state() == before
    first.end()
    capture_in(pool)


@pytest.mark.parametrize("step", ["graph_pool_handle", "capture_begin"])
def test_a_pool_can_be_used_after_a_begin_that_failed(world: World, step: str) -> None:
    pool = gpuprof.CapturePool()
    world.fail(step)
    with pytest.raises(InjectedError):
        capture_in(pool)
    capture_in(pool)


def test_the_default_stream_is_refused_with_what_to_do(world: World) -> None:
    before = world.state()
    with pytest.raises(CaptureUnsupportedError, match="give another one as stream="):
        TorchCapture(world.torch.cuda.default_stream(), "global").begin()
    assert world.state() == before


def test_a_stream_that_is_being_captured_is_refused_and_its_capture_goes_on(world: World) -> None:
    stream = world.torch.cuda.Stream()
    first = TorchCapture(stream, "global")
    first.begin()
    before = world.state()
    with pytest.raises(InvalidStateError, match="being captured already"):
        TorchCapture(stream, "global").begin()
    assert world.state() == before
    first.end()


def test_what_the_driver_refuses_at_the_begin_is_gpuprofs_error(world: World) -> None:
    world.fail("driver begin", RuntimeError("CUDA error: capture was not initiated in this stream"))
    with pytest.raises(CaptureUnmatchedError, match="903") as caught:
        TorchCapture(None, "global").begin()
    assert isinstance(caught.value.__cause__, RuntimeError)
    assert "cuStreamBeginCapture" in str(caught.value)


@pytest.mark.parametrize("lost", ["_drop_capture", "_begin_empty_capture", "capture_end"])
def test_what_torch_does_not_undo_is_undone_piece_by_piece(world: World, lost: str) -> None:
    before = world.state()
    capture = begun()
    world.break_capture()
    world.fail(lost)
    with pytest.raises(CaptureInvalidatedError):
        capture.end()
    assert world.state() == before
    world.generator.draw()


def test_a_lost_fork_whose_repair_fails_is_undone_piece_by_piece(world: World) -> None:
    before = world.state()
    capture = TorchCapture(None, "thread_local")
    world.driver.unjoined.add(capture.begin())
    world.fail("_cuda_beginAllocateCurrentThreadToPool")
    with pytest.raises(CaptureUnjoinedError):
        capture.end()
    after = world.state()
    assert after.pop("pools held") == {(0, 1): 1}  # who ended the routing does not hold it
    assert after == {key: value for key, value in before.items() if key != "pools held"}
    world.generator.draw()


def test_an_error_at_the_end_that_is_not_about_captures_stays_itself(world: World) -> None:
    before = world.state()
    capture = begun()
    error = RuntimeError("CUDA error: an illegal memory access was encountered")
    world.fail("capture_end", error)
    with pytest.raises(RuntimeError) as caught:
        capture.end()
    assert caught.value is error
    assert world.state() == before


def test_abort_after_a_body_that_left_another_stream_current(world: World) -> None:
    before = world.state()
    capture = begun()
    world.current = world.torch.cuda.Stream()
    world.fail("_cuda_endAllocateToPool")  # not needed: torch ends it on the capture's stream
    capture.abort()
    assert world.state() == before
    assert "_cuda_endAllocateToPool" in world.failing


@pytest.mark.parametrize("step", ["set_stream", "_drop_capture", "reset", "wait_stream"])
def test_abort_never_raises(world: World, step: str) -> None:
    capture = begun()
    world.fail(step)
    capture.abort()
    assert world.current.cuda_stream == 0


@pytest.mark.parametrize("is_block", [True, False])
def test_only_a_block_puts_back_the_stream_that_was_captured(world: World, is_block: bool) -> None:
    captured, left = world.torch.cuda.Stream(), world.torch.cuda.Stream()
    for end in ("end", "abort"):
        world.current = captured
        capture = TorchCapture(None, "relaxed", is_block=is_block)
        assert capture.begin() == captured.cuda_stream
        world.current = left
        getattr(capture, end)()
        assert world.current == (captured if is_block else left)


def test_abort_on_another_thread_leaves_that_threads_stream(world: World) -> None:
    capture = begun()
    stream = world.current = world.torch.cuda.Stream()  # as of the other thread
    on_another_thread(capture.abort)
    state = world.state()
    assert state.pop("current stream") == stream
    assert not any(state.values())


def test_a_pool_can_be_used_after_an_abort_on_another_thread(world: World) -> None:
    pool = gpuprof.CapturePool()
    capture = begun(pool=pool)
    on_another_thread(capture.abort)
    world.current = world.torch.cuda.default_stream()
    capture_in(pool)


def test_a_dropped_capture_tries_again_what_an_abort_could_not_undo(world: World) -> None:
    before = world.state()
    capture = begun()
    world.fail("set_stream")
    capture.abort()
    assert world.state()["capturing"]
    del capture
    assert world.state() == before


def test_nothing_of_a_dropped_capture_is_undone_at_interpreter_exit(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = begun()
    inside = world.state()
    monkeypatch.setattr(TorchCapture, "_is_finalizing", lambda _self: True)
    del capture
    assert world.state() == inside


def test_a_relaxed_capture_ends_on_another_thread_and_leaves_that_threads_stream(
    world: World,
) -> None:
    capture = begun("relaxed")
    stream = world.current = world.torch.cuda.Stream()  # as of the other thread
    assert on_another_thread(capture.end) is None
    assert world.current == stream
    capture.graph.reset()
    state = world.state()
    del state["current stream"]
    assert not any(state.values())


def test_abort_in_a_forked_child_touches_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    capture = begun()
    inside = world.state()
    generation = _core._fork_generation()
    with monkeypatch.context() as child:
        child.setattr(_core, "_fork_generation", lambda: generation + 1)
        capture.abort()
    assert world.state() == inside


def test_abort_after_the_end_keeps_the_graph(world: World) -> None:
    capture = ended()
    capture.abort()
    assert capture.graph.pool() == (0, 1)


def test_ending_twice_is_an_error(world: World) -> None:
    capture = ended()
    with pytest.raises(InvalidStateError, match="not open"):
        capture.end()


def test_a_body_that_leaves_another_stream_current_does_no_harm(world: World) -> None:
    before = world.state()
    capture = begun()
    world.current = world.torch.cuda.Stream()
    capture.end()
    capture.graph.reset()
    assert world.state() == before


def test_a_join_is_left_out_while_the_stream_is_still_captured(world: World) -> None:
    capture = TorchCapture(None, "thread_local")
    handle = capture.begin()
    world.fail("_drop_capture")
    world.driver.end = lambda _stream: (901, 0)  # it stays captured
    capture.abort()
    assert world.waits == [(handle, 0)]
    assert world.current.cuda_stream == 0
