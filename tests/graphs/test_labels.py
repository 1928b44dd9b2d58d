"""Scopes of a capture on the nodes of its graph, and by the numbers that profilers give nodes."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import gpuprof
from gpuprof._graphs import labels
from gpuprof.errors import InvalidStateError
from tests.fake_driver import control
from tests.fake_driver.control import FakeCuda
from tests.support.cupti import node_numbers
from tests.support.processes import check_cuda

TIMERS = pytest.mark.parametrize("timers", ["last", "collect", "strip"])


def scopes(graph: gpuprof.CapturedGraph) -> dict[str, str]:
    """Return the scopes of the kernels by their names."""
    return {node.name: node.scope for node in graph.nodes if node.type == "kernel"}


def captured(
    fake: FakeCuda, stream: int, first: str = "first", **options: str
) -> gpuprof.CapturedGraph:
    """Capture a kernel outside of scopes, two in one scope, and one in a scope inside."""
    with gpuprof.capture(stream, **options) as cap:  # type: ignore[arg-type]
        fake.kernel(stream, "a")
        with gpuprof.timer(first, stream=stream):
            fake.kernel(stream, "b")
            with gpuprof.timer("inner", stream=stream):
                fake.kernel(stream, "c")
            fake.kernel(stream, "d")
    return cap.graph


@pytest.fixture
def cupti(fake: FakeCuda) -> Iterator[FakeCuda]:
    with node_numbers(fake):
        yield fake


# Scopes


@TIMERS
def test_nodes_are_labelled_whatever_becomes_of_the_timers(
    fake: FakeCuda, stream: int, timers: str
) -> None:
    with captured(fake, stream, timers=timers) as graph:
        assert scopes(graph) == {"a": "", "b": "first", "c": "first/inner", "d": "first"}
        assert [node.scope_names for node in graph.nodes if node.name == "c"] == [
            ("first", "inner")
        ]
        events = [node.scope for node in graph.nodes if node.type == "event_record"]
        timed = ["first", "first/inner", "first/inner", "first"]
        assert events == ([] if timers == "strip" else timed)


def test_a_slash_in_a_name_is_told_by_the_names(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream, "x/y") as graph:
        (node,) = (node for node in graph.nodes if node.name == "c")
        assert (node.scope, node.scope_names) == ("x/y/inner", ("x/y", "inner"))
        again = pickle.loads(pickle.dumps(node))
        assert (again, again.scope, again.scope_names) == (node, node.scope, node.scope_names)


def test_work_on_a_forked_stream_belongs_to_the_scope(
    fake: FakeCuda, stream: int, other: int
) -> None:
    with gpuprof.capture(stream, timers="strip") as cap:
        fake.fork(stream, other)
        with gpuprof.timer("s", stream=stream):
            fake.kernel(other, "not joined in the scope")
            fake.kernel(stream, "in")
        fake.kernel(other, "after")
        fake.join(stream, other)
    with cap.graph as graph:
        assert scopes(graph) == {"not joined in the scope": "s", "in": "s", "after": ""}


@TIMERS
@pytest.mark.filterwarnings("ignore:gpuprof. a stream capture began between:RuntimeWarning")
def test_scopes_that_began_before_the_capture(fake: FakeCuda, stream: int, timers: str) -> None:
    outer = gpuprof.timer("outer", stream=stream)
    ended = gpuprof.timer("ended", stream=stream)
    with outer:
        ended.__enter__()
        with gpuprof.capture(stream, timers=timers) as cap:  # type: ignore[arg-type]
            fake.kernel(stream, "a")
            ended.__exit__(None, None, None)
            fake.kernel(stream, "b")
            with gpuprof.timer("in", stream=stream):
                fake.kernel(stream, "c")
    with cap.graph as graph:
        assert scopes(graph) == {"a": "outer/ended", "b": "outer", "c": "outer/in"}


@TIMERS
@pytest.mark.filterwarnings("ignore:gpuprof. the stream capture in which:RuntimeWarning")
def test_a_scope_that_outlives_the_capture(fake: FakeCuda, stream: int, timers: str) -> None:
    scope = gpuprof.timer("crosses", stream=stream)
    with gpuprof.capture(stream, timers=timers) as cap:  # type: ignore[arg-type]
        fake.kernel(stream, "a")
        scope.__enter__()
        fake.kernel(stream, "b")
    with gpuprof.capture(stream, timers=timers) as later:  # type: ignore[arg-type]
        fake.kernel(stream, "c")
        scope.__exit__(None, None, None)
        fake.kernel(stream, "d")
    with cap.graph as graph, later.graph as other:
        assert scopes(graph) == {"a": "", "b": "crosses"}
        assert scopes(other) == {"c": "crosses", "d": ""}


def test_a_thread_without_scopes_works_in_those_of_another(fake: FakeCuda, stream: int) -> None:
    """As torch's threads do in a backward pass."""
    context = fake.current_context()
    with ThreadPoolExecutor(1) as pool, gpuprof.capture(stream, mode="relaxed") as cap:
        pool.submit(fake.set_current, context).result()

        def layer() -> None:
            fake.kernel(stream, "before")
            with gpuprof.timer("layer", stream=stream):
                fake.kernel(stream, "in")
            fake.kernel(stream, "after")

        with gpuprof.timer("backward", stream=stream):
            pool.submit(layer).result()
        fake.kernel(stream, "end")
    with cap.graph as graph:
        found = {"before": "backward", "in": "layer", "after": "backward", "end": ""}
        assert scopes(graph) == found


