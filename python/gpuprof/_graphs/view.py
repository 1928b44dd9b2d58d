"""Views of graphs: kernel names, signature, differences.

They work on nodes and edges that were read before, and make no driver call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gpuprof._graphs import diff as graphs_diff
from gpuprof._graphs.diff import GraphDiff
from gpuprof._graphs.nodes import Edges, Nodes, facts, in_order, kernels_in_order, plural, title

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

# CUgraphExecUpdateResult: its name after CU_GRAPH_EXEC_UPDATE_, and what it means for a user.
_UPDATE_RESULTS = {
    0: ("SUCCESS", "the update succeeded"),
    1: ("ERROR", "the driver refused for a reason that it gives by the error of the call"),
    2: (
        "ERROR_TOPOLOGY_CHANGED",
        "the graphs have different nodes or edges, or list them in another order",
    ),
    3: ("ERROR_NODE_TYPE_CHANGED", "a node is of another type"),
    4: ("ERROR_FUNCTION_CHANGED", "a node runs another kernel, which drivers before 11.2 refuse"),
    5: (
        "ERROR_PARAMETERS_CHANGED",
        "a node's parameters changed in a way that no update can follow, such as a copy to or "
        "from memory of another kind or device",
    ),
    6: (
        "ERROR_NOT_SUPPORTED",
        "something about a node cannot be updated at all, such as an allocation in the graph",
    ),
    7: (
        "ERROR_UNSUPPORTED_FUNCTION_CHANGE",
        "a node runs another kernel that cannot take the place of the first, such as one of "
        "another device or context",
    ),
    8: (
        "ERROR_ATTRIBUTES_CHANGED",
        "a kernel's launch attributes changed in a way that no update can follow, such as its "
        "cluster size or cooperative launch",
    ),
}


def signature(nodes: Nodes) -> str:
    """Return 16 hexadecimal digits that are equal for graphs that do the same.

    In it are each node's type, kernel (by its mangled name), grid, block, shared memory, bytes
    copied, set or allocated, a memset's value, the child graphs, and who waits for whom, in full
    or programmatically. Not in it are kernel arguments, addresses, events, and the order in which
    the driver lists the nodes. So capturing the same work twice gives the same signature, in
    another process too, as long as the kernels' names are the same there; Numba, for one, numbers
    them in the order of compilation.
    """
    order = in_order(nodes)
    above: dict[int, bytes] = {}
    for node in order:
        waits = ((index, above[index]) for index in node.dependencies)
        own = [repr(facts(node)).encode(), signature(node.children).encode()]
        above[node.index] = _digest(*own, *_sorted_links(waits, node.programmatic))
    # What is above a node does not tell two nodes from one; what is below does.
    below: dict[int, bytes] = {}
    for node in reversed(order):
        followers = ((index, below[index]) for index in node.dependents)
        below[node.index] = _digest(above[node.index], *_sorted_links(followers, ()))
    return _digest(*sorted(below.values())).hex()


def _sorted_links(ends: Iterable[tuple[int, bytes]], programmatic: tuple[int, ...]) -> list[bytes]:
    return sorted((b"p" if index in programmatic else b"f") + end for index, end in ends)


def _digest(*parts: bytes) -> bytes:
    state = hashlib.blake2b(digest_size=8)
    for part in parts:
        state.update(len(part).to_bytes(8, "little") + part)
    return state.digest()


def kernel_names(nodes: Nodes) -> list[str]:
    """Return the kernels' names in launch order, child graphs' included.

    A kernel whose name the driver does not tell is an empty text.
    """
    return [node.name for node in kernels_in_order(nodes)]


def diff(nodes_a: Nodes, edges_a: Edges, nodes_b: Nodes, edges_b: Edges) -> GraphDiff:
    """Compare two graphs; what counts is what their `signature` holds, and their scopes."""
    scopes_a, scopes_b = ([node.scope_names for node in nodes] for nodes in (nodes_a, nodes_b))
    if signature(nodes_a) == signature(nodes_b) and scopes_a == scopes_b:
        return GraphDiff()
    return graphs_diff.compare(nodes_a, edges_a, nodes_b, edges_b)


def update_reason(
    result: int,
    nodes_own: Nodes,
    node_index_own: int | None,
    nodes_other: Nodes,
    index_other: int | None,
) -> str:
    """Say in words why a graph could not be updated: a CUgraphExecUpdateResult and its nodes."""
    name, meaning = _UPDATE_RESULTS.get(result, (str(result), "a reason newer than this gpuprof"))
    prefix = "CU_GRAPH_EXEC_UPDATE_" if result in _UPDATE_RESULTS else "update result "
    parts = [f"{prefix}{name}: {meaning}"]
    own = _node_at(nodes_own, node_index_own)
    other = _node_at(nodes_other, index_other)
    if own is not None and other is not None:
        fields = graphs_diff.changed_fields(own, other)
        changes = graphs_diff.change_text(fields) if fields else "nothing that can be shown differs"
        parts.append(f"{title(own)}, in the other graph {title(other)}: {changes}")
    elif other is not None:
        parts.append(f"{title(other)} of the other graph")
    elif own is not None:
        parts.append(title(own))
    if len(nodes_own) != len(nodes_other):
        counts = f"{plural(len(nodes_own), 'node')} here, {len(nodes_other):,} in the other graph"
        parts.append(counts)
    return "; ".join(parts)


def _node_at(nodes: Nodes, index: int | None) -> GraphNode | None:
    return nodes[index] if index is not None and 0 <= index < len(nodes) else None
