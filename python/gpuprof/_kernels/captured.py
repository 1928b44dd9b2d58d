"""The captured graphs of this process, as `GraphLabels` wants them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING

from gpuprof._graphs import labels
from gpuprof._graphs.signature import in_order
from gpuprof._kernels.graph_labels import GraphLabels, LabelledNode
from gpuprof._kernels.records import KINDS
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._core import GraphNode

Path = tuple[str, ...]


class CapturedLabels:
    """What the captures noted, also of graphs that are closed while this is entered."""

    def __init__(self) -> None:
        self._watch: AbstractContextManager[None] = labels.watch()

    def __enter__(self) -> Self:
        self._watch.__enter__()
        return self

    def __exit__(self, *_exception: object) -> None:
        self._watch.__exit__(None, None, None)

    def read(self) -> GraphLabels:
        """Return the labels as they are now."""
        by_graph: dict[int, dict[int, str]] = {}
        with suppress(GpuprofError):  # nothing tells the numbers of nodes: names have to do
            by_graph = labels.labels_by_graph()
        names: dict[str, Path] = {}
        graphs: dict[int, list[LabelledNode]] = {}
        for number, (exec_, nodes) in enumerate(_live_nodes()):
            names |= {node.scope: node.scope_names for node in _all(nodes) if node.scope}
            graphs[exec_ or -1 - number] = flat(nodes)  # an older torch does not tell its own

        def scope_of_node(graph: int, node: int) -> Path | None:
            of_graph = by_graph.get(graph or node >> 32, {})
            text = of_graph.get(node) or of_graph.get(graph << 32 | node & 0xFFFFFFFF)
            return None if text is None else names.get(text) or tuple(text.split("/"))

        return GraphLabels(scope_of_node, lambda: graphs)


def _live_nodes() -> Iterator[tuple[int, Sequence[GraphNode]]]:
    for graph in labels.live_graphs():
        try:
            yield graph.raw_exec, graph.nodes  # type: ignore[attr-defined]
        except GpuprofError:  # it was closed meanwhile
            continue


def _all(nodes: Sequence[GraphNode]) -> Iterator[GraphNode]:
    for node in nodes:
        yield node
        yield from _all(node.children)


def flat(nodes: Sequence[GraphNode]) -> list[LabelledNode]:
    """Put the nodes in an order that their edges allow, child graphs' in place of their graph.

    A node inside a child graph that has no scope of its own has that of the child graph.
    """
    found: list[LabelledNode] = []
    _add(nodes, (), (), found)
    return found


def _add(
    nodes: Sequence[GraphNode],
    around: Path,
    before: tuple[int, ...],
    found: list[LabelledNode],
) -> tuple[int, ...]:
    """Add nodes that all come after those numbered `before`; return the numbers they got."""
    places: dict[int, tuple[int, ...]] = {}  # of a node, or of all in a child graph
    for node in in_order(nodes):
        path = tuple(node.scope_names) or around
        after = tuple(place for index in node.dependencies for place in places[index]) or before
        if node.children:
            places[node.index] = _add(node.children, path, after, found)
            continue
        kind = node.type if node.type in KINDS else ""
        places[node.index] = (len(found),)
        found.append(LabelledNode(kind, node.name or "", path, after, node.symbol or ""))
    return tuple(place for each in places.values() for place in each)
