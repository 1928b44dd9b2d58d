"""Scopes and stream captures, on the fake driver: nothing of ours breaks anybody's capture."""

from __future__ import annotations

import warnings

import pytest

import gpuprof
from tests.fake_driver.control import (
    ACTIVE,
    GLOBAL,
    RELAXED,
    THREAD_LOCAL,
    DriverCallError,
    FakeCuda,
)
from tests.support.threads import in_threads

MS = 1_000_000
MODES = [GLOBAL, THREAD_LOCAL, RELAXED]


@pytest.mark.parametrize("mode", MODES)
def test_a_scope_in_somebodys_capture_is_skipped_with_one_warning(
    fake: FakeCuda, stream: int, mode: int
) -> None:
    scope = gpuprof.timer("step", stream=stream)
    fake.begin_capture(stream, mode)
    with pytest.warns(RuntimeWarning, match="in_capture") as caught:
        for _ in range(10):
            with scope as sample:
                fake.work(stream, MS)
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    assert len(caught) == 1
    assert sample.state == "skipped"
    with pytest.raises(gpuprof.errors.InvalidStateError, match="in_capture"):
        sample.ms  # noqa: B018
    assert sample.try_ms() is None
    assert gpuprof.stats()["step"].skipped == 10


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("elsewhere", [False, True], ids=["same thread", "other thread"])
def test_reading_waiting_and_draining_break_no_capture(
    fake: FakeCuda, stream: int, other: int, mode: int, elsewhere: bool
) -> None:
    scope = gpuprof.timer("step", stream=other)
    timer = gpuprof.Timer("cuda", other)
    with scope as before, timer:
        fake.work(other, MS)
    fake.begin_capture(stream, mode)

    def use_everything() -> None:
        with scope as during:
            fake.work(other, MS)
        assert before.ms > 0
        assert during.ready in {True, False}
        assert during.ms > 0
        assert timer.elapsed_ms() > 0
        gpuprof.flush()
        assert gpuprof.stats()["step"].gpu.count == 2

    if elsewhere:
        in_threads(use_everything)
    else:
        use_everything()
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    timer.close()


def test_more_events_can_be_made_during_a_capture(fake: FakeCuda, stream: int, other: int) -> None:
    fake.begin_capture(stream, GLOBAL)
    scope = gpuprof.timer("step", stream=other)
    for _ in range(100):
        with scope:
            pass
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    assert gpuprof.stats()["step"].gpu.count == 100


def test_a_recorded_scope_reads_the_last_replay(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream, in_capture="record")
    fake.begin_capture(stream)
    with scope as sample:
        fake.work(stream, 5 * MS)
    with pytest.raises(gpuprof.errors.NotReplayedError, match="replayed"):
        sample.ms  # noqa: B018
    assert fake.capture_status(stream) == ACTIVE
    graph = fake.end_capture(stream)
    with pytest.raises(gpuprof.errors.NotReplayedError):
        sample.ms  # noqa: B018
    assert sample.try_ms() is None
    launched = fake.instantiate(graph)
    for _ in range(3):
        fake.graph_launch(launched, stream)
    assert sample.ms == pytest.approx(5, abs=0.01)
    assert sample.state == "captured"
    assert "step" not in gpuprof.stats()
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)
    del sample
    with scope:  # the scope's `last` lets the captured events go
        pass


def test_events_of_a_capture_are_never_used_again(fake: FakeCuda, stream: int) -> None:
    plain = gpuprof.timer("plain", stream=stream)
    for _ in range(20):
        with plain:
            pass
    gpuprof.flush()
    fake.begin_capture(stream)
    with gpuprof.timer("inside", stream=stream, in_capture="record") as sample:
        pass
    graph = fake.end_capture(stream)
    # Pooled events would still hold the times of their last use here.
    assert sample.try_ms() is None
    made_for_graph = fake.live("event")
    for _ in range(20):
        with plain:
            pass
    assert gpuprof.stats()["plain"].gpu.count == 40
    assert fake.live("event") == made_for_graph
    del sample
    fake.graph_destroy(graph)


def test_a_timer_records_into_a_capture(fake: FakeCuda, stream: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    fake.begin_capture(stream)
    timer.record_start()
    fake.work(stream, 2 * MS)
    timer.record_end()
    graph = fake.end_capture(stream)
    with pytest.raises(gpuprof.errors.NotReplayedError):
        timer.elapsed_ms()
    assert not timer.ready
    launched = fake.instantiate(graph)
    fake.graph_launch(launched, stream)
    assert timer.elapsed_ms() == pytest.approx(2, abs=0.01)
    timer.record_start()
    fake.work(stream, 1 * MS)
    timer.record_end()
    assert timer.elapsed_ms() == pytest.approx(1, abs=0.01)
    fake.graph_launch(launched, stream)  # the graph still has its own events
    fake.stream_synchronize(stream)
    timer.close()
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)


def test_a_scope_on_the_legacy_stream_does_not_kill_a_blocking_streams_capture(
    fake: FakeCuda,
) -> None:
    blocking = fake.stream_create(0)
    fake.begin_capture(blocking, GLOBAL)
    with pytest.warns(RuntimeWarning, match="non-blocking stream") as caught:
        for _ in range(5):
            with gpuprof.timer("step", stream=0) as sample:
                pass
    assert len(caught) == 1
    assert fake.capture_status(blocking) == ACTIVE
    fake.graph_destroy(fake.end_capture(blocking))
    assert sample.failed
    with pytest.raises(gpuprof.errors.CaptureImplicitError):
        sample.ms  # noqa: B018
    assert gpuprof.stats()["step"].failed == 5
    fake.stream_destroy(blocking)


def test_a_capture_that_begins_inside_a_scope_fails_the_sample_only(
    fake: FakeCuda, stream: int
) -> None:
    with pytest.warns(RuntimeWarning, match="capture began"):
        with gpuprof.timer("step", stream=stream) as sample:
            fake.begin_capture(stream)
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    with pytest.raises(gpuprof.errors.InvalidStateError, match="capture began"):
        sample.ms  # noqa: B018


def test_a_scope_on_an_invalidated_capture_is_skipped(fake: FakeCuda, stream: int) -> None:
    fake.begin_capture(stream, GLOBAL)
    assert fake.stream_query(stream) == 900
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with gpuprof.timer("step", stream=stream, in_capture="record") as sample:
            pass
    with pytest.raises(DriverCallError, match="901"):
        fake.end_capture(stream)
    assert sample.state == "skipped"
