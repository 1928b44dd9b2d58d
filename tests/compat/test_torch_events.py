"""`gpuprof.compat.Event`: on the host's clock, on the fake driver and in graphs."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from gpuprof.compat import CUDAGraph, Event, graph
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_cuda, check_python
from tests.support.threads import in_threads
from tests.support.torch_blocks import Run

MS = 1_000_000
TICK_MS = 2e-3  # what the fake adds for a record, and its clock's tick


def test_events_measure_what_the_stream_did_between_them(fake: FakeCuda, stream: int) -> None:
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    start.record(stream)
    fake.work(stream, 3 * MS)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(3, abs=TICK_MS)
    assert end.elapsed_time(start) == pytest.approx(-3, abs=TICK_MS)
    assert start.cuda_event not in {0, end.cuda_event}
    assert repr(start) == "<gpuprof.compat.Event, cuda>"


def test_an_event_is_reached_when_the_gpu_is_there(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    event = Event()
    assert event.query()  # never recorded
    fake.work(stream, MS)
    event.record(stream)
    assert not event.query()
    fake.complete(stream)
    assert event.query()


def test_a_time_is_refused_before_both_events_are_reached(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    start, end = Event(enable_timing=True), Event(enable_timing=True)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record(stream)
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    fake.work(stream, MS)
    end.record(stream)
    with pytest.raises(errors.InvalidStateError, match=r"not reached both.*synchronize\(\)"):
        start.elapsed_time(end)
    fake.complete(stream)
    assert start.elapsed_time(end) == pytest.approx(1, abs=TICK_MS)


def test_a_second_record_moves_the_event(fake: FakeCuda, stream: int) -> None:
    start, end = Event(True), Event(True)
    start.record(stream)
    handle = start.cuda_event
    fake.work(stream, 5 * MS)
    start.record(stream)
    assert start.cuda_event == handle
    fake.work(stream, MS)
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(1, abs=TICK_MS)


def test_another_stream_waits_for_an_event(fake: FakeCuda, stream: int, other: int) -> None:
    done = Event()
    done.wait(other)  # never recorded: nothing to wait for
    fake.work(stream, 4 * MS)
    done.record(stream)
    done.wait(other)
    assert fake.stream_tail(other) >= fake.stream_tail(stream) - MS


def test_without_timing_there_is_no_time(fake: FakeCuda, stream: int) -> None:
    start, end = Event(), Event(enable_timing=True)
    start.record(stream)
    end.record(stream)
    end.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        start.elapsed_time(end)
    with pytest.raises(TypeError, match=r"end_event: expected a gpuprof.compat.Event, got 3"):
        end.elapsed_time(3)  # type: ignore[arg-type]


def test_what_an_event_cannot_do_is_refused_with_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"interprocess: .*no such thing; use "):
        Event(interprocess=True)


def test_events_are_many_and_leave_scopes_theirs(fake: FakeCuda, stream: int) -> None:
    events = [Event(enable_timing=True) for _ in range(5000)]
    for event in events:
        event.record(stream)
    with gpuprof.timer("beside them", stream=stream):
        fake.work(stream, MS)
    fake.stream_synchronize(stream)
    assert events[0].elapsed_time(events[-1]) > 0
    assert gpuprof.stats()["beside them"].gpu.count == 1
    assert len({event.cuda_event for event in events}) == 5000


def test_an_event_knows_its_device_from_its_first_record_on(fake: FakeCuda, stream: int) -> None:
    event = Event()
    assert event.device is None
    event.record(stream)
    assert str(event.device) == "cuda:0"
    assert event.event_id == event.cuda_event


def test_external_events_have_the_time_of_each_replay(fake: FakeCuda, stream: int) -> None:
    start, end = Event(True, external=True), Event(True, external=True)
    g = CUDAGraph()
    with graph(g, stream=stream):
        start.record(stream)
        fake.work(stream, 3 * MS)
        end.record(stream)
    assert [node.type for node in g.graph.nodes].count("event_record") == 2
    assert start.query()  # nothing was recorded yet
    with pytest.raises(errors.NotReplayedError, match="launch the graph"):
        start.elapsed_time(end)
    for _ in range(2):
        g.replay()
        end.synchronize()
        assert start.elapsed_time(end) == pytest.approx(3, abs=2 * TICK_MS)
    start.record(stream)  # outside of a capture as any other
    end.record(stream)
    end.synchronize()
    assert start.elapsed_time(end) == pytest.approx(0, abs=2 * TICK_MS)
    g.reset()


def test_an_external_event_makes_one_graph_wait_for_another_and_lives_as_long(
    fake: FakeCuda, stream: int, other: int
) -> None:
    first, second, done = CUDAGraph(), CUDAGraph(), Event(external=True)
    with graph(first, stream=stream):
        fake.work(stream, 4 * MS)
        done.record(stream)
    with graph(second, stream=other):
        done.wait(other)
    assert [node.type for node in second.graph.nodes] == ["event_wait"]
    del done
    for _ in range(2):
        first.graph.launch(stream)
        second.graph.launch(other)
        assert fake.stream_tail(other) >= fake.stream_tail(stream) - MS
        fake.stream_synchronize(other)
    first.reset()
    second.reset()


def test_a_refused_record_is_an_error_with_cudas_name(fake: FakeCuda, stream: int) -> None:
    with fake.faults("cuEventRecord@1=400"), pytest.raises(errors.CudaError) as caught:
        Event().record(stream)
    assert (caught.value.code, caught.value.call) == (400, "cuEventRecord")


def test_events_of_a_process_without_cuda_have_the_hosts_time() -> None:
    out = check_python(
        """
        import time
        from gpuprof.compat import Event
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record()
        time.sleep(0.02)
        end.record()
        end.synchronize()
        end.wait()
        print(start.elapsed_time(end) >= 20, start.query(), start.cuda_event, repr(end))
        """
    )
    assert out.strip() == "True True 0 <gpuprof.compat.Event, cpu>"


def test_events_of_both_clocks_have_no_time_between_them(fake_path: Path) -> None:
    out = check_python(
        """
        import os
        from gpuprof import errors
        from gpuprof.compat import Event
        from tests.fake_driver.control import FakeCuda
        start, end = Event(enable_timing=True), Event(enable_timing=True)
        start.record()
        FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"]).use_primary()
        end.record()
        try:
            start.elapsed_time(end)
        except errors.InvalidStateError as error:
            print(error)
        """,
        driver=fake_path,
    )
    assert "one event has the host's time and the other the GPU's" in out


def test_a_forked_child_is_told_that_the_event_is_its_parents(in_cuda: Run) -> None:
    out = in_cuda("""
        from gpuprof import errors
        from gpuprof.compat import Event
        event = Event(enable_timing=True)
        event.record(stream)
        event.synchronize()
        child = os.fork()
        if child == 0:
            for use in (
                event.query, event.synchronize, event.wait, lambda: event.record(stream),
                lambda: event.elapsed_time(event),
            ):
                try:
                    use()
                except errors.ForkedProcessError:
                    print("refused", flush=True)
            del event
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(event.query())
        """)
    assert out.split() == ["refused"] * 5 + ["True"]


def test_an_event_of_a_lost_context_is_an_error_and_can_be_recorded_anew(in_cuda: Run) -> None:
    out = in_cuda("""
        from gpuprof import errors
        from gpuprof.compat import Event
        event = Event()
        event.record(stream)
        fake.primary_reset()
        try:
            event.query()
        except errors.GpuprofError as error:
            print(type(error).__name__)
        fake.use_primary()
        event.record(fake.stream_create())
        event.synchronize()
        print(event.query())
        """)
    assert out.split()[1] == "True"


def test_a_record_in_another_context_changes_no_event_under_other_threads(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        from gpuprof.compat import Event
        other = fake.context_create()
        there = fake.stream_create()
        fake.set_current(context)
        fake.configure(mode="manual")
        event = Event()
        event.record(stream)
        first = event.cuda_event
        fake.script("cuEventRecord@1=0:block")
        thread = threading.Thread(target=lambda: (fake.set_current(other), event.record(there)))
        thread.start()
        while not fake.report()["blocked_calls"]:
            time.sleep(0.001)
        print(event.query(), event.cuda_event == first)
        fake.release()
        thread.join()
        print(event.query(), event.cuda_event == first)
        fake.complete(stream)
        fake.complete(there)
        """,
        GPUPROF_RELEASE_GIL="1",
    )
    assert out.splitlines() == ["False True", "False False"]


def test_an_event_does_not_pickle() -> None:
    with pytest.raises(TypeError, match="make a new one"):
        pickle.dumps(Event())


def test_events_of_many_threads_do_not_meet(fake: FakeCuda, stream: int) -> None:
    def measure() -> None:
        for _ in range(50):
            start, end = Event(True), Event(True)
            start.record(stream)
            end.record(stream)
            end.synchronize()
            assert start.elapsed_time(end) >= 0

    in_threads(*[measure] * 4)
