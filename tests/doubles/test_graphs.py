"""What the fake CUDA driver tells of graphs, and what it does with executable copies of them."""

from __future__ import annotations

import ctypes

import pytest

from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.fake_driver.own import captured, kernel_graph

MS = 1_000_000
HOST, CHILD, WAIT = 3, 4, 6
BYTES_PER_NODE = 2304


class UpdateInfo(ctypes.Structure):
    _fields_ = (
        ("result", ctypes.c_int),
        ("error_node", ctypes.c_uint64),
        ("error_from_node", ctypes.c_uint64),
    )


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
