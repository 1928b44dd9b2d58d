"""Stream captures: the functions and the ``with`` block that open them."""

from __future__ import annotations

import atexit
from collections.abc import Iterable
from contextlib import suppress
from threading import current_thread, get_ident
from typing import TYPE_CHECKING, Any, Literal

import gpuprof._core as _core
from gpuprof._common.checks import choice
from gpuprof._graphs.graph import CapturedGraph
from gpuprof._graphs.guard import (
    CaptureSettings,
    GraphCaptureGuard,
    begun,
    begun_key,
    forget_begun,
    forget_dead,
)
from gpuprof._graphs.pool import check_pool, find_pool
from gpuprof._graphs.types import (
    BACKENDS,
    CaptureInfo,
    CaptureMode,
    CaptureModeLike,
    CaptureStatus,
    OpenCapture,
    TimersLike,
    capture_mode,
    graph_name,
    objects_to_keep,
    timers_number,
)
from gpuprof.errors import EmptyGraphError, InvalidStateError

if TYPE_CHECKING:
    from contextlib import _GeneratorContextManager
    from types import TracebackType

    from gpuprof._frameworks.torch_constants import HostConstants
    from gpuprof._graphs.debug import CaptureWatch
    from gpuprof._graphs.pool import PoolLike


@atexit.register
def _abort_begun() -> None:
    while begun:
        begun.popitem()[1].abort()


def begin_capture(
    stream: object = None,
    *,
    mode: CaptureModeLike = "thread_local",
    pool: PoolLike | None = None,
) -> None:
    """Begin to capture a stream; `end_capture` on the same stream gives the graph.

    Where a ``with`` block can be used, `capture` is better: it cannot leave a capture open.

    Parameters
    ----------
    stream : int or object, optional
        As for `GraphCaptureGuard`.
    mode : CaptureMode or str
        As for `GraphCaptureGuard`.
    pool : CapturePool, GraphPoolHandle or tuple of int, optional
        As for `capture`.

    Raises
    ------
    As `GraphCaptureGuard`.
    """
    settings = CaptureSettings(mode=capture_mode(mode), pool=check_pool(pool))
    guard = GraphCaptureGuard.__new__(GraphCaptureGuard)
    try:
        guard._begin(stream, settings)
        guard._begun_by = current_thread()
        begun[begun_key(guard.stream)] = guard
    except BaseException:  # an interrupt may come as soon as it has begun
        guard.abort()
        raise


def end_capture(stream: object = None, *, pool: PoolLike | None = None) -> CapturedGraph:
    """End the capture that `begin_capture` began on a stream.

    Parameters
    ----------
    stream : int or object, optional
        The stream that was given to `begin_capture`; None is the framework's current one, or that
        of the only capture which this thread has begun.
    pool : CapturePool, GraphPoolHandle or tuple of int, optional
        Must be the one that was given to `begin_capture`, if any is given here.

    Returns
    -------
    CapturedGraph

    Raises
    ------
    InvalidStateError
        No capture that `begin_capture` began is open on the stream, or it has another pool.
    As `GraphCaptureGuard.finish`.
    """
    _core.require_cuda()
    handle = _core.stream_handle(stream)
    guard = begun.get(begun_key(handle))
    if guard is None and stream is None:
        mine = [each for each in list(begun.values()) if each._thread == get_ident()]
        if len(mine) == 1:
            guard = mine[0]
    if guard is None:
        open_on = sorted(each.stream for each in list(begun.values())) or "none"
        message = (
            f"no capture that begin_capture() began is open on stream {handle}; the streams with "
            f"one are: {open_on}"
        )
        raise InvalidStateError(message)
    if pool is not None and find_pool(pool) is not guard._settings.pool:
        message = f"pool: begin_capture() was given {guard._settings.pool!r}, not {pool!r}"
        raise InvalidStateError(message)
    try:
        return guard.finish()
    finally:
        if not guard.is_open:
            forget_begun(guard)


