"""Device scalars: when a value arrives, on which stream, and what a capture makes of it."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from gpuprof import DeviceScalar, errors, is_stream_capturing, timer
from tests.fake_driver.control import ACTIVE, GLOBAL, LEGACY_STREAM, NONE, FakeCuda
from tests.support.scalars import MS, SLOTS, WRITES, number
from tests.support.threads import in_threads


class StreamObject:
    """A stream as frameworks have them."""

    def __init__(self, handle: int) -> None:
        self.cuda_stream = handle


def test_work_sees_the_value_that_was_written_before_it(
    fake: FakeCuda, stream: int, buffer: int
) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    for step in range(4):
        fake.copy(stream, 4, buffer + 4 * step, scalar.ptr)
        scalar.update(step + 2)
    assert fake.complete(stream) == 0
    assert [number(fake, buffer + 4 * step) for step in range(4)] == [1, 2, 3, 4]
    assert number(fake, scalar.ptr) == 5


def test_an_update_does_not_wait(fake: FakeCuda, stream: int) -> None:
    scalar = DeviceScalar(7, "uint32", stream)
    fake.complete(stream)
    fake.configure("mode=manual")
    fake.work(stream, 5 * MS)
    scalar.update(8)
    assert number(fake, scalar.ptr) == 7
    fake.complete(stream)
    assert number(fake, scalar.ptr) == 8


@pytest.mark.parametrize(("dtype", "function"), WRITES.items())
def test_an_update_is_one_call_that_carries_the_value(
    fake: FakeCuda, stream: int, dtype: str, function: str
) -> None:
    scalar = DeviceScalar(0, dtype, stream)
    before = {name: fake.calls(name) for name in WRITES.values()}
    scalar.update(1)
    called = {name: fake.calls(name) - count for name, count in before.items()}
    assert called == {name: int(name == function) for name in before}


def test_reading_waits_for_what_is_queued(fake: FakeCuda, stream: int) -> None:
    scalar = DeviceScalar(1.5, "float64", stream)
    fake.work(stream, 5 * MS)
    scalar.update(-2.25)
    assert scalar.get() == -2.25


def test_reading_on_another_stream_comes_after_that_streams_work(
    fake: FakeCuda, stream: int, other: int, buffer: int
) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    assert scalar.get() == 1
    fake.write(buffer, (99).to_bytes(4, "little"))
    fake.work(other, 5 * MS)
    fake.copy(other, 4, scalar.ptr, buffer)
    assert scalar.get(stream=other) == 99


def test_eight_bytes_are_written_in_halves_where_the_device_cannot_do_more(
    fake: FakeCuda, stream: int, buffer: int
) -> None:
    with fake.faults("cuStreamWriteValue64_v2@1=801"):
        scalar = DeviceScalar(0x1122334455667788, "uint64", stream)
        writes = fake.calls("cuStreamWriteValue64_v2")
        assert scalar.get() == 0x1122334455667788
        scalar.update(2**64 - 1)
        fake.copy(stream, 8, buffer, scalar.ptr)
        scalar.update(5)
        assert fake.calls("cuStreamWriteValue64_v2") == writes
    fake.complete(stream)
    assert number(fake, buffer, 8) == 2**64 - 1
    assert scalar.get() == 5


# Streams


def test_an_update_without_a_stream_goes_to_the_scalars_own(
    fake: FakeCuda, stream: int, other: int
) -> None:
    bound, free = DeviceScalar(1, "uint32", stream), DeviceScalar(1, "uint32")
    fake.complete(stream)
    fake.complete(0)
    fake.configure("mode=manual")
    fake.work(stream, 5 * MS)
    bound.update(2)
    free.update(2)
    fake.complete(0)
    assert (number(fake, bound.ptr), number(fake, free.ptr)) == (1, 2)
    bound.update(3, other)
    fake.complete(other)
    assert number(fake, bound.ptr) == 3
    fake.complete(stream)
    assert number(fake, bound.ptr) == 2


def test_stream_objects_are_kept_alive_while_they_are_needed(stream: int, other: int) -> None:
    own, last = StreamObject(stream), StreamObject(other)
    watches = [weakref.ref(own), weakref.ref(last)]
    scalar = DeviceScalar(1, "uint32", own)
    scalar.update(2, last)
    del own, last
    assert [watch() is not None for watch in watches] == [True, True]
    assert scalar.get() == 2
    scalar.update(3)
    assert [watch() is not None for watch in watches] == [True, False]
    scalar.close()
    assert watches[0]() is None


def test_a_stream_of_another_context_is_refused(fake: FakeCuda, stream: int) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    context = fake.context_create()
    foreign = fake.stream_create()
    for use in (lambda: scalar.update(2, foreign), lambda: scalar.get(foreign)):
        with pytest.raises(errors.InvalidStateError, match="another CUDA context"):
            use()
    assert scalar.get() == 1
    fake.stream_destroy(foreign)
    fake.context_destroy(context)  # makes the one before it current


def test_a_thread_without_a_context_can_use_a_scalar(fake: FakeCuda, stream: int) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    found: list[object] = []

    def use() -> None:
        scalar.update(2)
        scalar.update(3, LEGACY_STREAM)
        found.extend([scalar.get(), fake.current_context()])

    in_threads(use)
    assert found == [3, 0]


class Index:
    """What converts to an int without being one, as NumPy's integers do."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class Pointer(Index):
    """A stream object that happens to convert to another int."""

    @property
    def ptr(self) -> Index:
        return Index(self.value + 1)


