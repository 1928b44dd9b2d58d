"""Numba's device arrays in a graphed callable. Numba is never imported from here.

Numba has no current stream: its copies are enqueued on the one of the call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gpuprof._callable.layout import is_dense

if TYPE_CHECKING:
    from gpuprof._callable.placement import CallStream

_CONTIGUOUS = ("C_CONTIGUOUS", "F_CONTIGUOUS")


class NumbaArrays:
    """Numba's device arrays; see `gpuprof._callable.arrays.Arrays`.

    Parameters
    ----------
    cuda : module
        ``numba.cuda``.
    kind : type
        Of the arrays.
    on : CallStream or None
        Of the copies; None is the default stream.
    """

    name = "numba"
    in_place = False

    def __init__(self, cuda: Any, kind: type, on: CallStream | None = None) -> None:
        self._cuda = cuda
        self._on = on
        self.types: tuple[type, ...] = (kind,)

    def static_like(self, array: Any) -> Any:
        return self._cuda.device_array_like(array)

    def fill(self, static: Any, array: Any) -> None:
        if any(static.flags[order] and array.flags[order] for order in _CONTIGUOUS):
            static.copy_to_device(array, stream=self._stream())
        elif array.size:
            whole = (slice(None),) * len(array.shape)
            static.setitem(whole, array, stream=self._stream())

    def fresh_maker(self, static: Any) -> tuple[Callable[[Any], Any], Any]:
        return self._cuda.device_array_like, static

    def stage(self, static: Any, array: Any) -> Any:
        result = self._cuda.device_array_like(static)
        self.fill(result, array)
        return result

    def dense(self, array: Any) -> Any:
        return array if self._is_dense(array) else self.stage(array, array)

    def same_bytes(self, a: Any, b: Any) -> bool:
        stream = self._stream()
        on_host = [each.copy_to_host(stream=stream) for each in (a, b)]
        if stream:
            stream.synchronize()
        return bool(on_host[0].tobytes() == on_host[1].tobytes())

    def slice(self, array: Any, dim: int, size: int) -> Any:
        return array[_along(array, dim, slice(0, size))]

    def padded(self, array: Any, dim: int, size: int) -> Any:
        given = array.shape[dim]
        shape = (*array.shape[:dim], size, *array.shape[dim + 1 :])
        result = self._cuda.device_array(shape, dtype=array.dtype)
        stream = self._stream()
        for index, value in ((slice(0, given), array), (slice(given, size), 0)):
            if 0 not in (*shape, index.stop - index.start):
                result.setitem(_along(array, dim, index), value, stream=stream)
        return result

    def nbytes(self, array: Any) -> int:
        return int(array.size) * int(array.dtype.itemsize)

    def _is_dense(self, array: Any) -> bool:
        itemsize = int(array.dtype.itemsize)
        return is_dense(array.shape, [stride // itemsize for stride in array.strides])

    def _stream(self) -> Any:
        handle = 0 if self._on is None else self._on.handle()
        return self._cuda.external_stream(handle) if handle else 0


def _along(array: Any, dim: int, index: slice) -> tuple[slice, ...]:
    rest = len(array.shape) - dim - 1
    return (*[slice(None)] * dim, index, *[slice(None)] * rest)
