"""Kernels of graph replays under the scopes of the capture, below the one that replayed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import nullcontext

import pytest

import gpuprof
from gpuprof._graphs import labels
from tests.fake_driver.control import FakeCuda
from tests.support.gpu_records import COPY, Recording

US = 1_000
GRAPH = 5  # its number in the records
FWD, BWD = GRAPH << 32, GRAPH << 32 | 1


@pytest.fixture
def stream(fake: FakeCuda) -> Iterator[int]:
    handle = fake.stream_create()
    yield handle
    fake.stream_destroy(handle)


@pytest.fixture
def numbers(monkeypatch: pytest.MonkeyPatch) -> dict[int, tuple[str, ...]]:
    """Let the nodes of graphs have these numbers, with their scopes."""
    scopes = labels.NodeScopes({FWD: ("fwd",), BWD: ("bwd",)})
    monkeypatch.setattr("gpuprof._graphs.labels.watch", lambda: nullcontext(scopes))
    return scopes.by_number


def replay(gpu: Recording, *ids: tuple[int, int], kind: int = 0) -> None:
    """Record the work of one launch of a graph, in order, by the ids of graph and node."""
    correlation = gpu.call("cudaGraphLaunch")
    begin = gpu.launches[-1]["begin_ns"]
    for place, (graph, node) in enumerate(ids):
        at = begin + (10 + 20 * place) * US
        gpu.work("gemm", correlation, at, 10 * US, graph_id=graph, node_id=node, kind=kind)
    time.sleep(20e-6 * (len(ids) + 1))  # the next replay begins after this one


def scopes(k: gpuprof.Kernels) -> list[tuple[str, ...]]:
    return [each.scope for each in k.records]


def test_nodes_are_under_their_scopes_whatever_their_order(
    gpu: Recording, numbers: dict[int, tuple[str, ...]]
) -> None:
    with gpuprof.kernels() as k:
        for _ in range(2):
            with gpuprof.timer("serve"):
                # The number of a node may be its lower half alone.
                replay(gpu, (GRAPH, BWD), (GRAPH, 0))
                replay(gpu, (0, BWD), (0, FWD))

    assert scopes(k) == [("serve", "bwd"), ("serve", "fwd")] * 4
    assert [each.path for each in k.rows] == ["serve", "serve/bwd", "serve/fwd"]
    assert any("8 ran in replays of graphs, 8 of them under scopes" in note for note in k.notes)


def test_scopes_around_capture_and_replay_are_there_once(
    gpu: Recording, numbers: dict[int, tuple[str, ...]], fake: FakeCuda, stream: int
) -> None:
    with gpuprof.timer("step", stream=stream):
        with gpuprof.capture(stream=stream, timers="strip") as cap:
            for name in ("fwd", "to/head"):
                with gpuprof.timer(name, stream=stream):
                    fake.kernel(stream, "gemm")
    first, second = (node.scope_names for node in cap.graph.nodes if node.type == "kernel")
    numbers.update({FWD: first, BWD: second})
    with gpuprof.kernels() as k:
        with gpuprof.timer("step"):
            replay(gpu, (GRAPH, FWD), (GRAPH, BWD))
        with gpuprof.timer("other"):
            replay(gpu, (GRAPH, FWD), (GRAPH, BWD))

    assert scopes(k) == [
        ("step", "fwd"),
        ("step", "to/head"),
        ("other", "step", "fwd"),
        ("other", "step", "to/head"),
    ]
    cap.graph.close()


def test_nodes_without_a_label_have_the_replays_scope_alone(
    gpu: Recording, numbers: dict[int, tuple[str, ...]]
) -> None:
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, (GRAPH + 1, FWD + (1 << 32)), (0, 0), kind=COPY)
        time.sleep(0.001)

    assert scopes(k) == [("serve",)] * 2
    assert k.records[0].launch == "cudaGraphLaunch"
    assert any("2 ran in replays of graphs, 0 of them" in note for note in k.notes)


def test_where_nothing_tells_numbers_a_note_says_why(
    gpu: Recording, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream=stream, timers="strip") as cap:
        with gpuprof.timer("fwd", stream=stream):
            fake.kernel(stream, "gemm")
    with gpuprof.kernels() as k, gpuprof.timer("serve"):
        replay(gpu, (GRAPH, FWD))
        time.sleep(0.001)

    assert scopes(k) == [("serve",)]
    assert any("scopes of some graphs are not known" in note for note in k.notes)
    cap.graph.close()
