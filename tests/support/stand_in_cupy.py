"""A CuPy without a GPU: its arrays lie in the fake driver's memory, its streams are the driver's.

Copies and fills are real, also as nodes of a graph; nothing else is computed. As CuPy's, an array's
memory goes back to a pool when the array does, and is given out again on the stream that it was
made on, while work may be queued there still.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import math
import struct
import sys
import threading
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from gpuprof._frameworks import cupy as frameworks_cupy
from tests.fake_driver.control import DISABLE_TIMING, DriverCallError, FakeCuda
from tests.support.cuda import Spared

if TYPE_CHECKING:
    from typing_extensions import Self

_ALIGNMENT = 512
_CODES = {"f4": "f", "f8": "d", "i4": "i", "i8": "q", "u1": "B", "i2": "h"}


class OfThread(threading.local):
    """What CuPy has for each thread: the streams and allocators of its blocks, innermost last."""

    def __init__(self, world: World) -> None:
        self.streams = [world.null]
        self.current = world.null  # of the innermost block, or made it for good since
        self.allocators = [world.pool.malloc]


class World:
    """The driver, and what CuPy has for each thread."""

    def __init__(self, fake: Any) -> None:
        self.fake = fake
        self.pool = MemoryPool()
        self.array_type: type[ndarray] = ndarray
        self.memory_outlives_its_pool = True
        self.context_goes_too = False  # at the end of the block
        self.null = Stream._of(0)
        self.thread = OfThread(self)

    def give_back(self, function: str, handle: int) -> None:
        """Destroy a handle, unless its context is gone: others may have its address by now."""
        if self in _worlds or not self.context_goes_too:
            self.fake.call(function, handle, expect=None)

    @property
    def handle(self) -> int:
        return self.thread.current.ptr


_worlds: list[World] = []


def _world() -> World:
    return _worlds[-1]


class Memory:
    """Memory of the driver's."""

    device_id = 0

    def __init__(self, size: int) -> None:
        self.size = size
        self._world = _world()
        self.ptr = self._world.fake.memory_allocate(size)

    def __del__(self) -> None:
        if hasattr(self, "ptr"):  # what is not given back is found in the driver's books
            self._world.give_back("cuMemFree_v2", self.ptr)


class MemoryPointer:
    def __init__(self, memory: Any, offset: int) -> None:
        self.mem = memory
        self.ptr = memory.ptr + offset

    def __add__(self, offset: int) -> MemoryPointer:
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)