def test_threads_that_scope_two_streams_at_once(fake: FakeCuda, stream: int, other: int) -> None:
    context = fake.current_context()
    with ThreadPoolExecutor(1) as pool, gpuprof.capture(stream, mode="relaxed") as cap:
        pool.submit(fake.set_current, context).result()
        fake.kernel(stream, "first")
        fake.fork(stream, other)
        theirs = gpuprof.timer("theirs", stream=other)
        with gpuprof.timer("own", stream=stream):
            pool.submit(theirs.__enter__).result()
            fake.kernel(stream, "a")
            pool.submit(fake.kernel, other, "b").result()
            fake.kernel(stream, "c")
        fake.kernel(stream, "d")
        pool.submit(theirs.__exit__, None, None, None).result()
        fake.join(stream, other)
        fake.kernel(stream, "e")
    with cap.graph as graph:
        found = {"first": "", "a": "own", "b": "theirs", "c": "own", "d": "", "e": ""}
        assert scopes(graph) == found


def test_a_node_that_either_of_two_threads_may_have_captured_is_in_what_is_around_both(
    fake: FakeCuda, stream: int, other: int
) -> None:
    context = fake.current_context()
    with (
        ThreadPoolExecutor(1) as pool,
        gpuprof.capture(stream, mode="relaxed", timers="strip") as cap,
    ):
        pool.submit(fake.set_current, context).result()
        fake.fork(stream, other)  # both streams come after nothing
        theirs = [gpuprof.timer(name, stream=other) for name in ("step", "theirs")]
        for scope in theirs:
            pool.submit(scope.__enter__).result()
        with gpuprof.timer("step", stream=stream), gpuprof.timer("own", stream=stream):
            fake.kernel(stream, "a")
            pool.submit(fake.kernel, other, "b").result()
            fake.join(stream, other)
            fake.kernel(stream, "c")
        for scope in reversed(theirs):
            pool.submit(scope.__exit__, None, None, None).result()
    with cap.graph as graph:
        assert scopes(graph) == {"a": "step", "b": "step", "c": "step"}


def test_nodes_of_a_child_graph_are_in_the_scope_of_their_node(fake: FakeCuda, stream: int) -> None:
    child = captured(fake, stream)
    with gpuprof.capture(stream, timers="strip") as cap:
        fake.kernel(stream, "before")
        with gpuprof.timer("s", stream=stream):
            fake.add_child(fake.captured_graph(stream), child.raw_graph)
    with child, cap.graph as graph:
        (node,) = (node for node in graph.nodes if node.type == "graph")
        assert {inner.scope for inner in (node, *node.children)} == {"s"}


def test_the_labels_follow_an_update(cupti: FakeCuda, stream: int) -> None:
    graph = captured(cupti, stream, timers="strip")
    other = captured(cupti, stream, "second", timers="strip")
    numbers = list(graph.scopes_by_node_id())
    graph.update(other)
    other.close()
    assert scopes(graph)["c"] == "second/inner"
    # The executable graph keeps its numbers.
    assert graph.scopes_by_node_id() == dict(
        zip(numbers, ["second", "second/inner", "second"], strict=True)
    )
    graph.close()


def test_graphs_of_graphed_callables_are_labelled(cupy: Any) -> None:
    def body(x: Any) -> Any:
        out = cupy.empty(x.shape, x.dtype)
        with gpuprof.timer("inside", backend="cuda"):
            cupy.launch("work", 50_000)
        cupy.launch("after", 1_000)
        return out

    fast = gpuprof.make_graphed_callable(body, (cupy.array([1.0]),))
    (graph,) = labels.live_graphs()
    assert isinstance(graph, gpuprof.CapturedGraph)
    assert scopes(graph) == {"work": "inside", "after": ""}
    # The copies of inputs and outputs are added after the capture.
    assert {node.scope for node in graph.nodes if node.type == "memcpy"} == {""}
    del fast, graph
    gc.collect()


def test_outside_of_captures_scopes_ask_nothing_about_captures(fake: FakeCuda, stream: int) -> None:
    asked = ("cuStreamGetCaptureInfo_v2", "cuGraphGetNodes", "cuGraphGetEdges_v2")
    before = [fake.calls(function) for function in asked]
    with gpuprof.timer("s", stream=stream):
        fake.work(stream, 1000)
    assert [fake.calls(function) for function in asked] == before


# Views


