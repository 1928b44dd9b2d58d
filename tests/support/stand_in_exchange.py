"""An array of the stand-in CuPy that tells of itself by DLPack's C exchange API."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.support import stand_in_cupy
from tests.support.dlpack import Tensor

_CUDA = 2
_CODES = {"i": 0, "u": 1, "f": 2}


_Look = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(Tensor))
_Stream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)


class _Api(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("make_like", ctypes.c_void_p),
        ("from_object", ctypes.c_void_p),
        ("to_object", ctypes.c_void_p),
        ("look", _Look),
        ("current_stream", _Stream),
    )


def _numbers(values: Any) -> Any:
    return (ctypes.c_int64 * len(values))(*values)


def _look(array: ExchangingArray, out: Any) -> int:
    ExchangingArray.looks += 1
    # What the answer points at lives as long as the array.
    array._exchanged = (
        _numbers(array.shape),
        _numbers([stride // array.itemsize for stride in array.strides]),
    )
    tensor = out.contents
    # The address in two parts, as the protocol has them.
    tensor.data, tensor.byte_offset = array.data.mem.ptr, array.data.ptr - array.data.mem.ptr
    tensor.device_type, tensor.device_id = _CUDA, 0
    tensor.ndim = len(array.shape)
    tensor.code, tensor.bits, tensor.lanes = _CODES[array.dtype[0]], 8 * array.itemsize, 1
    tensor.shape = ctypes.addressof(array._exchanged[0])
    dense = array._is_contiguous()
    tensor.strides = None if dense else ctypes.addressof(array._exchanged[1])
    return 0


def _current_stream(_type: int, _device: int, out: Any) -> int:
    ExchangingArray.asked_for_streams += 1
    out[0] = stand_in_cupy._world().handle
    return 0


_api = _Api(1, 3, None, None, None, None, _Look(_look), _Stream(_current_stream))
_NAME = b"dlpack_exchange_api"  # the capsule has its address
_new_capsule = ctypes.pythonapi.PyCapsule_New
_new_capsule.restype = ctypes.py_object
_new_capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class ExchangingArray(stand_in_cupy.ndarray):
    """Counts what it is asked."""

    __dlpack_c_exchange_api__ = _new_capsule(ctypes.addressof(_api), _NAME, None)
    looks = 0
    asked_for_streams = 0
    _exchanged: Any
