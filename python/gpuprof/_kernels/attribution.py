"""Which scope launched what: the rule of docs/kernels.md, applied to all records."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any

from gpuprof._frameworks.torch_inductor import Origin
from gpuprof._graphs.labels import NodeScopes, Path
from gpuprof._kernels.records import Collected, Column
from gpuprof._kernels.spans import NO_SCOPE, Spans

NO_LAUNCH = -1
NO_LABEL = -1


class Attribution:
    """For each of `count` records of the work: its launch, the span of its scope, and its path."""

    def __init__(self, count: int) -> None:
        self.launch: Column = array("q", [NO_LAUNCH]) * count  # indices, as of `span`
        self.span: Column = array("q", [NO_SCOPE]) * count
        self.path: Column = array("I", [0]) * count  # of `paths`, of which the first is empty
        self.origin: Column = array("I", [0]) * count  # of `origins`, of compiled code
        self.numbers: dict[Path, int] = {(): 0}
        self.paths: list[Path] = []  # the keys of `numbers`
        self.origins = [Origin("", "")]
        self.modules: dict[Path, str] = {}  # of the paths that are no scope
        self.in_graph = 0  # work of graph replays
        self.labelled = 0  # what of it has a label of a capture
        self.without_launch = 0

    def number(self, path: Path) -> int:
        return self.numbers.setdefault(path, len(self.numbers))


def attribute(
    found: Collected, spans: Spans, labels: NodeScopes, threads: Collection[int]
) -> Attribution:
    """Give each record the path of its launch, with the label of a capture below it.

    `threads` are those of `spans.python_threads`.
    """
    work, names, result = found.work, found.launches.name, Attribution(len(found.work))
    launch_span = _spans_of_launches(found, spans, threads)
    of_span = [result.number(each.names) for each in spans.all]
    launched_in = [*result.numbers]
    launch_of: dict[int, int] = {}
    for number, correlation in enumerate(found.launches.correlation):
        # The first of a correlation: a runtime's call, and not the driver's in it.
        launch_of.setdefault(correlation, number)
    launches_graph = ["GraphLaunch" in text for text in found.names]

    @cache
    def labelled(path: int, graph: int, node: int) -> int:
        label = labels.of_node(graph, node)
        around = launched_in[path]
        # The names around both are there once.
        return result.number(around + label[common_prefix(around, label) :]) if label else NO_LABEL

    for record, (correlation, graph, node) in enumerate(
        zip(work.correlation, work.graph_id, work.node_id, strict=True)
    ):
        launch = launch_of.get(correlation, NO_LAUNCH)
        result.launch[record] = launch
        path = 0
        if launch == NO_LAUNCH:
            result.without_launch += 1
        elif (span := launch_span[launch]) != NO_SCOPE:
            result.span[record] = span
            path = of_span[span]
        if graph or (launch != NO_LAUNCH and launches_graph[names[launch]]):
            result.in_graph += 1
            below = labelled(path, graph, node)
            if below != NO_LABEL:
                result.labelled += 1
                path = below
        result.path[record] = path
    result.paths = [*result.numbers]
    return result


def common_prefix(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Return the length of the common prefix."""
    same = 0
    for mine, its in zip(ours, theirs, strict=False):
        if mine != its:
            break
        same += 1
    return same


def _spans_of_launches(found: Collected, spans: Spans, threads: Collection[int]) -> Column:
    """Return the span in which each call was made, -1 for none."""
    launches = found.launches
    span_of = array("q", [NO_SCOPE]) * len(launches)
    thread_of = launches.thread_id

    def find(calls: Iterable[int], of: Iterable[int]) -> None:
        by_thread: dict[int, list[int]] = {}
        for number, thread in zip(calls, of, strict=True):
            by_thread.setdefault(thread, []).append(number)
        for thread, numbers in by_thread.items():
            times = [launches.begin_ns[number] for number in numbers]
            for number, span in zip(numbers, spans.innermost(thread, times), strict=True):
                span_of[number] = span

    find(range(len(launches)), thread_of)
    # Autograd's threads work for the one that waits in backward().
    foreign = [
        number
        for number, span in enumerate(span_of)
        if span == NO_SCOPE and thread_of[number] not in threads
    ]
    find(foreign, spans.only_thread([launches.begin_ns[number] for number in foreign]))
    return span_of
