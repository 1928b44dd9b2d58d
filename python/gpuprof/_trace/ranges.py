"""Where the ranges of a trace go, and what they add up to: by name, and for each GPU track.

Memory is bounded: past the limits below, what comes is summed up under one name, or left out and
counted.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from operator import itemgetter
from typing import Any

from gpuprof._trace.nesting import FLOAT_SLACK, Coverage, Nesting, Slice, Track
from gpuprof._trace.tool_results import GpuTrack, Range
from gpuprof._trace.values import GPU_ANNOTATION, Event, check_labels, is_gpu, nanoseconds

MOST_GROUPS = 50_000
MOST_NAME_BYTES = 8 << 20
MOST_NAME = 4096
MOST_TRACKS = 20_000
MOST_TRACK_NAME = 256
MOST_GPU_TRACKS = 256
UNNAMED = "(unnamed)"
OTHER = "(other)"
NEARLY_WHOLE = 0.05
ROUNDING_NS = 2  # of times that were finer than nanoseconds
KINDS = ("gpu", "host", "async")
LABELS = ("name", "cat", "pid", "tid")
_SURROGATE = re.compile("[\ud800-\udfff]")

Labels = tuple[Any, Any, Any, Any]
# Takes a slice, takes a duration, the number of the group.
Sink = tuple[Callable[[Slice], None], Callable[[float], None], int]

get_labels = itemgetter(*LABELS)


def labels_of(event: Event) -> Labels:
    """Return name, category, pid and tid, empty texts for those that are missing."""
    name, category, pid, tid = LABELS
    return event.get(name, ""), event.get(category, ""), event.get(pid, ""), event.get(tid, "")


class _Group:
    """Ranges of one kind with one name, category or track; None is for all that had no room."""

    def __init__(self, kind: str, key: Any, is_annotation: bool) -> None:
        self.kind, self.key, self.is_annotation = kind, key, is_annotation
        self.count = self.total = self.longest = self.inside = 0
        self.shortest = 1 << 64
        self.pending: list[float] = []  # durations

    def settle(self) -> None:
        times = self.pending
        total = sum(times)
        if abs(total - _whole(total)) > NEARLY_WHOLE:  # finer than nanoseconds
            times = [_rounded(time) for time in times]
            total = sum(times)
        self.count += len(times)
        self.total += _whole(total)
        self.shortest = min(self.shortest, _whole(min(times)))
        self.longest = max(self.longest, _whole(max(times)))
        self.pending.clear()

    def unite(self, other: _Group) -> None:
        self.count += other.count
        self.total += other.total
        self.inside += other.inside
        self.shortest = min(self.shortest, other.shortest)
        self.longest = max(self.longest, other.longest)


class _GpuWork:
    """When one GPU track was busy; annotations count where there is nothing else."""

    def __init__(self, *, counts: bool) -> None:
        self.counts = counts
        self.ranges = 0
        self.work, self.annotations = Coverage(), Coverage()

    def add(self, rows: list[Slice], groups: list[_Group], slack: float) -> None:
        kinds = [group.is_annotation if group.kind == "gpu" else None for group in groups]
        work = [(begin, begin - size) for begin, size, number in rows if kinds[number] is False]
        around = []
        if len(work) < len(rows):
            around = [(begin, begin - size) for begin, size, number in rows if kinds[number]]
        self.ranges += len(work) + len(around)
        if self.counts:
            self.work.add(work, slack)
            self.annotations.add(around, slack)


class Sinks(dict[Labels, Sink]):
    """Where ranges go, by name, category, pid and tid; made when first asked for."""

    def __init__(self, make: Callable[[Labels], Sink]) -> None:
        super().__init__()
        self._make = make

    def __missing__(self, labels: Labels) -> Sink:
        if len(self) >= MOST_TRACKS:
            self.clear()
        sink = self[labels] = self._make(labels)
        return sink


class Ranges:
    """Takes ranges by `sinks`, and sums them up."""

    def __init__(self, by: str, most_slices: int) -> None:
        self.sinks = Sinks(self._make_sink)
        self.names: dict[tuple[Any, ...], str] = {}  # of (pid,) and of (pid, tid)
        self._by = by
        self._inside: list[float] = []  # by group, since it was last settled
        self.nesting = Nesting(self._crossing, self._inside, most_slices)
        self.nesting.slack = FLOAT_SLACK
        self._groups: list[_Group] = []
        self._numbers: dict[tuple[str, Any, bool], int] = {}
        self._name_room = MOST_NAME_BYTES
        self._tracks: dict[tuple[Any, Any], Track] = {}
        self._nowhere = Track()  # asynchronous ranges, and those of tracks that have no room
        self._gpu: dict[tuple[Any, Any], _GpuWork] = {}
        self._crossings = 0

    def async_sink(self, labels: Labels) -> Sink:
        """Return where asynchronous ranges of these labels go."""
        return self._sink(self._nowhere, "async", labels, labels[2:])

    def _make_sink(self, labels: Labels) -> Sink:
        check_labels(dict(zip(LABELS, labels, strict=True)))
        _, category, pid, tid = labels
        kind = "gpu" if is_gpu(category, tid) else "host"
        track = self._tracks.get((pid, tid))
        if track is None:
            if len(self._tracks) >= MOST_TRACKS:
                return self._sink(self._nowhere, kind, labels, None)
            track = self._tracks[pid, tid] = self.nesting.track()
        if kind == "gpu" and (pid, tid) not in self._gpu:
            self._gpu[pid, tid] = _GpuWork(counts=len(self._gpu) < MOST_GPU_TRACKS)
        return self._sink(track, kind, labels, (pid, tid))

    def _sink(self, track: Track, kind: str, labels: Labels, place: Any) -> Sink:
        key = {"name": labels[0], "cat": labels[1], "tid": place}[self._by]
        number = self._number(kind, key, kind == "gpu" and labels[1] == GPU_ANNOTATION)
        return track.new.append, self._groups[number].pending.append, number

    def _number(self, kind: str, key: Any, is_annotation: bool) -> int:
        if isinstance(key, str):
            key = key[:MOST_NAME]
        found = self._numbers.get((kind, key, is_annotation))
        if found is not None:
            return found
        size = len(key) if isinstance(key, str) else 0
        if len(self._groups) >= MOST_GROUPS or size > self._name_room:
            key, size = None, 0
            if (kind, key, is_annotation) in self._numbers:
                return self._numbers[kind, key, is_annotation]
        self._name_room -= size
        self._groups.append(_Group(kind, key, is_annotation))
        self._inside.append(0)
        number = self._numbers[kind, key, is_annotation] = len(self._groups) - 1
        return number

    def settle(self) -> None:
        """Place and sum up what has come."""
        for group in self._groups:
            if group.pending:
                group.settle()
        for (pid, tid), work in self._gpu.items():
            work.add(self._tracks[pid, tid].new, self._groups, self.nesting.slack)
        new = self._nowhere.new
        if new:
            self._nowhere.widen(min(new)[0], max(begin - size for begin, size, _ in new))
            new.clear()
        self.nesting.settle()
        for number, time in enumerate(self._inside):
            if time:
                self._groups[number].inside += _whole(time)
                self._inside[number] = 0

    def _crossing(self, first: Slice, second: Slice) -> None:
        if first[0] - first[1] - second[0] > ROUNDING_NS:
            self._crossings += 1

    def extent(self) -> tuple[int, int]:
        """Return the begin of the first range and the end of the last."""
        tracks = [*self._tracks.values(), self._nowhere]
        begin, end = min(track.begin for track in tracks), max(track.end for track in tracks)
        return (_whole(begin), _whole(end)) if begin <= end else (0, 0)

    def groups(self) -> dict[str, int]:
        """Count the names, categories or tracks of each kind."""
        return {kind: len(self._totals(kind)) for kind in KINDS}

    def _totals(self, kind: str) -> list[_Group]:
        """Return the groups of a kind, annotations and work of one key together."""
        totals: dict[Any, _Group] = {}
        for group in self._groups:
            if group.kind == kind and group.count:
                totals.setdefault(group.key, _Group(kind, group.key, False)).unite(group)
        return sorted(totals.values(), key=lambda group: -group.total)

    def longest(self, most: int) -> list[Range]:
        """Return the longest totals first, at most so many of each kind."""
        return [
            Range(
                kind=kind,
                name=self._name_of(group.key),
                count=group.count,
                total_ms=group.total / 1e6,
                mean_ms=group.total / 1e6 / group.count,
                min_ms=group.shortest / 1e6,
                max_ms=group.longest / 1e6,
                self_ms=None if kind == "async" else (group.total - group.inside) / 1e6,
            )
            for kind in KINDS
            for group in self._totals(kind)[:most]
        ]

    def _name_of(self, key: Any) -> str:
        if key is None:
            return OTHER
        name = key if isinstance(key, str) else self._track_name(key)
        return _SURROGATE.sub("\N{REPLACEMENT CHARACTER}", name) or UNNAMED

    def _track_name(self, place: tuple[Any, Any]) -> str:
        process, thread = self.names.get(place[:1], ""), self.names.get(place, "")
        pid, tid = map(_shown, place)
        return f"{process}{' ' if process else ''}{pid} / {thread}{' ' if thread else ''}{tid}"

    def gpu_tracks(self, most_gaps: int) -> list[GpuTrack]:
        """Return the GPU tracks in the order of their first range."""
        start = self.extent()[0]
        tracks = []
        for place, work in self._gpu.items():
            if not work.counts:
                continue
            coverage = work.work or work.annotations
            begin, end = map(_whole, coverage.extent)
            span, busy = end - begin, _whole(coverage.busy)
            tracks.append(
                GpuTrack(
                    name=self._name_of(place),
                    pid=_shown(place[0]),
                    tid=_shown(place[1]),
                    ranges=work.ranges,
                    begin_ms=(begin - start) / 1e6,
                    span_ms=span / 1e6,
                    busy_ms=busy / 1e6,
                    busy_percent=100 * busy / span if span else 100.0,
                    gaps=coverage.gap_count,
                    largest_gaps=[
                        ((_whole(at) - start) / 1e6, (_whole(to) - _whole(at)) / 1e6)
                        for at, to in coverage.largest_gaps(most_gaps)
                    ],
                )
            )
        return tracks

    def notes(self) -> list[tuple[int, str]]:
        """Say how many ranges the figures are not exact for, and why."""
        further = sum(work.ranges for work in self._gpu.values() if not work.counts)
        return [
            (
                self._crossings,
                "times ranges overlap on a track without nesting: self times around them are too "
                "short",
            ),
            (further, "ranges are on further GPU tracks"),
        ]


def _shown(number: Any) -> str:
    return number.decode() if isinstance(number, bytes) else str(number)[:MOST_TRACK_NAME]


def _whole(time: float) -> int:
    if type(time) is int:
        return time
    return int(time + 0.5) if time >= 0 else -int(0.5 - time)


def _rounded(time: float) -> int:
    """Round a time that came from microseconds of at most 15 digits, as these say."""
    return nanoseconds(f"{time / 1000.0:.15g}".encode())[0]  # type: ignore[index]
