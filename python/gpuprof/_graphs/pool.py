"""`CapturePool`: objects that captured graphs need, and handles to pools."""

from __future__ import annotations

import itertools
import weakref
from typing import NoReturn, TypeAlias, final

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled, type_error
from gpuprof._frameworks import loaded
from gpuprof._timing.backends import cuda_available
from gpuprof.errors import InvalidStateError

TorchHandle: TypeAlias = "tuple[int, int]"  # torch's name of a pool of its allocator
PoolLike: TypeAlias = "CapturePool | GraphPoolHandle | TorchHandle"


@final
class CapturePool:
    """Objects that graphs need for as long as they are replayed, and a seal against new captures.

    Graphs captured with one pool share its memory: under torch the private pool of its
    allocator. `record_buffer` keeps any Python objects, tensors for instance, until the last
    owner of the pool is gone: whoever holds this object, the graphs captured with it, and its
    handle. They are dropped in the order in which they were recorded; a destructor that raises does
    not stop the rest.

    Notes
    -----
    Works without CUDA. Several threads that use one pool need a lock of the caller's. Graphs that
    share memory give right results only if they are replayed one after the other, in the order of
    their captures.

    Examples
    --------
    >>> pool = gpuprof.CapturePool()
    >>> pool.record_buffer(bytearray(64))
    0
    >>> pool.buffer_count
    1
    """

    __module__ = "gpuprof"

    __slots__ = ("__weakref__", "_buffers", "_graphs", "_is_named", "_order", "_sealed", "_torch")

    _buffers: list[object]
    _graphs: weakref.WeakSet[_core.GraphBase]  # that need the buffers
    _sealed: bool
    _torch: TorchHandle | None
    _is_named: bool  # by torch's handle, which others use too
    _order: _core._LaunchOrder | None

    def __new__(cls) -> CapturePool:
        """Make an empty pool: here, because a destructor runs also where ``__init__`` did not."""
        self = super().__new__(cls)
        self._buffers = []
        self._graphs = weakref.WeakSet()
        self._sealed = False
        self._torch = None
        self._is_named = False
        self._order = None
        return self

    def __del__(self) -> None:
        self._drop_buffers()

    def _drop_buffers(self) -> None:
        # A list drops its items from its end, and their destructors may use it.
        items, self._buffers = self._buffers, []
        items.reverse()
        while items:
            items.pop()

    def record_buffer(self, obj: object) -> int:
        """Keep an object until the last owner of the pool is gone. Works on a sealed pool too.

        Parameters
        ----------
        obj : object
            Anything.

        Returns
        -------
        int
            Its index, from 0.
        """
        self._buffers.append(obj)
        return len(self._buffers) - 1

    @property
    def buffer_count(self) -> int:
        """How many objects the pool keeps."""
        return len(self._buffers)

    def clear_buffers(self) -> None:
        """Drop all objects, in the order in which they were recorded.

        Allowed while graphs live that were captured with the pool: their later launches warn once.
        """
        for graph in self._graphs:
            graph._notice = True
        self._drop_buffers()

    def seal(self) -> None:
        """Refuse new captures with this pool. Idempotent."""
        self._sealed = True

    def unseal(self) -> None:
        """Allow captures again. Idempotent."""
        self._sealed = False

    @property
    def is_sealed(self) -> bool:
        """Whether new captures are refused."""
        return self._sealed

    def _torch_handle(self) -> TorchHandle:
        """Return the handle of the pool of torch's allocator that all captures here share."""
        if self._torch is None:
            self._torch = torch_handle()
        return self._torch

    def _name(self) -> TorchHandle:
        """Return torch's handle, by which this pool is found from now on."""
        self._is_named = True
        _by_torch_handle[self._torch_handle()] = self
        return self._torch_handle()

    def _launch_order(self) -> _core._LaunchOrder:
        """Return what serialises the launches of graphs that share the memory."""
        if self._order is None:
            self._order = _core._LaunchOrder()
        return self._order

    def __repr__(self) -> str:
        count = self.buffer_count
        sealed = ", sealed" if self._sealed else ""
        return f"<gpuprof.CapturePool, {count} buffer{'' if count == 1 else 's'}{sealed}>"

    __reduce__ = not_pickled(
        "a CapturePool belongs to the graphs of this process and cannot be pickled or copied"
    )


_by_torch_handle: weakref.WeakValueDictionary[TorchHandle, CapturePool]
_by_torch_handle = weakref.WeakValueDictionary()
_unlike_torchs = itertools.count(1 << 48)  # torch counts from 1


