"""How arrays are made, filled, compared and cut, whichever library they are of.

A graph reads its inputs from, and writes its results to, arrays of its own (`static`); the copies
between those and a call's arrays are nodes of the graph. What the nodes cannot do is done here by
the array's own library, on its current stream: to make the static arrays, to fill them, to lay out
a call's array as they are laid out, to compare, to pad and to cut.

No library is imported here: an array can be theirs only if theirs is imported already. All methods
leave their arguments as they are, other than `fill`, and may be called on any thread; `elements`
and the truth of what `same_bytes` returns alone wait for the GPU. Errors are those of the library.
"""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from gpuprof._common.text import type_name
from gpuprof._frameworks import loaded
from gpuprof._frameworks.array_facts import reach

if TYPE_CHECKING:
    from gpuprof._frameworks.streams import CallStream


class Arrays(ABC):
    """The arrays of one library."""

    name: ClassVar[str]
    # Whether the graph uses the arrays that it was captured with, where they are: nothing is
    # copied, and the address is part of what a call must match.
    in_place: ClassVar[bool] = False

    def __init__(self, types: tuple[type, ...], empty_like: Callable[[Any], Any]) -> None:
        self.types = types  # the exact ones that a call may bring
        self.empty_like = empty_like  # returns a new array, not filled, with the same strides

    def at(self, on: CallStream) -> Arrays:  # noqa: ARG002
        """Return what makes its copies on a stream where the library has no current one."""
        return self

    def static_like(self, array: Any) -> Any:
        """Return a new array that is not filled: dense, with the order of `array`'s dimensions."""
        return self.empty_like(array)

    def laid_out_like(self, array: Any, static: Any) -> Any:  # noqa: ARG002
        """Return a new array with the strides of `array`, or `static` where that will do."""
        return static

    @abstractmethod
    def fill(self, static: Any, array: Any) -> None:
        """Enqueue the copy of `array` into `static`, of which an element may stand for several."""

    def stage(self, static: Any, array: Any) -> Any:
        """Return a new array that is laid out as `static` and filled from `array`."""
        result = self.empty_like(static)
        self.fill(result, array)
        return result

    def dense(self, array: Any) -> Any:
        """Return a dense array with the values of `array`, which is that itself if it is dense."""
        steps = [stride // int(array.dtype.itemsize) for stride in array.strides]
        return array if is_dense(array.shape, steps) else self.stage(array, array)

    def same_bytes(self, a: Any, b: Any) -> Any:
        """Return what is true if two arrays of one shape and dtype hold the same bits."""
        return self.elements(a).tobytes() == self.elements(b).tobytes()

    @abstractmethod
    def elements(self, array: Any) -> Any:
        """Return the elements in one dimension, row by row: torch's for its own, else NumPy's."""

    def bits(self, elements: Any) -> Any:
        """Return of such elements what is equal if their bits are."""
        return elements

    def slice(self, array: Any, dim: int, size: int) -> Any:
        """Return a view of the first `size` along one dimension."""
        return array[_along(array, dim, slice(0, size))]

    @abstractmethod
    def padded(self, array: Any, dim: int, size: int) -> Any:
        """Return a new array of `size` along one dimension: `array`, then zeros."""

    def nbytes(self, array: Any) -> int:
        return int(math.prod(array.shape) * array.dtype.itemsize)


def arrays_of(kind: type, on: CallStream | None = None) -> Arrays:
    """Return what handles the arrays of exactly this type; TypeError where nothing does."""
    if issubclass(kind, loaded.tensor_type()):
        return _of_torch(loaded.torch())  # of none of its subclasses there are facts
    if kind is loaded.cupy_array_type():
        return _of_cupy(loaded.cupy())
    if kind is loaded.numba_array_type():
        return NumbaArrays(loaded.numba_cuda(), kind, on)
    if hasattr(kind, "__cuda_array_interface__"):
        return _InPlaceArrays(kind)
    message = f"expected an array on a GPU, got {type_name(kind)}"
    raise TypeError(message)


def all_true(array: Any, size: int) -> Any:
    """Return a mask of the library and on the device of an array; None if it has no such masks."""
    if loaded.is_tensor(array):
        torch = loaded.torch()
        return torch.ones(size, dtype=torch.bool, device=array.device)
    if type(array) is loaded.cupy_array_type():
        with array.device:
            return loaded.cupy().ones(size, dtype=bool)
    return None


def copied(tensors: Sequence[Any]) -> list[Any]:
    """Return copies of torch's tensors, for `put_back`."""
    return [tensor.detach().clone() for tensor in tensors]


def put_back(tensors: Sequence[Any], copies: Sequence[Any]) -> None:
    if tensors:
        # In inference mode, tensors that were made in it can be written to as well.
        with loaded.torch().inference_mode():
            for tensor, copy in zip(tensors, copies, strict=True):
                tensor.copy_(copy)


class TorchArrays(Arrays):
    """Tensors and parameters of torch's.

    What it makes asks for no gradients, but for what is padded. Static tensors are ordinary ones
    even in inference mode, so that later calls may write to them outside of it.
    """

    name = "torch"

    def __init__(self, torch: Any) -> None:
        types = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        super().__init__(types, torch.empty_like)
        self._torch = torch
        # Integers of each size: as such, a NaN equals itself.
        self._bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32}

    def static_like(self, array: Any) -> Any:
        # Memory that was expanded or sliced comes out dense here, with its dimensions in order.
        with self._torch.inference_mode(False):
            return self._torch.empty_like(array.detach())

    def laid_out_like(self, array: Any, static: Any) -> Any:
        shape, strides = tuple(array.shape), tuple(array.stride())
        if has_strides(shape, strides, static.stride()):
            return static
        with self._torch.inference_mode(False):
            _, size = reach(shape, strides, 1)
            base = self._torch.empty(size, dtype=array.dtype, device=array.device)
            return base.as_strided(shape, strides)

    def fill(self, static: Any, array: Any) -> None:
        for dim, (size, stride) in enumerate(zip(static.shape, static.stride(), strict=True)):
            if stride == 0 and size > 1:  # it was expanded
                static, array = static.narrow(dim, 0, 1), array.narrow(dim, 0, 1)
        with self._torch.no_grad():  # the copy resolves conjugate and negative views
            static.copy_(array)

    def dense(self, array: Any) -> Any:
        if not (array.is_conj() or array.is_neg()) and is_dense(array.shape, array.stride()):
            return array
        return self.stage(array.detach(), array)

    def same_bytes(self, a: Any, b: Any) -> Any:
        return (self.bits(self.elements(a)) == self.bits(self.elements(b))).all()

    def elements(self, array: Any) -> Any:
        return array.detach().resolve_conj().resolve_neg().reshape(-1).contiguous()

    def bits(self, elements: Any) -> Any:
        return elements.view(self._bits.get(elements.element_size(), self._torch.int64))

    def padded(self, array: Any, dim: int, size: int) -> Any:
        # By torch's operator, for gradients flow back through it, on dimensions in memory's order.
        order, back = memory_order(array.stride())
        after = len(order) - 1 - order.index(dim)
        pads = [0, 0] * after + [0, size - array.shape[dim]]
        return self._torch.constant_pad_nd(array.permute(order), pads).permute(back)


