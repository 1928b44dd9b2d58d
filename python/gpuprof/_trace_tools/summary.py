"""What a trace holds: the ranges that took the most time, and when each GPU track was busy.

Ranges of names that were met before are taken in one tight loop. Whatever is out of the ordinary
goes through `visit`; an event that cannot be used is left out and counted. Memory is bounded
whatever the file: past the limits below, what comes is summed up under one name, left out and
counted, or approximated, and the notes say so.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from gpuprof._trace_tools.batch import Batch
from gpuprof._trace_tools.nesting import (
    MOST_SLICES,
    MOST_TRACKS,
    Coverage,
    Nesting,
    Slice,
    Track,
)
from gpuprof._trace_tools.results import GpuTrack, Range
from gpuprof._trace_tools.scan import (
    EXACT_US,
    GPU_ANNOTATION,
    GPU_CATEGORIES,
    SCOPE_CATEGORIES,
    Event,
    Halves,
    Scan,
    args_of,
    async_key,
    check_labels,
    names_of,
    own_args,
    phase_of,
    place_of,
    shortened,
)

MOST_COUNT = 1 << 48
MOST_GROUPS = 50_000
MOST_NAME = 1024
MOST_TRACK_NAME = 256
UNNAMED = "(unnamed)"
OTHER = "(other)"
ROUNDING_NS = 2  # of times that were finer than nanoseconds
KINDS = ("gpu", "host", "async")
_SURROGATE = re.compile("[\ud800-\udfff]")

Labels = tuple[Any, Any, Any, Any]  # name or path, category, pid, tid
# Takes a slice, takes a duration, the number of the group.
Sink = tuple[Callable[[Slice], None], Callable[[float], None], int]


def labels_of(event: Event, by: str = "name") -> Labels:
    name, category = event.get("name", ""), event.get("cat", "")
    path = args_of(event).get("path") if by == "path" and category in SCOPE_CATEGORIES else None
    return path if isinstance(path, str) else name, category, *place_of(event)


class _Group:
    """Ranges of one kind with one name, category or track; None is for all that had no room."""

    def __init__(self, kind: str, key: Any, is_annotation: bool) -> None:
        self.kind, self.key, self.is_annotation = kind, key, is_annotation
        self.count = self.total = self.longest = self.inside = 0
        self.shortest = 1 << 64
        self.pending: list[float] = []  # durations

    def sum_up(self) -> None:
        times = self.pending
        self.count += len(times)
        self.total += round(sum(times))
        self.shortest = min(self.shortest, round(min(times)))
        self.longest = max(self.longest, round(max(times)))
        self.pending.clear()

    def unite(self, other: _Group) -> None:
        self.count += other.count
        self.total += other.total
        self.inside += other.inside
        self.shortest = min(self.shortest, other.shortest)
        self.longest = max(self.longest, other.longest)


class Ranges:
    """Takes ranges by `sinks`, and sums them up."""

    def __init__(self, by: str, most_slices: int) -> None:
        self.sinks: dict[Labels, Sink] = {}
        self.names: dict[tuple[Any, ...], str] = {}  # of (pid,) and of (pid, tid)
        self._by = by
        self._inside: list[float] = []  # by group, since it was last summed up
        self.nesting = Nesting(self._crossing, self._inside, most_slices)
        self._groups: list[_Group] = []
        self._numbers: dict[tuple[str, Any, bool], int] = {}
        self._nowhere = Track()  # asynchronous ranges, and those of tracks that have no room
        self._gpu: dict[tuple[Any, Any], Coverage] = {}  # annotations are drawn around its work
        self.crossings = 0

    def async_sink(self, labels: Labels) -> Sink:
        return self._sink(self._nowhere, "async", labels, labels[2:])

    def sink(self, labels: Labels) -> Sink:
        if labels in self.sinks:
            return self.sinks[labels]
        if len(self.sinks) >= MOST_TRACKS:
            self.sinks.clear()
        kind, place = "gpu" if labels[1] in GPU_CATEGORIES else "host", labels[2:]
        track = self.nesting.track(place)
        if track is not None and kind == "gpu":
            self._gpu.setdefault(place, Coverage())
        made = self._sink(track or self._nowhere, kind, labels, place if track else None)
        self.sinks[labels] = made
        return made

    def _sink(self, track: Track, kind: str, labels: Labels, place: Any) -> Sink:
        key = {"cat": labels[1], "tid": place}.get(self._by, labels[0])
        number = self._number(kind, key, kind == "gpu" and labels[1] == GPU_ANNOTATION)
        return track.new.append, self._groups[number].pending.append, number

    def _number(self, kind: str, key: Any, is_annotation: bool) -> int:
        if isinstance(key, str):
            key = shortened(key, MOST_NAME)
        which = kind, key, is_annotation
        if which not in self._numbers and len(self._groups) >= MOST_GROUPS:
            which = kind, None, is_annotation
        if which not in self._numbers:
            self._numbers[which] = len(self._groups)
            self._groups.append(_Group(*which))
            self._inside.append(0)
        return self._numbers[which]

    def sum_up(self, *, is_last: bool = False) -> None:
        for group in self._groups:
            if group.pending:
                group.sum_up()
        works = [group.kind == "gpu" and not group.is_annotation for group in self._groups]
        for place, coverage in self._gpu.items():
            rows = self.nesting.tracks[place].new
            rows.sort()
            work = [row for row in rows if works[row[2]]]
            if not coverage.add(work, self.nesting.slack):
                self.nesting.approximate = True
        if self._nowhere.new:
            self._nowhere.widen()
            self._nowhere.new.clear()
        self.nesting.place_new(is_last=is_last)
        for number, time in enumerate(self._inside):
            if time:
                self._groups[number].inside += round(time)
                self._inside[number] = 0

    def _crossing(self, first: Slice, second: Slice) -> None:
        if first[0] - first[1] - second[0] > ROUNDING_NS:
            self.crossings += 1

    def extent(self) -> tuple[int, int]:
        tracks = [*self.nesting.tracks.values(), self._nowhere]
        begin, end = min(track.begin for track in tracks), max(track.end for track in tracks)
        return (round(begin), round(end)) if begin <= end else (0, 0)

    def groups(self) -> dict[str, int]:
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
        if not isinstance(key, str):  # a track
            process, thread = self.names.get(key[:1], ""), self.names.get(key, "")
            pid, tid = map(_shown, key)
            key = f"{process}{' ' if process else ''}{pid} / {thread}{' ' if thread else ''}{tid}"
        return _SURROGATE.sub("\ufffd", key) or UNNAMED

    def gpu_tracks(self) -> list[GpuTrack]:
        """Return the GPU tracks in the order of their first range."""
        start = self.extent()[0]
        tracks = []
        for place, coverage in self._gpu.items():
            if not coverage:
                continue
            begin, end = round(coverage.begin), round(coverage.end)
            span, busy = end - begin, round(coverage.busy)
            tracks.append(
                GpuTrack(
                    name=self._name_of(place),
                    pid=_shown(place[0]),
                    tid=_shown(place[1]),
                    ranges=coverage.count,
                    begin_ms=(begin - start) / 1e6,
                    span_ms=span / 1e6,
                    busy_ms=busy / 1e6,
                    busy_percent=100 * busy / span if span else 100.0,
                    gaps=coverage.gap_count,
                    largest_gaps=[
                        ((round(at) - start) / 1e6, (round(to) - round(at)) / 1e6)
                        for at, to in coverage.largest_gaps
                    ],
                )
            )
        return tracks


def _shown(number: Any) -> str:
    return str(number)[:MOST_TRACK_NAME]


class Summary(Scan):
    """Sums up one trace; `read` it, then ask."""

    def __init__(self, by: str, most_slices: int = MOST_SLICES) -> None:
        super().__init__()
        self.dropped = self.unplaced = self.unmatched = 0
        self.ranges = Ranges(by, most_slices)
        self._by = by
        self._known: set[tuple[Any, ...]] = set()  # labels that are what they should be
        self._quiet: set[str] = set()  # phases that were met, of which there is nothing to sum up
        self._halves = Halves()

    def read(self, pieces: Iterator[bytes]) -> None:
        super().read(pieces)
        self.ranges.sum_up(is_last=True)
        self.unmatched += self._halves.count + self._halves.without_room

    def after_batch(self) -> None:
        self.ranges.nesting.slack = self.slack
        if self.ranges.nesting.is_due:
            self.ranges.sum_up()

    def visit_many(self, batch: Batch) -> Iterable[int]:
        """Take the ranges and what was met before; return the places of the other events."""
        events = batch.events
        sinks, known, quiet = self.ranges.sinks, self._known, self._quiet
        rest: list[int] = []
        most, by_path = EXACT_US, self._by == "path"
        ranges = 0
        for place, event in enumerate(events):
            try:
                phase, begin = event["ph"], event["ts"]
                name, category = event["name"], event.get("cat", "")
                if by_path and category in SCOPE_CATEGORIES and "args" in event:
                    name = event["args"].get("path", name)
                labels = name, category, event["pid"], event["tid"]
                if not 0 <= begin < most or begin.__class__ is bool:
                    rest.append(place)
                elif phase == "X":
                    duration = event["dur"]
                    if 0 <= duration < most and duration.__class__ is not bool:
                        add, spend, number = sinks[labels]
                        duration *= 1000.0
                        add((begin * 1000.0, -duration, number))
                        spend(duration)
                        ranges += 1
                    else:
                        rest.append(place)
                elif phase not in quiet or labels not in known:
                    rest.append(place)
            except (AttributeError, KeyError, TypeError):
                rest.append(place)
        self.ranges.nesting.waiting += ranges
        return rest

    def visit(self, event: Event) -> None:
        phase = phase_of(event)
        check_labels(event)
        if phase == "M":
            args, named = own_args(event), names_of(event)
            self.dropped += _count_in(args, "dropped")
            self.unplaced += _count_in(args, "unplaced")
            if named and len(self.ranges.names) < 2 * MOST_TRACKS:
                self.ranges.names[named[0]] = named[1][:MOST_TRACK_NAME]
        elif phase == "X":
            begin, duration, _ = self.span(event)
            self._add(self.ranges.sink(labels_of(event, self._by)), begin, duration)
        elif phase in "BE":
            self._take_half(event, phase == "B", place_of(event))
        elif phase in "beSF":
            self._take_half(event, phase in "bS", async_key(event))
        else:
            if "ts" in event:
                self.time(event)
            if len(self._known) >= MOST_TRACKS:
                self._known.clear()
            self._known.add(labels_of(event, self._by))
            self._quiet.add(phase)

    def _add(self, sink: Sink, begin: int, duration: int) -> None:
        add, spend, number = sink
        add((begin, -duration, number))
        spend(duration)
        self.ranges.nesting.waiting += 1

    def _take_half(self, event: Event, begins: bool, key: tuple[Any, ...] | int) -> None:
        time, _ = self.time(event)
        if begins:
            is_async = isinstance(key, int)
            labels = labels_of(event, self._by)
            sink = (self.ranges.async_sink if is_async else self.ranges.sink)(labels)
            self._halves.begin(key, (time, sink))
            return
        opened = self._halves.last(key)
        if opened is None or time < opened[0]:
            self.unmatched += 1
            return
        self._halves.end(key)
        begin, sink = opened
        self._add(sink, begin, time - begin)

    def notes(self) -> list[str]:
        crossing = "times ranges overlap on a track without nesting: self times around them are too"
        counted = [
            (self.dropped, "events were dropped while the trace was written"),
            (self.unplaced, "GPU ranges could not be placed on the host's clock"),
            (self.unmatched, "begins or ends without the other are not counted"),
            (self.ranges.crossings, f"{crossing} short"),
        ]
        notes = super().notes() + [f"{count:,} {what}" for count, what in counted if count]
        if self.ranges.nesting.approximate:
            notes.append(
                "self times and gaps are approximate: ranges come far out of the order of time"
            )
        return notes


def _count_in(args: Event, key: str) -> int:
    count = args.get(key)
    return min(max(count, 0), MOST_COUNT) if type(count) is int else 0
