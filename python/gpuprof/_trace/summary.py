"""What a trace holds: the ranges that took the most time, and when each GPU track was busy.

Complete events ("X") are most of a trace, so those of a batch are taken together, a column at a
time. Whatever is out of the ordinary goes through `_take`, one event after the other; an event that
cannot be used is left out and counted. Memory is bounded whatever the file: past the limits below,
what comes is summed up under one name, left out and counted, or approximated, and the notes say so.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from gpuprof._trace.batch import Batch, Odd
from gpuprof._trace.json_scanner import ReadError, members
from gpuprof._trace.nesting import MOST_SLICES
from gpuprof._trace.ranges import MOST_TRACK_NAME, MOST_TRACKS, Ranges, Sink, get_labels, labels_of
from gpuprof._trace.reader import EventReader
from gpuprof._trace.values import (
    MOST_NS,
    Event,
    InexactError,
    OddError,
    async_key,
    check_labels,
    names_of,
    not_an_object,
    phase_of,
    span_of,
    time_of,
)

MOST_OPEN = 100_000
MOST_COUNT = 1 << 48
TOGETHER = 16_384  # ranges that are placed at once
MOST_FLOAT_US = 4e12  # below, a double tells one nanosecond from the next
_NUMBERS = frozenset((int, float))
_JUST_RANGES = frozenset("X")
_get_phase = itemgetter("ph")


class Summary:
    """Sums up one trace; `read` it, then ask."""

    def __init__(self, by: str, most_slices: int = MOST_SLICES) -> None:
        self.phases: Counter[str] = Counter()
        self.left_out = 0
        self.dropped = self.unplaced = self.unmatched = 0
        self.ranges = Ranges(by, most_slices)
        self._together = min(TOGETHER, most_slices // 4)
        self._waiting = 0
        self._known: set[tuple[Any, ...]] = set()  # labels that are what they should be
        self._quiet: set[str] = set()  # phases that were met, of which there is nothing to sum up
        self._open: defaultdict[tuple[Any, ...] | int, list[tuple[int, Sink]]] = defaultdict(list)
        self._open_count = 0
        self._first_odd: ReadError | None = None

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a whole file."""
        reader = EventReader(pieces, quick=True)
        for batch in reader.batches():
            if not self._take_together(batch, reader):
                self._take_each(batch)
            if self._waiting > self._together:
                self.ranges.settle()
                self._waiting = 0
        self.end = reader.end
        if self._first_odd and self.left_out == self.end.events:
            raise self._first_odd
        self.ranges.settle()
        self.unmatched += self._open_count

    def _take_together(self, batch: Batch, reader: EventReader) -> bool:
        """Take a batch of which all is ordinary; False, and nothing was taken, if it is not."""
        try:
            events = batch.events
            ranges = [event for event in events if event["ph"] == "X"]
            begins = None if batch.is_exact else _column(ranges, "ts")
            durations = None if begins is None else _column(ranges, "dur")
            if begins is None or durations is None:
                reader.exact, self.ranges.nesting.slack = True, 0
                events = batch.exact_events()
                ranges = [event for event in events if event["ph"] == "X"]
                begins, durations = _exact_column(ranges, "ts"), _exact_column(ranges, "dur")
            sink_of = self.ranges.sinks.__getitem__
            try:
                sinks = list(map(sink_of, map(get_labels, ranges)))
            except KeyError:
                sinks = list(map(sink_of, map(labels_of, ranges)))
        except (TypeError, KeyError, OddError, OverflowError):
            return False
        for (add, spend, number), begin, duration in zip(sinks, begins, durations, strict=True):
            add((begin, -duration, number))
            spend(duration)
        if ranges:
            self.phases["X"] += len(ranges)
            self._waiting += len(ranges)
        if len(ranges) < len(events):
            taken = self._take_quiet(events, is_exact=batch.is_exact)
            for place, event in enumerate(events):
                if event["ph"] not in taken:
                    self._take_one(batch, place, event)
        return True

    def _take_quiet(self, events: list[Event], *, is_exact: bool) -> frozenset[str]:
        """Count events of which only the phases matter; answer the phases that need no more."""
        quiet = [event for event in events if event["ph"] in self._quiet]
        try:
            is_known = self._known.issuperset(map(get_labels, quiet))
        except KeyError:
            is_known = self._known.issuperset(map(labels_of, quiet))
        except TypeError:
            is_known = False
        try:
            if not is_known or (_exact_column if is_exact else _column)(quiet, "ts") is None:
                return _JUST_RANGES
        except (TypeError, KeyError, OddError, OverflowError):
            return _JUST_RANGES
        self.phases.update(map(_get_phase, quiet))
        return _JUST_RANGES | self._quiet

    def _take_one(self, batch: Batch, place: int, event: Event) -> None:
        try:
            self._take(event)
        except InexactError:
            self._take_exact(batch, place)
        except OddError as error:
            self._leave_out(batch, place, error)

    def _take_each(self, batch: Batch) -> None:
        for place in range(len(batch.events)):
            self._take_exact(batch, place)

    def _take_exact(self, batch: Batch, place: int) -> None:
        event = batch.exact_events()[place]
        try:
            if isinstance(event, Odd):
                raise OddError(member="", reason=event.reason)
            if not isinstance(event, dict):
                raise not_an_object(event)
            self._take(event)
        except OddError as error:
            self._leave_out(batch, place, error)

    def _leave_out(self, batch: Batch, place: int, error: OddError) -> None:
        self.left_out += 1
        if self._first_odd:
            return
        event = batch.events[place]
        offset = batch.offset_of(place)
        if isinstance(event, Odd):
            offset += event.at
        else:
            found = members(batch.text_of(place)).get(error.member)
            offset += found.begin if found else 0
        self._first_odd = ReadError(offset, error.reason, batch.first + place)

    def _take(self, event: Event) -> None:
        phase = phase_of(event)
        check_labels(event)
        if phase == "M":
            self._take_metadata(event)
        elif phase == "X":
            begin, duration, _ = span_of(event)
            self._add(self.ranges.sinks[labels_of(event)], begin, duration)
        elif phase in "BE":
            self._take_half(event, phase == "B", (event.get("pid", ""), event.get("tid", "")))
        elif phase in "beSF":
            self._take_half(event, phase in "bS", async_key(event))
        else:
            if "ts" in event:
                time_of(event)
            if len(self._known) >= MOST_TRACKS:
                self._known.clear()
            self._known.add(labels_of(event))
            self._quiet.add(phase)
        self.phases[phase] += 1

    def _add(self, sink: Sink, begin: int, duration: int) -> None:
        add, spend, number = sink
        add((begin, -duration, number))
        spend(duration)
        self._waiting += 1

    def _take_half(self, event: Event, begins: bool, key: tuple[Any, ...] | int) -> None:
        """Take the begin or the end of a range."""
        time, _ = time_of(event)
        if begins:
            if self._open_count >= MOST_OPEN:
                self.unmatched += 1
                return
            labels = labels_of(event)
            if isinstance(key, int):
                sink = self.ranges.async_sink(labels)
            else:
                sink = self.ranges.sinks[labels]
            self._open[key].append((time, sink))
            self._open_count += 1
            return
        opened = self._open.get(key)
        if not opened or time < opened[-1][0]:
            self.unmatched += 1
            return
        begin, sink = opened.pop()
        self._open_count -= 1
        if not opened:
            del self._open[key]
        self._add(sink, begin, time - begin)

    def _take_metadata(self, event: Event) -> None:
        args, pid = event.get("args"), event.get("pid", "")
        if event.get("name") == "gpuprof" and isinstance(args, dict):
            self.dropped += _count_in(args, "dropped")
            self.unplaced += _count_in(args, "unplaced")
        named = names_of(event)
        if named and len(self.ranges.names) < 2 * MOST_TRACKS:
            key = (pid,) if named[0] == "process" else (pid, event.get("tid", ""))
            self.ranges.names[key] = named[1][:MOST_TRACK_NAME]

    def notes(self) -> list[str]:
        """Say what is missing from the figures."""
        events = "event was" if self.left_out == 1 else "events were"
        counted = [
            (self.left_out, f"{events} left out; the first: {self._first_odd}"),
            (self.dropped, "events were dropped while the trace was written"),
            (self.unplaced, "GPU ranges could not be placed on the host's clock"),
            (self.unmatched, "begins or ends without the other are not counted"),
            *self.ranges.notes(),
        ]
        notes = [f"{count:,} {what}" for count, what in counted if count]
        if self.ranges.nesting.approximate:
            notes.append("self times are approximate: ranges come far out of the order of time")
        return notes


def _count_in(args: Event, key: str) -> int:
    count = args.get(key)
    return min(max(count, 0), MOST_COUNT) if type(count) is int else 0


def _column(events: list[Event], member: str) -> list[float] | None:
    """Return times in nanoseconds; None where floats do not tell them exactly enough."""
    times = [event[member] for event in events]
    if not times:
        return []
    if not {*map(type, times)} <= _NUMBERS:
        raise TypeError
    if min(times) < 0:
        raise OverflowError
    return [time * 1000.0 for time in times] if max(times) < MOST_FLOAT_US else None


def _exact_column(events: list[Event], member: str) -> list[float]:
    """Return times in nanoseconds, of events that have numbers as bytes."""
    times = [event[member] for event in events]
    whole: list[float]
    try:  # three decimals all of them?
        whole = [int(time[:-4] + time[-3:]) if time[-4:-3] == b"." else int(b"") for time in times]
    except (TypeError, ValueError):
        whole = [time_of(event, member)[0] for event in events]
    if (
        whole
        and not (-MOST_NS // 2 if member == "ts" else 0) <= min(whole) <= max(whole) < MOST_NS // 2
    ):
        raise OverflowError
    return whole
