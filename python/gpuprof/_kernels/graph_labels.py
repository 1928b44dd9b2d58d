"""Which scope of the capture each kernel of a graph replay belongs to.

By the ids of graph and node, where the records have them. Else, as with torch up to 2.11, by name:
the work of one launch is compared with the nodes of the graph that was launched, or of each
captured graph where that is not known. Names are compared whole, else as the functions' names
without their types, else, in a graph that is known, by their number alone. The n-th kernel of a
name that began is the n-th node of that name, if the graph's edges order these nodes. Where they do
not, or several graphs fit, the label is what the possible scopes have in common. The driver runs
some copies and memsets of a graph as kernels of its own, which count as what their nodes are.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from gpuprof._kernels.records import COPY, KERNEL, KINDS, MEMSET, Collected

Path = tuple[str, ...]
Key = Hashable
_DRIVERS_KERNEL = re.compile(r"mem(cpy|set)\w*")  # as memcpy32_post, the whole name


class Label(NamedTuple):
    """The scopes that were open in the capture; an ambiguous one is what several have in common."""

    path: Path
    ambiguous: bool = False


class LabelledNode(NamedTuple):
    """A node of a captured graph; one that is no work of the GPU has no kind.

    `symbol` is the kernel's mangled name, which records may have instead. `dependencies` are
    indices of nodes of the same graph, all lower than its own.
    """

    kind: str
    name: str
    path: Path
    dependencies: tuple[int, ...]
    symbol: str = ""


class GraphLabels:
    """The labels of all captured graphs.

    Parameters
    ----------
    scope_of_node : callable
        Takes the ids of a graph and of a node; returns the path, or None where it is not known.
    graphs : callable
        Returns the nodes of each graph that is alive, in an order that its edges allow, by the
        handle of its executable graph.
    """

    def __init__(
        self,
        scope_of_node: Callable[[int, int], Path | None],
        graphs: Callable[[], Mapping[int, Sequence[LabelledNode]]],
    ) -> None:
        self._scope_of_node = scope_of_node
        self._graphs = graphs
        self._by_id: dict[tuple[int, int], Label | None] = {}
        self._nodes: Mapping[int, Sequence[LabelledNode]] | None = None
        self._plans: dict[int, list[_Plans]] = {}  # by executable graph; 0: of all

    def of_replay(self, found: Collected, records: Sequence[int]) -> list[Label | None]:
        """Return a label for each record of one launch of a graph, given in the order of time."""
        work = found.work
        if any(work.node_id[record] for record in records):
            by_id = [self._of_node(work.graph_id[n], work.node_id[n]) for n in records]
            if any(by_id):
                return by_id
        graph = found.replayed.get(work.correlation[records[0]], 0)
        for plans in self._plans_of(graph):
            labels = plans.labels_of(found, records)
            if labels is not None:
                return labels
        return [None] * len(records)

    def _plans_of(self, graph: int) -> list[_Plans]:
        """Return the plans of an executable graph, or of all where it is not known."""
        if self._nodes is None:
            self._nodes = self._graphs()
        graph = graph if graph in self._nodes else 0
        if graph not in self._plans:
            nodes = [self._nodes[graph]] if graph else list(self._nodes.values())
            labelled = [each for each in nodes if any(node.path for node in each)]
            by = [_whole_name, _function_name, *([_no_name] if graph else [])]
            self._plans[graph] = [_Plans(labelled, name_of) for name_of in by]
        return self._plans[graph]

    def _of_node(self, graph: int, node: int) -> Label | None:
        ids = (graph, node)
        if ids not in self._by_id:
            path = self._scope_of_node(graph, node)
            self._by_id[ids] = None if path is None else Label(tuple(path))
        return self._by_id[ids]


def _whole_name(name: str) -> str:
    return "".join(name.split())  # demanglers differ in their spaces


def _function_name(name: str) -> str:
    """Return a function's name without types: demanglers differ in how they write long ones."""
    plain = name.replace("(anonymous namespace)", "{anonymous}")
    return plain.partition("<")[0].partition("(")[0].removeprefix("void ").strip()


