"""Launches of graphs that read a DeviceScalar: they see its last update, on whatever stream."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

import gpuprof
from gpuprof import DeviceScalar, errors
from tests.fake_driver.control import FakeCuda
from tests.support.scalars import MS, number
from tests.support.torch_blocks import Run


@pytest.fixture
def streams(fake: FakeCuda) -> Iterator[list[int]]:
    handles = [fake.stream_create() for _ in range(3)]
    yield handles
    gc.collect()
    for handle in handles:
        fake.stream_destroy(handle)


def reader(
    fake: FakeCuda, stream: int, buffer: int, scalar: DeviceScalar, way: str
) -> gpuprof.CapturedGraph:
    if way == "functions":
        gpuprof.begin_capture(stream)
        fake.copy(stream, 4, buffer, scalar.ptr)
        return gpuprof.end_capture(stream)
    pool = gpuprof.CapturePool()
    pool.record_buffer(scalar)
    options: dict[str, dict[str, object]] = {
        "block": {},
        "keep_alive": {"keep_alive": [scalar]},
        "pool": {"pool": pool},
    }
    with gpuprof.capture(stream, **options[way]) as cap:  # type: ignore[arg-type]
        fake.copy(stream, 4, buffer, scalar.ptr)
    return cap.graph


def check_follows(
    fake: FakeCuda, graph: gpuprof.CapturedGraph, scalar: DeviceScalar, buffer: int, *on: int
) -> None:
    """Check a launch on the second stream after a slow update on the first one."""
    updated_on, launched_on = on
    for value in (42, 43):
        fake.work(updated_on, 5 * MS)
        scalar.update(value, updated_on)
        graph.launch(launched_on)
        fake.stream_synchronize(launched_on)
        assert number(fake, buffer) == value


@pytest.mark.parametrize("way", ["functions", "block", "keep_alive", "pool"])
def test_a_launch_sees_an_update_on_the_stream_of_the_capture(
    fake: FakeCuda, streams: list[int], buffer: int, way: str
) -> None:
    stream, other, _ = streams
    scalar = DeviceScalar(1, "uint32", stream)
    with reader(fake, stream, buffer, scalar, way) as graph:
        check_follows(fake, graph, scalar, buffer, stream, other)
        check_follows(fake, graph, scalar, buffer, other, stream)


@pytest.mark.parametrize("way", ["keep_alive", "pool"])
def test_a_launch_sees_updates_anywhere_of_a_scalar_that_its_graph_keeps(
    fake: FakeCuda, streams: list[int], buffer: int, way: str
) -> None:
    stream, other, third = streams
    scalar = DeviceScalar(1, "uint32", third)
    with reader(fake, stream, buffer, scalar, way) as graph:
        check_follows(fake, graph, scalar, buffer, third, stream)
        check_follows(fake, graph, scalar, buffer, other, third)


def test_a_first_launch_sees_the_first_value(
    fake: FakeCuda, streams: list[int], buffer: int
) -> None:
    stream, other, _ = streams
    fake.work(stream, 5 * MS)
    scalar = DeviceScalar(7, "uint32", stream)
    with reader(fake, stream, buffer, scalar, "block") as graph:
        graph.launch(other)
        fake.stream_synchronize(other)
        assert number(fake, buffer) == 7


def test_after_an_update_in_place_launches_follow_the_scalars_of_the_other_graph(
    fake: FakeCuda, streams: list[int], buffer: int
) -> None:
    stream, other, third = streams
    scalars = [DeviceScalar(1, "uint32", third) for _ in range(2)]
    graph, newer = (reader(fake, stream, buffer, scalar, "keep_alive") for scalar in scalars)
    graph.update(newer)
    newer.close()
    check_follows(fake, graph, scalars[1], buffer, third, other)
    graph.close()


def test_on_one_stream_an_update_costs_a_launch_no_call(
    fake: FakeCuda, streams: list[int], buffer: int
) -> None:
    stream = streams[0]
    with gpuprof.capture(stream) as cap:
        fake.copy(stream, 4, buffer, buffer + 64)
    plain = cap.graph
    scalar = DeviceScalar(1, "uint32", stream)
    graph = reader(fake, stream, buffer, scalar, "block")

    def calls_of_a_launch(launched: gpuprof.CapturedGraph) -> int:
        scalar.update(2)
        before = fake.calls()
        launched.launch(stream)
        return fake.calls() - before

    for _ in range(3):
        assert calls_of_a_launch(graph) == calls_of_a_launch(plain)
    graph.close()
    plain.close()


def test_a_launch_waits_for_an_update_once(fake: FakeCuda, streams: list[int], buffer: int) -> None:
    stream, other, third = streams
    scalar = DeviceScalar(1, "uint32", stream)
    with reader(fake, stream, buffer, scalar, "block") as graph:
        waits = fake.calls("cuStreamWaitEvent")
        for on in (other, third, other):
            graph.launch(on)
        assert fake.calls("cuStreamWaitEvent") == waits + 1
        with fake.faults("cuGraphLaunch@1=2"), pytest.raises(errors.CudaError):
            scalar.update(2)
            graph.launch(other)
        graph.launch(third)  # another stream, and no launch of its own has waited yet
        assert fake.calls("cuStreamWaitEvent") == waits + 3


def test_scalars_of_other_streams_are_not_waited_for(
    fake: FakeCuda, streams: list[int], buffer: int
) -> None:
    stream, other, _ = streams
    scalar = DeviceScalar(1, "uint32", stream)
    unrelated = DeviceScalar(1, "uint32", other)
    with reader(fake, stream, buffer, scalar, "block") as graph:
        unrelated.update(2)
        waits = fake.calls("cuStreamWaitEvent")
        graph.launch(stream)
        assert fake.calls("cuStreamWaitEvent") == waits


def test_a_closed_scalar_is_not_asked(fake: FakeCuda, streams: list[int], buffer: int) -> None:
    stream, other, _ = streams
    made_on = fake.stream_create()
    scalar = DeviceScalar(1, "uint32", made_on)
    with reader(fake, stream, buffer, scalar, "keep_alive") as graph:
        scalar.close()
        fake.stream_synchronize(made_on)
        fake.stream_destroy(made_on)
        graph.launch(other)
        fake.stream_synchronize(other)


def test_a_launch_that_cannot_be_ordered_after_an_update_says_so(
    fake: FakeCuda, streams: list[int], buffer: int
) -> None:
    stream, other, _ = streams
    scalar = DeviceScalar(1, "uint32", stream)
    with reader(fake, stream, buffer, scalar, "block") as graph:
        scalar.update(2)
        with gpuprof.capture(stream, allow_empty=True) as cap:
            with pytest.raises(errors.InvalidStateError, match="DeviceScalar"):
                graph.launch(other)
        cap.graph.close()
        graph.launch(other)
        fake.stream_synchronize(other)
        assert number(fake, buffer) == 2


def test_a_graph_that_torch_launches_sees_updates_on_another_stream(
    in_torch: Run,
) -> None:
    in_torch("""
buffer = fake.memory_allocate(256)
scalar = gpuprof.DeviceScalar(1, "uint32")
with gpuprof.capture() as cap:  # on a stream of gpuprof's, in place of the default one
    fake.copy(torch.cuda.current_stream().cuda_stream, 4, buffer, scalar.ptr)
world.draws = True
for value in (42, 43):
    fake.work(stream, 5_000_000)
    scalar.update(value, stream)
    cap.graph.launch()
    fake.stream_synchronize(1)
    assert fake.read(buffer, 4) == value.to_bytes(4, "little")
assert len(world.replayed_on) == 2
""")
