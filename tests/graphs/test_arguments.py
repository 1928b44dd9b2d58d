"""What captures and graphs accept as arguments, and how a wrong one is named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from gpuprof import errors
from tests.fake_driver.control import FakeCuda
from tests.support.captures import Buffer, captured
from tests.support.processes import check_python


class Array:
    """Looks like a device array, and must not be taken apart into rows."""

    __cuda_array_interface__ = property(dict)

    def __iter__(self) -> Iterator[object]:
        raise AssertionError("it was iterated over")


@pytest.mark.parametrize("keep", [Array(), Buffer(), "tensor", b"x", memoryview(b"x"), 7, None])
def test_one_object_to_keep_is_not_taken_for_many(keep: object) -> None:
    with pytest.raises(TypeError, match=r"keep_alive: .*write \[x\]"):
        gpuprof.capture(keep_alive=keep)  # type: ignore[arg-type]


def test_objects_to_keep_come_in_any_iterable(fake: FakeCuda, stream: int) -> None:
    for keep in ([Buffer()], (Buffer(),), {Buffer(): 1}, iter([Buffer()])):
        captured(fake, stream, keep_alive=keep).close()


def test_an_exception_of_the_iterable_passes() -> None:
    def broken() -> Iterator[object]:
        yield 1
        raise TypeError("mine")

    with pytest.raises(TypeError, match=r"^mine$"):
        gpuprof.capture(keep_alive=broken())


@pytest.mark.parametrize(
    ("name", "error"), [(7, TypeError), ("", ValueError), ("a\ud800b", ValueError)]
)
def test_a_name_is_checked_before_anything_is_captured(
    name: object, error: type[Exception]
) -> None:
    for call in (
        lambda: gpuprof.capture(name=name),  # type: ignore[arg-type]
        lambda: gpuprof.CapturedGraph.from_handles(1, 1, name=name),  # type: ignore[arg-type]
        lambda: gpuprof.CapturedGraph.from_torch(object(), name=name),  # type: ignore[arg-type]
    ):
        with pytest.raises(error, match=r"^name: "):
            call()


def test_names_with_odd_characters_are_shown_in_one_short_line(fake: FakeCuda, stream: int) -> None:
    name = "a\nb\x00" + "c" * 100_000
    with captured(fake, stream, name=name) as graph:
        assert graph.name == name
        assert len(repr(graph)) < 200
        assert repr(graph).isprintable()
    with pytest.raises(errors.EmptyGraphError) as raised, gpuprof.capture(stream, name=name):
        pass
    assert len(str(raised.value)) < 500
    assert str(raised.value).isprintable()


def test_without_a_device_everything_that_needs_one_says_so(fake_path: Path) -> None:
    check_python(
        """
        import gpuprof
        for call in (
            gpuprof.begin_capture,
            gpuprof.end_capture,
            gpuprof.capture().__enter__,
            gpuprof.capture(backend="torch").__enter__,
            gpuprof.capture(backend="driver").__enter__,
            gpuprof.capture_info,
            lambda: gpuprof.DeviceScalar(1.0),
        ):
            try:
                call()
            except gpuprof.errors.CudaUnavailableError:
                continue
            raise AssertionError(call)
        try:
            gpuprof.DeviceScalar("x", "float32")
        except TypeError:
            handle = gpuprof.graph_pool_handle()  # names none, and pools work
        assert not handle and int(handle) == 0 and handle == gpuprof.graph_pool_handle()
        assert gpuprof.capture_pool_for_handle(handle) is None
        gpuprof.release_graph_pool_handle(handle)
        pool = gpuprof.CapturePool()
        pool.record_buffer(object())
        pool.seal()
        assert repr(pool) == "<gpuprof.CapturePool, 1 buffer, sealed>"
        """,
        driver=fake_path,
        FAKECUDA_CONFIG="device_count=0",
    )
