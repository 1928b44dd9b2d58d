"""Which scope a node of a replay belongs to, by the numbers that profilers give nodes.

A profiler's record of a kernel in a replay names the executable graph and the node in it by
numbers. The graphs of this process whose captures noted scopes are known here as long as they live,
so that such a record can be put under its scope. Numbers are asked for when somebody wants them,
not at a capture. Any thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._core import GraphBase

_NODE_BITS = 32  # of a number: the node in its graph; above them is the graph

_lock = threading.RLock()
_graphs: weakref.WeakSet[GraphBase] = weakref.WeakSet()
_known: weakref.WeakKeyDictionary[GraphBase, dict[int, str]] = weakref.WeakKeyDictionary()
_watchers: list[object] = []
_watched: dict[int, str] = {}  # of all graphs that lived while somebody watched


def register(graph: GraphBase) -> None:
    """Know a graph as long as it lives; again after each change of what it does."""
    if not graph._has_labels and graph not in _graphs:
        return
    with _lock:
        _known.pop(graph, None)
        _graphs.add(graph)
        if _watchers:
            _note(graph)


def of_graph(graph: GraphBase) -> dict[int, str]:
    """Return the paths of a graph's labelled nodes by number.

    Raises InvalidStateError if the graph is closed or nothing tells the numbers.
    """
    with _lock:
        known = _known.get(graph)
        if known is None:
            known = _known[graph] = dict(graph._labelled_ids())
        return dict(known)


def live_graphs() -> list[GraphBase]:
    """Return the open graphs that have labelled nodes."""
    with _lock:
        graphs = list(_graphs)
    return [graph for graph in graphs if not graph.is_closed and graph._has_labels]


def labels_by_graph() -> dict[int, dict[int, str]]:
    """Return the paths by node, by executable graph: ``{graph: {node: path}}``, all numbers.

    Those of live graphs, and within `watch` also of graphs that are gone. A node's number is the
    whole one, with the graph's in its upper half. Raises InvalidStateError if nothing tells the
    numbers.
    """
    with _lock:
        found = dict(_watched)
    for graph in live_graphs():
        try:
            if graph.raw_exec != 0:  # an older torch does not tell its own
                found |= of_graph(graph)
        except GpuprofError:
            if not graph.is_closed:  # by another thread, meanwhile
                raise
    by_graph: dict[int, dict[int, str]] = {}
    for node, path in found.items():
        by_graph.setdefault(node >> _NODE_BITS, {})[node] = path
    return by_graph


def scope_of_node(graph_id: int, node_id: int) -> str | None:
    """Return the path of a node of a replay; None outside of all scopes, or if it is not known.

    For many records take `labels_by_graph` once.

    Parameters
    ----------
    graph_id : int
        The executable graph, as records of replays name it.
    node_id : int
        The node: the whole number, or its lower half alone.
    """
    node = graph_id << _NODE_BITS | (node_id & (1 << _NODE_BITS) - 1)
    with suppress(GpuprofError):
        return labels_by_graph().get(graph_id, {}).get(node)
    return None


@contextmanager
def watch() -> Iterator[None]:
    """Also remember the labels of graphs that are closed or updated inside the block.

    For a collector, whose records come after the replays. Where nothing tells the numbers of nodes
    it remembers nothing.
    """
    watcher = object()
    with _lock:
        _watchers.append(watcher)
        for graph in live_graphs():
            _note(graph)
    try:
        yield
    finally:
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                _watched.clear()


def _note(graph: GraphBase) -> None:
    with suppress(GpuprofError):
        _watched.update(of_graph(graph))
