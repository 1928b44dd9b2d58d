"""GPU times on the host's clock, as Python drives it.

How well it places is tested in C++, where the host's clock is the fake driver's too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from gpuprof import _core
from tests.fake_driver.control import FakeCuda
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
