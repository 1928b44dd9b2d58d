"""What a capture of CuPy's work needs around its body: memory of its own, and the right stream.

CuPy's pool would hand a temporary's memory out again after the body, although the graph writes
there at every launch. So the body allocates from a pool that belongs to the graph. Its arrays
may outlive the graph, and be freed in the body of another capture. A capture does not allow
``cudaMalloc`` and ``cudaFree`` on its thread, except in relaxed mode.

CuPy's streams keep the host functions of captures that they began themselves, until the graph takes
them over. A capture that gpuprof began gives them a list for it, which the graph keeps.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import gpuprof._core as _core
from gpuprof._frameworks import loaded
from gpuprof.errors import CudaError

_RELAXED = 2  # of the driver's capture modes
_HOST_FUNCTIONS = "_graph_host_funcargs"  # where a stream of CuPy 14 keeps them

_own_streams = threading.local()  # by their library and device


def own_stream() -> Any:
    """Return this thread's capture stream of CuPy's current device."""
    cuda = loaded.cupy().cuda
    make = functools.partial(cuda.Stream, non_blocking=True)
    return kept_stream("cupy", int(cuda.runtime.getDevice()), make)


def kept_stream(library: str, device: int, make: Callable[[], Any]) -> Any:
    """Return this thread's capture stream of a library, made when first needed."""
    streams, name = vars(_own_streams), f"{library}:{device}"
    if name not in streams:
        streams[name] = make()
    return streams[name]


class CupyMemory:
    """What CuPy's work in one graph needs; dropping it gives back what no array uses any more."""

    def __init__(self, cupy: Any) -> None:
        # Those of the graph's host nodes with their arguments, which the nodes do not keep.
        self.host_functions: list[Any] = []
        self.pool = _Pool(cupy.cuda)

    @property
    def is_empty(self) -> bool:
        """Whether CuPy allocated nothing in the capture and added no host function to it."""
        return not self.host_functions and not self.pool.blocks

    def __del__(self) -> None:
        if hasattr(self, "pool"):
            self.pool.close()


class _Pool:
    """A pool of CuPy's that lives as long as its arrays, whose memory would go with it up to 14.0.

    From 14.1 on, part of a block whose pool has gone is never freed.
    """

    _is_finalizing = staticmethod(sys.is_finalizing)  # at exit the module's names are gone

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._is_closed = False
        # Held here because CuPy's pool lets go of some where memory runs short.
        self.blocks: list[_Block] = []
        # Not a method of this object, which would be a cycle, for only the collector to end.
        self._pool = cuda.MemoryPool(functools.partial(_new_block, cuda, self.blocks))

    def malloc(self, size: int) -> Any:
        """Return memory, as an allocator of CuPy's does."""
        memory = self._pool.malloc(size)
        owner = _PoolMemory(self, memory)
        return _pointer(self._cuda, memory.ptr, size, owner, memory.mem.device_id)

    def close(self) -> None:
        """Free memory from now on as soon as no array uses it. Never raises."""
        self._is_closed = True
        self.blocks.clear()
        self.trim()

    def trim(self) -> None:
        """Free what no array uses, if the pool is closed. Never raises."""
        if self._is_closed and not self._is_finalizing():
            with contextlib.suppress(Exception):
                self._pool.free_all_blocks()


class _PoolMemory:
    """Memory of a pool, which it keeps alive."""

    _pool: _Pool | None = None

    def __init__(self, pool: _Pool, memory: Any) -> None:
        self._pool = pool
        self._memory = memory

    def __del__(self) -> None:
        self._memory = None
        if self._pool is not None:
            self._pool.trim()


class _Block:
    """Memory of the device, which may be allocated and freed in a capture."""

    address = 0
    _is_finalizing = staticmethod(sys.is_finalizing)  # at exit the module's names are gone

    def __init__(self, runtime: Any, size: int) -> None:
        self._runtime = runtime
        with relaxed():
            self.address = int(runtime.malloc(size))

    def __del__(self) -> None:
        if self.address and not self._is_finalizing():
            with contextlib.suppress(Exception), contextlib.ExitStack() as mode:
                with contextlib.suppress(CudaError):  # it is freed in the mode that there is
                    mode.enter_context(relaxed())
                self._runtime.free(self.address)