def capture_status(stream: object = None) -> CaptureStatus:
    """Return whether a stream is being captured, by gpuprof or others.

    Parameters
    ----------
    stream : int or object, optional
        None is the framework's current stream.

    Returns
    -------
    CaptureStatus

    Raises
    ------
    CaptureImplicitError
        The legacy default stream was asked for while a blocking stream is being captured.
    CudaUnavailableError
        There is no driver or no device.
    """
    return CaptureStatus(_core._capture_status(*_stream(stream)))


def is_stream_capturing(stream: object = None) -> bool:
    """Return whether work that is queued on a stream now becomes part of a graph.

    Parameters
    ----------
    stream : int or object, optional
        None is the framework's current stream.

    Returns
    -------
    bool

    Raises
    ------
    As `capture_status`.
    """
    return capture_status(stream).is_capturing()


def capture_info(stream: object = None) -> CaptureInfo:
    """Return what is known of a stream's capture, and of all that gpuprof has open.

    Parameters
    ----------
    stream : int or object, optional
        None is the framework's current stream.

    Returns
    -------
    CaptureInfo

    Raises
    ------
    As `capture_status`.
    """
    status, number, nodes, _ = _core._capture_of(*_stream(stream))
    active = status == CaptureStatus.ACTIVE
    found = tuple(
        OpenCapture(
            each["id"], each["stream"], CaptureMode(each["mode"]), each["thread"], each["num_nodes"]
        )
        for each in _core._open_captures()
    )
    return CaptureInfo(
        CaptureStatus(status), number if active else None, nodes if active else None, found
    )


def _stream(stream: object) -> tuple[int, int]:
    if stream is not None:
        return _core.stream_handle(stream), 0
    handle, ordinal, _ = _core._current_stream()
    return handle, ordinal


