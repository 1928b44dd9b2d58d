"""What a graphed callable does with arrays, whichever library they are of.

A graph reads its inputs from, and writes its results to, arrays of its own (`static`); the copies
between those and a call's arrays are nodes of the graph. What the nodes cannot do is done here by
the array's own library, on its current stream: to make the static arrays, to fill them, to lay out
a call's array as they are laid out, to compare, to pad and to cut.

No library is imported here: an array can be theirs only if theirs is imported already. All methods
leave their arguments as they are, other than `fill`, and may be called on any thread; `same_bytes`
alone waits for the GPU. Errors are those of the library.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from gpuprof._callable.placement import CallStream
    from gpuprof._callable.pytree import Leaf


class Arrays(Protocol):
    """The arrays of one library.

    Attributes
    ----------
    name : str
        ``"torch"``, ``"cupy"``, ``"numba"`` or ``"address"``.
    types : tuple of type
        The exact types that a call may bring.
    in_place : bool
        Whether the graph uses the arrays that it was captured with, where they are: nothing is
        copied, and the address is part of what a call must match.
    """

    name: str
    types: tuple[type, ...]
    in_place: bool

    def static_like(self, array: Any) -> Any:
        """Return a new array that is not filled: dense, with the order of `array`'s dimensions.

        An array that is dense already has its strides kept.
        """

    def fill(self, static: Any, array: Any) -> None:
        """Enqueue the copy of `array` into `static`."""

    def fresh_maker(self, static: Any) -> tuple[Callable[[Any], Any], Any]:
        """Return ``(f, a)``: ``f(a)`` is a new array, not filled, with the strides of `static`."""

    def stage(self, static: Any, array: Any) -> Any:
        """Return a new array that is laid out as `static` and filled from `array`."""

    def dense(self, array: Any) -> Any:
        """Return a dense array with the values of `array`, which is that itself if it is dense."""

    def same_bytes(self, a: Any, b: Any) -> bool:
        """Wait, and return whether two arrays of one shape and dtype hold the same bits."""

    def slice(self, array: Any, dim: int, size: int) -> Any:
        """Return a view of the first `size` along one dimension."""

    def padded(self, array: Any, dim: int, size: int) -> Any:
        """Return a new array of `size` along one dimension: `array`, then zeros."""

    def nbytes(self, array: Any) -> int:
        """Return how many bytes the elements have."""


def arrays_of(array: Any, on: CallStream | None = None) -> Arrays:
    """Return what handles `array`, chosen by its exact type.

    Parameters
    ----------
    array : object
    on : CallStream, optional
        The stream of the copies where the library has no current one. Needed for copies alone.

    Raises
    ------
    TypeError
        It is a subclass of torch's tensor, or no array on a GPU at all.
    """
    kind = type(array)
    torch: Any = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    if tensor is not None and issubclass(kind, tensor):
        arrays = _of_torch(torch)
        if kind in arrays.types:
            return arrays
        message = (
            f"expected a torch.Tensor, got its subclass {kind.__module__}.{kind.__qualname__}, "
            "whose operators a graph cannot follow; pass the tensors inside of it"
        )
        raise TypeError(message)
    cupy: Any = sys.modules.get("cupy")
    if kind is getattr(cupy, "ndarray", None):
        return _of_cupy(cupy)
    numba: Any = sys.modules.get("numba.cuda.cudadrv.devicearray")
    if kind is getattr(numba, "DeviceNDArray", None):
        from gpuprof._callable.arrays_numba import NumbaArrays

        return NumbaArrays(sys.modules["numba.cuda"], kind, on)
    if hasattr(kind, "__cuda_array_interface__") or hasattr(array, "__cuda_array_interface__"):
        return _InPlace(kind)
    message = f"expected an array on a GPU, got {kind.__module__}.{kind.__qualname__}"
    raise TypeError(message)


# One library each is kept: a process has no more.
@functools.lru_cache(maxsize=1)
def _of_torch(torch: Any) -> Arrays:
    from gpuprof._callable.arrays_torch import TorchArrays

    return TorchArrays(torch)


@functools.lru_cache(maxsize=1)
def _of_cupy(cupy: Any) -> Arrays:
    from gpuprof._callable.arrays_cupy import CupyArrays

    return CupyArrays(cupy)


def copies_of(leaves: Sequence[Leaf], on: CallStream) -> list[Any]:
    """Return copies of the arrays of a call; of one that is used in place, itself."""
    copies = []
    for leaf in leaves:
        arrays = arrays_of(leaf.array, on)
        copies.append(arrays.static_like(leaf.array))
        arrays.fill(copies[-1], leaf.array)
    return copies


def changed(leaves: Sequence[Leaf], copies: Sequence[Any], on: CallStream) -> list[str]:
    """Wait, and return the paths of those arrays that differ from their copies."""
    return [
        leaf.path
        for leaf, copy in zip(leaves, copies, strict=True)
        if not arrays_of(leaf.array, on).same_bytes(leaf.array, copy)
    ]


class _InPlace:
    """Arrays of which nothing is known but where they are: they are used there."""

    name = "address"
    in_place = True

    def __init__(self, kind: type) -> None:
        self.types: tuple[type, ...] = (kind,)

    def static_like(self, array: Any) -> Any:
        return array

    def fill(self, static: Any, array: Any) -> None:
        """Do nothing: a call's array is the static one, or does not match."""

    def fresh_maker(self, static: Any) -> tuple[Callable[[Any], Any], Any]:
        return _itself, static

    def stage(self, *_: Any, **__: Any) -> Any:
        raise self._refusal()

    def dense(self, array: Any) -> Any:
        return array

    def same_bytes(self, a: Any, b: Any) -> bool:
        return _address(a) == _address(b)

    def slice(self, *_: Any, **__: Any) -> Any:
        raise self._refusal()

    def padded(self, *_: Any, **__: Any) -> Any:
        raise self._refusal()

    def nbytes(self, array: Any) -> int:
        interface = array.__cuda_array_interface__
        size = int(interface["typestr"][2:])
        for each in interface["shape"]:
            size *= int(each)
        return size

    def _refusal(self) -> TypeError:
        kind = self.types[0]
        message = (
            f"an array of type {kind.__module__}.{kind.__qualname__} is used where it is, and "
            "cannot be copied, cut or padded; pass it as a torch tensor or a CuPy array "
            "(torch.as_tensor(x), cupy.asarray(x))"
        )
        return TypeError(message)


def _itself(array: Any) -> Any:
    return array


def _address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])
