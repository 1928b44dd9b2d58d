"""Timers inside graphs, on the fake driver: the last replay's times, every replay's, or none."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.held import release_idle
from tests.support.trace_events import events

US = 1_000
MS = 1_000_000
EMPTY_MS = 0.00128


def captured(fake: FakeCuda, stream: int, ms: int = 2, **options: object) -> gpuprof.CapturedGraph:
    """Return a graph with the scopes outer (6 ms), and in it twice inner (2 ms)."""
    with gpuprof.capture(stream, **options) as cap, gpuprof.timer("outer", stream=stream):  # type: ignore[arg-type]
        for _ in range(2):
            with gpuprof.timer("inner", stream=stream):
                fake.work(stream, ms * MS)
        fake.work(stream, ms * MS)
    return cap.graph


def near(ms: float) -> object:
    return pytest.approx(ms, abs=0.02)


def gpu(path: str) -> gpuprof.results.Summary:
    """Return the GPU's times of a scope in the statistics."""
    found = gpuprof.stats()[path].gpu
    assert found is not None
    return found


def test_the_last_replays_times_are_read_from_the_graph(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph:
        for _ in range(3):
            graph.launch()
        times = graph.timings()
        assert list(times) == ["outer", "outer/inner"]
        assert times["outer/inner"].values == (near(2), near(2))
        assert (times["outer/inner"].count, times["outer/inner"].ms) == (2, near(4))
        assert times["outer/inner"].mean_ms == near(2)
        assert times["outer"].ms == near(6)
        assert json.loads(json.dumps(times.to_dict()))["outer"]["count"] == 1
        assert "outer/inner" in repr(times)
        assert "outer/inner" in times._repr_html_()
    assert "outer" not in gpuprof.stats()


def test_a_slash_in_a_name_is_a_row_of_its_own(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        with gpuprof.timer("a", stream=stream), gpuprof.timer("b", stream=stream):
            fake.work(stream, 2 * MS)
        with gpuprof.timer("a/b", stream=stream):
            fake.work(stream, 6 * MS)
    with cap.graph as graph:
        graph.launch()
        times = graph.timings()
        assert list(times) == ["a", ("a", "b"), ("a/b",)]
        assert (times["a", "b"].ms, times["a/b",].ms) == (near(2), near(6))
        assert "a/b" not in times
        assert list(times.to_dict()) == ["a", "a/b", "a\\/b"]


def test_before_the_first_launch_there_are_no_times(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph, pytest.raises(errors.NotReplayedError):
        graph.timings()
    with captured(fake, stream, timers="collect") as graph, pytest.raises(errors.NotReplayedError):
        graph.timings()


def test_without_waiting_what_runs_still_is_unknown(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    with captured(fake, stream) as graph:
        graph.launch()
        assert graph.timings(wait=False)["outer"].values == (None,)
        assert graph.timings(wait=False).to_dict()["outer"]["ms"] is None
        fake.complete(stream)
        assert graph.timings(wait=False)["outer"].values == (near(6),)


def test_a_graph_without_timers_has_no_times(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, US)
    assert len(cap.graph.timings()) == 0
    assert "no timer" in repr(cap.graph.timings())
    cap.graph.close()


def test_stripped_timers_leave_no_nodes_and_say_nothing(fake: FakeCuda, stream: int) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with captured(fake, stream, timers="strip") as graph:
            assert graph.num_nodes == 3
            assert len(graph.timings()) == 0


@pytest.mark.parametrize("replays", [1, 5])
def test_collected_timers_feed_the_statistics_replay_by_replay(
    fake: FakeCuda, stream: int, replays: int
) -> None:
    with captured(fake, stream, timers="collect", name="step") as graph:
        for _ in range(replays):
            graph.launch()
        assert (gpu("outer").count, gpu("outer").mean_ms) == (replays, near(6))
        assert (gpu("outer/inner").count, gpu("outer/inner").mean_ms) == (2 * replays, near(2))
        assert (gpu("step").count, gpu("step").mean_ms) == (replays, near(6))
        assert graph.timings()["outer"].ms == near(6)


def test_a_replay_is_a_row_below_the_scope_that_launches_it(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream, timers="collect") as graph:
        with gpuprof.timer("train", stream=stream):
            graph.launch()
        assert set(gpuprof.stats()) >= {"train", "train/graph"}


def test_replays_of_a_collected_graph_without_timers_are_counted_too(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream, timers="collect", name="bare") as cap:
        fake.work(stream, MS)
    for _ in range(3):
        cap.graph.launch()
    assert (gpu("bare").count, gpu("bare").mean_ms) == (3, near(1))
    assert cap.graph.timings() == {}
    cap.graph.close()


def test_each_collected_replay_has_its_own_times(fake: FakeCuda, stream: int) -> None:
    slow = captured(fake, stream, timers="collect")
    slower = captured(fake, stream, 4, timers="collect")
    slow.launch()
    slow.update(slower)
    slow.launch()
    assert (gpu("outer").min_ms, gpu("outer").max_ms) == (near(6), near(12))
    slow.close()
    slower.close()


def test_an_update_refuses_another_number_of_timers(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, US)
    with captured(fake, stream) as graph:
        with pytest.raises(errors.InvalidStateError, match="timed spans"):
            graph.update(cap.graph)
        cap.graph.close()


def test_when_no_events_are_left_spans_are_dropped_and_counted_and_nothing_waits(
    fake: FakeCuda, stream: int
) -> None:
    fake.configure("mode=manual")
    with captured(fake, stream, timers="collect") as graph:
        with pytest.warns(RuntimeWarning, match="dropped"):
            for _ in range(1100):
                graph.launch()
        assert fake.stream_query(stream) == 600
        fake.complete(stream)
        row = gpuprof.stats()["outer"]
        assert row.dropped > 0
        assert row.gpu is not None
        assert row.gpu.count + row.dropped == 1100
        assert (row.gpu.min_ms, row.gpu.max_ms) == (near(6), near(6))
        # A launch whose spans were dropped does not write into events that others have by now.
        with gpuprof.timer("plain", stream=stream) as plain:
            pass
        graph.launch()
        fake.complete(stream)
        assert plain.ms == near(EMPTY_MS)


def test_a_failed_collected_launch_gives_its_events_back(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream, timers="collect") as graph:
        for fault in ("cuGraphLaunch@1=2", "cuGraphExecEventRecordNodeSetEvent@3=2"):
            with fake.faults(fault), pytest.raises(errors.CudaError):
                graph.launch()
        graph.launch()
        assert gpu("outer").count == 1
    gpuprof.flush()
    assert release_idle() == 0


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_replays_and_collected_spans_are_in_the_trace_with_an_arrow_from_each_launch(
    fake: FakeCuda, stream: int, tmp_path: Path, timers: str
) -> None:
    def named(category: str) -> list[str]:
        return [event["name"] for event in events(path) if event["cat"] == category]

    path = tmp_path / "run.json"
    with captured(fake, stream, timers=timers, name="step") as graph:
        with gpuprof.trace(path):
            for _ in range(2):
                graph.launch()
            fake.stream_synchronize(stream)
    assert named("graph") == named("gpu_graph") == ["step", "step"]
    assert len(named("gpu_in_graph")) == (6 if timers == "collect" else 0)
    assert len(events(path, "s")) == 2


def test_a_timer_object_in_a_capture_reads_the_last_replay(fake: FakeCuda, stream: int) -> None:
    timer = gpuprof.Timer("cuda", stream)
    with gpuprof.capture(stream) as cap:
        timer.record_start()
        fake.work(stream, 3 * MS)
        timer.record_end()
    cap.graph.launch()
    assert timer.elapsed_ms() == near(3)
    cap.graph.close()
    timer.close()


def test_a_sample_of_a_captured_scope_reads_the_last_replay_and_outlives_the_graph(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as cap, gpuprof.timer("fwd", stream=stream) as sample:
        fake.work(stream, 3 * MS)
    with pytest.raises(errors.NotReplayedError):
        sample.ms  # noqa: B018
    cap.graph.launch()
    assert sample.ms == near(3)
    cap.graph.close()
    assert sample.ms == near(3)