class CupyArrays(Arrays):
    name = "cupy"

    def __init__(self, cupy: Any) -> None:
        super().__init__((cupy.ndarray,), cupy.empty_like)
        self._cupy = cupy

    def laid_out_like(self, array: Any, static: Any) -> Any:
        shape, strides, itemsize = array.shape, array.strides, int(array.dtype.itemsize)
        if has_strides(shape, strides, static.strides) or min(strides) < 0:
            return static
        size = reach(shape, strides, itemsize)[1] // itemsize
        base = self._cupy.empty(size, dtype=array.dtype)
        return self._cupy.lib.stride_tricks.as_strided(base, shape, strides)

    def fill(self, static: Any, array: Any) -> None:
        static[...] = array

    def same_bytes(self, a: Any, b: Any) -> Any:
        raw = [self._cupy.ascontiguousarray(each).reshape(-1).view("u1") for each in (a, b)]
        return (raw[0] == raw[1]).all()

    def elements(self, array: Any) -> Any:
        return self._cupy.asnumpy(array).reshape(-1)

    def padded(self, array: Any, dim: int, size: int) -> Any:
        # A longer array, whose dimensions lie in memory in the same order.
        wanted, given = list(array.shape), array.shape[dim]
        wanted[dim] = size
        order, back = memory_order(array.strides)
        result = self._cupy.empty([wanted[axis] for axis in order], dtype=array.dtype)
        result = result.transpose(back)
        self.fill(self.slice(result, dim, given), array)
        result[_along(result, dim, slice(given, size))] = 0
        return result


