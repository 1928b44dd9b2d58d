"""`gpuprof.compat.Event`, `graph` and `CUDAGraph`: on the host's clock and on the fake driver."""

from __future__ import annotations

import gc
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from gpuprof.compat import CUDAGraph, Event, graph, graph_pool_handle, make_graphed_callables
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_cuda, check_python

MS = 1_000_000
TICK_MS = 2e-3  # what the fake adds for a record, and its clock's tick


# Events


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
    with pytest.raises(errors.InvalidStateError, match="never recorded"):
        start.elapsed_time(end)
    start.record(stream)
    with pytest.raises(errors.InvalidStateError, match="never recorded"):
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
    fake.work(stream, 5 * MS)
    start.record(stream)
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
    with pytest.raises(errors.InvalidStateError, match="enable_timing=True"):
        start.elapsed_time(end)
    with pytest.raises(TypeError, match=r"end_event: expected a gpuprof.compat.Event, got 3"):
        end.elapsed_time(3)  # type: ignore[arg-type]


@pytest.mark.parametrize("argument", ["interprocess", "external"])
def test_what_an_event_cannot_do_is_refused_with_what_to_do(argument: str) -> None:
    given: dict[str, Any] = {argument: True}
    with pytest.raises(ValueError, match=rf"{argument}: .*no such thing; use "):
        Event(**given)


def test_dropped_events_give_their_place_back(fake: FakeCuda, stream: int) -> None:
    events = [Event() for _ in range(4096)]
    for event in events:
        event.record(stream)
    with pytest.raises(errors.InvalidStateError, match="all 4096 event pairs"):
        Event().record(stream)
    del events, event
    gc.collect()
    Event().record(stream)


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


def test_a_forked_child_is_told_that_the_event_is_its_parents(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        from gpuprof import errors
        from gpuprof.compat import Event
        event = Event(enable_timing=True)
        event.record(stream)
        event.synchronize()
        child = os.fork()
        if child == 0:
            for use in (event.query, event.synchronize, lambda: event.record(stream)):
                try:
                    use()
                except errors.ForkedProcessError:
                    print("refused", flush=True)
            del event
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print(event.query())
        """,
    )
    assert out.split() == ["refused"] * 3 + ["True"]


def test_an_event_of_a_lost_context_is_an_error_and_can_be_recorded_anew(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
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
        """,
    )
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


# Graphs


