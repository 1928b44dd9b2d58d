"""`CapturedGraph` on the fake driver: launching, uploading, updating, closing, what it keeps."""

from __future__ import annotations

import gc
import weakref

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.captures import US, Buffer, captured
from tests.support.held import samples_in_memory
from tests.support.threads import in_threads

MS = 1_000_000


def test_each_launch_runs_the_graph_once_on_the_stream_that_is_named(
    fake: FakeCuda, stream: int, other: int
) -> None:
    with captured(fake, stream, ns=MS) as graph:
        for launch_on in (stream, other, other):
            before = fake.now()
            graph.launch(launch_on)
            fake.stream_synchronize(launch_on)
            assert fake.now() - before == pytest.approx(MS, rel=0.1)
        assert graph.num_replays == 3
        graph.launch(stream=other)
        fake.stream_synchronize(other)


def test_without_a_framework_a_launch_goes_to_the_captures_stream(
    fake: FakeCuda, stream: int
) -> None:
    with captured(fake, stream, ns=MS) as graph:
        graph.launch()
        assert fake.stream_query(stream) == 600
        fake.stream_synchronize(stream)


def test_upload_is_idempotent_and_done_by_a_launch_too(fake: FakeCuda, stream: int) -> None:
    uploads = fake.calls("cuGraphUpload")
    with captured(fake, stream) as graph:
        assert not graph.is_uploaded
        for _ in range(3):
            graph.upload(stream)
            assert graph.is_uploaded
    assert fake.calls("cuGraphUpload") == uploads + 1
    with captured(fake, stream) as graph:
        graph.launch()
        assert graph.is_uploaded
        graph.upload()
    with captured(fake, stream, upload=True) as graph:
        assert graph.is_uploaded
    assert fake.calls("cuGraphUpload") == uploads + 2


def test_memory_that_nobody_knows_is_none() -> None:
    unknown = gpuprof.results.GraphMemory(None, None)
    assert unknown.total is None
    assert gpuprof.results.GraphMemory(None, 4096).total == 4096
    assert "None" in unknown._repr_html_()


def test_memory_is_what_the_device_had_less_of(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream, *["k"] * 10) as small, captured(fake, stream, *["k"] * 100) as big:
        assert small.memory.instantiate is not None
        assert big.memory.instantiate is not None
        assert big.memory.instantiate == 10 * small.memory.instantiate > 0
        assert small.memory.upload is None
        assert small.memory.to_dict()["total"] == small.memory.instantiate


@pytest.mark.parametrize("call", ["launch", "upload"])
def test_a_launch_into_a_capture_is_refused_and_the_capture_lives_on(
    fake: FakeCuda, stream: int, other: int, call: str
) -> None:
    with captured(fake, stream) as graph:
        with gpuprof.capture(other) as cap:
            fake.work(other, US)
            with pytest.raises(errors.InvalidStateError, match="captured"):
                getattr(graph, call)(other)
        assert cap.graph.num_nodes == 1
        cap.graph.close()


@pytest.mark.parametrize(
    "use",
    [
        "launch",
        "upload",
        "timings",
        "num_nodes",
        "raw_graph",
        "raw_exec",
        "nodes",
        "edges",
        "signature",
    ],
)
def test_a_closed_graph_says_so(fake: FakeCuda, stream: int, use: str) -> None:
    graph = captured(fake, stream)
    graph.close()
    graph.close()
    assert graph.closed
    assert "closed" in repr(graph)
    assert "closed" in graph._repr_html_()
    with pytest.raises(errors.InvalidStateError, match="closed"):
        value = getattr(graph, use)
        value()


