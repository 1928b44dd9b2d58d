"""Which scope launched what: the rule of docs/kernels.md, applied to all records."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from gpuprof._frameworks.torch_inductor import Origin
from gpuprof._graphs.labels import NodeScopes, Path
from gpuprof._kernels.records import Collected, Column
from gpuprof._kernels.spans import NO_SCOPE, Spans

NO_LAUNCH = -1
NO_LABEL = -1


@dataclass
class Attribution:
    """For each record of the work: its launch, the span of its scope, and its path."""

    launch: Column  # indices, as of `span`; -1 for none
    span: Column
    path: Column  # of `paths`, of which the first is empty
    numbers: dict[Path, int] = field(default_factory=lambda: {(): 0})
    paths: list[Path] = field(default_factory=list)  # the keys of `numbers`
    in_graph: int = 0  # work of graph replays
    labelled: int = 0  # what of it has a label of a capture
    without_launch: int = 0
    origin: Column = field(default_factory=lambda: array("I"))  # of `origins`, of compiled code
    origins: list[Origin] = field(default_factory=list)
    modules: dict[Path, str] = field(default_factory=dict)  # of the paths that are no scope


def attribute(
    found: Collected, spans: Spans, labels: NodeScopes, threads: Collection[int]
) -> Attribution:
    """Find the scope of each record; `threads` are those of `spans.python_threads`."""
    count = len(found.work)
    result = Attribution(
        array("q", [NO_LAUNCH]) * count, array("q", [NO_SCOPE]) * count, array("I", [0]) * count
    )
    launch_span = _spans_of_launches(found, spans, threads)
    numbers = result.numbers
    of_span = array("I", [numbers.setdefault(each.names, len(numbers)) for each in spans.all])
    _attribute_work(found, launch_span, of_span, labels, result)
    result.paths = [*result.numbers]
    return result


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


def _attribute_work(
    found: Collected, launch_span: Column, of_span: Column, labels: NodeScopes, result: Attribution
) -> None:
    """Give each record the path of its launch, with the label of a capture below it."""
    work, numbers = found.work, result.numbers
    launch_of: dict[int, int] = {}
    for number, correlation in enumerate(found.launches.correlation):
        # The first of a correlation: a runtime's call, and not the driver's in it.
        launch_of.setdefault(correlation, number)
    launched_in = [*numbers]
    with_label: dict[tuple[int, int, int], int] = {}  # by the launch's path, graph and node
    names = found.launches.name
    launches_graph = ["GraphLaunch" in text for text in found.names]
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
            key = (path, graph, node)
            labelled = with_label.get(key)
            if labelled is None:
                label = labels.of_node(graph, node)
                joined = _joined(launched_in[path], label)
                labelled = numbers.setdefault(joined, len(numbers)) if label else NO_LABEL
                with_label[key] = labelled
            if labelled != NO_LABEL:
                result.labelled += 1
                path = labelled
        result.path[record] = path


def _joined(launched_in: Path, captured_in: Path) -> Path:
    """Put the path of the capture below that of the launch, with the names around both once."""
    shared = 0
    for ours, theirs in zip(launched_in, captured_in, strict=False):
        if ours != theirs:
            break
        shared += 1
    return launched_in + captured_in[shared:]