class NumbaArrays(Arrays):
    """Numba's device arrays, copied on `on`, else on the default stream: it has no current one."""

    name = "numba"

    def __init__(self, cuda: Any, kind: type, on: CallStream | None = None) -> None:
        super().__init__((kind,), cuda.device_array_like)
        self._cuda = cuda
        self._on = on

    def at(self, on: CallStream) -> Arrays:
        return NumbaArrays(self._cuda, self.types[0], on)

    def fill(self, static: Any, array: Any) -> None:
        orders = ("C_CONTIGUOUS", "F_CONTIGUOUS")
        if any(static.flags[order] and array.flags[order] for order in orders):
            static.copy_to_device(array, stream=self._stream())
        elif array.size:
            whole = (slice(None),) * len(array.shape)
            static.setitem(whole, array, stream=self._stream())

    def elements(self, array: Any) -> Any:
        stream = self._stream()
        on_host = array.copy_to_host(stream=stream)
        if stream:
            stream.synchronize()
        return loaded.numpy().asarray(on_host).reshape(-1)

    def padded(self, array: Any, dim: int, size: int) -> Any:
        given = array.shape[dim]
        shape = (*array.shape[:dim], size, *array.shape[dim + 1 :])
        result = self._cuda.device_array(shape, dtype=array.dtype)
        stream = self._stream()
        for index, value in ((slice(0, given), array), (slice(given, size), 0)):
            if 0 not in (*shape, index.stop - index.start):
                result.setitem(_along(array, dim, index), value, stream=stream)
        return result

    def _stream(self) -> Any:
        handle = 0 if self._on is None else self._on.handle()
        return self._cuda.external_stream(handle) if handle else 0


class _InPlaceArrays(Arrays):
    """Arrays of which nothing is known but where they are: they are used there."""

    name = "address"
    in_place = True

    def __init__(self, kind: type) -> None:
        super().__init__((kind,), lambda array: array)

    def fill(self, static: Any, array: Any) -> None:
        """Do nothing: a call's array is the static one, or does not match."""

    def dense(self, array: Any) -> Any:
        return array

    def nbytes(self, array: Any) -> int:
        interface = array.__cuda_array_interface__
        return math.prod(map(int, interface["shape"])) * int(interface["typestr"][2:])

    def _refuse(self, *_arguments: Any, **_options: Any) -> Any:
        kind = self.types[0]
        message = (
            f"an array of type {kind.__module__}.{kind.__qualname__} is used where it is, and "
            "cannot be copied, cut or padded; pass it as a torch tensor or a CuPy array "
            "(torch.as_tensor(x), cupy.asarray(x))"
        )
        raise TypeError(message)

    stage = same_bytes = elements = slice = padded = _refuse


# One library each is kept: a process has no more.
_of_torch = functools.lru_cache(maxsize=1)(TorchArrays)
_of_cupy = functools.lru_cache(maxsize=1)(CupyArrays)


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements fill their memory, each place once; strides are in elements."""
    if 0 in shape:
        return True
    expected = 1
    dims = ((stride, size) for stride, size in zip(strides, shape, strict=True) if size != 1)
    for stride, size in sorted(dims):
        if stride != expected:
            return False
        expected *= size
    return True


def has_strides(shape: Sequence[int], strides: Sequence[int], others: Sequence[int]) -> bool:
    """Return whether two layouts of a shape are the same; dimensions of one may have any stride."""
    return 0 in shape or all(
        one == other for size, one, other in zip(shape, strides, others, strict=True) if size > 1
    )


def memory_order(strides: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return the dimensions in the order of the memory, and the permutation that leads back."""
    order = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis]))
    return order, sorted(range(len(order)), key=order.__getitem__)


def _along(array: Any, dim: int, index: slice) -> tuple[slice, ...]:
    whole = [slice(None)] * len(array.shape)
    return (*whole[:dim], index, *whole[dim + 1 :])
