"""Captures through `torch.cuda.CUDAGraph`, so that torch's own state takes part in them.

A plain capture of torch's work gives wrong results without an error: torch's allocator would hand
out memory again that the graph uses, and random operators would repeat their numbers. Torch's own
capture routes allocations to a private pool and tells the generators.

Where such a capture fails, torch up to 2.11 keeps its state of inside the capture: the pool, the
generators and the current stream. Its clean-up runs only after an end that succeeds. So the driver
ends the broken capture, and torch ends an empty one in its place.

An interrupt can come between any two steps. So each step is noted before it is taken, and the note
is dropped after the step is undone: `TorchCapture.abort` works in between, and may be called again.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import gpuprof._core as _core
from gpuprof._frameworks import loaded
from gpuprof._frameworks.cupy import kept_stream, relaxed
from gpuprof._frameworks.torch_graph import (
    RandomnessProbe,
    TorchParts,
    check_torch,
    make_blas_handle,
    raw_exec,
    what_it_lacks,
)
from gpuprof.errors import InvalidStateError, capture_error, refused

if TYPE_CHECKING:
    from collections.abc import Iterator

_NONE = 0  # of the driver's capture statuses
_INVALIDATED = 2
_WRONG_THREAD = 908  # of its errors
_BEGIN = "cuStreamBeginCapture"
_END = "cuStreamEndCapture"


class _Sharing:
    """Who shares the memory of one CapturePool, or of a graph that has none."""

    # Memory of a pool whose last graph is gone serves no other use until torch's caches are
    # emptied, and while a capture is open torch cannot do it, not even where it needs the memory.
    has_left: ClassVar[bool] = False

    def __init__(self) -> None:
        self.graphs: weakref.WeakSet[Any] = weakref.WeakSet()
        self.captured_by: object = None  # what stands for the one that is open

    def add(self, graph: Any) -> None:
        # Made before the set's own reference, and so called after that.
        weakref.finalize(graph, self._note_end).atexit = False
        self.graphs.add(graph)

    def _note_end(self) -> None:
        if not self.graphs:
            _Sharing.has_left = True


_shared: weakref.WeakKeyDictionary[Any, _Sharing] = weakref.WeakKeyDictionary()


def wants(stream: object) -> bool:
    """Return whether torch has to know of a capture on `stream`.

    So it has if that is None, a stream of torch's, or anything else that stands for torch's current
    stream of some device. False where torch has not initialised CUDA, and for what is no stream.
    """
    try:
        cuda = loaded.torch_cuda()
        if cuda is None:
            return False
        if stream is None or isinstance(stream, cuda.Stream):
            return True
        return _device_of_current(loaded.torch(), stream) is not None
    except AttributeError:  # a half imported torch, or one without CUDA
        return False


def _device_of_current(torch: Any, stream: object) -> int | None:
    """Return the device on which `stream` is torch's current one; None if it is on none."""
    try:
        handle = _core.stream_handle(stream)
    except Exception:  # whatever the object's own code raises; who needs a stream will ask again
        return None
    if handle == 0:
        return None
    here = torch.cuda.current_device()
    for device in (here, *range(torch.cuda.device_count())):
        if torch._C._cuda_getCurrentRawStream(device) == handle:
            return int(device)
    return None


def stream_of(asked: object) -> Any:
    """Return the `torch.cuda.Stream` that a ``stream=`` argument means on the current device.

    None is the current stream, or this thread's own where that is the legacy default one.
    """
    torch = loaded.torch()
    if asked is None:
        current = torch.cuda.current_stream()
        return current if current.cuda_stream != 0 else _own_stream(torch)
    if isinstance(asked, torch.cuda.Stream):
        return asked
    return torch.cuda.ExternalStream(_core.stream_handle(asked))


def _own_stream(torch: Any) -> Any:
    """Return this thread's capture stream of the current device: torch never destroys any."""
    return kept_stream("torch", int(torch.cuda.current_device()), torch.cuda.Stream)