def test_a_stream_is_any_integer_and_an_attribute_comes_first(fake: FakeCuda, stream: int) -> None:
    fake.begin_capture(stream)
    assert is_stream_capturing(Index(stream))
    assert is_stream_capturing(Pointer(stream - 1))
    assert not is_stream_capturing(Index(0))
    fake.graph_destroy(fake.end_capture(stream))
    assert timer("far", stream=Index(2**63 + 1))  # not entered: there is no such stream
    for wrong in (-1, 2**64):
        with pytest.raises(ValueError, match="between 0 and"):
            is_stream_capturing(Index(wrong))


def test_what_an_index_raises_comes_out_unless_it_only_refuses() -> None:
    class Failing:
        def __init__(self, error: Exception) -> None:
            self.error = error

        def __index__(self) -> int:
            raise self.error

    with pytest.raises(KeyError):
        is_stream_capturing(Failing(KeyError("mine")))
    with pytest.raises(TypeError, match=r"stream: expected None, an int handle.* got .*Failing"):
        is_stream_capturing(Failing(TypeError("an array")))


@pytest.mark.parametrize("wrong", ["stream", 1.5, object(), True])
def test_what_is_no_stream_is_refused(fake: FakeCuda, wrong: object) -> None:
    scalar = DeviceScalar(1)
    for use in (lambda: DeviceScalar(1, stream=wrong), lambda: scalar.update(1, wrong)):
        with pytest.raises(TypeError, match="stream: expected None, an int handle"):
            use()


def test_the_arguments_of_update_are_checked(fake: FakeCuda) -> None:
    scalar: Any = DeviceScalar(1, "uint32")
    scalar.update(value=2, stream=None, record=False)
    assert scalar.get() == 2
    for arguments, keywords, words in (
        ((), {}, "needs the value"),
        ((1, None, True), {}, "takes at most 2 by position; got 3"),
        ((1,), {"value": 2}, "two values for 'value'"),
        ((1,), {"dtype": "u32"}, "no argument 'dtype'; it takes value, stream, record"),
        ((1,), {"record": 1}, "record: expected True or False, got int"),
    ):
        with pytest.raises(TypeError, match=words):
            scalar.update(*arguments, **keywords)
    assert scalar.get() == 2


# Captures


