"""What streams and graphs do to the fake CUDA driver's memory."""

from __future__ import annotations

import pytest

from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.fake_driver.own import captured, replay

MS = 1_000_000
MEMSET, ALLOC, MEM_OP = 2, 10, 12


# What streams do


def test_setting_memory_takes_effect_when_the_stream_gets_there(
    driver: FakeCuda, stream: int
) -> None:
    driver.configure(mode="manual")
    address = driver.memory_allocate(32)
    driver.work(stream, MS)
    driver.call("cuMemsetD8Async", address, 0x11, 2, stream)
    driver.call("cuMemsetD16Async", address + 2, 0x2222, 1, stream)
    driver.call("cuMemsetD32Async", address + 4, 0x33333333, 1, stream)
    driver.call("cuStreamWriteValue64_v2", stream, address + 8, 0x4444444444444444, 0)
    assert driver.copy(stream, 16, address + 16, address) == 0
    assert driver.read(address, 32) == bytes(32)
    driver.stream_synchronize(stream)
    assert driver.read(address, 32).hex() == ("1111222233333333" + "44" * 8) * 2


def test_work_on_memory_that_is_gone_breaks_the_context(driver: FakeCuda, stream: int) -> None:
    address = driver.memory_allocate(16)
    graph = captured(driver, stream, lambda: driver.call("cuMemsetD32Async", address, 7, 1, stream))
    driver.memory_free(address)
    with pytest.raises(DriverCallError, match="700"):
        replay(driver, graph, stream)


def test_memory_outside_of_allocations_is_not_read(driver: FakeCuda) -> None:
    address = driver.memory_allocate(16)
    with pytest.raises(ValueError, match="read"):
        driver.read(address + 1, 16)
    with pytest.raises(ValueError, match="write"):
        driver.write(address + 16, b"x")


# Allocations in graphs


def test_memory_allocated_by_a_graph_is_there_from_a_launch_to_its_release(
    driver: FakeCuda, stream: int
) -> None:
    driver.begin_capture(stream)
    address = driver.stream_allocate(1 << 20, stream)
    driver.call("cuMemsetD8Async", address, 5, 8, stream)
    graph = driver.end_capture(stream)
    assert driver.node_types(graph) == [ALLOC, MEMSET]
    assert driver.live("memory") == 0
    replay(driver, graph, stream)
    assert driver.live("memory") == 1
    assert driver.read(address, 2) == b"\x05\x05"
    driver.graph_destroy(graph)
    driver.memory_free(address)
    assert driver.live("memory") == 0
    assert driver.memory_info()[0] == driver.memory_info()[1]