class TorchCapture:
    """One capture through torch, and all that has to be put back when it is over.

    `begin`, then one of `end` and `abort`, on one thread. Afterwards the current stream, the
    allocator and the generators are as they were, whatever failed. `wants` said yes to the stream.
    None means torch's current one; where that is the default stream, one of gpuprof's, which waits
    for it and which it waits for. A CapturePool is shared with graphs, not with an open capture.

    After the body of a block the current stream is that from before; otherwise a capture of the
    current stream leaves it to the body. `generators` are those that it may draw from, beside the
    default one.
    """

    # What is to be undone; of the class, for the sake of an object that fails to be made.
    _before: Any = None  # the stream that the capture's one stands in for
    _current: Any = None  # the block in which the capture's stream is the current one
    _is_finalizing = staticmethod(sys.is_finalizing)  # at exit the module's names are gone
    _in_torch = False  # torch's begin was called, and its end has yet to succeed

    def __init__(
        self,
        stream: object,
        mode: str,
        pool: Any = None,
        *,
        is_block: bool = True,
        generators: tuple[Any, ...] = (),
    ) -> None:
        self._asked = stream
        self._is_block = is_block
        self._generators = generators
        self._mode = mode
        self._shared_pool = pool
        self._sharing: _Sharing | None = None
        self._torch = loaded.torch()
        check_torch(self._torch)
        self._stream: Any = None
        self._device = 0
        self._pool: Any = None
        self._me = object()  # for the pool, which must not keep this capture alive
        self._thread = threading.get_ident()
        self._generation = _core._fork_generation()
        self._is_open = False
        self._end_code = 0
        self.graph: Any = None  # torch's, from `begin` on; None after a failure
        self.lacks = what_it_lacks(self._torch)
        # How to launch the graph, from `end` on.
        self.probe = RandomnessProbe(self._torch, only_default=not generators)

    def begin(self) -> int:
        """Begin the capture, make its stream torch's current one, and return its handle.

        InvalidStateError if the stream is being captured already, or another capture with the pool
        is open; CaptureError if it is the default stream, or the driver refused.
        """
        try:
            cuda = self._torch.cuda
            stream, before = self._choose()
            handle = int(stream.cuda_stream)
            if _core._capture_status(handle) != _NONE:
                message = "stream: it is being captured already; end that capture first"
                raise InvalidStateError(message)
            self._stream = stream
            if before is not None:
                self._before = before
                stream.wait_stream(before)
            if self._is_block or stream != cuda.current_stream():
                self._current = cuda.stream(stream)
                self._current.__enter__()
            self._device = int(cuda.current_device())
            make_blas_handle(self._torch)
            self._pool = self._pick_pool()
            self.graph = cuda.CUDAGraph(keep_graph=True)
            for generator in self._generators:
                self.graph.register_generator_state(generator)
            self._in_torch = True
            with _typed_errors(_BEGIN):
                self.graph.capture_begin(pool=self._pool, capture_error_mode=self._mode)
            self._is_open = True
            return handle
        except BaseException:
            self.abort()
            raise

    def end(self) -> None:
        """End the capture; `graph` can be replayed afterwards.

        CaptureError if the capture was broken, or its end failed: torch is as it was before all the
        same. CaptureWrongThreadError if another thread began it, and not in relaxed mode: it is
        still open.
        """
        if not self._is_open:
            message = "this capture is not open"
            raise InvalidStateError(message)
        if self._is_elsewhere and self._mode != "relaxed":
            message = (
                f"thread {self._thread} began this capture and must end it, or begin it with "
                'mode="relaxed". (Torch was not called. The capture is still open.)'
            )
            raise refused(_WRONG_THREAD, _END, message)
        try:
            with self._on_its_stream():
                self._end()
        finally:
            self._put_back()

    def _end(self) -> None:
        if _core._capture_status(self._handle) == _INVALIDATED:
            self._discard()
            raise refused(self._end_code, _END)
        with _typed_errors(_END):
            try:
                _end_quietly(self.graph)
            except Exception:
                self._repair_after_failed_end()
                raise
        self._in_torch = False
        if self._sharing is not None:
            self._sharing.add(self.graph)

    def abort(self) -> None:
        """End the capture and throw its graph away. Never raises; after `end` it does nothing."""
        if _core._fork_generation() != self._generation:
            return  # in a forked child there is no CUDA to put in order
        with contextlib.suppress(Exception):
            self._put_back()

    def __del__(self) -> None:
        to_undo = self._in_torch or self._current is not None or self._before is not None
        if to_undo and not self._is_finalizing():
            self.abort()

    def _put_back(self) -> None:
        """Undo what `begin` did and nobody has undone yet."""
        self._is_open = False
        try:
            if self._in_torch:
                with self._on_its_stream():
                    self._discard()
        finally:
            if self._sharing is not None and self._sharing.captured_by is self._me:
                self._sharing.captured_by = None
            try:
                # Current streams belong to threads, and those of another cannot be put back here.
                if self._current is not None and not self._is_elsewhere:
                    self._current.__exit__(None, None, None)
                self._current = None
            finally:
                self._join()

    @property
    def _is_elsewhere(self) -> bool:
        return threading.get_ident() != self._thread

    @contextlib.contextmanager
    def _on_its_stream(self) -> Iterator[None]:
        """Make the captured stream current on this thread; the body may have left another one."""
        if self._current is None or self._is_elsewhere:
            with self._torch.cuda.stream(self._stream):
                yield
        else:  # what was current before is put back with the rest
            self._torch.cuda.set_stream(self._stream)
            yield

    def raw_graph(self) -> int:
        return int(self.graph.raw_cuda_graph())

    def parts(self) -> TorchParts:
        """Make the graph executable, and return its parts."""
        self.graph.instantiate()
        exec_ = raw_exec(self.graph)
        return TorchParts(self.raw_graph(), exec_, self.graph, self.probe, self.lacks)

    @property
    def _handle(self) -> int:
        return int(self._stream.cuda_stream)

    def _choose(self) -> tuple[Any, Any]:
        """Return the stream to capture on, and the one that it stands in for, or None."""
        cuda = self._torch.cuda
        if isinstance(self._asked, cuda.Stream):
            stream: Any = self._asked
            if stream.cuda_stream == 0:
                message = (
                    "the legacy default stream cannot be captured; give another one as stream=, or "
                    "none, and gpuprof captures on one that it makes current for the body"
                )
                raise refused(900, _BEGIN, message)
            return stream, None
        device = None if self._asked is None else _device_of_current(self._torch, self._asked)
        current = cuda.current_stream(device)
        if current.cuda_stream != 0:
            return current, None
        return _own_stream(self._torch), current

    def _pick_pool(self) -> Any:
        pool = self._shared_pool
        self._sharing = sharing = (
            _Sharing() if pool is None else _shared.setdefault(pool, _Sharing())
        )
        if sharing.captured_by is not None:
            message = (
                "pool: another capture with it is open; torch captures with one pool one after the "
                "other, so end that one first, or use a pool for each"
            )
            raise InvalidStateError(message)
        sharing.captured_by = self._me
        # Torch has let go of what the last graph held, and takes no capture for it any more, at
        # least until it is empty.
        is_over = pool is not None and not sharing.graphs
        if _Sharing.has_left or (is_over and pool._is_named):
            self._give_back()
        if pool is None:
            return self._torch.cuda.graph_pool_handle()
        if is_over and not pool._is_named:
            pool._torch = None
        return pool._torch_handle()

    def _give_back(self) -> None:
        """Give back free memory of the device and pinned memory: a pool has some of each."""
        core = self._torch._C
        names = ("_accelerator_emptyHostCache", "_host_emptyCache")  # newer, older
        empty_pinned = next((getattr(core, each) for each in names if hasattr(core, each)), None)
        _Sharing.has_left = False
        try:
            with relaxed():
                self._torch.cuda.empty_cache()
                if empty_pinned is not None:
                    empty_pinned()
        except Exception:  # as of a torch that refuses it beside a capture of another thread
            _Sharing.has_left = True

    def _join(self) -> None:
        # On a stream that is still capturing the wait would draw the other one into the capture.
        if self._before is None:
            return
        if not self._is_elsewhere and _core._capture_status(self._handle) == _NONE:
            self._before.wait_stream(self._stream)
        self._before = None

    def _discard(self) -> None:
        """End what is open of the capture and of torch's, and throw the graph away."""
        try:
            if self._has_ended():
                self.graph.reset()
            else:
                self._end_in_its_place()
        except Exception:
            self._repair_by_hand()
        self._in_torch, self.graph = False, None

    def _has_ended(self) -> bool:
        """Return whether torch's end has succeeded, and was interrupted before that was noted."""
        try:
            self.graph.pool()
        except Exception:
            return False
        return True

    def _end_in_its_place(self) -> None:
        """Have torch end an empty capture instead of the one that is open, and clean up."""
        self._end_code = _core._drop_capture(self._handle)
        _core._begin_empty_capture(self._handle)
        _end_quietly(self.graph)
        self.graph.reset()

    def _repair_after_failed_end(self) -> None:
        """Bring torch in order after an end that it called and that failed, as for a lost fork."""
        try:
            if self._tell_pool("_cuda_endAllocateToPool"):
                self._torch._C._cuda_beginAllocateCurrentThreadToPool(self._device, self._pool)
                self._end_in_its_place()
                self._tell_pool("_cuda_releasePool")
            else:  # 2.12 and newer did it themselves
                self.graph.reset()
        except Exception:
            self._repair_by_hand()
        self._in_torch, self.graph = False, None

    def _repair_by_hand(self) -> None:
        """Undo piece by piece what torch left, where it cannot be brought to do it."""
        with contextlib.suppress(Exception):
            _core._drop_capture(self._handle)
        with contextlib.suppress(Exception):
            self.graph.reset()
        # Only what was still open was not released either.
        if self._tell_pool("_cuda_endAllocateToPool"):
            self._tell_pool("_cuda_releasePool")
        with contextlib.suppress(Exception):
            # A new state, because the old one believes for ever that it is being captured.
            generator = self._torch.cuda.default_generators[self._device]
            generator.graphsafe_set_state(generator.clone_state().graphsafe_get_state())

    def _tell_pool(self, name: str) -> bool:
        """Call a private function of torch's for the memory pool; return whether it worked."""
        try:
            getattr(self._torch._C, name)(self._device, self._pool)
        except Exception:
            return False
        return True


@contextlib.contextmanager
def _typed_errors(call: str) -> Iterator[None]:
    """Raise an error of the driver's that torch reports in the block as gpuprof's own."""
    try:
        yield
    except Exception as error:
        typed = capture_error(error, call)
        if typed is None:
            raise
        raise typed from error


def _end_quietly(graph: Any) -> None:
    """End torch's capture without its warning of an empty graph, of which gpuprof tells itself."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
        graph.capture_end()
