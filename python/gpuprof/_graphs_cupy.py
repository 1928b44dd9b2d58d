"""What a capture of CuPy's work needs around its body: memory of its own, and the right stream.

CuPy's pool would hand a temporary's memory out again after the body, although the graph writes
there at every launch. So the body allocates from a pool that belongs to the graph. That pool grows
by ``cudaMalloc``, which a capture does not allow on its thread, save in relaxed mode.

CuPy is never imported from here.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
from collections.abc import Iterator
from typing import Any

from gpuprof import _core
from gpuprof.errors import CudaError

_RELAXED = 2  # of the driver's capture modes

_own_streams = threading.local()


def is_loaded() -> bool:
    """Return whether CuPy is imported, so that it may have a part in a capture."""
    return hasattr(sys.modules.get("cupy"), "cuda")


def own_stream() -> Any:
    """Return this thread's capture stream of CuPy's current device, made when first needed.

    A capture on it waits for CuPy's current stream, which waits for it afterwards.
    """
    cuda = sys.modules["cupy"].cuda
    streams: dict[int, Any] = _own_streams.__dict__.setdefault("by_device", {})
    device = int(cuda.runtime.getDevice())
    if device not in streams:
        streams[device] = cuda.Stream(non_blocking=True)
    return streams[device]


class GraphMemory:
    """The memory pool of one graph; dropping it gives back what no array uses any more."""

    def __init__(self, cupy: Any) -> None:
        self.pool: Any = None
        # A function of the module: one of this object would be a cycle, which only the collector
        # ends, whenever that is.
        self.pool = cupy.cuda.MemoryPool(functools.partial(_allocate, cupy.cuda))

    def close(self) -> None:
        """Let the pool go. What arrays still hold of it lives on with them. Never raises."""
        pool, self.pool = self.pool, None
        if pool is None:
            return
        with contextlib.suppress(Exception), relaxed():
            pool.free_all_blocks()
            del pool

    def __del__(self) -> None:
        self.close()


class CupyCapture:
    """Makes CuPy take part in a capture of the driver's. `begin`, then `end` or `abort`.

    Both undo in reverse what `begin` did, on the thread that it was called on.

    Parameters
    ----------
    stream : int
        The handle of the stream to capture, of CuPy's current device. `begin` comes before the
        capture, `end` and `abort` after it.
    """

    _undo: contextlib.ExitStack | None = None  # from before the first step of `begin` on
    _memory: GraphMemory | None = None

    def __init__(self, stream: int) -> None:
        self._stream = stream
        self._cupy: Any = sys.modules["cupy"]

    def begin(self) -> None:
        """Allocate from a pool of the graph's, and make the captured stream CuPy's current one."""
        self._undo = contextlib.ExitStack()
        try:
            self._begin(self._undo)
        except BaseException:
            self.abort()
            raise

    def _begin(self, undo: contextlib.ExitStack) -> None:
        cuda = self._cupy.cuda
        self._memory = memory = GraphMemory(self._cupy)
        undo.enter_context(cuda.using_allocator(memory.pool.malloc))
        device = int(cuda.runtime.getDevice())
        # CuPy forgets a stream that was made current with use() when a block over it ends.
        before = cuda.get_current_stream()
        undo.callback(_use_again, cuda, device, before)
        stream = _stream_of(cuda, self._stream, device)
        if _is_own(stream) and before != stream:
            stream.wait_event(before.record())
            undo.callback(lambda: before.wait_event(stream.record()))
        undo.enter_context(stream)

    def end(self) -> object:
        """Undo what `begin` did.

        Returns
        -------
        object
            To be kept as long as the graph.
        """
        self._put_back()
        memory, self._memory = self._memory, None
        return memory

    def abort(self) -> None:
        """Undo what `begin` did and give the memory back. Never raises."""
        with contextlib.suppress(Exception):
            self._put_back()
        if self._memory is not None:
            self._memory.close()
            self._memory = None

    def __del__(self) -> None:
        if self._undo is not None and not sys.is_finalizing():
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


def _stream_of(cuda: Any, handle: int, device: int) -> Any:
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


def _allocate(cuda: Any, size: int) -> Any:
    with relaxed():
        return cuda.MemoryPointer(cuda.Memory(size), 0)


def _is_own(stream: Any) -> bool:
    return any(own == stream for own in _own_streams.__dict__.get("by_device", {}).values())


def _use_again(cuda: Any, device: int, stream: Any) -> None:
    with cuda.Device(device):
        if cuda.get_current_stream() != stream:
            stream.use()
