"""What graphs, their events and what they keep live for, in awkward moments, on the fake driver."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Callable

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, await_no_capture, on_another_thread
from tests.support.held import relaxed_collections
from tests.support.torch_blocks import Run

MS = 1_000_000


def finish_inside_a_scope(fake: FakeCuda, stream: int) -> gpuprof.CapturedGraph:
    with gpuprof.capture(stream, timers="collect") as cap, gpuprof.timer("open", stream=stream):
        with gpuprof.timer("whole", stream=stream):
            fake.work(stream, MS)
        return cap.finish()


def lose_an_end(fake: FakeCuda, stream: int) -> gpuprof.CapturedGraph:
    with gpuprof.capture(stream, timers="collect") as cap:
        with gpuprof.timer("whole", stream=stream):
            fake.work(stream, MS)
        with fake.faults("cuEventRecordWithFlags@2=2"), gpuprof.timer("open", stream=stream):
            fake.work(stream, MS)
    return cap.graph


def close_a_timer(fake: FakeCuda, stream: int) -> gpuprof.CapturedGraph:
    timer = gpuprof.Timer("cuda", stream)
    with gpuprof.capture(stream, timers="collect") as cap:
        with gpuprof.timer("whole", stream=stream):
            fake.work(stream, MS)
        timer.record_start()
        timer.record_end()
    timer.close()
    return cap.graph


def use_a_timer_twice(fake: FakeCuda, stream: int) -> gpuprof.CapturedGraph:
    timer = gpuprof.Timer("cuda", stream)
    for _ in range(2):
        with gpuprof.capture(stream, timers="collect") as cap:
            with gpuprof.timer("whole", stream=stream):
                fake.work(stream, MS)
            timer.record_start()
            timer.record_start()
            timer.record_end()
    timer.close()
    return cap.graph


@pytest.mark.parametrize(
    "make", [finish_inside_a_scope, lose_an_end, close_a_timer, use_a_timer_twice]
)
@pytest.mark.filterwarnings("ignore:gpuprof")
def test_events_that_nobody_reads_live_as_long_as_the_graph(
    fake: FakeCuda, stream: int, make: Callable[[FakeCuda, int], gpuprof.CapturedGraph]
) -> None:
    graph = make(fake, stream)
    gc.collect()
    for _ in range(3):
        graph.launch()  # the real driver crashes if an event of a node was destroyed
    (whole,) = (row.gpu for path, row in gpuprof.stats().items() if path.endswith("whole"))
    assert whole is not None
    assert whole.count == 3
    graph.close()


def test_events_of_others_and_collected_timers_do_not_go_together(
    fake: FakeCuda, stream: int
) -> None:
    event = fake.event_create()
    with (
        pytest.raises(errors.InvalidStateError, match="1 events that are not gpuprof's"),
        gpuprof.capture(stream, timers="collect"),
    ):
        with gpuprof.timer("whole", stream=stream):
            fake.work(stream, MS)
        fake.call("cuEventRecordWithFlags", event, stream, 1)
    fake.event_destroy(event)


def test_a_scope_over_two_captures_belongs_to_neither(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("across", stream=stream)
    with gpuprof.capture(stream) as first:
        fake.work(stream, MS)
        sample = scope.__enter__()
    with gpuprof.capture(stream) as second:
        fake.work(stream, MS)
        with pytest.warns(RuntimeWarning, match="in which a timed span began has ended"):
            scope.__exit__(None, None, None)
            gpuprof.flush()
    for cap in (first, second):
        cap.graph.launch()
        assert cap.graph.timings() == {}
        cap.graph.close()
    with pytest.raises(errors.InvalidStateError, match="another one"):
        sample.ms  # noqa: B018


def test_while_timing_is_off_nothing_is_collected(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream, timers="collect", name="step") as cap:
        with gpuprof.timer("inner", stream=stream):
            fake.work(stream, MS)
    graph = cap.graph
    graph.launch()
    gpuprof.flush()
    gpuprof.reset()
    gpuprof.disable()
    records = fake.calls("cuEventRecord")
    for _ in range(3):
        graph.launch()
    assert fake.calls("cuEventRecord") == records
    assert len(gpuprof.stats()) == 0
    gpuprof.enable()
    graph.launch()
    for name in ("inner", "step"):
        row = gpuprof.stats()[name].gpu
        assert row is not None
        assert row.count == 1
    graph.close()


def test_a_timer_in_a_broken_capture_is_not_blamed_on_others(fake: FakeCuda, stream: int) -> None:
    with pytest.raises(errors.CaptureError), gpuprof.capture(stream):
        fake.call("cuStreamQuery", stream, expect=None)
        with gpuprof.timer("late", stream=stream):
            pass
    gpuprof.flush()  # where warnings are errors


def test_collections_are_as_before_after_a_thread_left_its_capture(
    fake: FakeCuda, stream: int
) -> None:
    def begin() -> None:
        gpuprof.begin_capture(stream)
        fake.work(stream, US)

    callbacks = list(gc.callbacks)
    on_another_thread(begin)
    await_no_capture(fake, stream)
    gpuprof.flush()
    assert relaxed_collections() == 0
    assert gc.callbacks == callbacks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this Python build has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_collections_are_as_before_in_a_child_that_was_forked_beside_a_capture(
    fake: FakeCuda, stream: int
) -> None:
    begun, done = threading.Event(), threading.Event()
    callbacks = list(gc.callbacks)

    def hold() -> None:
        with gpuprof.capture(stream):
            fake.work(stream, US)
            begun.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        os._exit(0 if gc.callbacks == callbacks and relaxed_collections() == 0 else 1)
    assert gc.callbacks != callbacks
    done.set()
    thread.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert gc.callbacks == callbacks


def test_a_forked_child_is_told_before_a_lock_that_nobody_gives_back(in_cuda: Run) -> None:
    in_cuda("""
import os, threading
from gpuprof import errors
with gpuprof.capture(stream) as cap:
    fake.kernel(stream, "add_k", 1000)
graph = cap.graph
stop = threading.Event()
def look():
    while not stop.is_set():
        graph.num_nodes
threads = [threading.Thread(target=look) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(30):
    child = os.fork()
    if child == 0:
        for use in (graph.launch, lambda: graph.num_nodes, graph.timings, graph.upload):
            try:
                use()
            except errors.ForkedProcessError:
                continue
            os._exit(1)
        graph.close()
        os._exit(0 if graph.closed else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
stop.set()
for thread in threads:
    thread.join()
graph.launch()
assert graph.num_replays == 1
""")


def test_a_graph_closed_while_torch_launches_it_keeps_what_the_launch_needs(
    in_torch: Run,
) -> None:
    in_torch("""
import gc, threading, weakref
class Buffer:
    pass
buffer = Buffer()
alive = weakref.ref(buffer)
with gpuprof.capture(name="step", keep_alive=[buffer]) as cap:
    launch("add_k")
graph = cap.graph
del buffer, cap
kind = type(graph._by_torch.graph)
replay = kind.replay
def closing_replay(self):
    thread = threading.Thread(target=graph.close)
    thread.start()
    thread.join()
    replay(self)
kind.replay = closing_replay
fake.configure("mode=manual")
graph.launch()
gpuprof._core._drain_kept()
assert graph.closed
assert alive() is not None, "the launch needs it"
fake.configure("mode=auto")
fake.stream_synchronize(0)
gpuprof.flush()
del graph
gc.collect()
assert alive() is None
""")
