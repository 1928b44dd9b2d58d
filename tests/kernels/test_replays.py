"""Kernels of graph replays under the scopes of the capture, below the one that replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.cupti import node_numbers
from tests.support.gpu_records import COPY, Recording

US = 1_000
Ids = tuple[int, int]  # of the graph and the node, as a record has them


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    handle = fake.stream_create()
    yield handle
    fake.stream_destroy(handle)


@pytest.fixture
def numbers(fake: FakeCuda) -> Iterator[None]:
    with node_numbers(fake):
        yield


def graph_of(fake: FakeCuda, stream: int, *names: str) -> gpuprof.CapturedGraph:
    """Capture a kernel in each of these scopes, and one in none."""
    with gpuprof.capture(stream=stream, timers="strip") as cap:
        for name in names:
            with gpuprof.timer(name, stream=stream):
                fake.kernel(stream, "gemm")
        fake.kernel(stream, "gemm")
    return cap.graph


def replay(gpu: Recording, *ids: Ids, kind: int = 0) -> None:
    """Record the work of one launch of a graph, in order."""
    correlation = gpu.call("cudaGraphLaunch")
    begin = gpu.launches[-1]["begin_ns"]
    for place, (graph, node) in enumerate(ids):
        at = begin + (10 + 20 * place) * US
        gpu.work("gemm", correlation, at, 10 * US, graph_id=graph, node_id=node, kind=kind)
    time.sleep(20e-6 * (len(ids) + 1))  # the next replay begins after this one


def scopes(k: gpuprof.Kernels) -> list[tuple[str, ...]]:
    return [each.scope for each in k.records]


@pytest.mark.usefixtures("numbers")
def test_nodes_are_under_their_scopes_whatever_their_order(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graph = graph_of(fake, stream, "fwd", "bwd")
    fwd, bwd = graph.scopes_by_node_id()
    number = fwd >> 32
    with gpuprof.kernels() as k:
        for _ in range(2):
            with gpuprof.timer("serve"):
                # The number of a node may be its lower half alone.
                replay(gpu, (number, bwd), (number, fwd & 0xFFFFFFFF))
                replay(gpu, (0, bwd), (0, fwd))

    assert scopes(k) == [("serve", "bwd"), ("serve", "fwd")] * 4
    assert [each.path for each in k.rows] == ["serve", "serve/bwd", "serve/fwd"]
    assert any("8 ran in replays of graphs, 8 of them under scopes" in note for note in k.notes)
    graph.close()


@pytest.mark.usefixtures("numbers")
def test_scopes_around_capture_and_replay_are_there_once(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.timer("step", stream=stream):
        graph = graph_of(fake, stream, "fwd", "to/head")
    nodes = [(0, number) for number in graph.scopes_by_node_id()]
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            replay(gpu, *nodes)
        graph.close()  # what it did is known
        with gpuprof.timer("other"):
            replay(gpu, *nodes)

    inside = [("step", "fwd"), ("step", "to/head"), ("step",)]
    assert scopes(k) == [*inside, *(("other", *names) for names in inside)]


@pytest.mark.usefixtures("numbers")
def test_nodes_without_a_label_have_the_replays_scope_alone(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graph = graph_of(fake, stream, "fwd")
    (fwd,) = graph.scopes_by_node_id()
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, (0, fwd + 1), (0, fwd + (1 << 32)), (0, 0), kind=COPY)
        time.sleep(0.001)

    assert scopes(k) == [("serve",)] * 3
    assert k.records[0].launch == "cudaGraphLaunch"
    assert any("3 ran in replays of graphs, 0 of them" in note for note in k.notes)
    graph.close()


def test_where_nothing_tells_numbers_a_note_says_why(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    graph = graph_of(fake, stream, "fwd")
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, (1, 2))
        time.sleep(0.001)

    assert scopes(k) == [("serve",)]
    assert any("scopes of some graphs are not known" in note for note in k.notes)
    graph.close()
