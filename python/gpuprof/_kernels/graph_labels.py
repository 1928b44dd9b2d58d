"""Which scope of the capture each kernel of a graph replay belongs to.

By the ids of graph and node, where the records have them. Else, as with torch up to 2.11, by name,
as docs/kernels.md says. Names are compared whole, else as the functions' names without their types,
else, in a graph that is known, by their number alone. The driver runs some copies and memsets of a
graph as kernels of its own, which count as what their nodes are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from gpuprof._graphs import labels
from gpuprof._graphs.signature import in_order
from gpuprof._kernels.records import COPY, KERNEL, KINDS, MEMSET, Collected
from gpuprof.errors import GpuprofError

if TYPE_CHECKING:
    from gpuprof._core import GraphNode

Path = tuple[str, ...]
Key = tuple[str, str]
_DRIVERS_KERNEL = re.compile(r"mem(cpy|set)\w*")  # as memcpy32_post, the whole name


class Label(NamedTuple):
    """The scopes that were open in the capture; an ambiguous one is what several have in common."""

    path: Path
    ambiguous: bool = False


class GraphLabels:
    """The labels of all captured graphs, as they are now."""

    def __init__(self) -> None:
        self._by_id: dict[int, str] = {}
        with suppress(GpuprofError):  # nothing tells the numbers of nodes: names have to do
            self._by_id = labels.labels_by_node()
        self._names: dict[str, Path] = {}
        self._graphs: dict[int, tuple[bool, list[tuple[GraphNode, Path]]]] = {}
        for number, graph in enumerate(labels.live_graphs()):
            with suppress(GpuprofError):  # it was closed meanwhile
                nodes, exec_ = graph.nodes, graph.raw_exec  # type: ignore[attr-defined]
                work = [*_flat(nodes)]
                self._names |= {node.scope: node.scope_names for node, _ in work if node.scope}
                # An older torch does not tell the executable graph.
                self._graphs[exec_ or -1 - number] = _is_chain(nodes), work
        self._plans: dict[int, list[_Plans]] = {}  # by executable graph; 0: of all

    def of_replay(self, found: Collected, records: Sequence[int]) -> list[Label | None]:
        """Return a label for each record of one launch of a graph, given in the order of time."""
        work = found.work
        if any(work.node_id[record] for record in records):
            by_id = [self._of_node(work.graph_id[n], work.node_id[n]) for n in records]
            if any(by_id):
                return by_id
        graph = found.replayed.get(work.correlation[records[0]], 0)
        for plans in self._plans_of(graph if graph in self._graphs else 0):
            found_labels = plans.labels_of(found, records)
            if found_labels is not None:
                return found_labels
        return [None] * len(records)

    def _plans_of(self, graph: int) -> list[_Plans]:
        if graph not in self._plans:
            graphs = [self._graphs[graph]] if graph else [*self._graphs.values()]
            name_of: list[Callable[[str], str]] = [_whole_name, _function_name]
            if graph:  # its kernels are its own, whatever they are called
                name_of.append(lambda _name: "")
            self._plans[graph] = [_Plans(graphs, each) for each in name_of]
        return self._plans[graph]

    def _of_node(self, graph: int, node: int) -> Label | None:
        # Both numbers, or that of the node alone with the graph's in its upper half.
        text = self._by_id.get(graph << 32 | node & 0xFFFFFFFF if graph else node)
        return None if text is None else Label(self._names.get(text) or tuple(text.split("/")))


def _flat(nodes: Sequence[GraphNode], around: Path = ()) -> Iterator[tuple[GraphNode, Path]]:
    """Yield the nodes and their scopes in an order of execution, child graphs' in their place."""
    for node in in_order(nodes):
        path = tuple(node.scope_names) or around
        if node.children:
            yield from _flat(node.children, path)
        else:
            yield node, path


def _is_chain(nodes: Sequence[GraphNode]) -> bool:
    order = in_order(nodes)
    return all(early.index in late.dependencies for early, late in pairwise(order)) and all(
        _is_chain(node.children) for node in order
    )


def _whole_name(name: str) -> str:
    return "".join(name.split())  # demanglers differ in their spaces


def _function_name(name: str) -> str:
    """Return a function's name without types: demanglers differ in how they write long ones."""
    plain = name.replace("(anonymous namespace)", "{anonymous}")
    return plain.partition("<")[0].partition("(")[0].removeprefix("void ").strip()


class _Plans:
    """The labels of graphs, found by what they launch; `name_of` says which names are equal."""

    def __init__(
        self,
        graphs: Sequence[tuple[bool, list[tuple[GraphNode, Path]]]],
        name_of: Callable[[str], str],
    ) -> None:
        self._name_of = name_of
        self._by_contents: dict[frozenset[tuple[Key, int]], dict[Key, list[Label]]] = {}
        self._keys: dict[tuple[int, int], Key] = {}
        self._aliases: dict[Key, Key] = {}
        for is_chain, nodes in graphs:
            if any(path for _, path in nodes):
                self._add(is_chain, nodes)

    def _add(self, is_chain: bool, nodes: list[tuple[GraphNode, Path]]) -> None:
        plan: dict[Key, list[Label]] = {}
        for node, path in nodes:
            if node.type in KINDS:
                key = self._key_of(node.type, node.name or "")
                plan.setdefault(key, []).append(Label(path))
                if node.symbol:
                    self._aliases[self._key_of(node.type, node.symbol)] = key
        if not is_chain:
            plan = {key: [_common(of_name)] * len(of_name) for key, of_name in plan.items()}
        contents = frozenset((key, len(of_name)) for key, of_name in plan.items())
        same = self._by_contents.setdefault(contents, plan)
        for key, of_name in plan.items():
            same[key] = [_common(both) for both in zip(same[key], of_name, strict=True)]

    def labels_of(self, found: Collected, records: Sequence[int]) -> list[Label | None] | None:
        """Return the labels of one launch's records; None where no graph has these contents."""
        keys = [self._key(found, record) for record in records]
        plan = self._by_contents.get(frozenset(Counter(keys).items()))
        if plan is None:
            return None
        left = {key: iter(of_name) for key, of_name in plan.items()}
        return [next(left[key]) for key in keys]

    def _key(self, found: Collected, record: int) -> Key:
        ids = (found.work.kind[record], found.work.name[record])
        if ids not in self._keys:
            key = self._key_of(KINDS[ids[0]], found.names[ids[1]])
            self._keys[ids] = self._aliases.get(key, key)
        return self._keys[ids]

    def _key_of(self, kind: str, name: str) -> Key:
        # Copies and memsets are named for memory, not for code.
        if kind != KINDS[KERNEL]:
            return kind, ""
        if as_kernel := _DRIVERS_KERNEL.fullmatch(name):
            return KINDS[COPY if as_kernel[1] == "cpy" else MEMSET], ""
        return kind, self._name_of(name)


def _common(of_several: Sequence[Label]) -> Label:
    paths = {label.path for label in of_several}
    if len(paths) == 1:
        return Label(of_several[0].path, any(label.ambiguous for label in of_several))
    shared = 0
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        shared += 1
    return Label(of_several[0].path[:shared], ambiguous=True)
