"""`GraphCaptureGuard`: one open capture, and what is restored when it ends."""

from __future__ import annotations

import sys
import warnings
from threading import get_ident
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled
from gpuprof._frameworks import loaded
from gpuprof._graphs import labels
from gpuprof._graphs.graph import CapturedGraph
from gpuprof._graphs.pool import check_pool
from gpuprof._graphs.types import (
    COLLECT,
    CaptureMode,
    CaptureModeLike,
    CaptureStatus,
    capture_mode,
    shown,
)
from gpuprof.errors import CaptureError, EmptyGraphError, InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Callable
    from threading import Thread

    from gpuprof._frameworks.cupy import CupyCapture
    from gpuprof._frameworks.torch_capture import TorchCapture
    from gpuprof._graphs.diagnosis import CaptureFacts
    from gpuprof._graphs.pool import CapturePool, PoolLike

_LOGS_SINCE = 12090  # the driver that keeps a log of what it refuses
_WRONG_THREAD = 908  # of the driver's errors

_PER_THREAD = 2  # the handle of each thread's own default stream

# The captures of begin_capture() by `begun_key`, until end_capture() takes them.
begun: dict[int, GraphCaptureGuard] = {}


def begun_key(stream: int) -> int:
    """Return a key of a stream; each thread's own default stream has the same handle."""
    return -get_ident() if stream == _PER_THREAD else stream


def forget_begun(guard: GraphCaptureGuard) -> None:
    """Take a guard out of `begun`, unless another one is there for its stream by now."""
    for key, each in list(begun.items()):
        if each is guard:
            begun.pop(key, None)


def forget_dead() -> None:
    """Abort the captures of `begun` whose thread has ended: nobody else may end them."""
    for guard in list(begun.values()):
        by, is_relaxed = guard._begun_by, guard.mode is CaptureMode.RELAXED
        if by is not None and not is_relaxed and not by.is_alive():
            forget_begun(guard)
            guard.abort()
        elif not guard._core.is_open:  # of a thread that is not Python's; or it is being ended now
            forget_begun(guard)


class CaptureSettings(NamedTuple):
    """What `capture` was asked for, checked."""

    mode: CaptureMode = CaptureMode.THREAD_LOCAL
    pool: CapturePool | None = None
    backend: Literal["auto", "driver", "torch"] = "auto"
    keep_alive: tuple[object, ...] = ()
    upload: bool = False
    timers: int = 0
    allow_empty: bool = False
    name: str | None = None
    # After a block the current stream is that from before, whatever the body did. One on the legacy
    # default stream captures a stream of gpuprof's own, if a framework is there.
    is_block: bool = False
    generators: tuple[Any, ...] = ()  # of torch's, that the body may draw from
    # Called with the graph before it is made executable; returns what the graph has to keep alive.
    prepare: Callable[[CapturedGraph], tuple[object, ...]] | None = None