class capture(_core._CaptureBlock):  # used as a function, and must be cheap
    """Capture what a ``with`` block queues on a stream, as a graph that can be replayed.

    ``with gpuprof.capture(stream) as cap: ...`` yields the `GraphCaptureGuard`; afterwards
    ``cap.graph`` is the `CapturedGraph`. An exception in the block discards the capture, leaves the
    stream usable, and propagates unchanged, with a note of what the driver had refused. Destructors
    that the garbage collector runs meanwhile do not break it, unless they wait for the GPU.

    Parameters
    ----------
    stream : int or object, optional
        As for `GraphCaptureGuard`. None on the legacy default stream means a stream of gpuprof's
        own that is the framework's current one in the block, with waits both ways; without a
        framework it is an error.
    backend : {'auto', 'driver', 'torch'}
        ``'torch'`` captures through `torch.cuda.CUDAGraph`, so that memory comes from its private
        pool and random operators work; ``'auto'`` does so on torch's streams. ``'driver'`` is a
        plain capture: torch may silently reuse the memory of tensors in its graph.
    mode : CaptureMode or str
        ``"thread_local"``, ``"global"`` or ``"relaxed"``: see `CaptureMode`.
    pool : CapturePool, GraphPoolHandle or tuple of int, optional
        Keeps the buffers that the graph needs; under torch its captures share memory. A tuple is a
        handle of torch's, of ``torch.cuda.graph_pool_handle`` or a ``torch.cuda.MemPool``.
    keep_alive : iterable of object
        Objects that the graph uses. Kept until it is closed and its last replay is done.
    upload : bool
        Copy the graph to the device at once, so that its first launch is cheap.
    debug : bool
        Find the line that breaks the capture, by asking for its state after every operator of
        torch's; and report operators that ran on a stream outside of it. Slow.
    timers : {'last', 'collect', 'strip'}
        What `gpuprof.timer` becomes in the block: events that each replay overwrites, read with
        `CapturedGraph.timings`; events whose times are collected from every replay into `stats` and
        traces; or nothing. An event costs the GPU about 2 microseconds a replay on an H200.
    allow_empty : bool
        Accept a block that records nothing.
    host_constants : bool
        Copy from unpinned host memory, which torch refuses in a capture, through pinned memory that
        the graph keeps: also `torch.tensor` of numbers on the GPU, and indices on the host. Replays
        use the values of the capture. Compiled code runs its operators one by one.
    name : str, optional
        What the graph is called in errors, statistics, traces.

    Raises
    ------
    EmptyGraphError
        The block recorded nothing.
    CaptureError
        The block broke the capture, or the stream cannot be captured.
    InvalidStateError
        The stream is being captured already, or the pool is sealed.
    CudaUnavailableError
        There is no driver or no device.
    TypeError, ValueError
        An argument is not what is listed above.

    Examples
    --------
    >>> with gpuprof.capture(stream, name="step") as cap:  # doctest: +SKIP
    ...     step(stream)
    >>> cap.graph.launch()  # doctest: +SKIP
    """

    __module__ = "gpuprof"

    __slots__ = ("_constants", "_contexts", "_debug", "_guard", "_settings", "_stream", "_watch")

    def __init__(
        self,
        stream: object = None,
        *,
        backend: Literal["auto", "driver", "torch"] = "auto",
        mode: CaptureModeLike = "thread_local",
        pool: PoolLike | None = None,
        keep_alive: Iterable[object] = (),
        upload: bool = False,
        debug: bool = False,
        timers: TimersLike = "last",
        allow_empty: bool = False,
        host_constants: bool = False,
        name: str | None = None,
    ) -> None:
        choice("backend", backend, BACKENDS)
        self._settings = CaptureSettings(
            mode=capture_mode(mode),
            pool=check_pool(pool),
            backend=backend,
            keep_alive=objects_to_keep(keep_alive),
            upload=bool(upload),
            timers=timers_number(timers),
            allow_empty=bool(allow_empty),
            name=graph_name(name),
            is_block=True,
        )
        self._stream = stream
        self._debug = bool(debug)
        self._constants: HostConstants | None = None
        if host_constants:
            from gpuprof._frameworks import torch_constants

            self._constants = torch_constants.HostConstants()
        self._guard: GraphCaptureGuard | None = None
        self._contexts: list[_GeneratorContextManager[Any]] = []  # entered for the block
        self._watch: CaptureWatch | None = None

    if TYPE_CHECKING:

        def __enter__(self) -> GraphCaptureGuard: ...

    def _enter(self) -> GraphCaptureGuard:
        if self._guard is not None:
            message = "a capture is entered once; call gpuprof.capture() again for another one"
            raise InvalidStateError(message)
        # Kept before it begins: an interrupt may come right after.
        guard = self._guard = GraphCaptureGuard.__new__(GraphCaptureGuard)
        constants, settings = self._constants, self._settings
        if constants is not None:
            settings = settings._replace(keep_alive=(*settings.keep_alive, constants.kept))
        guard._begin(self._stream, settings)
        if constants is not None:
            self._contexts.append(constants.of_block())
            self._contexts[-1].__enter__()
        if self._debug:
            from gpuprof._graphs import debug as graphs_debug

            self._contexts.append(
                graphs_debug.watch(guard.stream, guard._capture_facts, guard._core.look)
            )
            self._watch = self._contexts[-1].__enter__()
        return guard

    def _leave(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        guard = self._guard
        assert guard is not None
        try:
            while self._contexts:
                self._contexts.pop().__exit__(kind, error, traceback)
            if error is None:
                self._finish(guard)
            elif guard.is_open:
                with suppress(Exception):  # the exception matters more than its note
                    from gpuprof._graphs import diagnosis

                    diagnosis.note_for_body(error, guard._capture_facts())
        finally:
            guard.abort()  # does nothing after a finished capture
            if begun:
                forget_dead()

    def _discard(self) -> None:
        """Leave nothing open, wherever an exception came out of `_enter` or `_leave`."""
        while self._contexts:
            self._contexts[-1].gen.close()
            self._contexts.pop()
        if self._guard is not None:
            self._guard.abort()

    def _finish(self, guard: GraphCaptureGuard) -> None:
        outside = None if self._watch is None else self._watch.report_outside()
        if guard.is_open:  # else the block has finished or aborted it itself
            try:
                guard.finish()
            except EmptyGraphError as empty:
                if outside is None:
                    raise
                message = f"{empty}. {outside}"
                raise EmptyGraphError(message) from None
        if outside is not None:
            import warnings

            warnings.warn(outside, RuntimeWarning, stacklevel=3)
