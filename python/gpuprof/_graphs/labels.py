"""Which scope a node of a replay belongs to, by the numbers that profilers give nodes.

The graphs of this process whose captures noted scopes are known here as long as they live. Numbers
are asked for when somebody wants them, not at a capture. Any thread.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._core import GraphBase

Path: TypeAlias = tuple[str, ...]

_lock = threading.RLock()
_graphs: weakref.WeakSet[GraphBase] = weakref.WeakSet()
_watching: list[NodeScopes] = []


@dataclass
class NodeScopes:
    """The scopes of labelled nodes by number, with the graph's number in the upper half."""

    by_number: dict[int, Path] = field(default_factory=dict)
    problem: str = ""  # why those of some graph are not known

    def of_node(self, graph: int, node: int) -> Path:
        """Return the scopes of a node as a record has it, () if they are not known.

        A record has both numbers, or that of the node alone with the graph's in its upper half.
        """
        return self.by_number.get(graph << 32 | node & 0xFFFFFFFF if graph else node, ())

    def note(self, graph: GraphBase) -> None:
        try:
            if graph.raw_exec == 0:
                self.problem = "torch before 2.9 does not tell the executable copy of its graphs"
            else:
                self.by_number.update(graph._labelled_ids())
        except GpuprofError as error:
            if not graph.closed:  # by another thread, meanwhile
                self.problem = str(error)


def register(graph: GraphBase) -> None:
    """Know a graph as long as it lives; again after each change of what it does."""
    if not graph._has_labels and graph not in _graphs:
        return
    with _lock:
        _graphs.add(graph)
        watching = list(_watching)
    for each in watching:  # asks the driver, so not under the lock
        each.note(graph)


def live_graphs() -> list[GraphBase]:
    """Return the open graphs that have labelled nodes."""
    with _lock:
        graphs = list(_graphs)
    return [graph for graph in graphs if not graph.closed and graph._has_labels]


@contextmanager
def watch() -> Iterator[NodeScopes]:
    """Yield the scopes of all graphs that live in the block, also of those that are gone.

    For a collector, whose records come after the replays.
    """
    found = NodeScopes()
    with _lock:
        _watching.append(found)
    try:
        for graph in live_graphs():
            found.note(graph)
        yield found
    finally:
        with _lock:
            _watching.remove(found)
