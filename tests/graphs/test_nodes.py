"""Nodes and edges as they are read from the driver's graphs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import EXTERNAL, FakeCuda
from tests.support.graph_nodes import nodes_in
from tests.support.processes import check_cuda
from tests.support.torch_blocks import Run

KERNEL, EMPTY, HOST, BATCH_MEM_OP, CONDITIONAL = 0, 5, 3, 12, 13
MANGLED = "_ZN4mine5add_kIfEEvPT_"  # void mine::add_k<float>(float*)


@contextmanager
def captured(fake: FakeCuda, body: Callable[[int], object]) -> Iterator[gpuprof.CapturedGraph]:
    """Capture what `body` queues on a stream; the graph lives for the block."""
    stream = fake.stream_create()
    fake.begin_capture(stream)
    body(stream)
    handle = fake.end_capture(stream)
    try:
        with gpuprof.CapturedGraph.from_handles(handle, 1) as graph:  # which is not launched
            yield graph
    finally:
        fake.graph_destroy(handle)
        fake.stream_destroy(stream)


def nodes_of(fake: FakeCuda, body: Callable[[int], object]) -> tuple[gpuprof.GraphNode, ...]:
    with captured(fake, body) as graph:
        return graph.nodes


def three_kernels(fake: FakeCuda) -> Callable[[int], None]:
    def body(stream: int) -> None:
        for name in ("first_k", "second_k", "third_k"):
            fake.kernel(stream, name)

    return body


def test_a_kernel_has_its_names_grid_block_and_shared_memory(fake: FakeCuda) -> None:
    (node,) = nodes_of(
        fake,
        lambda stream: fake.kernel(stream, MANGLED, grid=(8, 4, 2), block=(128, 2, 1), shared=4096),
    )
    assert node.type == "kernel"
    assert node.name == "void mine::add_k<float>(float*)"
    assert node.symbol == MANGLED
    assert node.grid == (8, 4, 2)
    assert node.block == (128, 2, 1)
    assert node.shared_memory == 4096
    assert node.nbytes is None
    assert node.value is None


def test_a_kernel_of_a_library_is_named_too(fake: FakeCuda) -> None:
    (node,) = nodes_of(fake, lambda stream: fake.kernel(stream, "add_k", of_library=True))
    assert node.name == node.symbol == "add_k"


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("add_k", "add_k"),
        ("_Z", "_Z"),
        ("_Znonsense", "_Znonsense"),
        ("_ZN3fooE", "foo"),
        # Past what the demangler of the runtime takes.
        (f"_ZN7cutlass13device_kernelINS_4gemm{'I' * 2000}EEvv", "cutlass::device_kernel<...>"),
        (f"_Z5add_kI{'f' * 2000}EvT_", "add_k<...>"),
        (f"_ZN12_GLOBAL__N_13addI{'f' * 2000}EvT_", "(anonymous namespace)::add<...>"),
        (f"_ZNSt3fooI{'f' * 2000}EEvT_", "std::foo<...>"),
        (f"_Z99{'f' * 3000}", "f" * 99),
        (f"_Z99999999999999999999999{'f' * 2000}", f"_Z99999999999999999999999{'f' * 2000}"),
        (f"_ZN{'9' * 3000}E", f"_ZN{'9' * 3000}E"),
    ],
)
def test_any_symbol_becomes_a_name(fake: FakeCuda, symbol: str, name: str) -> None:
    (node,) = nodes_of(fake, lambda stream: fake.kernel(stream, symbol))
    assert node.symbol == symbol
    assert node.name == name


def test_work_in_one_stream_is_a_chain(fake: FakeCuda) -> None:
    with captured(fake, three_kernels(fake)) as graph:
        nodes = graph.nodes
        assert graph.edges == ((0, 1), (1, 2))
        assert graph.kernel_names() == ["first_k", "second_k", "third_k"]
    assert [node.index for node in nodes] == [0, 1, 2]
    assert [node.dependencies for node in nodes] == [(), (0,), (1,)]
    assert [node.dependents for node in nodes] == [(1,), (2,), ()]


def test_work_forked_and_joined_has_the_edges_of_both_branches(fake: FakeCuda) -> None:
    branch = fake.stream_create()

    def body(stream: int) -> None:
        fake.kernel(stream, "root_k")
        fake.fork(stream, branch)
        fake.kernel(stream, "left_k")
        fake.kernel(branch, "right_k")
        fake.join(stream, branch)
        fake.kernel(stream, "end_k")

    with captured(fake, body) as graph:
        nodes, edges = graph.nodes, graph.edges
    fake.stream_destroy(branch)
    by_name = {node.name: node for node in nodes}
    named = {(nodes[before].name, nodes[after].name) for before, after in edges}
    assert named == {
        ("root_k", "left_k"),
        ("root_k", "right_k"),
        ("left_k", "end_k"),
        ("right_k", "end_k"),
    }
    assert len(by_name["end_k"].dependencies) == 2
    assert len(by_name["root_k"].dependents) == 2
    assert edges == tuple(sorted(edges))


def test_an_edge_of_a_programmatic_launch_is_told_apart(fake: FakeCuda) -> None:
    def body(stream: int) -> None:
        fake.kernel(stream, "first_k")
        fake.kernel(stream, "early_k", programmatic=True)
        fake.kernel(stream, "late_k")

    nodes = nodes_of(fake, body)
    assert [node.programmatic for node in nodes] == [(), (0,), ()]
    assert [node.dependencies for node in nodes] == [(), (0,), (1,)]


def test_copies_and_memsets_have_their_sizes(fake: FakeCuda) -> None:
    address = fake.memory_allocate(4096)

    def body(stream: int) -> None:
        fake.copy(stream, 1024)
        fake.call("cuMemsetD32Async", address, 7, 16, stream)
        fake.call("cuMemsetD8Async", address, 255, 100, stream)

    copy, words, octets = nodes_of(fake, body)
    fake.memory_free(address)
    assert (copy.type, copy.nbytes, copy.value) == ("memcpy", 1024, None)
    assert words.type == octets.type == "memset"
    assert (words.nbytes, words.value, words.element_size) == (64, 7, 4)
    assert (octets.nbytes, octets.value, octets.element_size) == (100, 255, 1)
    assert copy.grid is None
    assert copy.name == ""


def test_allocations_in_a_graph_have_their_size(fake: FakeCuda) -> None:
    def body(stream: int) -> None:
        fake.stream_free(fake.stream_allocate(1 << 20, stream), stream)

    allocation, release = nodes_of(fake, body)
    assert (allocation.type, allocation.nbytes) == ("mem_alloc", 1 << 20)
    assert (release.type, release.nbytes) == ("mem_free", None)


def test_event_nodes_are_what_they_are(fake: FakeCuda) -> None:
    event = fake.event_create()

    def body(stream: int) -> None:
        fake.call("cuEventRecordWithFlags", event, stream, EXTERNAL)
        fake.call("cuStreamWaitEvent", stream, event, EXTERNAL)

    nodes = nodes_of(fake, body)
    fake.event_destroy(event)
    assert [node.type for node in nodes] == ["event_record", "event_wait"]


def test_a_child_graph_has_its_own_nodes_at_any_depth(fake: FakeCuda) -> None:
    with (
        captured(fake, three_kernels(fake)) as innermost,
        captured(fake, lambda stream: fake.kernel(stream, "middle_k")) as middle,
        captured(fake, lambda stream: fake.kernel(stream, "outer_k")) as outer,
    ):
        for above, below in ((middle, innermost), (outer, middle)):
            handle = above.raw_graph
            fake.add_child(handle, below.raw_graph, after=fake.nodes(handle))
        nodes, names = outer.nodes, outer.kernel_names()
    assert [node.type for node in nodes] == ["kernel", "graph"]
    assert [node.type for node in nodes[1].children] == ["kernel", "graph"]
    assert [node.index for node in nodes[1].children[1].children] == [0, 1, 2]
    assert names == ["outer_k", "middle_k", "first_k", "second_k", "third_k"]


def test_graphs_nested_without_end_are_read_to_a_depth(fake: FakeCuda) -> None:
    graphs = []
    inner = 0
    for _ in range(60):
        stream = fake.stream_create()
        fake.begin_capture(stream)
        fake.kernel(stream, "k")
        outer = fake.end_capture(stream)
        fake.stream_destroy(stream)
        if inner:
            fake.add_child(outer, inner)
        graphs.append(outer)
        inner = outer
    with gpuprof.CapturedGraph.from_handles(inner, 1) as deep:
        assert len(deep.kernel_names()) == 33
        assert deep.to_dot().count("subgraph") == 32
    for graph in graphs:
        fake.graph_destroy(graph)


@pytest.mark.parametrize(
    ("number", "name"),
    [
        (HOST, "host"),
        (EMPTY, "empty"),
        (8, "semaphore_signal"),
        (9, "semaphore_wait"),
        (BATCH_MEM_OP, "batch_mem_op"),
        (CONDITIONAL, "conditional"),
        (14, "type_14"),
        (1000, "type_1000"),
    ],
)
def test_nodes_of_every_type_have_it_and_break_nothing(
    fake: FakeCuda, number: int, name: str
) -> None:
    def body(stream: int) -> None:
        fake.kernel(stream, "first_k")
        fake.node(stream, number)
        fake.kernel(stream, "last_k")

    with captured(fake, body) as graph:
        nodes = graph.nodes
        assert graph.signature()
        assert name in graph.to_dot()
    assert [node.type for node in nodes] == ["kernel", name, "kernel"]
    assert nodes[1].dependencies == (0,)
    assert nodes[1].grid is nodes[1].nbytes is nodes[1].value is None


def test_an_empty_graph_has_no_nodes_and_no_edges(fake: FakeCuda) -> None:
    with captured(fake, lambda _: None) as graph:
        assert graph.nodes == ()
        assert graph.edges == ()


def test_a_graph_can_be_read_while_it_is_captured(fake: FakeCuda, stream: int) -> None:
    fake.begin_capture(stream)
    fake.kernel(stream, "add_k")
    assert [node.name for node in nodes_in(fake.captured_graph(stream))] == ["add_k"]
    fake.kernel(stream, "mul_k")
    graph = fake.end_capture(stream)
    assert len(nodes_in(graph)) == 2
    fake.graph_destroy(graph)


# What the driver refuses


_PARAMETERS = {
    "cuGraphKernelNodeGetParams_v2": lambda fake, stream: fake.kernel(stream, "add_k"),
    "cuFuncGetName": lambda fake, stream: fake.kernel(stream, "add_k"),
    "cuKernelGetName": lambda fake, stream: fake.kernel(stream, "add_k", of_library=True),
    "cuGraphMemcpyNodeGetParams": lambda fake, stream: fake.copy(stream, 64),
    "cuGraphMemAllocNodeGetParams": lambda fake, stream: fake.stream_free(
        fake.stream_allocate(64, stream), stream
    ),
}


@pytest.mark.parametrize("call", _PARAMETERS)
def test_a_node_that_cannot_be_read_keeps_its_type(fake: FakeCuda, call: str) -> None:
    with captured(fake, lambda stream: _PARAMETERS[call](fake, stream)) as graph:
        whole = graph.nodes
        with (
            gpuprof.CapturedGraph.from_handles(graph.raw_graph, 1) as again,
            fake.faults(f"{call}@1=1"),
        ):
            nodes = again.nodes
    assert [node.type for node in nodes] == [node.type for node in whole]
    assert nodes[0] != whole[0]
    assert nodes[0].name == ""
    assert nodes[0].nbytes is None


@pytest.mark.parametrize("call", ["cuGraphGetNodes", "cuGraphGetEdges_v2", "cuGraphNodeGetType"])
def test_a_graph_that_cannot_be_read_is_a_typed_error(fake: FakeCuda, call: str) -> None:
    with captured(fake, three_kernels(fake)) as graph:
        with fake.faults(f"{call}@1=1"), pytest.raises(gpuprof.errors.CudaError) as raised:
            graph.nodes  # noqa: B018
        assert raised.value.code == 1
        assert raised.value.call == call.removesuffix("_v2")
        assert len(graph.nodes) == 3


def test_edges_are_read_from_a_driver_whose_edges_have_no_data(fake_path: Path) -> None:
    out = check_cuda(
        fake_path,
        """
        from tests.support.graph_nodes import edges_in, nodes_in
        fake.begin_capture(stream)
        for name in ("one", "two", "three"):
            fake.kernel(stream, name)
        graph = fake.end_capture(stream)
        print(sorted(edges_in(graph)))
        print(len(nodes_in(graph)))
        print(_core.driver_info()["missing"])
        """,
        FAKECUDA_CONFIG="driver_version=12020",
    )
    edges, nodes, missing = out.splitlines()
    assert (edges, nodes) == ("[(0, 1), (1, 2)]", "3")
    assert "cuGraphGetEdges" not in missing


def test_a_dead_driver_is_an_error_and_no_unreadable_node(in_cuda: Run) -> None:
    out = in_cuda("""
        from tests.support.graph_nodes import edges_in, nodes_in
        fake.begin_capture(stream)
        fake.kernel(stream, "add_k")
        graph = fake.end_capture(stream)
        fake.script("cuGraphKernelNodeGetParams_v2@1=700:sticky")
        for _ in range(2):
            try:
                nodes_in(graph)
            except gpuprof.errors.CudaError as error:
                print(error.code, error.call)
        """)
    assert out.splitlines() == ["700 cuGraphKernelNodeGetParams"] * 2