class GraphCaptureGuard:
    """An open capture: work that is queued on the stream from now on becomes a graph.

    It begins at construction. `finish` ends it and returns the graph, `abort` discards it, and a
    guard that is dropped while open aborts. Not thread-safe, and the thread that began it must end
    it unless ``mode="relaxed"``.

    Parameters
    ----------
    stream : int or object, optional
        What to capture: a handle, or an object with ``__cuda_stream__``, ``.cuda_stream`` or
        ``.ptr``, which is kept alive. None is the framework's current stream. A stream of torch's
        is captured through torch, and None under torch too, on a stream of gpuprof's own where the
        current one is the legacy default stream, which cannot be captured.
    mode : CaptureMode or str
        ``"thread_local"``, ``"global"`` or ``"relaxed"``: see `CaptureMode`.
    pool : CapturePool, GraphPoolHandle or tuple of int, optional
        As for `capture`.

    Raises
    ------
    CudaUnavailableError
        There is no driver or no device.
    InvalidStateError
        The stream is being captured already, or the pool is sealed.
    CaptureError
        The stream cannot be captured.
    TypeError, ValueError
        An argument is not what is listed above.
    """

    __module__ = "gpuprof"

    # Of the class, so that an object that failed to be made has them.
    _graph: CapturedGraph | None = None
    _torch: TorchCapture | None = None
    _cupy: CupyCapture | None = None
    _begun_by: Thread | None = None
    _replaced_stream: int | None = None  # one of gpuprof's own is captured instead of it
    # The operator that broke it and the line, where one who observes its operators saw that.
    _broke_at: tuple[str | None, str | None] = (None, None)
    _is_to_undo = False  # it has begun, and was neither finished nor undone
    _over = "this capture has not begun"
    _is_finalizing = staticmethod(sys.is_finalizing)  # at exit the module's names are gone

    def __init__(
        self,
        stream: object = None,
        *,
        mode: CaptureModeLike = "thread_local",
        pool: PoolLike | None = None,
    ) -> None:
        self._begin(stream, CaptureSettings(mode=capture_mode(mode), pool=check_pool(pool)))

    def _begin(self, stream: object, settings: CaptureSettings) -> None:
        if begun:
            forget_dead()
        self._settings = settings
        self._stream_object = stream
        self._thread = get_ident()
        self._ordinal = 0  # the device, for a default stream on a thread without a context
        self._core = _core._Capture()
        self._is_to_undo = True
        try:
            if self._is_torchs(stream):
                self._begin_by_torch(stream)
            else:
                self._begin_by_driver(stream)
            self._over = ""
        except BaseException:
            self._give_up(GraphCaptureGuard._over)
            raise

    def _is_torchs(self, stream: object) -> bool:
        backend = self._settings.backend
        if backend == "driver" or (backend == "auto" and loaded.torch() is None):
            return False
        if backend == "torch":
            _core.require_cuda()
        from gpuprof._frameworks import torch_capture

        is_torchs = torch_capture.wants(stream)
        if backend == "torch" and not is_torchs:
            message = (
                'backend: "torch" needs torch with CUDA in use and one of its streams; got '
                f"stream={stream!r}"
            )
            raise ValueError(message)
        return is_torchs

    def _begin_by_torch(self, stream: object) -> None:
        from gpuprof._frameworks import torch_capture

        _core.require_cuda()
        settings = self._settings
        torch = torch_capture.TorchCapture(
            stream,
            settings.mode.name.lower(),
            settings.pool,
            is_block=settings.is_block,
            generators=settings.generators,
        )
        if torch.lacks and settings.timers == COLLECT:
            message = f'timers: "collect" cannot be had: {torch.lacks}; use "last"'
            raise InvalidStateError(message)
        self._core.prepare()
        self._torch = torch
        self._stream = torch.begin()
        self._replaced_stream = None if torch._before is None else int(torch._before.cuda_stream)
        self._core.attach(self._stream, int(settings.mode), settings.timers)

    def _begin_by_driver(self, stream: object) -> None:
        settings, is_default = self._settings, False
        if stream is not None:
            self._stream = _core.stream_handle(stream)
        else:
            self._stream, self._ordinal, of_framework = _core._current_stream()
            is_default = of_framework and settings.is_block and self._stream <= 1
        if loaded.cupy() is not None and (is_default or self._stream > 1):
            from gpuprof._frameworks import cupy as frameworks_cupy

            if is_default:
                self._stream_object = frameworks_cupy.own_stream()
                self._replaced_stream, self._ordinal = self._stream, 0
                self._stream = _core.stream_handle(self._stream_object)
            self._cupy = frameworks_cupy.CupyCapture(self._stream, self._stream_object)
            self._cupy.begin()
        self._core.begin(self._stream, self._ordinal, int(settings.mode), settings.timers)

    def finish(self) -> CapturedGraph:
        """End the capture, instantiate its graph, and return that, a `CapturedGraph`.

        Raises
        ------
        CaptureError
            The body broke the capture; the text says which call did, where the driver knows.
        CaptureWrongThreadError
            Another thread began it. It is still open.
        EmptyGraphError
            Nothing was captured.
        InvalidStateError
            The capture is over already.
        """
        if self._over:
            message = f"{self._over}; there is nothing to finish"
            raise InvalidStateError(message)
        ended: _core._EndedCapture | None = None
        try:
            ended = self._end()
            num_nodes = self._core.facts()["num_nodes"]
            self._core.close()
            cupy, self._cupy = self._cupy, None
            memory = None if cupy is None else cupy.end()
            if num_nodes == 0 and not self._settings.allow_empty:
                raise EmptyGraphError(_empty_text(self._settings.name, self._stream))
            graph = self._graph = self._make_graph(ended, memory)
            self._torch = None
            self._over = "this capture is finished"
            self._is_to_undo = False
        except BaseException as error:
            if not self._was_refused(error):
                self._give_up("this capture failed")
            raise
        finally:
            ended = None  # an exception's traceback would keep the graph
        return graph

    def _end(self) -> _core._EndedCapture:
        try:
            ended = self._core.end()
            if self._torch is not None:
                self._torch.end()
        except CaptureError as error:
            if self._was_refused(error):
                raise
            self._give_up("this capture failed")
            from gpuprof._graphs import diagnosis

            raise diagnosis.explain(error, self._capture_facts()) from error.__cause__
        return ended

    def _was_refused(self, error: BaseException) -> bool:
        """Return whether the capture is still open, because the wrong thread tried to end it."""
        return (
            isinstance(error, CaptureError) and error.code == _WRONG_THREAD and self._core.is_open
        )

    def _make_graph(self, ended: _core._EndedCapture | None, memory: object) -> CapturedGraph:
        settings = self._settings
        raw = 0 if self._torch is None else self._torch.raw_graph()
        graph = CapturedGraph._make(
            ended,
            handle=raw,
            stream=self._stream,
            ordinal=self._ordinal,
            timers=settings.timers,
            name=settings.name,
        )
        try:
            graph._stream_object = self._stream_object
            if self._replaced_stream is not None:
                graph._read_scalars_of(self._replaced_stream)
            keep = settings.keep_alive if memory is None else (*settings.keep_alive, memory)
            if settings.prepare is not None:
                keep = (*keep, *settings.prepare(graph))
            if keep or settings.pool is not None:
                graph._own(settings.pool, keep)
            if self._torch is None:
                graph._instantiate()
            else:
                graph._use_torch(self._torch.parts())
            if graph._has_labels:
                labels.register(graph)
            if settings.upload and graph.raw_exec != 0:  # an older torch has not told
                graph.upload(self._stream)
        except BaseException:
            graph.close()
            raise
        return graph

    def abort(self) -> None:
        """End the capture and discard what it recorded. Idempotent, never raises.

        The stream can be used afterwards.
        """
        if not self._over or self._is_to_undo:
            self._give_up(self._over or "this capture was aborted")

    def _give_up(self, why: str) -> None:
        self._over = why
        try:
            self._restore()
        except BaseException:  # an interrupt; what it cut short is done now
            self._restore()
            raise

    def _restore(self) -> None:
        if self._torch is not None:
            self._torch.abort()
            self._torch = None
        self._core.abort()
        if self._cupy is not None:
            self._cupy.abort()
            self._cupy = None
        self._is_to_undo = False

    def status(self) -> CaptureStatus:
        """Return whether the capture is active, broken, or over."""
        return CaptureStatus(self._core.status())

    def _capture_facts(self) -> CaptureFacts:
        from gpuprof._graphs import diagnosis

        facts = self._core.facts()
        keeps_log = (_core.driver_info()["version"] or 0) >= _LOGS_SINCE
        return diagnosis.CaptureFacts(
            name=self._settings.name,
            stream=self._stream,
            mode=self._settings.mode.name.lower(),
            num_nodes=facts["num_nodes"],
            last_kernel=facts["last_kernel"] or None,
            log=self._core.log() if keeps_log else None,
        ).at(*self._broke_at)

    @property
    def stream(self) -> int:
        """The handle of the stream that is captured."""
        return self._stream

    @property
    def mode(self) -> CaptureMode:
        """The mode that the capture was begun in."""
        return self._settings.mode

    @property
    def is_open(self) -> bool:
        """Whether the capture is neither finished nor aborted."""
        return not self._over

    @property
    def graph(self) -> CapturedGraph:
        """The graph, once the capture is finished. Before that: InvalidStateError."""
        if self._graph is None:
            raise InvalidStateError(self._over or "the capture is still open; finish it first")
        return self._graph

    __reduce__ = not_pickled(
        "a GraphCaptureGuard cannot be pickled: it is an open capture of this process"
    )

    def __repr__(self) -> str:
        name = f" {shown(self._settings.name)}" if self._settings.name else ""
        state = self._over or f"open on stream {self._stream}"
        return f"<gpuprof.GraphCaptureGuard{name}, {state}>"

    def __del__(self) -> None:
        was_open = not self._over
        if was_open or self._is_to_undo:
            self._give_up("this capture was dropped")
        if was_open and not self._is_finalizing():
            warnings.warn(
                "a GraphCaptureGuard was dropped while its capture was open, which was discarded; "
                "call finish() or abort()",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )


def _empty_text(name: str | None, stream: int) -> str:
    what = f"capture {shown(name)}" if name else "the capture"
    return (
        f"{what} on stream {stream} recorded nothing: the work ran on another stream, or there was "
        "none; give that stream as stream=, or allow_empty=True"
    )