def _no_name(_name: str) -> str:
    return ""  # for a graph that is known: its kernels are its own, whatever they are called


class _Plans:
    """The labels of all graphs, found by what they launch; `name_of` says which names are equal."""

    def __init__(
        self, graphs: Iterable[Sequence[LabelledNode]], name_of: Callable[[str], str]
    ) -> None:
        self._name_of = name_of
        self._by_contents: dict[frozenset[tuple[Key, int]], list[_Plan]] = {}
        self._merged: dict[frozenset[tuple[Key, int]], _Plan | None] = {}
        self._keys: dict[tuple[int, int], Key] = {}
        self._aliases: dict[Key, Key] = {}
        for nodes in graphs:
            plan = _plan(nodes, self._key_of)
            counts = frozenset((key, len(labels)) for key, labels in plan.items())
            self._by_contents.setdefault(counts, []).append(plan)
            for node in nodes:
                if node.symbol:
                    mangled = self._key_of(node.kind, node.symbol)
                    self._aliases[mangled] = self._key_of(node.kind, node.name)

    def labels_of(self, found: Collected, records: Sequence[int]) -> list[Label | None] | None:
        """Return the labels of one launch's records; None where no graph has these contents."""
        keys = [self._key(found, record) for record in records]
        plan = self._plan_for(frozenset(Counter(keys).items()))
        if plan is None:
            return None
        seen: Counter[Key] = Counter()
        labels: list[Label | None] = []
        for key in keys:
            labels.append(plan[key][seen[key]])
            seen[key] += 1
        return labels

    def _key(self, found: Collected, record: int) -> Key:
        ids = (found.work.kind[record], found.work.name[record])
        key = self._keys.get(ids)
        if key is None:
            key = self._key_of(KINDS[ids[0]], found.names[ids[1]])
            key = self._keys[ids] = self._aliases.get(key, key)
        return key

    def _key_of(self, kind: str, name: str) -> Key:
        # Copies and memsets are named for memory, not for code.
        if kind != KINDS[KERNEL]:
            return (kind,)
        if as_kernel := _DRIVERS_KERNEL.fullmatch(name):
            return (KINDS[COPY if as_kernel[1] == "cpy" else MEMSET],)
        return (kind, self._name_of(name))

    def _plan_for(self, contents: frozenset[tuple[Key, int]]) -> _Plan | None:
        if contents not in self._merged:
            fitting = self._by_contents.get(contents)
            self._merged[contents] = _merge(fitting) if fitting else None
        return self._merged[contents]


_Plan = dict[Key, list[Label]]


def _plan(nodes: Sequence[LabelledNode], key_of: Callable[[str, str], Key]) -> _Plan:
    """Return for each kernel name the labels of its nodes in the order in which they run."""
    before: list[int] = []  # a bit for each node that runs before
    groups: dict[Key, list[int]] = {}
    for number, node in enumerate(nodes):
        bits = 0
        for other in node.dependencies:
            bits |= before[other] | 1 << other
        before.append(bits)
        if node.kind:
            groups.setdefault(key_of(node.kind, node.name), []).append(number)
    plan: _Plan = {}
    for key, group in groups.items():
        labels = [Label(nodes[number].path) for number in group]
        ordered = all(before[late] >> early & 1 for early, late in pairwise(group))
        plan[key] = labels if ordered else [_common(labels)] * len(labels)
    return plan


def _common(labels: Sequence[Label]) -> Label:
    paths = {label.path for label in labels}
    if len(paths) == 1:
        return Label(labels[0].path, any(label.ambiguous for label in labels))
    shared: list[str] = []
    for names in zip(*paths, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return Label(tuple(shared), ambiguous=True)


def _merge(plans: Sequence[_Plan]) -> _Plan:
    """Join the plans of graphs that have the same contents."""
    first = plans[0]
    if len(plans) == 1:
        return first
    return {
        key: [_common([plan[key][place] for plan in plans]) for place in range(len(labels))]
        for key, labels in first.items()
    }