def test_bad_launch_arguments_are_type_errors(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph:
        for arguments, named in (
            ((1, 2), {}),
            ((), {"on": 1}),
            (("x",), {}),
            ((stream,), {"stream": 1}),
        ):
            with pytest.raises(TypeError):
                graph.launch(*arguments, **named)  # type: ignore[arg-type]
        assert graph.num_replays == 0


def test_graphs_are_made_by_captures_alone() -> None:
    with pytest.raises(TypeError, match=r"gpuprof\.capture"):
        gpuprof.CapturedGraph()


def test_what_a_graph_keeps_alive_goes_when_its_last_replay_is_over(
    fake: FakeCuda, stream: int
) -> None:
    buffer = Buffer()
    alive = weakref.ref(buffer)
    graph = captured(fake, stream, ns=MS, keep_alive=[buffer])
    del buffer
    graph.launch()
    graph.close()
    assert fake.stream_query(stream) == 600
    assert alive() is not None
    fake.stream_synchronize(stream)
    gpuprof.flush()
    assert alive() is None


def test_a_dropped_graph_lets_go_of_everything_without_the_collector(
    fake: FakeCuda, stream: int
) -> None:
    buffer, pool = Buffer(), gpuprof.CapturePool()
    pool.record_buffer(buffer)
    alive = weakref.ref(buffer)
    gc.disable()
    try:
        graph = captured(fake, stream, keep_alive=[buffer], pool=pool)
        graph.launch()
        fake.stream_synchronize(stream)
        del buffer, pool, graph
        for _ in range(1000):  # the interpreter looks for such work now and then
            if alive() is None:
                break
        assert alive() is None
    finally:
        gc.enable()


def test_a_graph_has_the_pool_of_its_capture(fake: FakeCuda, stream: int) -> None:
    pool = gpuprof.CapturePool()
    pool.record_buffer(Buffer())
    with captured(fake, stream, pool=pool) as graph, captured(fake, stream) as without:
        assert graph.pool is pool
        assert graph.has_pool
        assert graph.pool_buffer_count == 1
        assert (without.pool, without.has_pool, without.pool_buffer_count) == (None, False, 0)


def test_begin_and_end_name_the_same_pool(fake: FakeCuda, stream: int) -> None:
    pool = gpuprof.CapturePool()
    gpuprof.begin_capture(stream, pool=pool)
    fake.work(stream, US)
    with pytest.raises(errors.InvalidStateError, match="pool"):
        gpuprof.end_capture(stream, pool=gpuprof.CapturePool())
    with gpuprof.end_capture(stream, pool=pool) as graph:
        assert graph.pool is pool


def test_a_launch_after_the_pool_was_cleared_warns_once(fake: FakeCuda, stream: int) -> None:
    pool = gpuprof.CapturePool()
    pool.record_buffer(Buffer())
    with captured(fake, stream, pool=pool, name="step") as graph:
        graph.launch()
        pool.clear_buffers()
        with pytest.warns(RuntimeWarning, match=r"step.*clear_buffers") as caught:
            graph.launch()
        assert caught[0].filename == __file__
        graph.launch()
        assert graph.num_replays == 3


def test_handles_of_others_can_be_replayed_and_looked_into_and_stay_theirs(
    fake: FakeCuda, stream: int
) -> None:
    fake.begin_capture(stream)
    fake.kernel(stream, "add_k", MS)
    graph = fake.end_capture(stream)
    launched = fake.instantiate(graph)
    with gpuprof.CapturedGraph.from_handles(graph, launched, name="theirs") as mine:
        assert mine.kernel_names() == ["add_k"]
        assert (mine.raw_graph, mine.raw_exec) == (graph, launched)
        mine.launch(stream)
    fake.graph_launch(launched, stream)
    with gpuprof.CapturedGraph.from_handles(0, launched) as blind:
        blind.launch(stream)
        with pytest.raises(errors.InvalidStateError, match="executable"):
            blind.nodes  # noqa: B018
        assert "<code>" in blind._repr_html_()
    fake.stream_synchronize(stream)
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)


@pytest.mark.parametrize(
    ("handles", "error"), [((1.0, 2), TypeError), ((0, 0), ValueError), ((-1, 2), ValueError)]
)
def test_what_is_no_handle_is_refused(handles: tuple[int, int], error: type[Exception]) -> None:
    with pytest.raises(error, match=r"graph:|exec:"):
        gpuprof.CapturedGraph.from_handles(*handles)


def test_many_threads_launch_one_graph(fake: FakeCuda, stream: int) -> None:
    context = fake.current_context()
    with captured(fake, stream) as graph:

        def run() -> None:
            fake.set_current(context)
            for _ in range(50):
                graph.launch(stream)

        in_threads(*[run] * 8)
        assert graph.num_replays == 400
        fake.stream_synchronize(stream)


def test_a_thousand_captures_leave_memory_as_it_was(fake: FakeCuda, stream: int) -> None:
    captured(fake, stream).close()
    free = fake.memory_info()[0]
    samples = samples_in_memory()
    for _ in range(1000):
        captured(fake, stream).close()
    assert fake.memory_info()[0] == free
    assert samples_in_memory() == samples


def test_a_failed_launch_is_typed_and_not_counted(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph:
        with fake.faults("cuGraphLaunch@1=2"), pytest.raises(errors.CudaError) as caught:
            graph.launch()
        assert caught.value.call == "cuGraphLaunch"
        assert graph.num_replays == 0
        graph.launch()
        assert graph.num_replays == 1


def test_a_graph_is_shown_in_words(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream, "a", "b", name="decode") as graph:
        graph.launch()
        assert repr(graph) == "<gpuprof.CapturedGraph 'decode': 2 nodes, 1 replays, device 0>"
        assert "decode" in graph._repr_html_()