def test_views_show_scopes(fake: FakeCuda, stream: int) -> None:
    with captured(fake, stream) as graph, captured(fake, stream, "second") as other:
        assert "first/inner" in graph.to_dot()
        assert "first/inner" in graph._repr_html_()
        assert "scope='first/inner'" in repr(next(n for n in graph.nodes if n.name == "c"))
        assert graph.signature() == other.signature()
        difference = graph.diff(other)
        assert any("scope first/inner -> second/inner" in line for line in difference.lines)
        changed = {change.node.name: change.fields for change in difference.changed}
        assert changed["b"] == {"scope": ("first", "second")}
        assert "a" not in changed
        assert not graph.diff(graph)


def test_a_scope_that_is_new_is_a_difference(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        for name in "abcd":
            fake.kernel(stream, name)
    with captured(fake, stream, timers="strip") as graph, cap.graph as plain:
        assert "node 1 b: scope first -> (none)" in graph.diff(plain).lines


# Numbers


def test_numbers_are_those_of_replays(cupti: FakeCuda, stream: int) -> None:
    with captured(cupti, stream, timers="strip") as graph:
        own = cupti.exec_id(graph.raw_exec) << 32
        handles = cupti.nodes(graph.raw_graph)
        numbers = [own | (cupti.node_id(handle) & 0xFFFFFFFF) for handle in handles]
        expected = dict(zip(numbers[1:], ["first", "first/inner", "first"], strict=True))
        assert graph.scopes_by_node_id() == expected
        assert graph.kernel_annotations() == {n: [{"scope": s}] for n, s in expected.items()}


def test_torch_reads_the_annotations(cupti: FakeCuda, stream: int) -> None:
    tool = pytest.importorskip("torch.cuda._annotate_cuda_graph_trace")
    with captured(cupti, stream, timers="strip") as graph:
        annotations = pickle.loads(pickle.dumps(graph.kernel_annotations()))
        kernels = [
            {"cat": "kernel", "ph": "X", "ts": 1.0, "tid": 7, "args": {"graph node id": number}}
            for number in annotations
        ]
        trace = {"traceEvents": kernels}
        assert tool.annotate_trace(trace, annotations) == 3
        found = [event["args"]["scope"] for event in kernels]  # type: ignore[index]
        assert found == ["first", "first/inner", "first"]


def test_without_anyone_to_tell_numbers_the_error_says_what_is_missing(
    fake: FakeCuda, stream: int
) -> None:
    with captured(fake, stream) as graph, captured(fake, stream, timers="strip") as other:
        with pytest.raises(InvalidStateError, match=r"CUDA 13\.1.*CUPTI.*loaded"):
            graph.scopes_by_node_id()
        with labels.watch() as found:
            other.close()
        assert found.by_number == {}
        assert "CUDA 13.1" in found.problem
    with pytest.raises(InvalidStateError, match="closed"):
        graph.scopes_by_node_id()


def test_a_graph_without_scopes_has_no_numbers_to_tell(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.kernel(stream, "a")
    with cap.graph as graph:
        assert graph.scopes_by_node_id() == {}
        assert graph not in labels.live_graphs()


def test_a_driver_of_cuda_13_1_tells_numbers_itself(fake_path: object) -> None:
    check_cuda(
        fake_path,  # type: ignore[arg-type]
        """
with gpuprof.capture(stream, timers="strip") as cap:
    with gpuprof.timer("s", stream=stream):
        fake.kernel(stream, "a", 1000)
(number,) = cap.graph.scopes_by_node_id()
assert number >> 32 == fake.exec_id(cap.graph.raw_exec), number
assert gpuprof._core.driver_info()["missing"] == []
""",
        FAKECUDA_CONFIG="driver_version=13010",
    )


# The registry


def test_graphs_that_live_while_somebody_watches_are_known_by_number(
    cupti: FakeCuda, stream: int
) -> None:
    early = captured(cupti, stream, timers="strip")
    with labels.watch() as found:
        late = captured(cupti, stream, "late", timers="strip")
        known = early.scopes_by_node_id() | late.scopes_by_node_id()
        assert {number >> 32 for number in known} == {
            cupti.exec_id(graph.raw_exec) for graph in (early, late)
        }
        early.close()
        del late
        gc.collect()
    assert {number: "/".join(names) for number, names in found.by_number.items()} == known
    assert found.problem == ""
    with labels.watch() as found:
        pass
    assert found.by_number == {}


def test_names_with_a_slash_stay_whole_in_a_graph_that_is_gone(
    cupti: FakeCuda, stream: int
) -> None:
    with labels.watch() as found:
        captured(cupti, stream, "to/head", timers="strip").close()
    assert set(found.by_number.values()) == {("to/head",), ("to/head", "inner")}


@pytest.mark.filterwarnings("ignore:gpuprof. cuEventRecordWithFlags failed:RuntimeWarning")
def test_a_broken_capture_leaves_no_labels(fake: FakeCuda, stream: int) -> None:
    with pytest.raises(gpuprof.CaptureInvalidatedError), gpuprof.capture(stream):
        with gpuprof.timer("s", stream=stream):
            fake.kernel(stream, "a")
            fake.call("cuStreamSynchronize", stream, expect=None)
    assert labels.live_graphs() == []
    assert fake.capture_status(stream) == control.NONE
