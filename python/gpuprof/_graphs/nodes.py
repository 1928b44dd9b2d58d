"""What every view of a graph needs: the order of nodes, short names, a node in words.

Nodes are lists of `GraphNode` in the order of their indices. No driver call is made here. A name of
a kernel may be any text, so it is never shown unescaped; see `shown_text`.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuprof._common.kernel_name import MAX_NAME, cut, short_name
from gpuprof._common.text import shown_text
from gpuprof._common.units import byte_size

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

Nodes: TypeAlias = "Sequence[GraphNode]"
Edges: TypeAlias = "Sequence[tuple[int, int]]"

# What a node does, by field. Not addresses, kernel arguments or events: they differ between
# captures of the same work.
FIELDS = ("type", "symbol", "grid", "block", "shared_memory", "nbytes", "value", "element_size")
_WORDS = {"symbol": "kernel", "shared_memory": "shared memory", "element_size": "element size"}


def facts(node: GraphNode) -> tuple[Any, ...]:
    """Return what the node does, without its place in the graph, to be compared and hashed."""
    return tuple(getattr(node, field) for field in FIELDS)


def edges_of(nodes: Nodes) -> list[tuple[int, int]]:
    """Return the edges that the nodes' dependencies say, those of child graphs left out."""
    return [(before, node.index) for node in nodes for before in node.dependencies]


def in_order(nodes: Nodes) -> list[GraphNode]:
    """Put every node behind those that it waits for, and else in the driver's order."""
    waits = [len(node.dependencies) for node in nodes]
    ready = [node.index for node in nodes if not node.dependencies]
    heapq.heapify(ready)
    result = []
    while ready:
        node = nodes[heapq.heappop(ready)]
        result.append(node)
        for index in node.dependents:
            waits[index] -= 1
            if waits[index] == 0:
                heapq.heappush(ready, index)
    return result


def kernels_in_order(nodes: Nodes) -> list[GraphNode]:
    """Return the kernel nodes as they are launched, child graphs' where their graph stands."""
    found: list[GraphNode] = []
    for node in in_order(nodes):
        if node.type == "kernel":
            found.append(node)
        found += kernels_in_order(node.children)
    return found


def title(node: GraphNode) -> str:
    """Name a node: ``node 3 add_k``."""
    return f"node {node.index} {short_name(node.name) if node.name else shown_text(node.type)}"


def value_text(value: Any) -> str:
    """Write a field's value; the driver may not have told it."""
    if value is None:
        return "unknown"
    if isinstance(value, tuple):
        return f"({','.join(map(str, value))})"
    return shown_text(value) if isinstance(value, str) else f"{value:,}"


def details(node: GraphNode) -> list[str]:
    """Say what the node does besides its type and name."""
    found = []
    if node.grid is not None and node.block is not None:
        found.append(f"grid {value_text(node.grid)} block {value_text(node.block)}")
    if node.shared_memory:
        found.append(f"shared {byte_size(node.shared_memory)}")
    if node.nbytes is not None:
        found.append(byte_size(node.nbytes))
    if node.value is not None:
        found.append(f"value {node.value:#x}")
    if node.children:
        found.append(plural(len(node.children), "node"))
    return found


def scope_text(node: GraphNode) -> str:
    """Name the scope that the node was captured in; empty outside of all scopes."""
    return cut(shown_text(node.scope), MAX_NAME)


def field_words(field: str) -> str:
    """Name a field of a node as a person would."""
    return _WORDS.get(field, field)


def plural(count: int, what: str) -> str:
    """Write ``1 node``, ``2 nodes``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def count_by(keys: Iterable[Any]) -> dict[Any, int]:
    """Count equal keys; the most frequent come first."""
    counts: dict[Any, int] = {}
    for key in keys:
        counts[key] = counts.get(key, 0) + 1
    return dict(sorted(counts.items(), key=lambda item: -item[1]))
