"""What is wrong with a trace, and at which event.

A fault is what breaks a reader or makes it show something else than was written; a note is what is
legal and less than it could be. The first findings are kept, all are counted. Memory is
bounded: past `MOST_OPEN` unfinished flows or open ranges, or the bounds of `Nesting`, new ones are
not checked, and the result says so.
"""

from __future__ import annotations

import contextlib
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from gpuprof._trace.batch import Batch, End, Odd
from gpuprof._trace.findings import Findings
from gpuprof._trace.json_scanner import ReadError, members, tokens
from gpuprof._trace.nesting import MOST_SLICES, Nesting, Slice, Track
from gpuprof._trace.reader import EventReader
from gpuprof._trace.values import (
    Event,
    OddError,
    async_key,
    is_rounded,
    kind_of,
    may_matter_inside,
    names_of,
    span_of,
    time_of,
)

MOST_OPEN = 100_000
MOST_TRACKS = 20_000
TOGETHER = 16_384
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
_HEXADECIMAL = re.compile(r"(?:0x)?[0-9a-fA-F]+")


# What belongs together: of begins and ends the track, of the others a hash.
Key = str | int


class Validation:
    """Checks one trace; `read` it, then look at what was found."""

    def __init__(self, most_slices: int = MOST_SLICES) -> None:
        self.findings = Findings()
        self.unchecked: list[str] = []
        self.end = End()
        self._nesting = Nesting(self._crossing, most=most_slices)
        self._tracks: dict[tuple[Any, Any], Track] = {}
        self._names: set[tuple[Any, ...]] = set()
        self._waiting = self._without_room = 0
        # Index, name and time of the begins.
        self._open: defaultdict[Key, list[tuple[int, str, int]]] = defaultdict(list)
        self._open_count = 0
        self._flows: dict[Key, int] = {}  # by STARTED and ENDED, below the first event's index
        self._forgot_flows = False
        self._batch = Batch([], 0, 0, b"", is_exact=True)
        self._place = 0

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a whole file; only what is no trace at all is a `ReadError`."""
        reader = EventReader(pieces, tolerant=True, exact=True)
        self.end = reader.end
        try:
            for batch in reader.batches():
                self._check_batch(batch)
        except ReadError as error:
            if not reader.end.events and error.event is None:
                raise  # this is no trace
            self.findings.add(
                "faults", "json", f"{error.reason}; read up to here", error.event, error.offset
            )
        else:
            self._check_end(reader)
        for defect in reader.defects:
            self.findings.add_defect(defect, None, 0)
        self._check_open()
        self._check_names()

    # --- one event

    def _check_batch(self, batch: Batch) -> None:
        self._batch = batch
        for defect in batch.defects:
            self.findings.add_defect(defect, batch.first, batch.offset)
        may_matter = may_matter_inside(batch.raw)
        for place, event in enumerate(batch.events):
            self._place = place
            if not isinstance(event, dict):
                self._fault("event", event.reason if isinstance(event, Odd) else "not an object")
            elif not event:
                self._fault("event", "an empty object")
            else:
                self._check(event)
                if may_matter:
                    self._check_inner(batch.text_of(place), event.get("ph"))
        if self._waiting > TOGETHER:
            self._nesting.settle()
            self._waiting = 0

    def _check(self, event: Event) -> None:
        phase = event.get("ph")
        if type(phase) is not str or len(phase) != 1:
            what = kind_of(phase) if "ph" in event else "missing"
            self._fault("ph", f'"ph" is {what}; expected a letter in quotes', "ph")
            return
        self._check_identity(event, phase)
        if phase == "M":
            self._take_name(event)
            return
        time = self._check_time(event)
        if time is None:
            return
        if phase == "X":
            self._check_slice(event)
        elif phase in "BE":
            self._check_duration(event, phase, time)
        elif phase in "be":
            self._check_async(event, phase == "b", time)
        elif phase in "stf":
            self._check_flow(event, phase, time)
        elif phase == "C":
            self._check_counter(event)
        elif phase not in PHASES:
            self._note("ph", "a phase that readers do not know", "ph")

    def _check_identity(self, event: Event, phase: str) -> None:
        name, category, args = (
            event.get("name", _ABSENT),
            event.get("cat", ""),
            event.get("args", {}),
        )
        if name is _ABSENT:
            if phase in NAMED:
                self._fault("name", 'no "name"')
        elif type(name) is not str:
            self._fault("name", f'"name" is {kind_of(name)}', "name")
        if type(category) is not str:
            self._fault("cat", f'"cat" is {kind_of(category)}', "cat")
        if type(args) is not dict:
            self._fault("args", f'"args" is {kind_of(args)}; expected an object', "args")
        pid, tid = event.get("pid", _ABSENT), event.get("tid", _ABSENT)
        if type(pid) is not int or not 0 <= pid < MOST_ID:
            self._check_number("pid", pid)
        if phase != "M" and (type(tid) is not int or not 0 < tid < MOST_ID):
            self._check_number("tid", tid)

    def _check_number(self, member: str, number: object) -> None:
        if number is _ABSENT or type(number) is str:
            what = "missing" if number is _ABSENT else "a string"
            self._note(member, f'"{member}" is {what}; expected a number', member)
        elif number == 0 and type(number) is int:
            self._fault(member, '"tid" is 0, which readers take for the pid', member)
        else:
            what = f"a whole number from 0 to {MOST_ID - 1}; readers merge such tracks"
            self._fault(member, f'"{member}" is not {what}', member)

    def _check_time(self, event: Event) -> int | None:
        try:
            time, _ = time_of(event)
        except OddError as error:
            self._fault("ts", error.reason, "ts")
            return None
        if time < 0:
            self._fault("ts", '"ts" is negative; readers drop the event', "ts")
        if time > EXACT_NS and time % 1000:
            self._note("ts", '"ts" is so large that readers lose its nanoseconds', "ts")
        return time

    def _check_slice(self, event: Event) -> None:
        try:
            begin, duration, is_whole = span_of(event)
        except OddError as error:
            self._fault("dur", error.reason, "dur")
            return
        self._add_slice(event, begin, duration, 0 if is_whole else INEXACT)

    def _add_slice(self, event: Event, begin: int, duration: int, flag: int) -> None:
        track = self._track(event)
        if track is not None:
            index = self._batch.first + self._place
            track.new.append((begin, -duration, index << TAG_BITS | flag))
            self._waiting += 1

    def _track(self, event: Event) -> Track | None:
        try:
            key = event.get("pid", ""), event.get("tid", "")
            track = self._tracks.get(key)
        except TypeError:  # an object or an array, which is a fault
            return None
        if track is None and len(self._tracks) < MOST_TRACKS:
            track = self._tracks[key] = self._nesting.track()
        return track

    def _check_duration(self, event: Event, phase: str, time: int) -> None:
        self._track(event)
        key = repr((event.get("pid"), event.get("tid")))[:MOST_TEXT]
        name = event.get("name")
        name = name[:MOST_TEXT] if type(name) is str else ""
        if phase == "B":
            self._begin(key, name, time)
            return
        begun = self._finish(key)
        if begun is None:
            if not self._without_room:
                self._fault("unbalanced", "E without a B")
            return
        index, begun_name, begun_time = begun
        if name and name != begun_name:
            self._fault("unbalanced", f"E of another name than its B, event {index}")
        if time < begun_time:
            self._fault("unbalanced", f"E before its B, event {index}")

    def _check_async(self, event: Event, begins: bool, time: int) -> None:
        if "id" not in event and "id2" not in event:
            self._fault("id", 'an asynchronous range without "id"')
            return
        if begins:
            self._begin(async_key(event), "", time)
            return
        begun = self._finish(async_key(event))
        if begun is None:
            if not self._without_room:
                self._fault("unbalanced", "asynchronous end without a begin")
        elif time < begun[2]:
            self._fault("unbalanced", f"asynchronous end before its begin, event {begun[0]}")

    def _begin(self, key: Key, name: str, time: int) -> None:
        if self._open_count >= MOST_OPEN:
            self._without_room += 1
            return
        self._open_count += 1
        self._open[key].append((self._batch.first + self._place, name, time))

    def _finish(self, key: Key) -> tuple[int, str, int] | None:
        begun = self._open.get(key)
        if not begun:
            return None
        self._open_count -= 1
        last = begun.pop()
        if not begun:
            del self._open[key]
        return last

    def _check_flow(self, event: Event, phase: str, time: int) -> None:
        number = event.get("id")
        if type(number) is not int and not (type(number) is str and _HEXADECIMAL.fullmatch(number)):
            what = 'a flow\'s "id" must be a whole number or a hexadecimal string'
            self._fault("id", what, "id")
            return
        key = async_key(event)
        flow = self._flows.get(key)
        if flow is None:
            if len(self._flows) >= MOST_OPEN:
                self._forget_whole_flows()
            if len(self._flows) >= MOST_OPEN:
                self._without_room += 1
                return
            flow = self._batch.first + self._place << TAG_BITS
        self._flows[key] = flow | _ENDS.get(phase, 0)
        # An end that does not bind to what is around it binds to what comes next.
        if phase != "f" or event.get("bp") == "e":
            self._add_slice(event, time, 0, POINT)

    def _forget_whole_flows(self) -> None:
        """Make room. A step that comes after both ends of its flow then looks like one without."""
        whole = STARTED | ENDED
        self._flows = {key: flow for key, flow in self._flows.items() if flow & whole != whole}
        self._forgot_flows = True

    def _check_counter(self, event: Event) -> None:
        args = event.get("args")
        if type(args) is not dict:
            if "args" not in event:
                self._fault("args", "a counter without an object of values")
            return
        for value in args.values():
            if type(value) not in (int, bytes):
                self._fault("args", "a counter's value is no number", "args")

    def _check_inner(self, text: bytes, phase: object) -> None:
        """Look at the strings and numbers at any depth."""
        if not may_matter_inside(text):
            return
        offset = self._batch.offset_of(self._place)
        for token in tokens(text, []):
            part = text[token.begin : token.end]
            at = offset + token.begin
            if token.kind == "string":
                if part.endswith(b'\\\\"'):
                    what = "a string that ends in a backslash; Perfetto before v53 refuses the file"
                    self._note("backslash", what, offset=at)
                if re.search(rb"\\u[dD]", part):
                    what = "a surrogate written as \\u; Perfetto refuses some of them"
                    self._note("surrogate", what, offset=at)
            # Metadata are for readers that know their keys and their range.
            if token.kind == "number" and phase != "M" and is_rounded(part):
                what = "a whole number beyond 2^53, which readers round; write it as a string"
                self._fault("number", what, offset=at)

    # --- all of them

    def _take_name(self, event: Event) -> None:
        named = names_of(event)
        if named and named[1] and len(self._names) < 2 * MOST_TRACKS:
            pid, tid = event.get("pid", ""), event.get("tid", "")
            with contextlib.suppress(TypeError):
                self._names.add((pid,) if named[0] == "process" else (pid, tid))

    def _crossing(self, first: Slice, second: Slice) -> None:
        overlap = int(first[0] - first[1] - second[0])
        if (first[2] | second[2]) & INEXACT and overlap <= ROUNDING_NS:
            return
        # The fault is that of the one that comes later in the file.
        earlier, later = sorted((first[2] >> TAG_BITS, second[2] >> TAG_BITS))
        what = f"overlaps event {earlier} on its track by {overlap} ns without being inside; "
        self.findings.add("faults", "overlap", f"{what}some readers drop it", later)

    def _check_open(self) -> None:
        self._nesting.settle()
        for _, _, number in self._nesting.tops():
            if number & POINT:
                what = "a flow event that is in no slice of its track"
                self.findings.add("faults", "flow", what, number >> TAG_BITS)
        for key, begun in self._open.items():
            what = "B without an E" if isinstance(key, str) else "asynchronous begin without an end"
            for index, _, _ in begun:
                self.findings.add("faults", "unbalanced", what, index)
        for flow in self._flows.values():
            index = flow >> TAG_BITS
            if self._forgot_flows and not flow & (STARTED | ENDED):
                continue
            if not flow & STARTED:
                self.findings.add("faults", "flow", "flow without its start (s)", index)
            if not flow & ENDED:
                self.findings.add("faults", "flow", "flow without its end (f)", index)
        if self._without_room:
            what = f"{self._without_room} begins or flows: too many were open at once"
            self.unchecked.append(what)
        if self._nesting.approximate:
            self.unchecked.append("overlaps of slices that came long after their neighbours")

    def _check_names(self) -> None:
        threads = sum(track not in self._names for track in self._tracks)
        processes = len({pid for pid, _ in self._tracks if (pid,) not in self._names})
        if processes:
            self.findings.add(
                "notes", "metadata", f"{processes} processes without a process_name", None, 0
            )
        if threads:
            self.findings.add(
                "notes", "metadata", f"{threads} tracks without a thread_name", None, 0
            )

    def _check_end(self, reader: EventReader) -> None:
        end = reader.end
        if not end.events:
            what = "no complete event; readers cannot tell what it is"
            self.findings.add("faults", "empty", what, None, end.bytes)
        if end.complete:
            return
        if end.form == "array" and not end.inside_event:
            what = "the array's end is missing, as while a trace is being written"
            self.findings.add("notes", "cut", what, None, end.bytes)
        else:
            inside = ", inside an event" if end.inside_event else ""
            self.findings.add("faults", "cut", f"the file is cut off here{inside}", None, end.bytes)

    def _fault(self, code: str, message: str, member: str = "", offset: int | None = None) -> None:
        self._add_here("faults", code, message, member, offset)

    def _note(self, code: str, message: str, member: str = "", offset: int | None = None) -> None:
        self._add_here("notes", code, message, member, offset)

    def _add_here(
        self, kind: str, code: str, message: str, member: str, offset: int | None
    ) -> None:
        batch, place = self._batch, self._place
        if offset is None and self.findings.has_room(kind):
            offset = batch.offset_of(place)
            if member:
                found = members(batch.text_of(place)).get(member)
                offset += found.begin if found else 0
        self.findings.add(kind, code, message, batch.first + place, offset)