@pytest.mark.parametrize("dtype", WRITES)
def test_an_update_on_a_capturing_stream_is_refused_and_harms_nothing(
    fake: FakeCuda, stream: int, dtype: str
) -> None:
    scalar = DeviceScalar(1, dtype, stream)
    fake.begin_capture(stream, GLOBAL)
    writes = fake.calls(WRITES[dtype])
    with pytest.raises(errors.InvalidStateError, match="pass record=True"):
        scalar.update(2)
    assert fake.calls(WRITES[dtype]) == writes
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    assert scalar.get() == 1


@pytest.mark.parametrize("dtype", WRITES)
def test_a_recorded_update_writes_its_value_at_each_replay(
    fake: FakeCuda, stream: int, other: int, dtype: str
) -> None:
    scalar = DeviceScalar(1, dtype, stream)
    fake.begin_capture(stream)
    scalar.update(2, record=True)
    graph = fake.end_capture(stream)
    assert len(fake.nodes(graph)) == 1
    assert scalar.get() == 1
    launched = fake.instantiate(graph)
    for value in (3, 4):
        scalar.update(value, other)
        assert scalar.get() == value
        fake.graph_launch(launched, other)
        assert scalar.get(other) == 2
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)


def test_record_changes_nothing_on_a_stream_that_is_not_captured(stream: int) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    scalar.update(2, record=True)
    assert scalar.get() == 2


def test_a_replay_sees_what_was_written_before_it(fake: FakeCuda, stream: int, buffer: int) -> None:
    scalar = DeviceScalar(0, "uint32", stream)
    fake.begin_capture(stream)
    fake.copy(stream, 4, buffer, scalar.ptr)
    graph = fake.end_capture(stream)
    launched = fake.instantiate(graph)
    for value in range(1, 20):
        scalar.update(value)
        fake.graph_launch(launched, stream)
        fake.stream_synchronize(stream)
        assert number(fake, buffer) == value
    fake.exec_destroy(launched)
    fake.graph_destroy(graph)


def test_making_reading_and_handing_over_are_refused_on_a_capturing_stream(
    fake: FakeCuda, stream: int, other: int
) -> None:
    scalar = DeviceScalar(1, "uint32", other)
    fake.begin_capture(stream, GLOBAL)
    with pytest.raises(errors.InvalidStateError, match="make it before the capture begins"):
        DeviceScalar(1, "uint32", stream)
    with pytest.raises(errors.InvalidStateError, match="end the capture first"):
        scalar.get(stream)
    with pytest.raises(errors.InvalidStateError, match="make the array before the capture"):
        scalar.__dlpack__(stream=stream)
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))


def test_everything_works_beside_somebodys_capture(fake: FakeCuda, stream: int, other: int) -> None:
    fake.begin_capture(stream, GLOBAL)
    scalars = [DeviceScalar(index, "int64", other) for index in range(SLOTS + 1)]
    scalars[0].update(-5)
    assert [scalar.get() for scalar in scalars[:3]] == [-5, 1, 2]
    scalars[1].__dlpack__(stream=-1)
    scalars.clear()
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    assert fake.capture_status(stream) == NONE


def test_a_scalar_keeps_the_stream_that_was_current_at_its_last_write(cupy: Any) -> None:
    gone: list[weakref.ref[Any]] = []

    def on_a_stream(work: Any) -> Any:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            gone.append(weakref.ref(stream))
            return work()

    scalar = on_a_stream(lambda: DeviceScalar(1.0))
    assert gone[0]() is not None
    assert scalar.get() == 1.0
    for value in (2.0, 3.0):
        on_a_stream(lambda value=value: scalar.update(value))
        assert gone[-2]() is None
        assert scalar.get() == value
    with cupy.fake.faults("cuMemsetD32Async@1=2"), pytest.raises(errors.CudaError):
        on_a_stream(lambda: scalar.update(4.0))
    assert gone[-1]() is None
    assert scalar.get() == 3.0
    scalar.close()
    assert [each() for each in gone] == [None] * 4