def test_a_block_is_captured_into_the_graph(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    with graph(g, stream=stream) as nothing:
        fake.kernel(stream, "add_k", 5_000)
    assert nothing is None
    before = fake.now()
    for _ in range(3):
        g.replay()
    fake.stream_synchronize(stream)
    assert fake.now() - before >= 15_000
    assert g.graph.num_replays == 3
    assert g.graph.kernel_names() == ["add_k"]
    assert g.raw_cuda_graph() == g.graph.raw_graph != 0
    assert g.raw_cuda_graph_exec() == g.graph.raw_exec != 0
    g.instantiate()
    g.reset()


def test_a_graph_without_a_capture_says_so(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    for use in (g.replay, g.instantiate, g.pool, lambda: g.graph):
        with pytest.raises(errors.InvalidStateError, match=r"capture (one|it) first"):
            use()
    with pytest.raises(errors.InvalidStateError, match="not being captured"):
        g.capture_end()
    g.reset()
    assert repr(g) == "<gpuprof.compat.CUDAGraph, not captured>"


def test_a_reset_graph_is_captured_again_and_another_must_be_reset_first(
    fake: FakeCuda, stream: int
) -> None:
    g = CUDAGraph(keep_graph=True)
    with graph(g, stream=stream):
        fake.work(stream, MS)
    with pytest.raises(errors.InvalidStateError, match=r"has a graph already; call reset\(\)"):
        with graph(g, stream=stream):
            pass
    g.reset()
    with pytest.raises(errors.InvalidStateError):
        g.replay()
    with graph(g, stream=stream):
        fake.work(stream, MS)
        fake.work(stream, MS)
    assert g.graph.num_nodes == 2
    g.reset()


def test_an_exception_in_the_block_leaves_no_graph_and_comes_out(
    fake: FakeCuda, stream: int
) -> None:
    g = CUDAGraph()
    with pytest.raises(KeyError, match="mine"), graph(g, stream=stream):
        raise KeyError("mine")
    assert not gpuprof.is_stream_capturing(stream)
    with graph(g, stream=stream):
        fake.work(stream, MS)
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


def test_an_empty_block_is_a_graph_as_in_torch(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    with graph(g, stream=stream):
        pass
    assert g.graph.num_nodes == 0
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_capture_has_the_mode_that_is_asked_for(fake: FakeCuda, stream: int, mode: str) -> None:
    g = CUDAGraph()
    with graph(g, stream=stream, capture_error_mode=mode):
        (mine,) = gpuprof.capture_info(stream).open_captures
        assert mine.mode.name.lower() == mode
    g.reset()


def test_graphs_share_a_pool(fake: FakeCuda, stream: int) -> None:
    first, second, third = CUDAGraph(), CUDAGraph(), CUDAGraph()
    handle = graph_pool_handle()
    with graph(first, pool=handle, stream=stream):
        fake.work(stream, MS)
    with graph(second, pool=first.pool(), stream=stream):
        fake.work(stream, MS)
    with graph(third, stream=stream):
        fake.work(stream, MS)
    assert first.pool() is second.pool() is gpuprof.capture_pool_for_handle(handle)
    assert third.pool() is not first.pool()
    for g in (first, second, third):
        g.reset()


def test_a_handle_of_torchs_allocator_is_one_pool(fake: FakeCuda, stream: int) -> None:
    first, second = CUDAGraph(), CUDAGraph()
    for g in (first, second):
        with graph(g, pool=(0, 7), stream=stream):
            fake.work(stream, MS)
    assert first.pool() is second.pool()
    assert first.pool()._torch_handle() == (0, 7)
    for g in (first, second):
        g.reset()


def test_graphed_callables_share_the_pool_that_is_named(cupy: Any) -> None:
    calls: list[str] = []

    def function(name: str) -> None:
        calls.append(name)
        cupy.launch()

    handle = graph_pool_handle()
    one = make_graphed_callables(lambda: function("one"), (), 0, pool=handle)
    two, three = make_graphed_callables(
        (lambda: function("two"), lambda: function("three")), ((), ()), 0, pool=handle
    )
    assert calls == ["one", "two", "three"]
    for graphed in (one, two, three):
        graphed()
        assert graphed.graph.num_replays == 1
        assert graphed.graph.pool is gpuprof.capture_pool_for_handle(handle)
    assert calls == ["one", "two", "three"]
    gpuprof.release_graph_pool_handle(handle)


@pytest.mark.usefixtures("cupy")
def test_graphed_callables_check_their_arguments() -> None:
    with pytest.raises(TypeError, match="pool: expected what graph_pool_handle"):
        make_graphed_callables(print, (), pool=3)
    with pytest.raises(TypeError, match="sample_args: expected a tuple of 2"):
        make_graphed_callables((print, print), ((),))


def test_an_event_in_a_capture_orders_its_streams(fake: FakeCuda, stream: int, other: int) -> None:
    g, fork, join = CUDAGraph(), Event(), Event()
    with graph(g, stream=stream):
        fork.record(stream)
        fork.wait(other)
        fake.work(other, MS)
        join.record(other)
        join.wait(stream)
        fake.work(stream, MS)
    assert g.graph.num_nodes == 2
    assert len(g.graph.edges) == 1
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


def test_a_graph_is_written_as_dot(fake: FakeCuda, stream: int, tmp_path: Path) -> None:
    g = CUDAGraph()
    g.enable_debug_mode()
    with graph(g, stream=stream):
        fake.kernel(stream, "add_k", 5_000)
    g.debug_dump(tmp_path / "g.dot")
    assert "add_k" in (tmp_path / "g.dot").read_text(encoding="utf-8")
    g.reset()


def test_wrong_arguments_are_errors_at_the_call(fake: FakeCuda, stream: int) -> None:
    with pytest.raises(TypeError, match=r"cuda_graph: expected a gpuprof.compat.CUDAGraph, got"):
        graph(object())  # type: ignore[arg-type]
    for argument in ("enable_annotations", "check_input_liveness"):
        given: dict[str, Any] = {argument: True}
        with pytest.raises(ValueError, match=f"{argument}: .*no such thing"):
            graph(CUDAGraph(), **given)
    with pytest.raises(ValueError, match="check_input_liveness"):
        CUDAGraph().capture_begin(check_input_liveness=True)
    with pytest.raises(TypeError, match="pool: expected what graph_pool_handle"):
        with graph(CUDAGraph(), pool=3, stream=stream):
            pass
    with pytest.raises(ValueError, match="mode"):
        with graph(CUDAGraph(), stream=stream, capture_error_mode="strict"):
            pass
    assert not gpuprof.is_stream_capturing(stream)


def test_without_cuda_a_capture_says_that_there_is_none() -> None:
    out = check_python(
        """
        from gpuprof import errors
        from gpuprof.compat import CUDAGraph, graph, graph_pool_handle
        assert not graph_pool_handle()
        try:
            with graph(CUDAGraph(), pool=graph_pool_handle()):
                pass
        except errors.CudaUnavailableError:
            print("unavailable")
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert out.strip() == "unavailable"


def test_events_of_many_threads_do_not_meet(fake: FakeCuda, stream: int) -> None:
    failures: list[BaseException] = []

    def measure() -> None:
        try:
            for _ in range(50):
                start, end = Event(True), Event(True)
                start.record(stream)
                end.record(stream)
                end.synchronize()
                assert start.elapsed_time(end) >= 0
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
