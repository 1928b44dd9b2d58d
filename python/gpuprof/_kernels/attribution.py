"""Which scope launched what: the rule of docs/kernels.md, applied to all records."""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from typing import Any, NamedTuple

from gpuprof._frameworks.torch_inductor import Origin
from gpuprof._graphs.labels import NodeScopes, Path
from gpuprof._kernels.collector import Collected, Column

NO_SCOPE = -1
NO_LAUNCH = -1


class Span(NamedTuple):
    """One entry of a scope: from when to when, in nanoseconds, and on which thread."""

    names: tuple[str, ...]
    begin_ns: int
    end_ns: int
    thread_id: int


class Spans:
    """The scopes that were open in a block; of those of asyncio tasks, the last entered counts."""

    def __init__(self, spans: Iterable[Span]) -> None:
        # Of those that begin together the longest is the outermost, as is the shortest path.
        self.all = sorted(
            (each for each in spans if each.end_ns > each.begin_ns),
            key=lambda each: (each.begin_ns, -each.end_ns, len(each.names)),
        )
        self._of_thread: dict[int, list[int]] = {}
        for number, each in enumerate(self.all):
            self._of_thread.setdefault(each.thread_id, []).append(number)

    def innermost(self, thread_id: int, times: Sequence[int]) -> list[int]:
        """Return the number of the innermost scope of a thread at each of the sorted times."""
        numbers = self._of_thread.get(thread_id)
        if not numbers:
            return [NO_SCOPE] * len(times)
        spans, stack, found, at = self.all, [], [], 0
        for moment in times:
            while at < len(numbers) and spans[numbers[at]].begin_ns <= moment:
                stack.append(numbers[at])
                at += 1
            while stack and spans[stack[-1]].end_ns < moment:
                stack.pop()
            found.append(stack[-1] if stack else NO_SCOPE)
        return found

    def chains(self) -> list[tuple[int, ...]]:
        """Return the spans at each depth of a span's path: those around it, and last itself.

        It also stands for those that are not known, which are of this one alone then.
        """
        found: list[tuple[int, ...]] = []
        latest: dict[tuple[int, tuple[str, ...]], int] = {}
        for number, each in enumerate(self.all):
            outer = latest.get((each.thread_id, each.names[:-1]), NO_SCOPE)
            if outer != NO_SCOPE and self.all[outer].end_ns >= each.end_ns:
                found.append((*found[outer], number))
            else:
                found.append((number,) * len(each.names))
            latest[each.thread_id, each.names] = number
        return found

    def only_thread(self, times: Sequence[int]) -> list[int]:
        """Return for each of the sorted times the only thread with an open scope, else 0."""
        if not times:
            return []
        begins = [(each.begin_ns, 1, each.thread_id) for each in self.all]
        ends = [(each.end_ns, -1, each.thread_id) for each in self.all]
        moments, states = [], []
        num_open: dict[int, int] = {}
        for moment, change, thread in sorted(begins + ends):
            num_open[thread] = num_open.get(thread, 0) + change
            if not num_open[thread]:
                del num_open[thread]
            moments.append(moment)
            states.append(next(iter(num_open)) if len(num_open) == 1 else 0)
        return [states[at - 1] if (at := bisect_right(moments, t)) else 0 for t in times]


def python_threads() -> set[int]:
    """Return the system ids of the threads that Python started."""
    return {
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id is not None and not isinstance(thread, threading._DummyThread)
    }


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
    def labelled(path: int, graph: int, node: int) -> int | None:
        label = labels.of_node(graph, node)
        around = launched_in[path]
        # The names around both are there once.
        return result.number(around + label[common_prefix(around, label) :]) if label else None

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
            if below is not None:
                result.labelled += 1
                path = below
        result.path[record] = path
    result.paths = [*result.numbers]
    return result


def common_prefix(ours: Sequence[Any], theirs: Sequence[Any]) -> int:
    """Return the length of the common prefix."""
    shortest = min(len(ours), len(theirs))
    return next((at for at in range(shortest) if ours[at] != theirs[at]), shortest)


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
