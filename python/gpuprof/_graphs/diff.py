"""How two graphs differ, in words.

Nodes are aligned in launch order: those that do the same, between them those of the same kernel,
then of the same type. What is aligned and differs was changed, the rest was added or removed.
"""

from __future__ import annotations

import difflib
import html
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeAlias

from gpuprof._common.records import in_results
from gpuprof._common.text import plural, shown_text
from gpuprof._display.shown import ShownAsCode
from gpuprof._graphs.signature import FIELDS, Nodes, digits, facts, in_order

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

Pairs: TypeAlias = "list[tuple[GraphNode, GraphNode]]"
Matches: TypeAlias = "list[tuple[int, int]]"

MAX_LINES_SHOWN = 100
MAX_LINES_OF_REPR = 20
# Pairs of equal items that an alignment looks at, a second or so for the most; with more of them
# it is coarser, but never wrong.
MAX_COMPARED = 4_000_000
NO_SCOPE = "(none)"
NO_DIFFERENCE = "no difference (kernel arguments, addresses and events are not compared)"


@in_results
@dataclass(frozen=True, repr=False)
class NodeChange(ShownAsCode):
    """A node that both graphs have and that differs.

    Attributes
    ----------
    node, other : GraphNode
        The node in the first and in the second graph.
    fields : dict of str to tuple
        The value in the first graph and that in the second, by the field's name.
    inside : GraphDiff or None
        How the child graphs of the two differ; None if they do not.
    """

    node: GraphNode
    other: GraphNode
    fields: dict[str, tuple[Any, Any]]
    inside: GraphDiff | None = None

    def __repr__(self) -> str:
        lines = [*islice(self.lines(), 2)]
        more = ", and more" if len(lines) > 1 else ""
        return f"<gpuprof.results.NodeChange {lines[0] if lines else 'of nothing'}{more}>"

    def lines(self) -> Iterator[str]:
        """Yield what changed, one difference a line."""
        title = self.node._title
        if self.fields:
            changes = [self.node._changes(self.other)]
            if "scope" in self.fields:
                changes.append("scope " + " -> ".join(map(shown_text, self.fields["scope"])))
            yield f"{title}: {', '.join(filter(None, changes))}"
        if self.inside:
            yield from (f"{title}: in its child graph: {line}" for line in self.inside.lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        plain = {
            name: [list(value) if isinstance(value, tuple) else value for value in values]
            for name, values in self.fields.items()
        }
        inside = self.inside.to_dict() if self.inside else None
        return {
            "node": self.node.index,
            "other": self.other.index,
            "fields": plain,
            "inside": inside,
        }


@dataclass(frozen=True, repr=False)
class GraphDiff:
    """How a graph differs from another; true if it does.

    Kernel arguments, addresses, events, and the order in which nodes are listed do not count.

    Attributes
    ----------
    lines : tuple of str
        One difference a line. Nodes carry the index that they have in the first graph, added ones
        that in the second.
    added, removed : tuple of GraphNode
        Nodes that only the second, or only the first graph has.
    changed : tuple of NodeChange
        Nodes that do something else, with another kernel, grid, size or value, or that were
        captured in another scope.
    edges_added, edges_removed, edges_changed : tuple of (int, int)
        Edges between nodes that both graphs have, by their indices in the first. A changed edge
        lets its second node start earlier or later: programmatic dependent launch.
    """

    __module__ = "gpuprof"

    lines: tuple[str, ...] = ()
    added: tuple[GraphNode, ...] = ()
    removed: tuple[GraphNode, ...] = ()
    changed: tuple[NodeChange, ...] = ()
    edges_added: tuple[tuple[int, int], ...] = ()
    edges_removed: tuple[tuple[int, int], ...] = ()
    edges_changed: tuple[tuple[int, int], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.lines)

    def __str__(self) -> str:
        return "\n".join(self._shown_lines())

    def __repr__(self) -> str:
        return "\n".join(self._shown_lines(MAX_LINES_OF_REPR))

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {
            "different": bool(self),
            "lines": list(self.lines),
            "added": [node.to_dict() for node in self.added],
            "removed": [node.to_dict() for node in self.removed],
            "changed": [change.to_dict() for change in self.changed],
            "edges_added": [list(edge) for edge in self.edges_added],
            "edges_removed": [list(edge) for edge in self.edges_removed],
            "edges_changed": [list(edge) for edge in self.edges_changed],
        }

    def _repr_html_(self) -> str:
        items = "".join(f"<div>{html.escape(line)}</div>" for line in self._shown_lines())
        return f'<div style="font-family:monospace">{items}</div>'

    def _shown_lines(self, most: int = MAX_LINES_SHOWN) -> list[str]:
        if not self:
            return [NO_DIFFERENCE]
        shown = list(self.lines[:most])
        if len(self.lines) > most:
            rest = len(self.lines) - most
            shown.append(f"and {plural(rest, 'more difference')}; .lines has them all")
        return shown


def compare(nodes_a: Nodes, nodes_b: Nodes) -> GraphDiff:
    """Compare two graphs; what counts is what their signatures hold, and their scopes."""
    scopes_a, scopes_b = ([node.scope_names for node in nodes] for nodes in (nodes_a, nodes_b))
    if digits(nodes_a) == digits(nodes_b) and scopes_a == scopes_b:
        return GraphDiff()
    return _compare(nodes_a, nodes_b, scopes=True)


def _compare(nodes_a: Nodes, nodes_b: Nodes, *, scopes: bool) -> GraphDiff:
    pairs = _align(in_order(nodes_a), in_order(nodes_b), _KEYS)
    kept_a, kept_b = {a.index for a, _ in pairs}, {b.index for _, b in pairs}
    removed = tuple(node for node in nodes_a if node.index not in kept_a)
    added = tuple(node for node in nodes_b if node.index not in kept_b)
    changed = tuple(change for a, b in pairs if (change := _node_change(a, b, scopes)))
    own = _edge_kinds(nodes_a, {index: index for index in kept_a})
    other = _edge_kinds(nodes_b, {b.index: a.index for a, b in pairs})
    edges_removed = tuple(sorted(own.keys() - other.keys()))
    edges_added = tuple(sorted(other.keys() - own.keys()))
    edges_changed = tuple(sorted(x for x in own.keys() & other.keys() if own[x] != other[x]))

    def edge_text(edge: tuple[int, int]) -> str:
        return " -> ".join(nodes_a[index]._title for index in edge)

    lines = [
        *(f"removed: {_described(node)}" for node in removed),
        *(f"added: {_described(node)}" for node in added),
        *(line for change in changed for line in change.lines()),
        *(f"edge removed: {edge_text(edge)}" for edge in edges_removed),
        *(f"edge added: {edge_text(edge)}" for edge in edges_added),
        *(f"edge {edge_text(x)}: {own[x]} -> {other[x]}" for x in edges_changed),
    ]
    return GraphDiff(
        tuple(lines), added, removed, changed, edges_added, edges_removed, edges_changed
    )


def _described(node: GraphNode) -> str:
    kind = [shown_text(node.type)] if node.name else []
    scope = [f"in scope {node._scope_text}"] if node.scope else []
    return ", ".join([node._title, *kind, *node._details, *scope])


def _node_change(node: GraphNode, other: GraphNode, scopes: bool) -> NodeChange | None:
    pairs = {name: (getattr(node, name), getattr(other, name)) for name in FIELDS}
    fields = {name: (own, others) for name, (own, others) in pairs.items() if own != others}
    if "symbol" in fields:
        fields["symbol"] = node._telling_names(other)  # kernels by what tells them apart
    if scopes and node.scope_names != other.scope_names:
        fields["scope"] = (node.scope or NO_SCOPE, other.scope or NO_SCOPE)
    inside = None
    if node.children or other.children:
        inside = _compare(node.children, other.children, scopes=False) or None
    return NodeChange(node, other, fields, inside) if fields or inside else None


def _edge_kinds(nodes: Nodes, number: dict[int, int]) -> dict[tuple[int, int], str]:
    """Return the edges between the nodes that have a number, with their kinds."""
    return {
        (number[before], number[node.index]): (
            "programmatic" if before in node.programmatic else "full"
        )
        for node in nodes
        for before in node.dependencies
        if before in number and node.index in number
    }


_Key: TypeAlias = "Callable[[GraphNode], Hashable]"
_KEYS: tuple[_Key, ...] = (
    lambda node: (facts(node), node.scope_names),
    facts,
    lambda node: (node.type, node.symbol),
    lambda node: node.type,
)


def _align(own: list[GraphNode], other: list[GraphNode], keys: Sequence[_Key]) -> Pairs:
    """Pair nodes with equal keys without crossings; the gaps are tried with the next key."""
    if not own or not other or not keys:
        return []
    key, *coarser = keys
    pairs: Pairs = []
    a = b = 0
    places = matches([key(x) for x in own], [key(x) for x in other])
    for at, to in [*places, (len(own), len(other))]:
        pairs += _align(own[a:at], other[b:to], coarser)
        if at < len(own):
            pairs.append((own[at], other[to]))
        a, b = at + 1, to + 1
    return pairs


def matches(own: Sequence[Hashable], other: Sequence[Hashable]) -> Matches:
    """Return pairs of places with equal items, ascending, of unmoved ones where that is as good."""
    shortest = min(len(own), len(other))
    head = next((i for i in range(shortest) if own[i] != other[i]), shortest)
    left = shortest - head
    tail = next((i for i in range(left) if own[-1 - i] != other[-1 - i]), left)
    return [
        *((i, i) for i in range(head)),
        *(
            (head + x, head + y)
            for x, y in _between(own[head : len(own) - tail], other[head : len(other) - tail])
        ),
        *((len(own) - i, len(other) - i) for i in range(tail, 0, -1)),
    ]


def _between(own: Sequence[Hashable], other: Sequence[Hashable]) -> Matches:
    """Align what is left between equal ends, by the longest blocks first."""
    by_place = [(i, i) for i, (x, y) in enumerate(zip(own, other, strict=False)) if x == y]
    times = Counter(other)
    if sum(times[item] for item in own) > MAX_COMPARED:
        # Few that are equal by chance would only be in the way of a coarser comparison.
        return by_place if 2 * len(by_place) >= min(len(own), len(other)) else []
    blocks = difflib.SequenceMatcher(None, own, other, autojunk=False).get_matching_blocks()
    found = [(x + i, y + i) for x, y, length in blocks for i in range(length)]
    return by_place if len(own) == len(other) and len(found) <= len(by_place) else found
