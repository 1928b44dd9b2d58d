"""`CapturedGraph`: a CUDA graph that can be replayed, updated and looked into."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled, type_error, whole
from gpuprof._graphs import labels
from gpuprof._graphs.timings import GraphTimings
from gpuprof._graphs.types import GraphMemory, graph_name, shown
from gpuprof.errors import GraphUpdateError, InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._core import GraphNode
    from gpuprof._frameworks.torch_graph import TorchParts
    from gpuprof._graphs.diff import GraphDiff
    from gpuprof._graphs.pool import CapturePool
    from gpuprof._graphs.signature import GraphSignature

_MOST_HANDLE = (1 << 64) - 1


class CapturedGraph(_core.GraphBase):
    """A captured CUDA graph. Made by `capture`, `end_capture`, `from_torch` and `from_handles`.

    A graph owns what it needs: its buffers (`pool`), the objects of ``keep_alive=``, the events of
    the timers inside. They are released when it is closed and its last replay is done. Any thread
    may use it: its calls are serialised.
    """

    __module__ = "gpuprof"

    _pool: CapturePool | None = None
    _name: str | None = None
    _nodes: tuple[GraphNode, ...] | None = None
    _keep_alive: tuple[object, ...] = ()
    _stream_object: object = None  # of the capture: a launch without a stream goes to it

    def __init__(self) -> None:
        message = (
            "a CapturedGraph is made by gpuprof.capture(), gpuprof.end_capture(), "
            "CapturedGraph.from_torch() or CapturedGraph.from_handles()"
        )
        raise TypeError(message)

    @classmethod
    def _make(
        cls,
        ended: _core._EndedCapture | None,
        *,
        handle: int = 0,
        stream: int | None = None,
        ordinal: int = 0,
        timers: int = 0,
        name: str | None = None,
    ) -> Self:
        self = cls.__new__(cls)
        if stream is None:
            stream, ordinal, _ = _core._current_stream()
        _core.GraphBase.__init__(self, ended, handle, stream, ordinal, timers, name or "graph")
        self._read_scalars_of(stream)
        self._name = name
        return self

    def _own(self, pool: CapturePool | None, keep: Iterable[object]) -> None:
        self._keep_alive = (*keep, pool) if pool is not None else tuple(keep)
        self._retain(self._keep_alive)
        self._read_scalars(self._keep_alive)
        if pool is not None:
            self._read_scalars(tuple(pool._buffers))
            self._pool = pool
            pool._graphs.add(self)

    def _use_torch(self, parts: TorchParts) -> None:
        self._lend_exec(parts.exec or 0)
        from gpuprof._frameworks.torch_graph import ByTorch

        self._by_torch = ByTorch(parts, parts)
        self._direct = not self._by_torch.must_replay

    @classmethod
    def from_torch(cls, graph: object, *, name: str | None = None) -> Self:
        """Return a `CapturedGraph` of a graph that torch, inductor or vLLM made.

        Parameters
        ----------
        graph : torch.cuda.CUDAGraph
            Kept alive. Without ``keep_graph=True`` it can be replayed, but has no nodes to inspect.
        name : str, optional

        Raises
        ------
        TypeError
            It is no ``torch.cuda.CUDAGraph``.
        InvalidStateError
            Nothing was captured into it yet.
        """
        from gpuprof._frameworks import torch_graph

        graph_name(name)
        parts = torch_graph.from_torch(graph)
        self = cls._make(None, handle=parts.graph or 0, name=name)
        self._use_torch(parts)
        return self

    @classmethod
    def from_handles(cls, graph: int, exec: int, *, name: str | None = None) -> Self:
        """Return a `CapturedGraph` of a graph of which only the driver's handles are known.

        Parameters
        ----------
        graph, exec : int
            A CUgraph and the CUgraphExec made of it; the graph may be 0. The caller owns both, and
            must keep them as long as this object: a stale handle crashes the process.
        name : str, optional

        Raises
        ------
        TypeError, ValueError
            The handles are no ints, or there is no CUgraphExec.
        """
        graph_name(name)
        graph = whole("graph", graph, 0, _MOST_HANDLE)
        exec = whole("exec", exec, 1, _MOST_HANDLE)
        self = cls._make(None, handle=graph, name=name)
        self._lend_exec(exec)
        return self

    def _replay_by_framework(self, stream: int) -> None:
        """Called for a launch that cannot be the driver's alone."""
        by_torch = self._by_torch
        if by_torch is None:
            message = "this graph is closed; capture a new one"
            raise InvalidStateError(message)
        by_torch.replay(stream)
        self._direct = not by_torch.must_replay

    def _launched_after_clear(self) -> None:
        """Called once, by the first launch after the pool's buffers were dropped.

        That launch is no Python frame, so the caller's is the next one.
        """
        warnings.warn(
            f"{self!r} is launched after the buffers of its pool were dropped with "
            "clear_buffers(): if it used one of them, it now reads and writes memory that may be "
            "somebody else's",
            RuntimeWarning,
            stacklevel=2,
        )

    @property
    def name(self) -> str | None:
        """The name it was given, or None."""
        return self._name

    @property
    def pool(self) -> CapturePool | None:
        """The `CapturePool` that its buffers are in, or None."""
        return self._pool

    @property
    def has_pool(self) -> bool:
        """Whether it has a pool."""
        return self._pool is not None

    @property
    def pool_buffer_count(self) -> int:
        """How many buffers its pool holds; 0 without one."""
        return 0 if self._pool is None else self._pool.buffer_count

    @property
    def memory(self) -> GraphMemory:
        """The device memory that the graph took, as far as it was measured."""
        return GraphMemory(*self._memory())

    def _graph_handle(self) -> int:
        handle = self.raw_graph
        if handle == 0:
            lacks = None if self._by_torch is None else self._by_torch.lacks
            message = lacks or (
                "only the executable copy of this graph is known, and the driver does not show "
                "what is in one"
            )
            raise InvalidStateError(message)
        return handle

    def scopes_by_node_id(self) -> dict[int, str]:
        """Return the scopes of the nodes by the numbers that profilers give them.

        For records of replays: ``graphNodeId`` of CUPTI, ``"graph node id"`` of Kineto. The upper
        32 bits of a number name the executable graph.

        Returns
        -------
        dict of int to str
            As `GraphNode.scope`. Nodes outside of all scopes, and those inside child graphs, are
            left out.

        Raises
        ------
        InvalidStateError
            Nothing tells the numbers: that takes a driver of CUDA 13.1, or a loaded CUPTI, such as
            torch's. Or the graph is closed, or its nodes or its executable copy are not known.
        """
        self._graph_handle()
        self._check_exec()
        return {node: "/".join(names) for node, names in self._labelled_ids()}

    def kernel_annotations(self) -> dict[int, list[dict[str, str]]]:
        """Return `scopes_by_node_id` as torch annotates kernels: ``{number: [{"scope": path}]}``.

        Pickled, it is what ``python -m torch.cuda._annotate_cuda_graph_trace`` reads. Raises what
        `scopes_by_node_id` raises.
        """
        return {node: [{"scope": path}] for node, path in self.scopes_by_node_id().items()}

    def _check_exec(self) -> None:
        if self.raw_exec == 0:
            lacks = "" if self._by_torch is None else self._by_torch.lacks
            raise InvalidStateError(lacks or "the executable copy of this graph is not known")

    @property
    def num_nodes(self) -> int:
        """How many nodes the graph has; those of child graphs are not counted."""
        self._graph_handle()
        return super().num_nodes

    def upload(self, stream: object = None) -> None:
        """Copy the graph to the device, so that the first launch is as cheap as the others.

        Idempotent; a launch does it too. Does not wait.

        Parameters
        ----------
        stream : int or object, optional
            As for `launch`.

        Raises
        ------
        InvalidStateError
            The graph is closed, the stream is being captured, or this torch does not tell the
            executable graph.
        """
        self._check_exec()
        super().upload(stream)

    @property
    def nodes(self) -> tuple[GraphNode, ...]:
        """The nodes, in the driver's order; see `GraphNode`."""
        self._graph_handle()
        if self._nodes is None:
            self._nodes = self._walk()
        return self._nodes

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Pairs of indices into `nodes`: the first must be done before the second begins."""
        return _core._graph_edges(self._graph_handle())

    def kernel_names(self) -> list[str]:
        """Return the names of the kernels in the order in which they can run."""
        return _core._kernel_names(self.nodes)

    def signature(self) -> GraphSignature:
        """Return a text that two graphs share if they launch the same kernels in the same order.

        Names, grids, blocks and dependencies count; arguments and addresses do not. It also has
        ``launches``, and ``diff(other)`` says in words what another graph launches more.
        """
        from gpuprof._graphs.signature import GraphSignature, digits, launches_of

        return GraphSignature(digits(self.nodes), launches_of(self.nodes))

    def diff(self, other: CapturedGraph) -> GraphDiff:
        """Describe how another graph differs from this one.

        Parameters
        ----------
        other : CapturedGraph

        Returns
        -------
        GraphDiff
            True if they differ; as text it is one difference a line.
        """
        from gpuprof._graphs import diff

        _check_graph(other)
        return diff.compare(self.nodes, other.nodes)

    def to_dot(self, path: str | os.PathLike[str] | None = None) -> str:
        """Return the graph as text in graphviz' language, and write it to a file if one is named.

        Parameters
        ----------
        path : str or os.PathLike, optional
            Written whole or not at all.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        text = _core._to_dot(self.nodes, self._name or "graph")
        if path is not None:
            from gpuprof._common.outputs import write_whole

            write_whole(path, text)
        return text

    def update(self, other: CapturedGraph) -> None:
        """Replace what this graph does by what another does, without a new instantiation.

        This graph then keeps alive what `other` does, and its pool; its own are released once the
        launches so far are done. `other` may be closed afterwards. The two must have the
        same nodes in the same order; their parameters may differ. With ``timers="last"`` the
        launches of both write the same events from then on, so `timings` is that of whichever was
        launched last. Where torch has to launch `other`, because it draws random numbers or may do
        so, it launches this graph from then on, through the executable copy of `other`: the numbers
        are those that launches of `other` would draw, and `other` cannot be updated meanwhile.

        Parameters
        ----------
        other : CapturedGraph

        Raises
        ------
        GraphUpdateError
            They do not fit. The text says why and at which node; this graph is as it was. Or torch
            has to launch `other`, and this graph has ``timers="collect"``; or a graph that was
            updated from this one is launched through it.
        InvalidStateError
            One of them is closed, or known by its executable copy alone.
        """
        _check_graph(other)
        if other is self:
            return
        for graph in (self, other):
            graph._graph_handle()
        self._check_exec()
        self._check_launches(other)
        keep = other._keep_alive
        if other._by_torch is not None:
            keep = (*keep, other._by_torch.graph)
        result, node, of_other = self._update(other, keep)
        if result != 0:
            message = _core._update_reason(result, self.nodes, node, other.nodes, of_other)
            raise GraphUpdateError(message)
        if self._by_torch is not None or not other._direct:
            from gpuprof._frameworks import torch_graph

            by_other = None if other._direct else other._by_torch
            self._by_torch = torch_graph.after_update(self._by_torch, by_other)
            self._direct = other._direct
        self._keep_alive = keep
        self._nodes = other._nodes
        labels.register(self)
        if self._pool is not other._pool:
            if self._pool is not None:
                self._pool._graphs.discard(self)
            self._pool = other._pool
            if self._pool is not None:
                self._pool._graphs.add(self)

    def _check_launches(self, other: CapturedGraph) -> None:
        """Refuse what would change, or not reach, the executable graph of a launch by torch."""
        if self._by_torch is not None and self._by_torch.lends_exec:
            message = (
                "this graph cannot be updated: another one was updated from it and is launched "
                "through it, because it may draw torch's random numbers; close that one first, or "
                "capture a new graph"
            )
            raise GraphUpdateError(message)
        if self._collects and self._span_count and not other._direct:
            message = (
                "other: torch has to launch it, because it may draw random numbers, and then the "
                'timers="collect" of this graph cannot follow; capture both with timers="last", or '
                "launch the other graph itself"
            )
            raise GraphUpdateError(message)

    def timings(self, *, wait: bool = True) -> GraphTimings:
        """Return what the timers inside the graph measured in its last replay.

        Parameters
        ----------
        wait : bool
            Wait for the replay. Without it, what is not known yet is None.

        Returns
        -------
        GraphTimings
            Empty if no `timer` was entered in the capture, or ``timers="strip"`` left them out.

        Raises
        ------
        NotReplayedError
            The graph has timers and was not launched yet.
        """
        return GraphTimings(self._times(wait))

    def close(self) -> None:
        """Destroy the graph. Idempotent, never raises, also while a replay runs.

        What it keeps alive is released once the last replay is done.
        """
        super().close()
        self._pool = None
        self._keep_alive = ()
        self._nodes = None
        self._stream_object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    __reduce__ = not_pickled(
        "a CapturedGraph cannot be pickled: it lives in this process's CUDA context"
    )

    def __repr__(self) -> str:
        name = f" {shown(self._name)}" if self._name else ""
        if self.closed:
            return f"<gpuprof.CapturedGraph{name}, closed>"
        try:
            nodes = f"{self.num_nodes} nodes, " if self.raw_graph else ""
        except RuntimeError:  # the driver is gone, or this is a forked child
            nodes = ""
        replays = self.num_replays
        return f"<gpuprof.CapturedGraph{name}: {nodes}{replays} replays, device {self.device}>"

    def _repr_html_(self) -> str:
        from gpuprof._graphs import drawing

        try:
            facts = {"replays": str(self.num_replays), "device": str(self.device)}
            if self.has_pool:
                facts["buffers"] = str(self.pool_buffer_count)
            return drawing.html_view(self.nodes, self._name or "graph", facts)
        except RuntimeError:  # closed, without its nodes, in a forked child; or the driver is gone
            import html

            return f"<code>{html.escape(repr(self))}</code>"


def _check_graph(other: object) -> None:
    if not isinstance(other, CapturedGraph):
        raise type_error(other, "other", "a CapturedGraph")
