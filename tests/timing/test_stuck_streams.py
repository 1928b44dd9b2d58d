"""A stream that waits for another Python thread freezes no program, however full its queue.

And the other way round: where a call cannot wait, it keeps Python's lock.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter_ns

import pytest

import gpuprof
from tests.fake_driver.control import HOST_FUNCTION, FakeCuda
from tests.support.stuck_streams import ENTRIES, OTHERS, USES, WAITS, check_stuck

TIMES = 300


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wait", [*WAITS, OTHERS])
def test_a_full_queue_lets_other_threads_run(fake_path: Path, use: str, wait: str) -> None:
    check_stuck(use, wait, fake_path, FAKECUDA_CONFIG=f"queue_entries={ENTRIES}")


def test_records_keep_the_lock_on_a_stream_that_makes_progress(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream)
    timer = gpuprof.Timer(backend="cuda", stream=stream)
    scalar = gpuprof.DeviceScalar(0, stream=stream)
    before = [fake.calls_without_gil(each) for each in ("cuEventRecord", "cuMemsetD32Async")]
    for value in range(TIMES):
        with scope:
            fake.work(stream, 500)
        timer.record_start()
        timer.record_end()
        scalar.update(value)
        fake.advance(10_000)
    after = [fake.calls_without_gil(each) for each in ("cuEventRecord", "cuMemsetD32Async")]
    # After the system has stopped this thread for a while, a few calls let it go.
    assert sum(after) - sum(before) < TIMES / 10
    timer.close()


def test_a_scope_around_a_launch_measures_no_record_but_its_own(
    fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, 500)
    graph = cap.graph
    tries = 0
    for _ in range(1000):
        fake.complete(stream)
        with gpuprof.timer("step", stream=stream):
            fake.work(stream, 10**6)
            begun = perf_counter_ns()
            while perf_counter_ns() < begun + 250_000:  # the stream is due to be asked again
                pass
            before = fake.calls("cuEventRecord")
            graph.launch(stream)
            records = fake.calls("cuEventRecord") - before
        if perf_counter_ns() < begun + 450_000:
            assert records == 0
            tries += 1
        if tries == 20:
            break
    assert tries == 20


@pytest.mark.parametrize("with_host_node", [False, True])
def test_only_graphs_with_host_nodes_are_always_launched_without_the_lock(
    fake: FakeCuda, stream: int, with_host_node: bool
) -> None:
    function = HOST_FUNCTION(lambda _: None)
    with gpuprof.capture(stream) as cap:
        fake.work(stream, 500)
        if with_host_node:
            fake.host_function(stream, function)
    before = fake.calls_without_gil("cuGraphLaunch")
    for _ in range(TIMES):
        begun = perf_counter_ns()
        cap.graph.launch(stream)
        fake.stream_synchronize(stream)
        while perf_counter_ns() < begun + 10_000:  # no GPU is faster
            pass
    without = fake.calls_without_gil("cuGraphLaunch") - before
    assert without == (TIMES if with_host_node else 0)
    cap.graph.close()


def test_a_host_node_in_a_child_graph_counts(fake: FakeCuda, stream: int) -> None:
    function = HOST_FUNCTION(lambda _: None)
    fake.begin_capture(stream)
    fake.host_function(stream, function)
    inner = fake.end_capture(stream)
    fake.begin_capture(stream)
    fake.work(stream, 500)
    outer = fake.end_capture(stream)
    fake.add_child(outer, inner)
    launched = fake.instantiate(outer)
    graph = gpuprof.CapturedGraph.from_handles(outer, launched)
    before = fake.calls_without_gil("cuGraphLaunch")
    graph.launch(stream)
    assert fake.calls_without_gil("cuGraphLaunch") == before + 1
    fake.stream_synchronize(stream)
    graph.close()
    fake.exec_destroy(launched)
    for each in (inner, outer):
        fake.graph_destroy(each)


def test_a_graph_that_is_known_by_its_executable_copy_alone_is_launched_without_the_lock(
    fake: FakeCuda, stream: int
) -> None:
    fake.begin_capture(stream)
    fake.work(stream, 500)
    captured = fake.end_capture(stream)
    launched = fake.instantiate(captured)
    graph = gpuprof.CapturedGraph.from_handles(0, launched)
    before = fake.calls_without_gil("cuGraphLaunch")
    graph.launch(stream)
    assert fake.calls_without_gil("cuGraphLaunch") == before + 1
    graph.close()
    fake.exec_destroy(launched)
    fake.graph_destroy(captured)
