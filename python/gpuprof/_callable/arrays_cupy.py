"""CuPy's arrays in a graphed callable. CuPy is never imported from here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprof._callable.layout import grown, is_dense


class CupyArrays:
    """Arrays of CuPy; see `gpuprof._callable.arrays.Arrays`.

    Parameters
    ----------
    cupy : module
    """

    name = "cupy"
    in_place = False

    def __init__(self, cupy: Any) -> None:
        self._cupy = cupy
        self.types: tuple[type, ...] = (cupy.ndarray,)

    def static_like(self, array: Any) -> Any:
        return self._cupy.empty_like(array)

    def fill(self, static: Any, array: Any) -> None:
        static[...] = array

    def fresh_maker(self, static: Any) -> tuple[Callable[[Any], Any], Any]:
        return self._cupy.empty_like, static

    def stage(self, static: Any, array: Any) -> Any:
        result = self._cupy.empty_like(static)
        self.fill(result, array)
        return result

    def dense(self, array: Any) -> Any:
        steps = [stride // array.itemsize for stride in array.strides]
        return array if is_dense(array.shape, steps) else self.stage(array, array)

    def same_bytes(self, a: Any, b: Any) -> bool:
        raw = [self._cupy.ascontiguousarray(each).reshape(-1).view("u1") for each in (a, b)]
        return bool((raw[0] == raw[1]).all())

    def slice(self, array: Any, dim: int, size: int) -> Any:
        return array[_along(dim, slice(0, size))]

    def padded(self, array: Any, dim: int, size: int) -> Any:
        shape, back = grown(array.shape, array.strides, dim, size)
        result = self._cupy.empty(shape, dtype=array.dtype).transpose(back)
        given = array.shape[dim]
        self.fill(self.slice(result, dim, given), array)
        result[_along(dim, slice(given, size))] = 0
        return result

    def nbytes(self, array: Any) -> int:
        return int(array.nbytes)


def _along(dim: int, index: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * dim, index)
