"""A Numba without a GPU: its device arrays lie in the fake driver's memory.

As Numba's, they know no current stream: what is given no stream is on the default one.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest

from tests.support import stand_in_cupy
from tests.support.stand_in_cupy import Stream


class DeviceNDArray(stand_in_cupy.ndarray):
    """A device array, with those methods that copy."""

    @property
    def flags(self) -> dict[str, bool]:
        return {"C_CONTIGUOUS": self._is_contiguous(), "F_CONTIGUOUS": False}

    def copy_to_device(self, array: DeviceNDArray, stream: Any) -> None:
        with _on(stream):
            self._copy_from(array)

    def setitem(self, key: tuple[slice, ...], value: Any, stream: Any) -> None:
        with _on(stream):
            self[key] = value

    def copy_to_host(self, stream: Any = 0) -> _OnHost:
        with _on(stream):
            return _OnHost(self.tolist())


class _OnHost(list[Any]):
    def tobytes(self) -> str:
        return repr(self)


def _on(stream: Any) -> Stream:
    return stream if isinstance(stream, Stream) else Stream._of(stream)


def install(patch: pytest.MonkeyPatch) -> Any:
    """Import the stand-in as ``numba.cuda``, within a CuPy that is one; return it."""
    cuda: Any = types.ModuleType("numba.cuda")
    cuda.external_stream = Stream._of
    cuda.device_array_like = stand_in_cupy.empty_like
    cuda.to_device = _to_device
    arrays: Any = types.ModuleType("numba.cuda.cudadrv.devicearray")
    arrays.DeviceNDArray = DeviceNDArray
    patch.setitem(sys.modules, "numba.cuda", cuda)
    patch.setitem(sys.modules, "numba.cuda.cudadrv.devicearray", arrays)
    return cuda


def _to_device(values: list[Any]) -> DeviceNDArray:
    with _on(0):
        array = stand_in_cupy.array(values)
    return DeviceNDArray(array.shape, array.dtype, array.data)
