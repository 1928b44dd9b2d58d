"""What all tools have in common: the events of a file, one after the other, and the odd ones.

An event's members must be what they should for the tools to use them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import Any

from gpuprof._trace_tools.batch import Batch, End
from gpuprof._trace_tools.lexer import OddError, ReadError
from gpuprof._trace_tools.reader import EventReader

MOST_NS = 1 << 62  # 146 years
EXACT_US = 4e12  # below, a double tells one nanosecond from the next
GPU_ANNOTATION = "gpu_user_annotation"
SCOPE_CATEGORIES = frozenset(("scope", "capture", "graph", "gpu", "gpu_graph", "gpu_in_graph"))
GPU_CATEGORIES = frozenset(
    ("gpu", "gpu_graph", "gpu_in_graph", "kernel", "gpu_memcpy", "gpu_memset", GPU_ANNOTATION)
)
MAX_SHOWN = 40
EXACT_IN_DOUBLES = 1 << 53
_MISSING = object()
_KINDS = {int: "a number", float: "a number", str: "a string", dict: "an object", list: "an array"}
FLOAT_SLACK = 0.5
MOST_OPEN = 100_000
WORTH_A_NOTE_NS = 1
NEARLY_WHOLE = 0.05

Event = dict[str, Any]


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


def kind_of(value: object) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return _KINDS.get(type(value), "missing")


def odd(event: Event, member: str, expected: str) -> OddError:
    what = kind_of(value := event.get(member, _MISSING))
    if what == "a number" and len(repr(value)) <= MAX_SHOWN:
        what = repr(value)
    return OddError(f'"{member}" is {what}; expected {expected}', code=member)


def phase_of(event: Event) -> str:
    phase = event.get("ph")
    if type(phase) is not str or len(phase) != 1:
        raise odd(event, "ph", "a letter in quotes")
    return phase


def check_labels(event: Event) -> None:
    """Refuse names, categories, pids and tids that are what they may not be."""
    for member in ("name", "cat"):
        if type(event.get(member, "")) is not str:
            raise odd(event, member, "a string")
    for member in ("pid", "tid"):
        value = event.get(member, 0)
        if type(value) not in (int, str) and not (type(value) is float and math.isfinite(value)):
            raise odd(event, member, "a whole number")


def place_of(event: Event) -> tuple[Any, Any]:
    return event.get("pid", ""), event.get("tid", "")


def shortened(text: str, most: int) -> str:
    """Cut a long text; a digest of the whole at its end keeps different ones different."""
    if len(text) <= most:
        return text
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
    return f"{text[: most - len(digest) - 1]}~{digest}"


def async_key(event: Event) -> int:
    """Hash what the begin and the end of an asynchronous range, or of a flow, have in common."""
    id2, number = event.get("id2"), event.get("id")
    local = event.get("pid") if isinstance(id2, dict) and "local" in id2 else None
    return hash(repr((event.get("cat"), number, event.get("name"), id2, local)))


def args_of(event: Event) -> Event:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def own_args(event: Event) -> Event:
    """Return what gpuprof says of a trace in a metadata event; empty for others."""
    is_own = event.get("name") == "gpuprof" and event.get("ph") == "M"
    return args_of(event) if is_own else {}


def names_of(event: Event) -> tuple[tuple[Any, ...], str] | None:
    """Return what a metadata event names, (pid,) or (pid, tid), and how; None for others."""
    name, what, place = args_of(event).get("name"), event.get("name"), place_of(event)
    if type(name) is not str or what not in ("process_name", "thread_name"):
        return None
    return place[:1] if what == "process_name" else place, name
