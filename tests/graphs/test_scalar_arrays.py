"""Device scalars as operands: the array interface and DLPack's capsules, as consumers read them."""

from __future__ import annotations

import ctypes
import gc
import threading
from typing import Any

import pytest

from gpuprof import DeviceScalar, errors
from tests.fake_driver.control import FakeCuda
from tests.support.dlpack import Tensor
from tests.support.held import release_idle

MS = 1_000_000
CUDA = 2
INT, UINT, FLOAT, BFLOAT, BOOL = 0, 1, 2, 4, 6

CODES = {
    "bool": (BOOL, 8, "|b1"),
    "int8": (INT, 8, "|i1"),
    "int64": (INT, 64, "<i8"),
    "uint8": (UINT, 8, "|u1"),
    "uint32": (UINT, 32, "<u4"),
    "float16": (FLOAT, 16, "<f2"),
    "float32": (FLOAT, 32, "<f4"),
    "float64": (FLOAT, 64, "<f8"),
    "bfloat16": (BFLOAT, 16, None),
}


class Managed(ctypes.Structure):
    _fields_ = [("tensor", Tensor), ("owner", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("owner", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", Tensor),
    ]


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.argtypes = [ctypes.py_object, ctypes.c_char_p]
_DELETER = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_USED_NAMES = {b"dltensor": b"used_dltensor", b"dltensor_versioned": b"used_dltensor_versioned"}


def inside(capsule: object, name: bytes) -> Any:
    kind = Managed if name == b"dltensor" else ManagedVersioned
    return kind.from_address(_get_pointer(capsule, name))


class Consumer:
    """Takes a capsule over as an array library does, and gives it back when it is told to."""

    def __init__(self, capsule: object, name: bytes) -> None:
        self.managed = inside(capsule, name)
        _set_name(capsule, _USED_NAMES[name])

    def done(self) -> None:
        _DELETER(self.managed.deleter)(ctypes.addressof(self.managed))


@pytest.mark.parametrize("dtype", CODES)
def test_the_array_interface_describes_an_array_without_dimensions(stream: int, dtype: str) -> None:
    scalar = DeviceScalar(1, dtype, stream)
    typestr = CODES[dtype][2]
    if typestr is None:
        assert not hasattr(scalar, "__cuda_array_interface__")
        with pytest.raises(AttributeError, match="no code for bfloat16; use DLPack"):
            scalar.__cuda_array_interface__  # noqa: B018
        return
    assert scalar.__cuda_array_interface__ == {
        "shape": (),
        "typestr": typestr,
        "data": (scalar.ptr, False),
        "strides": None,
        "stream": stream,
        "version": 3,
    }


def test_the_array_interface_names_the_stream_of_the_last_update(stream: int) -> None:
    scalar = DeviceScalar(1)
    assert scalar.__cuda_array_interface__["stream"] == 1  # 0 would be ambiguous
    scalar.update(2, stream)
    assert scalar.__cuda_array_interface__["stream"] == stream


@pytest.mark.parametrize("dtype", CODES)
@pytest.mark.parametrize(
    ("max_version", "name"),
    [
        (None, b"dltensor"),
        ((0, 8), b"dltensor"),
        ((1, 0), b"dltensor_versioned"),
        ((1, 3), b"dltensor_versioned"),
    ],
)
def test_a_capsule_describes_the_number(
    fake: FakeCuda, dtype: str, max_version: Any, name: bytes
) -> None:
    scalar = DeviceScalar(1, dtype)
    capsule = scalar.__dlpack__(max_version=max_version)
    managed = inside(capsule, name)
    tensor = managed.tensor
    assert tensor.data == scalar.ptr
    assert (tensor.device_type, tensor.device_id) == scalar.__dlpack_device__() == (CUDA, 0)
    assert (tensor.ndim, tensor.shape, tensor.strides, tensor.byte_offset) == (0, None, None, 0)
    assert (tensor.code, tensor.bits, tensor.lanes) == (*CODES[dtype][:2], 1)
    if name == b"dltensor_versioned":
        assert (managed.major, managed.flags) == (1, 0)


@pytest.mark.parametrize("name", _USED_NAMES)
def test_what_a_consumer_took_keeps_the_memory(fake: FakeCuda, name: bytes) -> None:
    version = (1, 0) if name == b"dltensor_versioned" else None
    scalar = DeviceScalar(7, "uint32")
    address = scalar.ptr
    capsule: Any = scalar.__dlpack__(max_version=version)
    array = Consumer(capsule, name)
    del capsule
    scalar.close()
    del scalar
    gc.collect()
    fake.complete(0)
    release_idle()
    assert fake.read(address, 4) == (7).to_bytes(4, "little")
    thread = threading.Thread(target=array.done)  # a consumer's thread may be any
    thread.start()
    thread.join()
    release_idle()
    assert fake.live("memory") == 0


@pytest.mark.parametrize("version", [None, (1, 0)])
def test_a_capsule_that_nobody_took_lets_go_of_the_memory(fake: FakeCuda, version: Any) -> None:
    scalar = DeviceScalar(7)
    capsule: Any = scalar.__dlpack__(max_version=version)
    scalar.close()
    release_idle()
    assert fake.live("memory") == 1
    del capsule
    release_idle()
    assert fake.live("memory") == 0


def test_the_consumers_stream_waits_for_the_last_update(
    fake: FakeCuda, stream: int, other: int
) -> None:
    buffer = fake.memory_allocate(16)
    scalar = DeviceScalar(1, "uint32", stream)
    fake.complete(stream)
    fake.configure("mode=manual")
    fake.work(stream, 5 * MS)
    scalar.update(2)
    scalar.__dlpack__(stream=other)
    fake.copy(other, 4, buffer, scalar.ptr)
    fake.complete(other)
    assert fake.read(buffer, 4) == (2).to_bytes(4, "little")
    fake.configure("mode=auto")
    fake.memory_free(buffer)


@pytest.mark.parametrize("given", [-1, "own"])
def test_no_order_is_made_where_none_is_needed(fake: FakeCuda, stream: int, given: Any) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    waits = fake.calls("cuStreamWaitEvent")
    scalar.__dlpack__(stream=stream if given == "own" else given)
    assert fake.calls("cuStreamWaitEvent") == waits


@pytest.mark.parametrize("given", [None, 0, 1])
def test_the_legacy_default_stream_has_several_names(
    fake: FakeCuda, stream: int, given: Any
) -> None:
    scalar = DeviceScalar(1, "uint32")
    waits = fake.calls("cuStreamWaitEvent")
    scalar.__dlpack__(stream=given)
    assert fake.calls("cuStreamWaitEvent") == waits
    scalar.update(2, stream)
    scalar.__dlpack__(stream=given)
    assert fake.calls("cuStreamWaitEvent") == waits + 1


def test_what_cannot_be_handed_over_is_refused(fake: FakeCuda) -> None:
    scalar = DeviceScalar(1)
    scalar.__dlpack__(dl_device=(CUDA, 0), copy=False)
    for wanted in ((1, 0), (CUDA, 1)):
        with pytest.raises(BufferError, match=r"dl_device: .* not copied to another device"):
            scalar.__dlpack__(dl_device=wanted)
    with pytest.raises(BufferError, match="copy: "):
        scalar.__dlpack__(copy=True)
    with pytest.raises(TypeError, match="stream: expected None"):
        scalar.__dlpack__(stream="1")
    with pytest.raises(ValueError, match="stream: an int must be"):
        scalar.__dlpack__(stream=-2)


def test_a_failing_order_gives_no_capsule(fake: FakeCuda, stream: int, other: int) -> None:
    scalar = DeviceScalar(1, "uint32", stream)
    for function in ("cuEventRecord", "cuStreamWaitEvent"):
        with fake.faults(f"{function}@1=2"), pytest.raises(errors.CudaError, match=function):
            scalar.__dlpack__(stream=other)
    assert scalar.get() == 1