def torch_handle() -> TorchHandle:
    """Return a new handle: torch's where torch uses CUDA, else one that torch takes as well."""
    cuda = loaded.torch_cuda()
    handle: TorchHandle = (0, next(_unlike_torchs)) if cuda is None else cuda.graph_pool_handle()
    return handle


def find_pool(pool: object) -> CapturePool | None:
    """Return the pool of a ``pool=`` argument; None where that is None or names no pool."""
    if isinstance(pool, GraphPoolHandle):
        return capture_pool_for_handle(pool)
    if pool is None or isinstance(pool, CapturePool):
        return pool
    numbers = pool if isinstance(pool, tuple) else ()
    if len(numbers) != 2 or not all(isinstance(each, int) for each in numbers):
        raise type_error(pool, "pool", "a CapturePool, a handle or None")
    if numbers == (0, 0):  # torch's for none
        return None
    found = CapturePool()
    found._torch, found._is_named = numbers, True
    return _by_torch_handle.setdefault(numbers, found)


def check_pool(pool: object) -> CapturePool | None:
    """Return the pool of a ``pool=`` argument, which must not be sealed."""
    found = find_pool(pool)
    if found is not None and found.is_sealed:
        message = "pool: it is sealed, so that nothing more is captured with it; unseal() it first"
        raise InvalidStateError(message)
    return found


@final
class GraphPoolHandle:
    """The name of a `CapturePool`, made by `graph_pool_handle`.

    Immutable, hashable and comparable; ``int(handle)`` is its number, never given twice in a
    process. A handle owns its pool until it is released or collected. The zero handle, which
    stands for no pool, is false. Any thread may use it.
    """

    __module__ = "gpuprof"

    __slots__ = ("__weakref__", "_number", "_pools")
    _number: int
    _pools: list[CapturePool]  # the pool, until it is released

    def __init__(self) -> None:
        message = "a GraphPoolHandle is made by gpuprof.graph_pool_handle()"
        raise TypeError(message)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        message = f"a GraphPoolHandle cannot be changed: {name!r} cannot be set"
        raise AttributeError(message)

    def __delattr__(self, name: str) -> NoReturn:
        message = f"a GraphPoolHandle cannot be changed: {name!r} cannot be deleted"
        raise AttributeError(message)

    def __int__(self) -> int:
        return self._number

    def __bool__(self) -> bool:
        return self._number != 0

    def __copy__(self) -> GraphPoolHandle:
        return self

    def __deepcopy__(self, memo: object) -> GraphPoolHandle:
        return self

    def __repr__(self) -> str:
        return f"<gpuprof.GraphPoolHandle {self._number}>"

    __reduce__ = not_pickled("a GraphPoolHandle names a pool of this process and cannot be pickled")


def _make_handle(*pools: CapturePool) -> GraphPoolHandle:
    handle = object.__new__(GraphPoolHandle)
    object.__setattr__(handle, "_number", next(_numbers))
    object.__setattr__(handle, "_pools", [*pools])
    return handle


_numbers = itertools.count()
_zero = _make_handle()


def graph_pool_handle() -> GraphPoolHandle:
    """Return the handle of a new `gpuprof.CapturePool`; without CUDA the zero handle.

    Initialises CUDA if there is a driver.
    """
    return _make_handle(CapturePool()) if cuda_available() else _zero


def capture_pool_for_handle(handle: GraphPoolHandle) -> CapturePool | None:
    """Return the pool that a handle names: the same object each time.

    Parameters
    ----------
    handle : GraphPoolHandle
        What `graph_pool_handle` gave.

    Returns
    -------
    CapturePool or None
        None for the zero handle and for one that was released.

    Raises
    ------
    TypeError
        `handle` is no `GraphPoolHandle`.
    """
    return next(iter(_pools_of(handle)), None)


def release_graph_pool_handle(handle: GraphPoolHandle) -> None:
    """Release a handle's pool. Idempotent.

    The pool lives on while graphs or variables hold it.

    Parameters
    ----------
    handle : GraphPoolHandle
        What `graph_pool_handle` gave.

    Raises
    ------
    TypeError
        `handle` is no `GraphPoolHandle`.
    """
    _pools_of(handle).clear()


def _pools_of(handle: object) -> list[CapturePool]:
    if not isinstance(handle, GraphPoolHandle):
        expected = "a GraphPoolHandle from gpuprof.graph_pool_handle()"
        raise type_error(handle, "handle", expected)
    return handle._pools
