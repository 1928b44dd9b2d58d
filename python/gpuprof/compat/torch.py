"""`Event`, `graph`, `CUDAGraph` and others of ``torch.cuda``, and ``torch.cuda.nvtx`` as `nvtx`.

They work with torch, with other frameworks and with none. `Event` measures with the host's clock
where the process does not use CUDA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

import gpuprof._core as _core
from gpuprof._callable.api import make_graphed_callable
from gpuprof._common.checks import type_error
from gpuprof._graphs.capture import capture
from gpuprof._graphs.guard import CaptureSettings, GraphCaptureGuard
from gpuprof._graphs.pool import (
    CapturePool,
    GraphPoolHandle,
    capture_pool_for_handle,
    graph_pool_handle,
)
from gpuprof._graphs.types import capture_mode
from gpuprof.compat import torch_nvtx as nvtx
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph

__all__ = [
    "CUDAGraph",
    "Event",
    "graph",
    "graph_pool_handle",
    "make_graphed_callables",
    "nvtx",
]


def _refuse(argument: str, instead: str) -> None:
    message = f"{argument}: gpuprof.compat has no such thing; {instead}"
    raise ValueError(message)


def _check_type(argument: str, value: object, wanted: type) -> None:
    if not isinstance(value, wanted):
        raise type_error(value, argument, f"a gpuprof.compat.{wanted.__name__}")


class Event:
    """One event: ``torch.cuda.Event``.

    Parameters
    ----------
    enable_timing : bool
        Whether `elapsed_time` may be called.
    blocking : bool
        Taken and ignored: `synchronize` lets other threads run, and sleeps after 50 microseconds.
    interprocess : bool
        Only False.
    external : bool
        Only False: a record in a stream capture is a dependency of the graph, without a time. Use
        `gpuprof.timer` in `gpuprof.capture` for times inside a graph.

    Raises
    ------
    ValueError
        `interprocess` or `external` is true.
    """

    def __init__(
        self,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        if interprocess:
            _refuse("interprocess", "use torch.cuda.Event(interprocess=True)")
        if external:
            _refuse("external", "use gpuprof.timer inside gpuprof.capture for times in a graph")
        self._enable_timing = bool(enable_timing)
        self.blocking = bool(blocking)
        self._event = _core._Event()

    @property
    def cuda_event(self) -> int:
        """The handle of the CUDA event; 0 before the first record and on the host's clock."""
        return self._event.handle

    def record(self, stream: object = None) -> None:
        """Record the event on a stream; None is the framework's current one.

        Raises
        ------
        CudaError
            The driver refused the record.
        InvalidStateError
            4096 events and timers are in use.
        """
        self._event.record(stream)

    def wait(self, stream: object = None) -> None:
        """Let later work of a stream wait for the event; None is the framework's current one.

        Raises
        ------
        CudaError
            The driver refused it.
        """
        self._event.wait(stream)

    def query(self) -> bool:
        """Return whether all work before the event is done; true before the first record."""
        return self._event.query()

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to another.

        Parameters
        ----------
        end_event : Event
            The later one.

        Raises
        ------
        InvalidStateError
            An event was made without ``enable_timing=True``, was not recorded, is not reached yet,
            or is on another device.
        """
        _check_type("end_event", end_event, Event)
        if not (self._enable_timing and end_event._enable_timing):
            message = "both events must be made with Event(enable_timing=True) to have a time"
            raise InvalidStateError(message)
        return self._event.elapsed_ms(end_event._event)

    def __repr__(self) -> str:
        clock = self._event.clock
        return f"<gpuprof.compat.Event, {clock or 'not recorded'}>"

    def __reduce__(self) -> Any:
        message = "an Event holds a CUDA event and cannot be pickled or copied; make a new one"
        raise TypeError(message)


# The pools that stand for torch's own pool handles.
_pools: WeakValueDictionary[Any, CapturePool] = WeakValueDictionary()


def _pool_of(pool: object) -> CapturePool:
    """Return the pool of a ``pool=`` argument: gpuprof's own, or one for a handle of torch's."""
    if isinstance(pool, GraphPoolHandle):
        return capture_pool_for_handle(pool) or CapturePool()
    if isinstance(pool, CapturePool):
        return pool
    if pool is None:
        return CapturePool()
    if not isinstance(pool, tuple):
        expected = "what graph_pool_handle() or CUDAGraph.pool() returned, or None"
        raise type_error(pool, "pool", expected)
    known = _pools.get(pool)
    if known is None:
        known = _pools[pool] = CapturePool()
        known._torch = pool
    return known


class CUDAGraph:
    """A graph that is captured later: ``torch.cuda.CUDAGraph``.

    `graph` is the `gpuprof.CapturedGraph`, once there is one.

    Parameters
    ----------
    keep_graph : bool
        Taken and ignored: the graph is kept in any case.
    """

    def __init__(self, keep_graph: bool = False) -> None:
        self.keep_graph = bool(keep_graph)
        self._graph: CapturedGraph | None = None
        self._pool: CapturePool | None = None
        self._open: GraphCaptureGuard | None = None

    @property
    def graph(self) -> CapturedGraph:
        """The captured graph. Before the capture: InvalidStateError."""
        if self._graph is None:
            message = "this CUDAGraph has no graph: capture one first, with graph(g)"
            raise InvalidStateError(message)
        return self._graph

    def capture_begin(
        self,
        pool: object = None,
        capture_error_mode: str = "global",
        check_input_liveness: bool = False,
    ) -> None:
        """Begin to capture the current stream; `graph` is better, because it ends what it begins.

        Parameters
        ----------
        pool : object, optional
            Whose memory the graph shares: of `graph_pool_handle` or another graph's `pool`.
        capture_error_mode : {'global', 'thread_local', 'relaxed'}
            The mode of the capture.
        check_input_liveness : bool
            Only False.

        Raises
        ------
        As `gpuprof.GraphCaptureGuard`.
        """
        if check_input_liveness:
            _refuse("check_input_liveness", "keep the inputs with gpuprof.capture(keep_alive=...)")
        self._begin(pool)
        assert self._pool is not None
        settings = CaptureSettings(
            mode=capture_mode(capture_error_mode), pool=self._pool, allow_empty=True
        )
        guard = GraphCaptureGuard.__new__(GraphCaptureGuard)
        guard._begin(None, settings)
        self._open = guard

    def _begin(self, pool: object) -> None:
        if self._open is not None:
            message = "this CUDAGraph is being captured; call capture_end() first"
            raise InvalidStateError(message)
        if self._graph is not None:
            message = "this CUDAGraph has a graph already; call reset() first"
            raise InvalidStateError(message)
        self._pool = _pool_of(pool)

    @contextmanager
    def _captured(self, pool: object, stream: object, mode: str) -> Iterator[None]:
        self._begin(pool)
        with capture(stream, mode=capture_mode(mode), pool=self._pool, allow_empty=True) as guard:
            yield
        self._graph = guard.graph

    def capture_end(self) -> None:
        """End the capture that `capture_begin` began.

        Raises
        ------
        InvalidStateError
            There is none.
        As `gpuprof.GraphCaptureGuard.finish`.
        """
        guard, self._open = self._open, None
        if guard is None:
            message = "this CUDAGraph is not being captured; call capture_begin() first"
            raise InvalidStateError(message)
        try:
            self._graph = guard.finish()
        finally:
            if guard.is_open:  # on another thread than it was begun on
                self._open = guard

    def instantiate(self) -> None:
        """Do nothing: the end of the capture instantiates the graph."""
        _ = self.graph

    def replay(self) -> None:
        """Launch the graph on the framework's current stream.

        Raises
        ------
        InvalidStateError
            Nothing was captured.
        CudaError
            The driver refused the launch.
        """
        self.graph.launch()

    def reset(self) -> None:
        """Close the graph; another one may be captured. Idempotent."""
        graph, self._graph = self._graph, None
        self._pool = None
        if graph is not None:
            graph.close()

    def pool(self) -> CapturePool:
        """Return the pool that the graph was captured with, for other captures."""
        if self._pool is None:
            message = "this CUDAGraph has no pool: capture it first, with graph(g)"
            raise InvalidStateError(message)
        return self._pool

    def enable_debug_mode(self) -> None:
        """Do nothing: `debug_dump` works in any case."""

    def debug_dump(self, debug_path: str | os.PathLike[str]) -> None:
        """Write the graph as a DOT file."""
        self.graph.to_dot(debug_path)

    def raw_cuda_graph(self) -> int:
        """Return the handle of the graph."""
        return self.graph.raw_graph

    def raw_cuda_graph_exec(self) -> int:
        """Return the handle of the executable graph."""
        return self.graph.raw_exec

    def __repr__(self) -> str:
        return f"<gpuprof.compat.CUDAGraph, {self._graph if self._graph else 'not captured'}>"


def graph(
    cuda_graph: CUDAGraph,
    pool: object = None,
    stream: object = None,
    capture_error_mode: str = "global",
    enable_annotations: bool = False,
    check_input_liveness: bool = False,
) -> AbstractContextManager[None]:
    """Capture a ``with`` block into a `CUDAGraph`: ``torch.cuda.graph``.

    An exception in the block discards the capture and propagates unchanged.

    Parameters
    ----------
    cuda_graph : CUDAGraph
        Gets the graph.
    pool : object, optional
        As for `CUDAGraph.capture_begin`.
    stream : object, optional
        The stream to capture; None is the current one, or a stream of gpuprof's own where that is
        the legacy default stream.
    capture_error_mode : {'global', 'thread_local', 'relaxed'}
        The mode of the capture.
    enable_annotations : bool
        Only False: scopes of `gpuprof.timer` label kernels in any case.
    check_input_liveness : bool
        Only False.

    Raises
    ------
    As `gpuprof.capture`.
    """
    _check_type("cuda_graph", cuda_graph, CUDAGraph)
    if enable_annotations:
        _refuse("enable_annotations", "open gpuprof.timer scopes in the block to label kernels")
    if check_input_liveness:
        _refuse("check_input_liveness", "keep the inputs with gpuprof.capture(keep_alive=...)")
    return cuda_graph._captured(pool, stream, capture_error_mode)


def make_graphed_callables(
    callables: Any,
    sample_args: tuple[Any, ...],
    num_warmup_iters: int = 3,
    allow_unused_input: bool = False,  # noqa: ARG001 (torch's)
    pool: object = None,
) -> Any:
    """Capture functions as graphs: ``torch.cuda.make_graphed_callables``.

    Results are new tensors in each call, and a module gives another module. A call with other
    shapes captures another graph.

    Parameters
    ----------
    callables : callable or tuple
        A function or module, or several, which share memory: call them in that order.
    sample_args : tuple
        The arguments to capture with; for several functions a tuple for each.
    num_warmup_iters : int
        How often each function runs before it is captured.
    allow_unused_input : bool
        Taken and ignored: an argument that is not used gets no gradient.
    pool : object, optional
        As for `CUDAGraph.capture_begin`.

    Returns
    -------
    GraphedCallable
        Of several functions, a tuple of them.

    Raises
    ------
    As `gpuprof.make_graphed_callable`.
    """
    return make_graphed_callable(
        callables,
        sample_args,
        warmup=num_warmup_iters,
        pool=None if pool is None else _pool_of(pool),
    )
