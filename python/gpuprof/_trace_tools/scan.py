"""What all tools have in common: the events of a file, one after the other, and the odd ones."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from gpuprof._trace_tools.batch import Batch, End
from gpuprof._trace_tools.lexer import ReadError
from gpuprof._trace_tools.nesting import FLOAT_SLACK
from gpuprof._trace_tools.reader import EventReader
from gpuprof._trace_tools.values import EXACT_US, MOST_NS, Event, OddError, kind_of, odd

MOST_OPEN = 100_000
WORTH_A_NOTE_NS = 1
NEARLY_WHOLE = 0.05


class Scan(ABC):
    """Reads a file and hands its events to `visit`, which a tool defines.

    An event that cannot be used is left out and counted; it is a `ReadError` if there are no
    others. `batch` and `place` say where the event stands that is being taken. Times that differ by
    less than `slack` nanoseconds are the same: doubles tell large ones no better.
    """

    def __init__(self) -> None:
        self.left_out = 0
        self.first_odd: ReadError | None = None
        self.batch = Batch([], 0, 0, b"")
        self.place = 0
        self.slack = FLOAT_SLACK
        self.reader = EventReader(iter(()))
        self.end = End()

    def read(self, pieces: Iterator[bytes]) -> None:
        self.reader = EventReader(pieces)
        self.end = self.reader.end
        for batch in self.reader.batches():
            self.batch = batch
            for place in self.visit_many(batch):
                self.place = place
                try:
                    self.visit(self.usable(batch.events[place]))
                except OddError as error:
                    self.leave_out(error)
            self.after_batch()
        if self.first_odd and self.left_out == self.end.events:
            raise self.first_odd

    @abstractmethod
    def visit(self, event: Event) -> None:
        """Take one event; an `OddError` if it cannot be used."""

    def visit_many(self, batch: Batch) -> Iterable[int]:
        """Take what needs no second look; return the places of the other events."""
        return range(len(batch.events))

    def after_batch(self) -> None:  # noqa: B027 (most have nothing to do)
        """Do what is worth doing for many events at once."""

    def leave_out(self, error: OddError) -> None:
        self.left_out += 1
        self.first_odd = self.first_odd or self.located(error)

    def located(self, error: OddError) -> ReadError:
        at = self.batch.offset_of(self.place) + error.at
        return ReadError(at, error.reason, self.batch.first + self.place)

    def notes(self) -> list[str]:
        """Say how many events were left out, and how exact the times are."""
        notes = []
        if self.left_out:
            events = "event was" if self.left_out == 1 else "events were"
            notes.append(f"{self.left_out:,} {events} left out; the first: {self.first_odd}")
        if self.slack > WORTH_A_NOTE_NS:
            notes.append(f"times are exact to {self.slack:.0f} ns only: they are so large")
        return notes

    def time(self, event: Event, member: str = "ts") -> tuple[int, bool]:
        """Return a time in nanoseconds, and whether the file has whole ones."""
        value: Any = event.get(member)
        if type(value) not in (int, float):
            raise odd(event, member, "a number of microseconds")
        if not abs(value) <= MOST_NS / 1000:
            raise odd(event, member, "microseconds within 146 years")
        if type(value) is float and value > EXACT_US:
            self.slack = max(self.slack, 1000 * math.ulp(value))
        time = round(value * 1000)
        return time, abs(value * 1000 - time) < NEARLY_WHOLE

    def span(self, event: Event) -> tuple[int, int, bool]:
        """Return begin and duration of a complete event, and whether they are whole nanoseconds."""
        (begin, exact), (duration, also) = self.time(event), self.time(event, "dur")
        if duration < 0:
            raise odd(event, "dur", "none below 0")
        if begin + duration > MOST_NS:
            raise odd(event, "dur", "an end within 146 years")
        return begin, duration, exact and also

    def usable(self, event: Any) -> Event:
        """Return what stands in the place of an event; an `OddError` if it is none."""
        if isinstance(event, OddError):
            raise event
        if isinstance(event, dict) and event:
            return event
        what = "empty" if event == {} else f"{kind_of(event)}; expected an object"
        reason = f"the event is {what}"
        raise OddError(reason)


class Halves:
    """Begins of ranges that wait for their ends, the last one first, at most `MOST_OPEN`."""

    def __init__(self) -> None:
        self.waiting: defaultdict[Any, list[Any]] = defaultdict(list)
        self.count = self.without_room = 0

    def begin(self, key: Any, value: Any) -> None:
        if self.count >= MOST_OPEN:
            self.without_room += 1
            return
        self.waiting[key].append(value)
        self.count += 1

    def last(self, key: Any) -> Any:
        return self.waiting[key][-1] if key in self.waiting else None

    def end(self, key: Any) -> None:
        self.waiting[key].pop()
        self.count -= 1
        if not self.waiting[key]:
            del self.waiting[key]
