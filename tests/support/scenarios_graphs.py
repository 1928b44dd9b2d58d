"""What a user can do with captures, graphs and scalars on the device: rows of `SCENARIOS`.

Each does several things, because every driver call that they share would be swept once for each.
"""

from __future__ import annotations

import json
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import gpuprof
from gpuprof import compat
from tests.support.callables import twice
from tests.support.scenarios import Stage, scenario
from tests.support.stand_in_cupy import installed


def _graph(stage: Stage, works: int = 1, **options: object) -> gpuprof.CapturedGraph:
    with gpuprof.capture(stage.stream, **options) as cap:  # type: ignore[arg-type]
        for _ in range(works):
            stage.work()
    return cap.graph


@scenario
def graphs_captured_and_replayed(stage: Stage) -> None:
    pool = gpuprof.CapturePool()
    pool.record_buffer(object())
    graph = _graph(stage, name="scenario", keep_alive=[object()], pool=pool, upload=True)
    for _ in range(3):
        graph.launch(stage.stream)
    assert graph.num_replays == 3
    assert graph.pool_buffer_count == 1
    graph.close()
    _graph(stage).launch(stage.stream)  # and dropped while it runs


@scenario
def captures_by_functions_and_guards(stage: Stage) -> None:
    gpuprof.begin_capture(stage.stream, mode="relaxed")
    try:
        stage.work()
        capturing = gpuprof.is_stream_capturing(stage.stream)
        listed = gpuprof.capture_info(stage.stream).open_captures
    finally:
        graph = gpuprof.end_capture(stage.stream)
    assert capturing
    assert [each.stream for each in listed] == [stage.stream]
    graph.launch(stage.stream)
    guard = gpuprof.GraphCaptureGuard(stage.stream)
    stage.work()
    guard.abort()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        guard = gpuprof.GraphCaptureGuard(stage.stream)
        stage.work()
        del guard
    assert gpuprof.capture_status(stage.stream) is gpuprof.CaptureStatus.NONE


@scenario
def captured_bodies_that_fail(stage: Stage) -> None:
    mine = KeyError("mine")
    unchanged = broken = False
    try:
        with gpuprof.capture(stage.stream):
            stage.work()
            raise mine
    except KeyError as error:
        unchanged = error is mine
    del mine  # its traceback holds this frame
    assert unchanged
    try:
        with gpuprof.capture(stage.stream):
            stage.work()
            with stage.aside() as fake:
                fake.stream_query(stage.stream)
    except gpuprof.errors.CaptureError as error:
        error.__traceback__ = None
        broken = True
    assert broken
    _graph(stage).close()


@scenario
def graphs_looked_into_and_updated(stage: Stage) -> None:
    graph, other = _graph(stage, keep_alive=[object()]), _graph(stage, works=2)
    assert graph.kernel_names() in (["work"], [""])  # a driver that does not tell is no failure
    assert other.edges == ((0, 1),)
    assert graph.diff(other)
    assert "work" in graph.to_dot() or graph.kernel_names() == [""]
    total = graph.memory.total
    assert total is None or total >= 0
    graph.launch(stage.stream)
    graph.update(_graph(stage, keep_alive=[object()]))
    graph.launch(stage.stream)
    refused = False
    try:
        graph.update(other)
    except gpuprof.errors.GraphUpdateError as error:
        error.__traceback__ = None
        refused = True
    assert refused


@scenario
def nodes_of_all_types(stage: Stage) -> None:
    with gpuprof.capture(stage.stream) as cap, stage.aside() as fake:
        fake.kernel(stage.stream, "mine", of_library=True)
        fake.copy(stage.stream, 64)
        address = fake.stream_allocate(64, stage.stream)
        fake.call("cuMemsetD32Async", address, 1, 16, stage.stream)
        fake.stream_free(address, stage.stream)
        other = fake.stream_create()
        fake.begin_capture(other)
        fake.kernel(other, "inner")
        child = fake.end_capture(other)
        fake.add_child(fake.captured_graph(stage.stream), child)
        fake.graph_destroy(child)
        fake.stream_destroy(other)
    types = {node.type for node in cap.graph.nodes}
    assert types >= {"kernel", "memcpy", "memset", "mem_alloc", "graph"}


@scenario
def timers_in_a_graph(stage: Stage) -> None:
    with gpuprof.capture(stage.stream) as cap:
        for _ in range(2):
            with gpuprof.timer("inside", stream=stage.stream, backend="cuda"):
                stage.work()
    cap.graph.launch(stage.stream)
    timings = cap.graph.timings()
    assert all(ms is None or ms > 0.019 for span in timings.values() for ms in span.values)
    with suppress(gpuprof.errors.InvalidStateError):  # only a driver of CUDA 13.1 tells them
        assert set(cap.graph.scopes_by_node_id().values()) <= {"inside"}


@scenario
def timers_in_a_graph_collected_into_a_trace(stage: Stage) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "run.json")
        with gpuprof.trace(path):
            with gpuprof.capture(stage.stream, timers="collect", name="scenario") as cap:
                with gpuprof.timer("inside", stream=stage.stream, backend="cuda"):
                    stage.work()
            for _ in range(2):
                cap.graph.launch(stage.stream)
            gpuprof.stats()
        assert "traceEvents" in json.loads(path.read_text())


@scenario
def scalars_on_the_device(stage: Stage) -> None:
    for dtype, value in (("int8", -3), ("float16", 1.5), ("float32", 2.5), ("int64", 1 << 40)):
        scalar = gpuprof.DeviceScalar(0, dtype, stage.stream)
        scalar.update(value, stage.stream)
        assert scalar.get() == value
    with gpuprof.capture(stage.stream) as cap:
        scalar.update(7, stage.stream, record=True)
    cap.graph.launch(stage.stream)
    assert scalar.get() == 7


@scenario
def graphed_calls(stage: Stage) -> None:
    with installed(stage.fake, stream=stage.stream, spared=True) as cupy:
        short, long = cupy.array([1.0]), cupy.array([2.0, 3.0])
        fast = gpuprof.make_graphed_callable(twice(cupy), (short,), warmup=1)
        for x in (short, long, cupy.array([4.0]), long):
            assert fast(x).tolist() == x.tolist() * 2
        fast.reset()
        assert fast(short).tolist() == [1, 1]
        del fast

        out = cupy.array([0.0])

        def swap(x: Any) -> Any:
            out[...] = x
            x[...] = short
            return out

        fast = gpuprof.make_graphed_callable(swap, (long[:1],), warmup=1, outputs="static")
        for value in (5.0, 6.0):
            x = cupy.array([value])
            assert (fast(x).tolist(), x.tolist()) == ([value], [1])
        del fast, x, swap

        fast = gpuprof.make_graphed_callable(out.copy, ())
        assert fast().tolist() == [6]
        fast.launch()


@scenario
def events_and_graphs_of_torchs_names(stage: Stage) -> None:
    start, end = compat.Event(enable_timing=True), compat.Event(enable_timing=True)
    g = compat.CUDAGraph()
    try:
        start.record(stage.stream)
        stage.work()
        end.record(stage.stream)
        end.wait(stage.stream)
        end.synchronize()
        assert end.query()
        assert start.elapsed_time(end) > 0.019
        with compat.graph(g, stream=stage.stream):
            stage.work()
        g.replay()
    finally:
        g.reset()
