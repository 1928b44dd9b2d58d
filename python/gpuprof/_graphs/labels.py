"""Which scope a node of a replay belongs to, by the numbers that profilers give nodes.

The graphs of this process whose captures noted scopes are known here as long as they live. Numbers
are asked for when somebody wants them, not at a capture. Any thread.
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

_lock = threading.RLock()
_graphs: weakref.WeakSet[GraphBase] = weakref.WeakSet()
_watchers: list[object] = []
_watched: dict[int, str] = {}  # of all graphs that lived while somebody watched


def register(graph: GraphBase) -> None:
    """Know a graph as long as it lives; again after each change of what it does."""
    if not graph._has_labels and graph not in _graphs:
        return
    with _lock:
        _graphs.add(graph)
        is_watched = bool(_watchers)
    if is_watched:
        _note(graph)


def live_graphs() -> list[GraphBase]:
    """Return the open graphs that have labelled nodes."""
    with _lock:
        graphs = list(_graphs)
    return [graph for graph in graphs if not graph.closed and graph._has_labels]


def labels_by_node() -> dict[int, str]:
    """Return the paths of the labelled nodes by number, with the graph's in the upper half.

    Those of live graphs, and within `watch` also of graphs that are gone. Raises InvalidStateError
    if nothing tells the numbers.
    """
    with _lock:
        found = dict(_watched)
    for graph in live_graphs():
        try:
            if graph.raw_exec != 0:  # an older torch does not tell its own
                found |= graph._labelled_ids()
        except GpuprofError:
            if not graph.closed:  # by another thread, meanwhile
                raise
    return found


@contextmanager
def watch() -> Iterator[None]:
    """Also remember the labels of graphs that are closed or updated inside the block.

    For a collector, whose records come after the replays; nothing where nothing tells the numbers.
    """
    watcher = object()
    with _lock:
        _watchers.append(watcher)
    try:
        for graph in live_graphs():
            _note(graph)
        yield
    finally:
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                _watched.clear()


def _note(graph: GraphBase) -> None:
    with suppress(GpuprofError):
        found = graph._labelled_ids()  # asks the driver, so not under the lock
        with _lock:
            if _watchers:
                _watched.update(found)