class CupyCapture:
    """Makes CuPy take part in a capture of the driver's. `begin`, then `end` or `abort`.

    `begin` comes before the capture. `end` and `abort` come after it, on the same thread, and undo
    in reverse what `begin` did. `stream` is a handle on CuPy's current device, `given` what the
    caller has for it.
    """

    _undo: contextlib.ExitStack | None = None  # from before the first step of `begin` on
    _memory: CupyMemory | None = None
    _is_finalizing = staticmethod(sys.is_finalizing)  # at exit the module's names are gone

    def __init__(self, stream: int, given: object = None) -> None:
        self._stream = stream
        self._given = given
        self._cupy = loaded.cupy()

    def begin(self) -> None:
        """Allocate from a pool of the graph's, and make the captured stream CuPy's current one."""
        self._undo = undo = contextlib.ExitStack()
        try:
            cuda = self._cupy.cuda
            self._memory = memory = CupyMemory(self._cupy)
            undo.enter_context(cuda.using_allocator(memory.pool.malloc))
            device = int(cuda.runtime.getDevice())
            # CuPy forgets a stream that was made current with use() when a block over it ends.
            before = cuda.get_current_stream()
            undo.callback(_use_again, cuda, device, before)
            stream = stream_of(cuda, self._stream, device)
            if stream in vars(_own_streams).values() and before != stream:
                stream.wait_event(before.record())
                undo.callback(lambda: before.wait_event(stream.record()))
            # Host functions that the body gives to these go into the graph's list.
            for each in (self._given, before, stream):
                is_captured = each is self._given or each == stream
                if is_captured and hasattr(each, _HOST_FUNCTIONS):
                    undo.callback(setattr, each, _HOST_FUNCTIONS, getattr(each, _HOST_FUNCTIONS))
                    setattr(each, _HOST_FUNCTIONS, memory.host_functions)
            undo.enter_context(stream)
        except BaseException:
            self.abort()
            raise

    def end(self) -> object:
        """Undo what `begin` did, and return what has to be kept as long as the graph, or None.

        A graph that keeps something records an event after each launch, so nothing is kept in vain.
        """
        self._put_back()
        memory, self._memory = self._memory, None
        return None if memory is None or memory.is_empty else memory

    def abort(self) -> None:
        """Undo what `begin` did and give the memory back. Never raises."""
        with contextlib.suppress(Exception):
            self._put_back()
        self._memory = None

    def __del__(self) -> None:
        if self._undo is not None and not self._is_finalizing():
            self.abort()

    def _put_back(self) -> None:
        if self._undo is not None:
            self._undo.close()  # the second time only what the first did not come to
            self._undo = None


class _Handle:
    """A stream's handle in the form that CuPy takes."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def stream_of(cuda: Any, handle: int, device: int) -> Any:
    """Return CuPy's stream of a handle: CuPy 14 deprecates the class that 13 has for it."""
    from_external = getattr(cuda.Stream, "from_external", None)
    if from_external is None:
        return cuda.ExternalStream(handle, device)
    return from_external(_Handle(handle))


@contextlib.contextmanager
def relaxed() -> Iterator[None]:
    """Let this thread call what a capture forbids, without breaking any capture."""
    before = _core._exchange_capture_mode(_RELAXED)
    try:
        yield
    finally:
        try:
            _core._exchange_capture_mode(before)
        except CudaError:  # once more: a thread that is left in relaxed mode has no protection
            _core._exchange_capture_mode(before)


def _new_block(cuda: Any, blocks: list[_Block], size: int) -> Any:
    block = _Block(cuda.runtime, size)
    blocks.append(block)
    return _pointer(cuda, block.address, size, block, int(cuda.runtime.getDevice()))


def _pointer(cuda: Any, address: int, size: int, owner: object, device: int) -> Any:
    return cuda.MemoryPointer(cuda.UnownedMemory(address, size, owner, device), 0)


def _use_again(cuda: Any, device: int, stream: Any) -> None:
    with cuda.Device(device):
        if cuda.get_current_stream() != stream:
            stream.use()
