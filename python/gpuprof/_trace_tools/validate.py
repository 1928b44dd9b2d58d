"""What is wrong with a trace, and at which event.

A fault is what breaks a reader or makes it show something else than was written; a note is what is
legal and less than it could be. The first of each code are kept, all are counted. Memory is
bounded: past `MOST_OPEN` unfinished flows or open ranges, or the bounds of `Nesting`, new ones are
not checked, and the result says so.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

from gpuprof._trace_tools.lexer import OddError, ReadError
from gpuprof._trace_tools.nesting import MOST_TRACKS, Nesting, Slice, Track
from gpuprof._trace_tools.scan import (
    EXACT_IN_DOUBLES,
    MOST_OPEN,
    Event,
    Halves,
    Scan,
    async_key,
    kind_of,
    names_of,
    phase_of,
    place_of,
    shortened,
)

PHASES = frozenset("BEXiICMbnesStTpFPNODRvVc(),=")
NAMED = frozenset("BXiICMbnstfNODPR")
MOST_ID = 1 << 32
# The last moment that a double of microseconds still tells from the next nanosecond.
EXACT_NS = 9 * 10**15
ROUNDING_NS = 2  # how far slices may cross whose times were rounded to nanoseconds
POINT, INEXACT = 1, 2  # bits of a slice's number, below the event's index
STARTED, ENDED = 1, 2
_ENDS = {"s": STARTED, "f": ENDED}
TAG_BITS = 2
MOST_TEXT = 256
_ABSENT = object()
_ZEROS = bytes.maketrans(b"123456789", b"0" * 9)
_MANY = b"0" * 16
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]+")
MOST_OF_CODE = 200

# What belongs together: of begins and ends the track, of the others a hash.
Key = str | int


class Findings:
    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {"fault": Counter(), "note": Counter()}
        self.first: list[dict[str, Any]] = []

    def has_room(self, severity: str, code: str) -> bool:
        return self.counts[severity][code] < MOST_OF_CODE

    def add(
        self, severity: str, code: str, message: str, event: int | None, offset: int | None = None
    ) -> None:
        """Count one, a "fault" or a "note"; None for an event is the file around them."""
        if self.has_room(severity, code):
            what = {"severity": severity, "code": code, "event": event, "offset": offset}
            self.first.append({**what, "message": message})
        self.counts[severity][code] += 1

    def in_order(self, events: int) -> list[dict[str, Any]]:
        """Return them in the order of a file of so many events."""

        def place(one: dict[str, Any]) -> tuple[float, int]:
            offset = one["offset"] or 0
            if one["event"] is not None:
                return one["event"], offset
            return (events if offset else -1), offset

        return sorted(self.first, key=place)


class Validation(Scan):
    """Checks one trace; `read` it, then look at what was found."""

    def __init__(self) -> None:
        super().__init__()
        self.findings = Findings()
        self._fault = partial(self._add_here, "fault")
        self._note = partial(self._add_here, "note")
        self.unchecked: list[str] = []
        self._nesting = Nesting(self._crossing)
        self._names: set[tuple[Any, ...]] = set()
        self._halves = Halves()  # index, name and time of the begins
        self._flows: dict[Key, int] = {}  # by STARTED and ENDED, below the first event's index
        self._forgot_flows = False

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a whole file; only what is no trace at all is a `ReadError`."""
        try:
            super().read(pieces)
        except ReadError as error:
            if not self.end.events and error.event is None and error.code == "json":
                raise  # this is no trace
            self.findings.add(
                "fault", error.code, f"{error.reason}; read up to here", error.event, error.offset
            )
        else:
            self._check_end()
        self._check_open()
        self._check_names()

    def after_batch(self) -> None:
        """Look at the numbers and strings inside, and place the slices once there are enough."""
        batch = self.batch
        if fault := batch.fault:
            place = batch.offset + fault.at
            self.findings.add("fault", fault.code, fault.reason, batch.first, place)
        if _may_matter_inside(batch.raw):
            for self.place, event in enumerate(batch.events):
                text = batch.text_of(self.place)
                if isinstance(event, dict) and _may_matter_inside(text):
                    with contextlib.suppress(ValueError):  # a number of too many digits
                        self._check_inner(json.loads(text))  # orjson rounds large ones
        self._nesting.slack = self.slack
        if self._nesting.is_due:
            self._nesting.place_new()

    def leave_out(self, error: OddError) -> None:
        if error is not self.batch.fault:  # which was told
            self._fault(error.code, error.reason)

    def visit(self, event: Event) -> None:
        phase = phase_of(event)
        self._check_identity(event, phase)
        if phase == "M":
            named = names_of(event)
            if named and named[1] and len(self._names) < 2 * MOST_TRACKS:
                with contextlib.suppress(TypeError):
                    self._names.add(named[0])
            return
        time, _ = self.time(event)
        if time < 0:
            self._fault("ts", '"ts" is negative; readers drop the event')
        if time > EXACT_NS and time % 1000:
            self._note("ts", '"ts" is so large that readers lose its nanoseconds')
        if phase == "X":
            begin, duration, is_whole = self.span(event)
            self._add_slice(event, begin, duration, 0 if is_whole else INEXACT)
        elif phase in "BEbe":
            self._check_half(event, phase, time)
        elif phase in "stf":
            self._check_flow(event, phase, time)
        elif phase == "C" and "args" not in event:
            self._fault("args", "a counter without an object of values")
        elif phase == "C" and type(event["args"]) is dict:
            for value in event["args"].values():
                if type(value) not in (int, float):
                    self._fault("args", "a counter's value is no number")
        elif phase not in PHASES:
            self._note("ph", "a phase that readers do not know")

    def _check_identity(self, event: Event, phase: str) -> None:
        name, category = event.get("name", _ABSENT), event.get("cat", "")
        args = event.get("args", {})
        if name is _ABSENT:
            if phase in NAMED:
                self._fault("name", 'no "name"')
        elif type(name) is not str:
            self._fault("name", f'"name" is {kind_of(name)}')
        if type(category) is not str:
            self._fault("cat", f'"cat" is {kind_of(category)}')
        if type(args) is not dict:
            self._fault("args", f'"args" is {kind_of(args)}; expected an object')
        pid, tid = event.get("pid", _ABSENT), event.get("tid", _ABSENT)
        if type(pid) is not int or not 0 <= pid < MOST_ID:
            self._check_number("pid", pid)
        if phase != "M" and (type(tid) is not int or not 0 < tid < MOST_ID):
            self._check_number("tid", tid)

    def _check_number(self, member: str, number: object) -> None:
        if number is _ABSENT or type(number) is str:
            what = "missing" if number is _ABSENT else "a string"
            self._note(member, f'"{member}" is {what}; expected a number')
        elif number == 0 and type(number) is int:
            self._fault(member, '"tid" is 0, which readers take for the pid')
        else:
            what = f"a whole number from 0 to {MOST_ID - 1}; readers merge such tracks"
            self._fault(member, f'"{member}" is not {what}')

    def _add_slice(self, event: Event, begin: int, duration: int, flag: int) -> None:
        track = self._track(event)
        if track is not None:
            track.new.append((begin, -duration, self._index << TAG_BITS | flag))
            self._nesting.waiting += 1

    @property
    def _index(self) -> int:
        return self.batch.first + self.place

    def _track(self, event: Event) -> Track | None:
        with contextlib.suppress(TypeError):  # an object or an array, which is a fault
            return self._nesting.track(place_of(event))
        return None

    def _check_half(self, event: Event, phase: str, time: int) -> None:
        key: Key
        name, end, begin = "", "asynchronous end", "begin"
        if phase in "BE":
            self._track(event)
            key = shortened(repr((event.get("pid"), event.get("tid"))), MOST_TEXT)
            name = shortened(event["name"], MOST_TEXT) if type(event.get("name")) is str else ""
            end, begin = "E", "B"
        elif "id" in event or "id2" in event:
            key = async_key(event)
        else:
            self._fault("id", 'an asynchronous range without "id"')
            return
        if phase in "Bb":
            self._halves.begin(key, (self._index, name, time))
            return
        begun = self._halves.last(key)
        if begun is None:
            if not self._halves.without_room:
                self._fault("unbalanced", f"{end} without a {begin}")
            return
        self._halves.end(key)
        index, begun_name, begun_time = begun
        if name and name != begun_name:
            self._fault("unbalanced", f"{end} of another name than its {begin}, event {index}")
        if time < begun_time:
            self._fault("unbalanced", f"{end} before its {begin}, event {index}")

    def _check_flow(self, event: Event, phase: str, time: int) -> None:
        number = event.get("id")
        if type(number) is not int and not (type(number) is str and _HEXADECIMAL.fullmatch(number)):
            self._fault("id", 'a flow\'s "id" must be a whole number or a hexadecimal string')
            return
        self._take_flow(async_key(event), phase, self._index << TAG_BITS)
        # An end that does not bind to what is around it binds to what comes next.
        if phase != "f" or event.get("bp") == "e":
            self._add_slice(event, time, 0, POINT)

    def _take_flow(self, key: int, phase: str, here: int) -> None:
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= MOST_OPEN:
                # A step that comes after both ends of its flow then looks like one without.
                whole = STARTED | ENDED
                self._flows = {k: flow for k, flow in self._flows.items() if flow & whole != whole}
                self._forgot_flows = True
            if len(self._flows) >= MOST_OPEN:
                self._halves.without_room += 1
                return
            flow = here
        self._flows[key] = flow | _ENDS.get(phase, 0)

    def _check_inner(self, event: Event) -> None:
        values: list[Any] = [event]
        while values:
            value = values.pop()
            if isinstance(value, dict):
                values += value.values()
            elif isinstance(value, list):
                values += value
            elif isinstance(value, str):
                if value.endswith("\\"):
                    what = "a string that ends in a backslash; Perfetto before v53 refuses the file"
                    self._note("backslash", what)
            # Metadata are for readers that know their keys and their range.
            elif type(value) is int and abs(value) > EXACT_IN_DOUBLES and event.get("ph") != "M":
                what = "a whole number beyond 2^53, which readers round; write it as a string"
                self._fault("number", what)

    def _crossing(self, first: Slice, second: Slice) -> None:
        overlap = round(first[0] - first[1] - second[0])
        if overlap <= ROUNDING_NS and (first[2] | second[2]) & INEXACT:
            return
        # The fault is that of the one that comes later in the file.
        earlier, later = sorted((first[2] >> TAG_BITS, second[2] >> TAG_BITS))
        what = f"overlaps event {earlier} on its track by {overlap} ns without being inside; "
        self.findings.add("fault", "overlap", f"{what}some readers drop it", later)

    def _check_open(self) -> None:
        self._nesting.place_new()
        for number in self._nesting.bare_points():
            if number & POINT:
                what = "a flow event that is in no slice of its track"
                self.findings.add("fault", "flow", what, number >> TAG_BITS)
        for key, begun in self._halves.waiting.items():
            what = "B without an E" if isinstance(key, str) else "asynchronous begin without an end"
            for index, _, _ in begun:
                self.findings.add("fault", "unbalanced", what, index)
        for flow in self._flows.values():
            index = flow >> TAG_BITS
            if self._forgot_flows and not flow & (STARTED | ENDED):
                continue
            if not flow & STARTED:
                self.findings.add("fault", "flow", "flow without its start (s)", index)
            if not flow & ENDED:
                self.findings.add("fault", "flow", "flow without its end (f)", index)
        if self._halves.without_room:
            what = f"{self._halves.without_room} begins or flows: too many were open at once"
            self.unchecked.append(what)
        if self._nesting.approximate:
            self.unchecked.append("overlaps of slices that came long after their neighbours")

    def _check_names(self) -> None:
        threads = sum(track not in self._names for track in self._nesting.tracks)
        processes = len({pid for pid, _ in self._nesting.tracks if (pid,) not in self._names})
        for count, what, name in (
            (processes, "processes", "process_name"),
            (threads, "tracks", "thread_name"),
        ):
            if count:
                self.findings.add("note", "metadata", f"{count} {what} without a {name}", None, 0)

    def _check_end(self) -> None:
        end = self.end
        if not end.events:
            what = "no complete event; readers cannot tell what it is"
            self.findings.add("fault", "empty", what, None, end.bytes)
        if end.may_go_on:
            what = "the array's end is missing, as while a trace is being written"
            self.findings.add("note", "cut", what, None, end.bytes)
        elif not end.complete:
            inside = ", inside an event" if end.inside_event else ""
            self.findings.add("fault", "cut", f"the file is cut off here{inside}", None, end.bytes)

    def _add_here(self, severity: str, code: str, message: str) -> None:
        has_room = self.findings.has_room(severity, code)
        offset = self.batch.offset_of(self.place) if has_room else None
        self.findings.add(severity, code, message, self._index, offset)


def _may_matter_inside(text: bytes) -> bool:
    """Whether there may be whole numbers that readers round, or strings that end in a backslash."""
    return b'\\\\"' in text or _MANY in text.translate(_ZEROS)
