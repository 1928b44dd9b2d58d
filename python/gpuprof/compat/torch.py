"""`Event`, `graph`, `CUDAGraph` and others of ``torch.cuda``, and ``torch.cuda.nvtx`` as `nvtx`.

They work with torch, with other frameworks and with none. `Event` measures with the host's clock
where the process does not use CUDA.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._callable.api import make_graphed_callable
from gpuprof._common.checks import not_pickled, type_error
from gpuprof._frameworks import loaded
from gpuprof._graphs.capture import capture
from gpuprof._graphs.guard import CaptureSettings, GraphCaptureGuard
from gpuprof._graphs.pool import CapturePool, check_pool, find_pool
from gpuprof._graphs.pool import torch_handle as graph_pool_handle
from gpuprof._graphs.types import capture_mode
from gpuprof.compat import torch_nvtx as nvtx
from gpuprof.compat.torch_callables import graphed
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
        Whether a record and a wait in a stream capture are nodes of the graph, which each replay
        runs, instead of a dependency inside of it.

    Raises
    ------
    ValueError
        `interprocess` is true.
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
        self._enable_timing = bool(enable_timing)
        self.blocking = bool(blocking)
        self._event = _core._Event(bool(external))

    @property
    def cuda_event(self) -> int:
        """The handle of the CUDA event; 0 before the first record and on the host's clock."""
        return self._event.handle

    event_id = cuda_event

    @property
    def device(self) -> Any:
        """The `torch.device`, or its name without torch; None where `cuda_event` is 0."""
        if self._event.device is None:
            return None
        name, torch = f"cuda:{self._event.device}", loaded.whole_torch()
        return name if torch is None else torch.device(name)

    def record(self, stream: object = None) -> None:
        """Record the event on a stream; None is the framework's current one."""
        self._event.record(stream)

    def wait(self, stream: object = None) -> None:
        """Let later work of a stream wait for the event; None is the framework's current one."""
        self._event.wait(stream)

    def query(self) -> bool:
        """Return whether all work before the event is done; true before the first record."""
        return self._event.query()

    def synchronize(self) -> None:
        """Wait until all work before the event is done."""
        self._event.synchronize()

    def elapsed_time(self, end_event: Event) -> float:
        """Return the milliseconds from this event to another.

        Raises
        ------
        ValueError
            An event was made without ``enable_timing=True``, or was not recorded.
        InvalidStateError
            One is not reached yet, or is on another device.
        """
        _check_type("end_event", end_event, Event)
        if not (self._enable_timing and end_event._enable_timing):
            message = "Both events must be created with argument 'enable_timing=True'"
            raise ValueError(message)
        return self._event.elapsed_ms(end_event._event)

    def __repr__(self) -> str:
        clock = self._event.clock
        return f"<gpuprof.compat.Event, {clock or 'not recorded'}>"

    __reduce__ = not_pickled(
        "an Event holds a CUDA event and cannot be pickled or copied; make a new one"
    )


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
        self._open: GraphCaptureGuard | None = None
        self._generators: tuple[Any, ...] = ()

    @property
    def graph(self) -> CapturedGraph:
        """The captured graph. Before the capture: InvalidStateError."""
        if self._graph is None:
            message = "this CUDAGraph has no graph: capture one first, with graph(g)"
            raise InvalidStateError(message)
        return self._graph

    def register_generator_state(self, generator: Any) -> None:
        """Let captures draw from a generator of torch's, anew in each replay.

        The default generator needs no call, and from torch 2.12 on no other does.
        """
        self._generators = (*self._generators, generator)

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
            Whose memory the graph shares: a handle of torch's, of `graph_pool_handle` or of another
            graph's `pool`, or a `gpuprof.CapturePool`.
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
        settings = self._settings(pool, capture_error_mode)
        guard = GraphCaptureGuard.__new__(GraphCaptureGuard)
        guard._begin(None, settings)
        self._open = guard

    def _settings(self, pool: object, mode: str) -> CaptureSettings:
        if self._open is not None:
            message = "this CUDAGraph is being captured; call capture_end() first"
            raise InvalidStateError(message)
        if self._graph is not None:
            message = "this CUDAGraph has a graph already; call reset() first"
            raise InvalidStateError(message)
        return CaptureSettings(
            mode=capture_mode(mode),
            pool=check_pool(pool) or CapturePool(),
            allow_empty=True,
            generators=self._generators,
        )

    @contextmanager
    def _captured(self, pool: object, stream: object, mode: str) -> Iterator[None]:
        block = capture(stream)
        block._settings = self._settings(pool, mode)._replace(is_block=True)
        with block as guard:
            yield
        self._keep(guard.graph)

    def _keep(self, graph: CapturedGraph) -> None:
        self._graph = graph
        if graph.num_nodes == 0:
            message = "The CUDA Graph is empty: there was no work, or it ran on another stream"
            warnings.warn(message, stacklevel=4)

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
            self._keep(guard.finish())
        finally:
            if guard.is_open:  # on another thread than it was begun on
                self._open = guard

    def instantiate(self) -> None:
        """Do nothing: the end of the capture instantiates the graph."""
        _ = self.graph

    def replay(self) -> None:
        """Launch the graph on the framework's current stream."""
        self.graph.launch()

    def reset(self) -> None:
        """Close the graph and discard an open capture; another may begin. Idempotent."""
        graph, self._graph = self._graph, None
        guard, self._open = self._open, None
        if guard is not None:
            guard.abort()
        if graph is not None:
            graph.close()

    def pool(self) -> tuple[int, int]:
        """Return the handle of the graph's pool, for other captures and for torch."""
        pool = self.graph.pool
        assert pool is not None
        return pool._name()

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
    allow_unused_input: bool = False,
    pool: object = None,
) -> Any:
    """Capture functions as graphs: ``torch.cuda.make_graphed_callables``.

    Results are new tensors in each call. A call with other shapes, or of a module in another mode,
    captures another graph. A module is returned itself: its ``forward`` replays from then on, and
    its hooks run around each call.

    Parameters
    ----------
    callables : callable or tuple
        A function or module, or several, which share memory: call them in that order.
    sample_args : tuple
        The arguments to capture with; for several functions a tuple for each.
    num_warmup_iters : int
        How often each function runs before it is captured.
    allow_unused_input : bool
        Whether tensors that require gradients, arguments or parameters of a module, may be such
        that the results do not depend on them.
    pool : object, optional
        As for `CUDAGraph.capture_begin`.

    Returns
    -------
    GraphedCallable or module
        Of several functions, a tuple of them.

    Raises
    ------
    InvalidStateError
        The results do not depend on an argument or parameter, which `allow_unused_input` allows.
    As `gpuprof.make_graphed_callable`.
    """
    return graphed(
        callables,
        lambda functions: make_graphed_callable(
            functions,
            sample_args,
            warmup=num_warmup_iters,
            pool=find_pool(pool),
        ),
        allow_unused_input=allow_unused_input,
    )
