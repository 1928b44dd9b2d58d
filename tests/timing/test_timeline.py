"""GPU times on the host's clock, as Python drives it.

How well it places is tested in C++, where the host's clock is the fake driver's too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from gpuprof import _core
from tests.fake_driver.control import ACTIVE, GLOBAL, FakeCuda
from tests.support.cuda import kinds_alive
from tests.support.processes import check_cuda, check_python


@pytest.fixture
def wanted(fake: FakeCuda) -> Iterator[None]:
    _core._timeline_want(True)
    yield
    _core._timeline_want(False)


def measured(stream: int) -> _core._PlacedSpan:
    span = _core._PlacedSpan(stream)
    span.start()
    span.stop()
    assert span.elapsed_ms() > 0.0
    return span


@pytest.mark.usefixtures("wanted")
def test_a_span_is_placed_once_an_anchor_followed_it(stream: int) -> None:
    span = measured(stream)
    assert span.place() is None
    _core._timeline_refresh()
    at, error = span.place()
    end, _ = span.place(end=True)
    assert at < end
    assert error > 0


def test_scopes_cost_no_other_driver_calls_while_nobody_wants_their_place(
    fake: FakeCuda, stream: int
) -> None:
    scope = gpuprof.timer("step", stream=stream)

    def calls_of_a_scope() -> int:
        counts = []
        for _ in range(20):  # some ask whether the stream moves, too: at most one in 200 us
            before = fake.calls()
            with scope as sample:
                pass
            assert sample.ms > 0.0
            counts.append(fake.calls() - before)
        return min(counts)

    calls_of_a_scope()  # makes the events
    before = calls_of_a_scope()
    _core._timeline_want(True)
    _core._timeline_refresh()
    assert calls_of_a_scope() == before + 2  # its distance from an anchor, its stream's number
    _core._timeline_want(False)
    assert calls_of_a_scope() == before


@pytest.mark.usefixtures("wanted")
def test_a_capture_on_this_thread_survives_the_anchors(fake: FakeCuda, stream: int) -> None:
    captured = fake.stream_create()
    measured(stream)
    fake.begin_capture(captured, GLOBAL)
    span = measured(stream)
    _core._timeline_refresh()
    thread = threading.Thread(target=_core._timeline_refresh)
    thread.start()
    thread.join()
    assert span.place()
    assert fake.capture_status(captured) == ACTIVE
    fake.graph_destroy(fake.end_capture(captured))
    fake.stream_destroy(captured)


def test_all_anchors_are_given_back(fake: FakeCuda, stream: int) -> None:
    span = measured(stream)
    before = kinds_alive(fake)
    _core._timeline_want(True)
    _core._timeline_want(True)
    for _ in range(10):
        _core._timeline_refresh()
    _core._timeline_want(False)
    assert kinds_alive(fake) != before
    _core._timeline_want(False)
    assert kinds_alive(fake) == before
    assert span.place() is False


@pytest.mark.usefixtures("wanted")
def test_a_refused_anchor_warns_once_and_scopes_go_on(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream)
    with scope:
        pass
    with fake.faults("cuEventRecord@1=999"):
        _core._timeline_refresh()
    _core._timeline_refresh()
    with pytest.warns(RuntimeWarning, match="cuEventRecord.*host's clock") as said, scope as sample:
        pass
    assert len(said) == 1
    assert sample.ms > 0.0


def test_a_context_that_is_reset_has_new_anchors(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        def measured():
            span = _core._PlacedSpan(stream)
            span.start()
            span.stop()
            span.elapsed_ms()
            return span

        _core._timeline_want(True)
        before = measured()
        _core._timeline_refresh()
        assert before.place()
        fake.call("cuDevicePrimaryCtxReset_v2", 0)
        _core._timeline_refresh()
        assert before.place() is False
        fake.use_primary()
        stream = fake.stream_create()
        after = measured()
        _core._timeline_refresh()
        assert after.place()
        assert before.place() is False
        _core._timeline_want(False)
        """,
    )


def test_a_forked_child_calls_no_driver_for_its_parents_anchors(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        _core._timeline_want(True)
        span = _core._PlacedSpan(stream)
        span.start()
        span.stop()
        span.elapsed_ms()
        _core._timeline_refresh()
        assert span.place()
        child = os.fork()
        if child == 0:
            calls = fake.calls()
            _core._timeline_refresh()
            lost = span.place() is False
            _core._timeline_want(False)
            os._exit(0 if lost and fake.calls() == calls else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert span.place()
        _core._timeline_want(False)
        """,
    )


def test_a_process_may_end_with_anchors_alive(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        _core._timeline_want(True)
        with scope:
            pass
        _core._timeline_refresh()
        """,
    )


def test_without_a_driver_nothing_happens() -> None:
    check_python(
        """
        from gpuprof import _core
        _core._timeline_want(True)
        _core._timeline_refresh()
        _core._timeline_want(False)
        """
    )
