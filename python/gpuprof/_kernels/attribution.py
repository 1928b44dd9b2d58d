"""Which scope launched what: the rule of docs/kernels.md, applied to all records."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from gpuprof._kernels.graph_labels import GraphLabels
from gpuprof._kernels.records import Collected, Column
from gpuprof._kernels.sources import is_graph_launch
from gpuprof._kernels.spans import NO_SCOPE, Spans

NO_LAUNCH = -1
Path = tuple[str, ...]


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
    ambiguous: int = 0  # what could have one of several, and has what these have in common
    without_launch: int = 0


def attribute(
    found: Collected,
    spans: Spans,
    labels: GraphLabels,
    threads: Mapping[int, int],
) -> Attribution:
    """Find the scope of each record; `threads` are those of `spans.python_threads`."""
    count = len(found.work)
    result = Attribution(
        array("q", [NO_LAUNCH]) * count, array("q", [NO_SCOPE]) * count, array("I", [0]) * count
    )
    launch_span = _spans_of_launches(found, spans, threads)
    of_ranges = {
        correlation: spans.of_range(
            each._replace(thread_id=threads.get(each.thread_id, each.thread_id))
        )
        for correlation, each in found.annotations.items()
    }
    replays = _attribute_launches(found, spans, launch_span, of_ranges, result)
    _attribute_replays(found, labels, replays, result)
    result.paths = [*result.numbers]
    return result


def _spans_of_launches(found: Collected, spans: Spans, threads: Mapping[int, int]) -> Column:
    """Return the span in which each call was made, -1 for none."""
    launches = found.launches
    span_of = array("q", [NO_SCOPE]) * len(launches)
    thread_of = [threads.get(thread, thread) for thread in launches.thread_id]

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
    own = set(threads.values())
    foreign = [
        number
        for number, span in enumerate(span_of)
        if span == NO_SCOPE and thread_of[number] not in own
    ]
    find(foreign, spans.only_thread([launches.begin_ns[number] for number in foreign]))
    return span_of


def _attribute_launches(
    found: Collected,
    spans: Spans,
    launch_span: Column,
    of_ranges: Mapping[int, int],
    result: Attribution,
) -> dict[int, list[int]]:
    """Give each record the path of its launch; return the records of each replay."""
    work = found.work
    launch_of: dict[int, int] = {}
    for number, correlation in enumerate(found.launches.correlation):
        # The first of a correlation: a runtime's call, and not the driver's in it.
        launch_of.setdefault(correlation, number)
    numbers = result.numbers
    of_span = array("I", [numbers.setdefault(each.names, len(numbers)) for each in spans.all])
    replays: dict[int, list[int]] = {}
    names = found.launches.name
    launches_graph = [is_graph_launch(text) for text in found.names]
    for record, (correlation, graph) in enumerate(
        zip(work.correlation, work.graph_id, strict=True)
    ):
        launch = launch_of.get(correlation, NO_LAUNCH)
        result.launch[record] = launch
        span = NO_SCOPE
        if launch != NO_LAUNCH:
            span = launch_span[launch]
        elif correlation in of_ranges:
            span = of_ranges[correlation]
        else:
            result.without_launch += 1
        if span != NO_SCOPE:
            result.span[record] = span
            result.path[record] = of_span[span]
        if graph or (launch != NO_LAUNCH and launches_graph[names[launch]]):
            replays.setdefault(correlation, []).append(record)
    return replays


def _attribute_replays(
    found: Collected, labels: GraphLabels, replays: Mapping[int, list[int]], result: Attribution
) -> None:
    """Put the labels of the captures below the paths of the scopes that launched the replays."""
    numbers = result.numbers
    launched_in = [*numbers]
    for records in replays.values():
        result.in_graph += len(records)
        for record, label in zip(records, labels.of_replay(found, records), strict=True):
            if label is None:
                continue
            result.ambiguous += label.ambiguous
            if not label.path:
                continue
            result.labelled += 1
            path = _joined(launched_in[result.path[record]], label.path)
            result.path[record] = numbers.setdefault(path, len(numbers))


def _joined(launched_in: Path, captured_in: Path) -> Path:
    """Put the path of the capture below that of the launch, with the names around both once."""
    shared = 0
    for ours, theirs in zip(launched_in, captured_in, strict=False):
        if ours != theirs:
            break
        shared += 1
    return launched_in + captured_in[shared:]
