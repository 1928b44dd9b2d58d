"""What streams and graphs do to the fake CUDA driver's memory."""

from __future__ import annotations

import ctypes

import pytest

from tests.fake_driver import control
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


def test_copies_between_host_and_device_carry_data(driver: FakeCuda, stream: int) -> None:
    address = driver.memory_allocate(8)
    source = ctypes.create_string_buffer(b"carried", 8)
    target = ctypes.create_string_buffer(8)
    driver.work(stream, MS)
    driver.call("cuMemcpyHtoDAsync_v2", address, source, 8, stream)
    source.value = b"changed"
    driver.call("cuMemcpyDtoHAsync_v2", target, address, 8, stream)
    assert target.value == b"carried", "a copy to pageable memory returns when it is done"
    assert driver.stream_query(stream) == 0


def test_a_copy_to_pinned_memory_does_not_wait(driver: FakeCuda, stream: int) -> None:
    driver.configure(mode="manual")
    address, pinned = driver.memory_allocate(8), driver.host_allocate(8)
    driver.write(address, b"contents")
    driver.work(stream, MS)
    driver.call("cuMemcpyDtoHAsync_v2", pinned, address, 8, stream)
    assert ctypes.string_at(pinned, 8) == bytes(8)
    driver.stream_synchronize(stream)
    assert ctypes.string_at(pinned, 8) == b"contents"


def test_a_captured_write_happens_at_each_replay_and_not_before(
    driver: FakeCuda, stream: int
) -> None:
    address = driver.memory_allocate(16)
    driver.begin_capture(stream)
    driver.call("cuMemsetD32Async", address, 7, 1, stream)
    driver.call("cuStreamWriteValue64_v2", stream, address + 8, 9, 0)
    graph = driver.end_capture(stream)
    assert driver.node_types(graph) == [MEMSET, MEM_OP]
    assert driver.read(address, 16) == bytes(16)
    for _ in range(2):
        driver.write(address, bytes(16))
        replay(driver, graph, stream)
        assert driver.read(address, 16)[::8] == b"\x07\x09"


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


@pytest.mark.parametrize("flags", [0, control.AUTO_FREE_ON_LAUNCH])
def test_only_a_copy_that_frees_by_itself_can_allocate_twice(
    driver: FakeCuda, stream: int, flags: int
) -> None:
    graph = captured(driver, stream, lambda: driver.stream_allocate(64, stream))
    graph_exec = driver.instantiate(graph, flags)
    driver.graph_launch(graph_exec, stream)
    again = driver.call("cuGraphLaunch", graph_exec, stream, expect=None)
    assert again == (0 if flags else 1)


def test_a_graph_that_allocates_has_one_executable_copy_at_a_time(
    driver: FakeCuda, stream: int
) -> None:
    graph = captured(
        driver,
        stream,
        lambda: driver.stream_free(driver.stream_allocate(64, stream), stream),
    )
    graph_exec = driver.instantiate(graph)
    with pytest.raises(DriverCallError, match="801"):
        driver.instantiate(graph)
    driver.exec_destroy(graph_exec)
    replay(driver, graph, stream, times=2)
    assert driver.live("memory") == 0