class UnownedMemory:
    """Memory of `owner`, which it keeps alive."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int) -> None:
        assert device_id == 0
        self.ptr, self.size, self.device_id = ptr, size, device_id
        self._owner = owner


class _Pooled:
    device_id = 0

    def __init__(self, pool: MemoryPool, memory: Any, stream: int) -> None:
        self.ptr, self.size = memory.ptr, memory.size
        self._pool = weakref.ref(pool)
        pool._in_use[self.ptr] = (memory, stream)
        # From CuPy 14.1 on memory lives as long as what uses it; before, no longer than its pool.
        self._memory = memory if _world().memory_outlives_its_pool else None

    def __del__(self) -> None:
        pool = self._pool()
        if pool is not None:
            memory, stream = pool._in_use.pop(self.ptr)
            if not pool.is_over:
                pool._free.setdefault((stream, memory.size), []).append(memory)


class MemoryPool:
    is_over = False  # what comes back is given back at once

    def __init__(self, allocator: Callable[[int], MemoryPointer] | None = None) -> None:
        self._allocator = allocator or (lambda size: MemoryPointer(Memory(size), 0))
        self._free: dict[tuple[int, int], list[Any]] = {}
        self._in_use: dict[int, tuple[Any, int]] = {}

    def malloc(self, size: int) -> MemoryPointer:
        size = max(math.ceil(size / _ALIGNMENT), 1) * _ALIGNMENT
        stream = _world().handle
        free = self._free.get((stream, size))
        memory = free.pop() if free else self._new(size)
        return MemoryPointer(_Pooled(self, memory, stream), 0)

    def _new(self, size: int) -> Any:
        try:
            return self._allocator(size).mem
        except DriverCallError:
            self.free_all_blocks()
            return self._allocator(size).mem

    def free_all_blocks(self) -> None:
        self._free.clear()


@contextlib.contextmanager
def _using_allocator(allocator: Callable[[int], MemoryPointer]) -> Iterator[None]:
    allocators = _world().thread.allocators
    allocators.append(allocator)
    try:
        yield
    finally:
        allocators.pop()


class Event:
    def __init__(self, stream: int) -> None:
        self._world = _world()
        self.handle = self._world.fake.event_create(DISABLE_TIMING)
        self._world.fake.event_record(self.handle, stream)

    def __del__(self) -> None:
        if hasattr(self, "handle"):
            self._world.give_back("cuEventDestroy_v2", self.handle)


class Stream:
    """A stream, which goes with this object."""

    def __init__(self, *, non_blocking: bool = False) -> None:
        self._own = _world()
        self.ptr = self._own.fake.stream_create(int(non_blocking))
        self._graph_host_funcargs: list[Any] | None = None

    @classmethod
    def _of(cls, handle: int) -> Stream:
        self = cls.__new__(cls)
        self._own = None  # type: ignore[assignment]
        self.ptr = handle
        self._graph_host_funcargs = None
        return self

    @classmethod
    def from_external(cls, stream: Any) -> Stream:
        return cls._of(stream.__cuda_stream__()[1])

    def __del__(self) -> None:
        if getattr(self, "_own", None) is not None and hasattr(self, "ptr"):
            self._own.give_back("cuStreamDestroy_v2", self.ptr)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and self.ptr == other.ptr

    __hash__ = None  # type: ignore[assignment]

    def use(self) -> Stream:
        _world().thread.current = self
        return self

    def __enter__(self) -> Self:
        _world().thread.streams.append(self)
        return self.use()

    def __exit__(self, *_error: object) -> None:
        thread = _world().thread
        thread.streams.pop()
        thread.current = thread.streams[-1]

    def record(self) -> Event:
        return Event(self.ptr)

    def wait_event(self, event: Event) -> None:
        _world().fake.call("cuStreamWaitEvent", self.ptr, event.handle, 0)

    def synchronize(self) -> None:
        _world().fake.stream_synchronize(self.ptr)

    def is_capturing(self) -> bool:
        return bool(_world().fake.capture_status(self.ptr))

    def launch_host_func(self, callback: Callable[[Any], None], arg: Any) -> None:
        """In a capture, add a node, which does not keep what it is given; nothing runs here."""
        assert self.is_capturing()
        _world().fake.kernel(self.ptr, "host function", 1_000)
        self._graph_host_funcargs.append((callback, arg))  # type: ignore[union-attr]


class Device:
    """The only one."""

    def __init__(self, number: int = 0) -> None:
        assert number == 0

    def __int__(self) -> int:
        return 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...


class DType(str):
    """The type of elements, as in "f4"."""

    __slots__ = ()

    @property
    def itemsize(self) -> int:
        return int(self[1:])


class _Equal:
    def __init__(self, equal: bool) -> None:
        self._equal = equal

    def all(self) -> bool:
        return self._equal


class ndarray:
    """An array in the fake driver's memory. Strides are in bytes."""

    def __init__(
        self,
        shape: Sequence[int],
        dtype: str = "f4",
        data: MemoryPointer | None = None,
        strides: Sequence[int] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        self.dtype = DType(dtype)
        self.itemsize = self.dtype.itemsize
        self.strides = tuple(_dense(self.shape, self.itemsize) if strides is None else strides)
        self.data = _world().thread.allocators[-1](self.nbytes) if data is None else data

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.itemsize

    @property
    def device(self) -> Device:
        return Device()

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": self.shape,
            "typestr": ("|" if self.itemsize == 1 else "<") + self.dtype,
            "data": (self.data.ptr if self.size else 0, False),
            "strides": self.strides,
            "version": 3,
        }

    def transpose(self, axes: Sequence[int]) -> ndarray:
        return self._view(
            [self.shape[axis] for axis in axes], self.data, [self.strides[axis] for axis in axes]
        )

    @property
    def T(self) -> ndarray:
        return self.transpose(range(len(self.shape))[::-1])

    def reshape(self, *shape: int) -> ndarray:
        assert self._is_contiguous()
        return self._view((self.size,) if shape == (-1,) else shape, self.data, None)

    def view(self, dtype: str) -> ndarray:
        assert self._is_contiguous()
        return type(self)((self.nbytes // DType(dtype).itemsize,), dtype, self.data)

    def __getitem__(self, index: Any) -> ndarray:
        index = index if isinstance(index, tuple) else (index,)
        shape, strides, data = list(self.shape), list(self.strides), self.data
        for dim, part in enumerate(index):
            if part is Ellipsis:
                break
            begin, end, step = part.indices(shape[dim])
            data += begin * strides[dim]
            shape[dim] = max(math.ceil((end - begin) / step), 0)
            strides[dim] *= step
        return self._view(shape, data, strides)

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        if isinstance(value, ndarray):
            target._copy_from(value)
        else:
            raw = struct.pack(_CODES[self.dtype], value)
            for address in target._addresses():
                for place, byte in enumerate(raw):
                    _world().fake.call("cuMemsetD8Async", address + place, byte, 1, _world().handle)

    def __eq__(self, other: object) -> Any:
        assert isinstance(other, ndarray)
        return _Equal(self.tolist() == other.tolist())

    __hash__ = None  # type: ignore[assignment]

    def tolist(self) -> list[Any]:
        """Wait for the current stream, and return the values in the order of the indices."""
        fake = _world().fake
        fake.stream_synchronize(_world().handle)
        read = (fake.read(address, self.itemsize) for address in self._addresses())
        return [struct.unpack(_CODES[self.dtype], raw)[0] for raw in read]

    def tobytes(self) -> bytes:
        return b"".join(struct.pack(_CODES[self.dtype], each) for each in self.tolist())

    def copy(self) -> ndarray:
        result = empty_like(self)
        result[...] = self
        return result

    def _view(
        self, shape: Sequence[int], data: MemoryPointer, strides: Sequence[int] | None
    ) -> ndarray:
        return type(self)(shape, self.dtype, data, strides)

    def _is_contiguous(self) -> bool:
        return list(self.strides) == _dense(self.shape, self.itemsize) or self.size < 2

    def _addresses(self) -> list[int]:
        steps = [
            [place * stride for place in range(size)]
            for size, stride in zip(self.shape, self.strides, strict=True)
        ]
        return [self.data.ptr + sum(each) for each in itertools.product(*steps)]

    def _copy_from(self, source: ndarray) -> None:
        assert (self.shape, self.dtype) == (source.shape, source.dtype), "nothing is broadcast here"
        fake, stream = _world().fake, _world().handle
        if self.strides == source.strides and _is_dense(self):
            pairs, size = [(self.data.ptr, source.data.ptr)], self.nbytes
        else:
            addresses = self._addresses(), source._addresses()
            pairs, size = list(zip(*addresses, strict=True)), self.itemsize
        for target, begin in pairs:
            fake.call("cuMemcpyDtoDAsync_v2", target, begin, size, stream)


def _dense(shape: Sequence[int], itemsize: int) -> list[int]:
    sizes = itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=itemsize)
    return list(sizes)[::-1] if shape else []


def _is_dense(array: ndarray) -> bool:
    order = sorted(range(len(array.shape)), key=lambda axis: -array.strides[axis])
    expected = _dense([array.shape[axis] for axis in order], array.itemsize)
    return [array.strides[axis] for axis in order] == expected


def empty(shape: Sequence[int] | int, dtype: str = "f4") -> ndarray:
    return _world().array_type((shape,) if isinstance(shape, int) else shape, dtype)


def empty_like(array: ndarray) -> ndarray:
    strides = array.strides if _is_dense(array) else None
    return type(array)(array.shape, array.dtype, None, strides)


def array(values: Sequence[Any], dtype: str = "f4", shape: Sequence[int] | None = None) -> ndarray:
    """Return a new array of flat values."""
    result = empty((len(values),) if shape is None else shape, dtype)
    raw = struct.pack(f"{len(values)}{_CODES[dtype]}", *values)
    if raw:
        given = ctypes.create_string_buffer(raw, len(raw))
        copy = ("cuMemcpyHtoDAsync_v2", result.data.ptr, given, len(raw), _world().handle)
        _world().fake.call(*copy)
    return result


def ascontiguousarray(array: ndarray) -> ndarray:
    if array._is_contiguous():
        return array
    result = empty(array.shape, array.dtype)
    result[...] = array
    return result


def asnumpy(array: ndarray) -> Any:
    import numpy as np

    return np.array(array.tolist(), array.dtype).reshape(array.shape)


def as_strided(array: ndarray, shape: Sequence[int], strides: Sequence[int]) -> ndarray:
    return array._view(shape, array.data, strides)


def _module(world: World) -> Any:
    cupy: Any = types.ModuleType("cupy")
    cupy.ndarray = world.array_type
    stride_tricks = types.SimpleNamespace(as_strided=as_strided)
    cupy.lib = types.SimpleNamespace(stride_tricks=stride_tricks)
    for function in (empty, empty_like, array, ascontiguousarray, asnumpy):
        setattr(cupy, function.__name__, function)
    cupy.cuda = types.SimpleNamespace(
        Stream=Stream,
        Device=Device,
        Memory=Memory,
        MemoryPointer=MemoryPointer,
        MemoryPool=MemoryPool,
        UnownedMemory=UnownedMemory,
        using_allocator=_using_allocator,
        get_current_stream=lambda _device=-1: world.thread.current,
        runtime=types.SimpleNamespace(
            getDevice=lambda: 0,
            malloc=world.fake.memory_allocate,
            free=lambda address: world.fake.call("cuMemFree_v2", address, expect=None),
        ),
    )
    cupy.launch = lambda name="work", ns=1_000: world.fake.kernel(world.handle, name, ns)
    cupy.fake = world.fake
    cupy.world = world
    return cupy


@contextlib.contextmanager
def installed(
    fake: FakeCuda,
    array_type: type[ndarray] = ndarray,
    *,
    stream: int | None = None,
    spared: bool = False,
) -> Iterator[Any]:
    """Import the stand-in as ``cupy`` for a block.

    Its current stream is the one of the handle, or one of its own. Its driver calls may be spared
    the faults that are scripted.
    """
    world = World(Spared(fake) if spared else fake)
    world.array_type = array_type
    _worlds.append(world)
    patch = pytest.MonkeyPatch()
    cupy = _module(world)
    patch.setitem(sys.modules, "cupy", cupy)
    try:
        current = Stream(non_blocking=True) if stream is None else Stream._of(stream)
        with current:
            yield cupy
            current.synchronize()
        del current
    finally:
        patch.undo()
        frameworks_cupy._own_streams.__dict__.clear()
        world.pool.is_over = True
        world.pool.free_all_blocks()
        _worlds.pop()
