"""Nodes and edges of graphs that torch, CuPy and Numba made, against what is known."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip, numba_cuda_or_skip, torch_or_skip
from tests.gpu.support.kernels import device
from tests.support.graph_nodes import edges_in, nodes_in

_COUNT = 1 << 20
_ADD = r"""
template <typename T> __global__ void add_k(T* values, T amount) {
    extern __shared__ char unused[];
    values[blockIdx.x * blockDim.x + threadIdx.x] += amount;
}
"""


@contextmanager
def torch_graph(torch: Any, body: Callable[[], object]) -> Iterator[int]:
    """Capture by torch what `body` does, after it ran once; the graph lives for the block."""
    body()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
    except TypeError:
        pytest.skip("this torch cannot keep a graph")
    with torch.cuda.graph(graph):
        body()
    yield graph.raw_cuda_graph()
    graph.reset()


def test_torchs_kernels_and_copies_are_read_in_order() -> None:
    torch = torch_or_skip()
    values, copies = (torch.zeros(_COUNT, device="cuda") for _ in range(2))

    def body() -> None:
        values.add_(1)
        copies.copy_(values)
        copies.mul_(2)

    with torch_graph(torch, body) as graph:
        nodes = nodes_in(graph)
        edges = edges_in(graph)
    assert [node.type for node in nodes] == ["kernel", "memcpy", "kernel"]
    assert edges == ((0, 1), (1, 2))
    assert nodes[1].nbytes == 4 * _COUNT
    for node in (nodes[0], nodes[2]):
        assert "elementwise_kernel<" in node.name
        assert node.symbol.startswith("_Z")
        assert node.grid is not None
        assert node.block is not None
        assert _COUNT % (node.grid[0] * node.block[0]) == 0


def test_kernels_of_torchs_libraries_have_names() -> None:
    torch = torch_or_skip()
    matrix = torch.zeros(512, 512, device="cuda")

    def body() -> None:
        torch.softmax(matrix @ matrix, 0)

    with torch_graph(torch, body) as graph:
        kernels = [node for node in nodes_in(graph) if node.type == "kernel"]
    assert len(kernels) >= 2
    assert all(node.name and node.symbol for node in kernels)
    assert any("softmax" in node.name.lower() for node in kernels)


def test_torchs_streams_become_branches() -> None:
    torch = torch_or_skip()
    first, second = (torch.zeros(_COUNT, device="cuda") for _ in range(2))
    side = torch.cuda.Stream()

    def body() -> None:
        first.add_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            second.mul_(2)
        first.mul_(3)
        torch.cuda.current_stream().wait_stream(side)
        first.add_(second)

    with torch_graph(torch, body) as graph:
        nodes = nodes_in(graph)
    assert sorted(len(node.dependencies) for node in nodes) == [0, 1, 1, 2]
    assert sorted(len(node.dependents) for node in nodes) == [0, 1, 1, 2]


def test_torch_capturing_twice_gives_one_signature_and_another_size_another() -> None:
    torch = torch_or_skip()

    def read(count: int) -> gpuprof.CapturedGraph:
        values = torch.zeros(count, device="cuda")

        def body() -> None:
            values.add_(1)
            values.mul_(2)

        with torch_graph(torch, body) as handle:
            graph = gpuprof.CapturedGraph.from_handles(handle, 1)
            assert len(graph.nodes) == 2  # which it keeps
            return graph

    first, again, larger = read(_COUNT), read(_COUNT), read(2 * _COUNT)
    assert first.signature() == again.signature()
    assert not first.diff(again)
    found = first.diff(larger)
    assert len(found.changed) == 2
    assert all(change.fields.keys() == {"grid"} for change in found.changed)


def test_cupys_kernels_are_read_as_they_were_launched() -> None:
    cupy = cupy_or_skip()
    module = cupy.RawModule(code=_ADD, name_expressions=["add_k<float>"])
    kernel = module.get_function("add_k<float>")
    values = cupy.zeros(4096, dtype=cupy.float32)
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        kernel((32,), (128,), (values, cupy.float32(1)), shared_mem=1024)
        stream.synchronize()
        stream.begin_capture()
        kernel((32,), (128,), (values, cupy.float32(1)), shared_mem=1024)
        kernel((8, 2), (64, 4), (values, cupy.float32(1)))
        graph = stream.end_capture()
    nodes = nodes_in(graph.graph)
    assert [node.name for node in nodes] == ["void add_k<float>(float*, float)"] * 2
    assert [node.grid for node in nodes] == [(32, 1, 1), (8, 2, 1)]
    assert [node.block for node in nodes] == [(128, 1, 1), (64, 4, 1)]
    assert [node.shared_memory for node in nodes] == [1024, 0]
    assert edges_in(graph.graph) == ((0, 1),)


def test_numbas_kernels_are_captured_by_the_driver_and_do_what_they_do_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = numba_cuda_or_skip(monkeypatch)
    numpy = pytest.importorskip("numpy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")

        @cuda.jit  # type: ignore[untyped-decorator,unused-ignore]
        def numba_add(values: Any) -> None:
            values[cuda.grid(1)] += 1

        eager, replayed = (cuda.to_device(numpy.zeros(4096)) for _ in range(2))
        numba_add[16, 256](eager)  # compiles and loads it
        cuda.synchronize()
        stream = device().stream()
        with gpuprof.capture(stream) as cap:
            numba_add[16, 256, cuda.external_stream(stream)](replayed)
    (node,) = cap.graph.nodes
    assert "numba_add" in node.name
    assert (node.grid, node.block) == ((16, 1, 1), (256, 1, 1))
    for _ in range(4):
        numba_add[16, 256](eager)
    for _ in range(5):
        cap.graph.launch()
    device().synchronize()
    assert list(replayed.copy_to_host()) == list(eager.copy_to_host()) == [5.0] * 4096
    cap.graph.close()
