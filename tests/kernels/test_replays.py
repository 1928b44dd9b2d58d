"""Kernels of graph replays under the scopes of the capture, below the one that replayed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.gpu_records import COPY, Recording

US = 1_000
MANGLED = "_ZN4mine5add_kIfEEvPT_"  # void mine::add_k<float>(float*)


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    handle = fake.stream_create()
    yield handle
    fake.stream_destroy(handle)


Body = Callable[[int], object]


def graph_of(stream: int, body: Body) -> gpuprof.CapturedGraph:
    with gpuprof.capture(stream=stream, timers="strip") as cap:
        body(stream)
    return cap.graph


def two_scopes(fake: FakeCuda, *names: str) -> Body:
    """Launch the first kernel in `fwd`, the others in `bwd`."""

    def body(stream: int) -> None:
        with gpuprof.timer("fwd", stream=stream):
            fake.kernel(stream, names[0])
        with gpuprof.timer("bwd", stream=stream):
            for name in names[1:]:
                fake.kernel(stream, name)

    return body


def replay(gpu: Recording, *names: str, ids: list[tuple[int, int]] | None = None) -> None:
    """Record the work of one launch of a graph, in order."""
    correlation = gpu.call("cudaGraphLaunch")
    begin = gpu.launches[-1]["begin_ns"]
    for place, name in enumerate(names):
        graph, node = ids[place] if ids else (0, 0)
        kind = COPY if name.startswith("Memcpy") else 0
        at = begin + (10 + 20 * place) * US
        gpu.work(name, correlation, at, 10 * US, graph_id=graph, node_id=node, kind=kind)
    time.sleep(20e-6 * (len(names) + 1))  # the next replay begins after this one


def scopes(k: gpuprof.Kernels) -> list[tuple[str, ...]]:
    return [each.scope for each in k.records]


def test_by_name_the_nth_kernel_is_the_nth_node(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graph = graph_of(stream, two_scopes(fake, "gemm", "gemm", "relu"))
    with gpuprof.kernels() as k:
        for _ in range(2):
            with gpuprof.timer("serve"):
                replay(gpu, "gemm", "gemm", "relu")

    assert scopes(k) == [("serve", "fwd"), ("serve", "bwd"), ("serve", "bwd")] * 2
    assert [each.path for each in k.rows] == ["serve", "serve/fwd", "serve/bwd"]
    assert any("6 ran in replays of graphs, 6 of them under scopes" in note for note in k.notes)
    graph.close()


def test_scopes_around_capture_and_replay_are_there_once(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.timer("step", stream=stream):
        graph = graph_of(stream, two_scopes(fake, "gemm", "relu"))
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            replay(gpu, "gemm", "relu")
        with gpuprof.timer("other"):
            replay(gpu, "gemm", "relu")

    assert scopes(k) == [
        ("step", "fwd"),
        ("step", "bwd"),
        ("other", "step", "fwd"),
        ("other", "step", "bwd"),
    ]
    graph.close()


def test_a_mangled_name_is_the_same_kernel(gpu: Recording, fake: FakeCuda, stream: int) -> None:
    graph = graph_of(stream, two_scopes(fake, MANGLED, "relu"))
    with gpuprof.kernels() as k:
        replay(gpu, MANGLED, "relu")
        replay(gpu, "void mine::add_k<float>(float *)", "relu")

    assert scopes(k) == [("fwd",), ("bwd",)] * 2
    graph.close()


def test_copies_that_the_driver_runs_as_kernels_are_copies(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    def body(stream: int) -> None:
        with gpuprof.timer("fwd", stream=stream):
            fake.kernel(stream, "gemm")
            fake.copy(stream, 64)
        with gpuprof.timer("bwd", stream=stream):
            fake.kernel(stream, "relu")

    graph = graph_of(stream, body)
    with gpuprof.kernels() as k:
        replay(gpu, "gemm", "memcpy32_post", "relu")

    assert scopes(k) == [("fwd",), ("fwd",), ("bwd",)]
    graph.close()


def test_other_work_than_the_graphs_has_the_replays_scope_alone(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graph = graph_of(stream, two_scopes(fake, "gemm", "relu"))
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, "gemm")
        replay(gpu, "gemm", "relu", "relu")

    assert set(scopes(k)) == {("serve",)}
    assert any("4 ran in replays of graphs, 0 of them" in note for note in k.notes)
    graph.close()


def test_unordered_nodes_of_one_name_get_what_their_scopes_share(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    side = fake.stream_create()

    def body(stream: int) -> None:
        with gpuprof.timer("step", stream=stream):
            fake.kernel(stream, "first")
            fake.fork(stream, side)
            with gpuprof.timer("left", stream=stream):
                fake.kernel(stream, "gemm")
                fake.kernel(stream, "only_left")
            with gpuprof.timer("right", stream=side):
                fake.kernel(side, "gemm")
            fake.join(stream, side)

    graph = graph_of(stream, body)
    with gpuprof.kernels() as k:
        replay(gpu, "first", "gemm", "gemm", "only_left")

    assert scopes(k) == [("step",), ("step",), ("step",), ("step", "left")]
    assert any("2 ambiguous" in note for note in k.notes)
    graph.close()
    fake.stream_destroy(side)


def test_two_graphs_of_the_same_kernels_share_a_label(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graphs = []
    for name in ("a", "b"):
        with gpuprof.timer("both", stream=stream), gpuprof.timer(name, stream=stream):
            graphs.append(graph_of(stream, lambda on: fake.kernel(on, "gemm")))
    with gpuprof.kernels() as k:
        replay(gpu, "gemm")

    assert scopes(k) == [("both",)]
    assert any("1 ambiguous" in note for note in k.notes)
    for graph in graphs:
        graph.close()


def test_ids_of_nodes_decide_where_the_records_have_them(
    gpu: Recording, fake: FakeCuda, stream: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = graph_of(stream, two_scopes(fake, "gemm", "gemm"))
    numbers = {(5 << 32) | 0: "fwd", (5 << 32) | 1: "bwd"}
    monkeypatch.setattr("gpuprof._graphs.labels.labels_by_node", lambda: numbers)
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        # The order is the other one, and the number of a node may be its lower half alone.
        replay(gpu, "gemm", "gemm", ids=[(5, (5 << 32) | 1), (5, 0)])
        replay(gpu, "gemm", "gemm", ids=[(0, (5 << 32) | 1), (0, 5 << 32)])

    assert scopes(k) == [("serve", "bwd"), ("serve", "fwd")] * 2
    graph.close()


def test_a_graph_launch_without_scopes_needs_no_graph(gpu: Recording) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, "gemm", "Memcpy DtoD (Device -> Device)")
        time.sleep(0.001)

    assert scopes(k) == [("serve",)] * 2
    assert k.records[0].launch == "cudaGraphLaunch"


def test_a_name_on_branches_in_one_scope_is_not_ambiguous(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    side = fake.stream_create()

    def body(stream: int) -> None:
        with gpuprof.timer("fwd", stream=stream):
            fake.kernel(stream, "gemm")
            fake.fork(stream, side)
            fake.kernel(side, "gemm")
            fake.join(stream, side)
        with gpuprof.timer("bwd", stream=stream):
            fake.kernel(stream, "relu")

    graph = graph_of(stream, body)
    with gpuprof.kernels() as k:
        replay(gpu, "gemm", "gemm", "relu")

    assert scopes(k) == [("fwd",), ("fwd",), ("bwd",)]
    assert not any("ambiguous" in note for note in k.notes)
    graph.close()
    fake.stream_destroy(side)
