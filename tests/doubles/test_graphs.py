"""What the fake CUDA driver tells of graphs, and what it does with executable copies of them."""

from __future__ import annotations

from tests.fake_driver.control import FakeCuda
from tests.fake_driver.own import captured, kernel_graph

MS = 1_000_000
HOST, CHILD, WAIT = 3, 4, 6
BYTES_PER_NODE = 2304


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
