"""What the fake CUDA driver tells of graphs, and what it does with executable copies of them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable

import pytest

from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.fake_driver.own import captured, kernel_graph, replay

MS = 1_000_000
KERNEL, MEMCPY, MEMSET, HOST, CHILD, WAIT, RECORD, ALLOC, FREE, MEM_OP = (
    0, 1, 2, 3, 4, 6, 7, 10, 11, 12,
)  # fmt: skip
BYTES_PER_NODE = 2304
HOST_WORD = ctypes.create_string_buffer(4)


class KernelParams(ctypes.Structure):
    _fields_ = (
        ("func", ctypes.c_void_p),
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared", ctypes.c_uint),
        ("arguments", ctypes.c_void_p),
        ("extra", ctypes.c_void_p),
        ("kern", ctypes.c_void_p),
        ("context", ctypes.c_void_p),
    )


class UpdateInfo(ctypes.Structure):
    _fields_ = (
        ("result", ctypes.c_int),
        ("error_node", ctypes.c_uint64),
        ("error_from_node", ctypes.c_uint64),
    )


# Nodes


def kernel_params(driver: FakeCuda, node: int) -> KernelParams:
    params = KernelParams()
    driver.call("cuGraphKernelNodeGetParams_v2", node, ctypes.byref(params))
    return params


def test_a_kernel_node_shows_how_its_kernel_was_launched(driver: FakeCuda, stream: int) -> None:
    driver.begin_capture(stream)
    driver.kernel(stream, "add_k", grid=(8, 2, 1), block=(128, 1, 1), shared=48)
    driver.kernel(stream, "mul_k", of_library=True)
    first, second = driver.nodes(driver.end_capture(stream))
    name = ctypes.c_char_p()
    params = kernel_params(driver, first)
    driver.call("cuFuncGetName", ctypes.byref(name), params.func)
    assert (name.value, params.kern) == (b"add_k", None)
    assert (list(params.grid), list(params.block), params.shared) == ([8, 2, 1], [128, 1, 1], 48)
    params = kernel_params(driver, second)
    driver.call("cuKernelGetName", ctypes.byref(name), params.kern)
    assert (name.value, params.func) == (b"mul_k", None)


def test_the_graph_of_an_open_capture_can_be_looked_into(driver: FakeCuda, stream: int) -> None:
    driver.begin_capture(stream)
    driver.kernel(stream, "add_k")
    graph = driver.captured_graph(stream)
    assert driver.node_types(graph) == [KERNEL]
    assert driver.call("cuGraphDestroy", graph, expect=None) == 401
    assert driver.end_capture(stream) == graph
    assert driver.captured_graph(stream) == 0


def edges(driver: FakeCuda, graph: int) -> list[tuple[int, int]]:
    places = {node: i for i, node in enumerate(driver.nodes(graph))}
    count = ctypes.c_size_t(100)
    before, after = (ctypes.c_uint64 * 100)(), (ctypes.c_uint64 * 100)()
    data = ctypes.create_string_buffer(8 * 100)
    driver.call("cuGraphGetEdges_v2", graph, before, after, data, ctypes.byref(count))
    return sorted((places[before[i]], places[after[i]]) for i in range(count.value))


def test_a_fork_and_its_join_become_edges(driver: FakeCuda, stream: int) -> None:
    branch = driver.stream_create()
    driver.begin_capture(stream)
    driver.kernel(stream, "first")
    driver.fork(stream, branch)
    driver.kernel(branch, "aside")
    driver.kernel(stream, "ahead")
    driver.join(stream, branch)
    driver.kernel(stream, "last")
    assert edges(driver, driver.end_capture(stream)) == [(0, 1), (0, 2), (1, 3), (2, 3)]
    assert driver.live("event") == 0


def test_a_node_of_any_type_can_be_had(driver: FakeCuda, stream: int) -> None:
    graph = captured(driver, stream, lambda: [driver.node(stream, kind) for kind in (HOST, 5, 13)])
    assert driver.node_types(graph) == [HOST, 5, 13]
    replay(driver, graph, stream)


def test_a_child_graph_runs_as_its_node_and_is_a_copy(driver: FakeCuda, stream: int) -> None:
    driver.configure(mode="manual")
    child = kernel_graph(driver, stream)
    graph = captured(driver, stream, lambda: None)
    first = driver.add_child(graph, child)
    driver.add_child(graph, child, after=[first])
    driver.graph_destroy(child)
    assert driver.node_types(graph) == [CHILD, CHILD]
    graph_exec = driver.instantiate(graph)
    begin = driver.now()
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    assert driver.now() - begin == 2 * MS
    assert driver.live("graph") == 1


def test_an_external_wait_node_waits_for_what_was_recorded_last(
    driver: FakeCuda, stream: int
) -> None:
    driver.configure(mode="manual")
    other, event = driver.stream_create(), driver.event_create()
    graph = captured(
        driver, stream, lambda: driver.call("cuStreamWaitEvent", stream, event, control.EXTERNAL)
    )
    assert driver.node_types(graph) == [WAIT]
    graph_exec = driver.instantiate(graph)
    driver.work(other, 5 * MS)
    driver.event_record(event, other)
    begin = driver.now()
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    assert driver.now() - begin == 5 * MS


# Memory of executable copies


def free_memory(driver: FakeCuda) -> int:
    return driver.memory_info()[0]


def test_an_executable_copy_takes_device_memory_until_its_last_launch_is_over(
    driver: FakeCuda, stream: int
) -> None:
    driver.configure(mode="manual")
    before = free_memory(driver)
    graph = captured(driver, stream, lambda: [driver.work(stream, MS) for _ in range(10)])
    assert free_memory(driver) == before
    graph_exec = driver.instantiate(graph)
    assert free_memory(driver) == before - 10 * BYTES_PER_NODE
    driver.graph_launch(graph_exec, stream)
    driver.exec_destroy(graph_exec)
    assert driver.live("exec") == 0
    assert free_memory(driver) == before - 10 * BYTES_PER_NODE
    driver.advance(10 * MS)
    assert free_memory(driver) == before


def test_instantiation_fails_where_the_device_is_full(driver: FakeCuda, stream: int) -> None:
    graph = kernel_graph(driver, stream)
    driver.configure(total_memory=BYTES_PER_NODE - 1)
    with pytest.raises(DriverCallError) as caught:
        driver.instantiate(graph)
    assert caught.value.code == 2
    assert driver.live("exec") == 0


# Updates

Refusal = tuple[int, int, int | None]


def update(driver: FakeCuda, graph_exec: int, graph: int) -> Refusal:
    """Return the answer, the result and the place of the node that it names."""
    info = UpdateInfo(-1, 0, 0)
    code = driver.call("cuGraphExecUpdate_v2", graph_exec, graph, ctypes.byref(info), expect=None)
    nodes = driver.nodes(graph)
    return code, info.result, nodes.index(info.error_node) if info.error_node else None


def test_an_update_counts_from_the_next_launch_on(driver: FakeCuda, stream: int) -> None:
    driver.configure(mode="manual")
    graph_exec = driver.instantiate(kernel_graph(driver, stream, 5 * MS))
    begin = driver.now()
    driver.graph_launch(graph_exec, stream)
    assert update(driver, graph_exec, kernel_graph(driver, stream, MS)) == (0, 0, None)
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    assert driver.now() - begin == 6 * MS


Body = Callable[[FakeCuda, int, int], object]


def two_kernels(driver: FakeCuda, stream: int, _address: int) -> None:
    driver.work(stream, MS)
    driver.work(stream, MS)


def kernel_and_memset(driver: FakeCuda, stream: int, address: int) -> None:
    driver.work(stream, MS)
    driver.call("cuMemsetD32Async", address, 1, 1, stream)


def kernel_and_copy(driver: FakeCuda, stream: int, address: int) -> None:
    driver.work(stream, MS)
    driver.copy(stream, 4, address, address + 4)


def kernel_and_copy_to_host(driver: FakeCuda, stream: int, address: int) -> None:
    driver.work(stream, MS)
    driver.call("cuMemcpyDtoHAsync_v2", HOST_WORD, address, 4, stream)


def two_beside_each_other(driver: FakeCuda, stream: int, _address: int) -> None:
    branch = driver.stream_create()
    driver.fork(stream, branch)
    driver.work(stream, MS)
    driver.work(branch, MS)
    driver.join(stream, branch)


@pytest.mark.parametrize(
    ("own", "other", "refusal"),
    [
        (two_kernels, lambda d, s, _: d.work(s, MS), (910, 2, None)),
        (two_kernels, two_beside_each_other, (910, 2, 1)),
        (two_kernels, kernel_and_memset, (910, 3, 1)),
        (kernel_and_copy, kernel_and_copy_to_host, (910, 5, 1)),
    ],
    ids=["fewer nodes", "other edges", "another type", "another direction"],
)
def test_a_refused_update_says_why_and_where_and_changes_nothing(
    driver: FakeCuda, stream: int, own: Body, other: Body, refusal: Refusal
) -> None:
    address = driver.memory_allocate(64)
    graph_exec = driver.instantiate(captured(driver, stream, lambda: own(driver, stream, address)))
    changed = captured(driver, stream, lambda: other(driver, stream, address))
    assert update(driver, graph_exec, changed) == refusal
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)


def test_an_update_can_be_made_to_fail_with_any_result(driver: FakeCuda, stream: int) -> None:
    graph = kernel_graph(driver, stream)
    graph_exec = driver.instantiate(graph)
    driver.configure(update_refusal=8)
    assert update(driver, graph_exec, graph) == (910, 8, 0)
    driver.configure(update_refusal=0)
    assert update(driver, graph_exec, graph) == (0, 0, None)


# Events of executable copies


def test_another_event_counts_from_the_next_launch_on(driver: FakeCuda, stream: int) -> None:
    driver.configure(mode="manual")
    first, second = driver.event_create(), driver.event_create()
    graph = captured(
        driver,
        stream,
        lambda: driver.call("cuEventRecordWithFlags", first, stream, control.EXTERNAL),
    )
    (node,) = driver.nodes(graph)
    graph_exec = driver.instantiate(graph)
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    driver.advance(MS)
    driver.call("cuGraphExecEventRecordNodeSetEvent", graph_exec, node, second)
    driver.graph_launch(graph_exec, stream)
    driver.stream_synchronize(stream)
    assert driver.elapsed_ms(first, second) == pytest.approx(1.0, abs=1e-4)


def test_only_a_record_node_of_the_graph_itself_takes_an_event(
    driver: FakeCuda, stream: int
) -> None:
    event = driver.event_create()

    def recorded() -> int:
        return captured(
            driver,
            stream,
            lambda: (
                driver.work(stream, MS),
                driver.call("cuEventRecordWithFlags", event, stream, control.EXTERNAL),
            ),
        )

    graph, stranger = recorded(), recorded()
    graph_exec = driver.instantiate(graph)
    kernel, record = driver.nodes(graph)
    answers = [
        driver.call("cuGraphExecEventRecordNodeSetEvent", graph_exec, node, event, expect=None)
        for node in (record, kernel, driver.nodes(stranger)[1])
    ]
    assert answers == [0, 1, 1]


# The log


def log_lines(driver: FakeCuda, start: int) -> list[str]:
    place, size = ctypes.c_uint(start), ctypes.c_size_t(25600)
    text = ctypes.create_string_buffer(size.value)
    driver.call("cuLogsDumpToMemory", ctypes.byref(place), text, ctypes.byref(size), 0)
    return text.value.decode().splitlines()


def log_end(driver: FakeCuda) -> int:
    place = ctypes.c_uint()
    driver.call("cuLogsCurrent", ctypes.byref(place), 0)
    return place.value


def test_the_log_names_the_refused_call_and_its_thread(driver: FakeCuda, stream: int) -> None:
    start = log_end(driver)
    driver.begin_capture(stream, control.GLOBAL)
    refused = "Returning 900 (CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED) from cuStreamSynchronize"
    native = []

    def wait() -> None:
        native.append(threading.get_ident())
        driver.call("cuStreamSynchronize", stream, expect=None)

    other = threading.Thread(target=wait)
    other.start()
    other.join()
    wait()
    lines = [line for line in log_lines(driver, start) if line.endswith(refused)]
    assert [line.split("[")[2].rstrip("]") for line in lines] == [str(ident) for ident in native]
    with pytest.raises(DriverCallError):
        driver.end_capture(stream)
