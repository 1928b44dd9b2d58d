"""Several traces made one: on one clock, no two processes with one pid, no two flows with one id.

Each file is read twice: a `FileScan` learns what is in it, then a `Merge` rewrites it. Times are
moved by the difference of the files' clock bases (nanoseconds of the wall clock at time 0), or by
what ranks measured of their clocks (`clocks`); the smallest base becomes the result's. A pid that
an earlier file has used becomes rank * 2^22 + pid. Ids become ones that are the file's own. All
else stays as it was, byte for byte. Memory is bounded by the number of processes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from operator import itemgetter
from typing import Any

from gpuprof._trace_tools.batch import Batch, Header, decoded, members
from gpuprof._trace_tools.clocks import (
    CATEGORY,
    MARK,
    MOST_ANCHORS,
    Anchor,
    FileClock,
    anchor_of,
    on_one_clock,
)
from gpuprof._trace_tools.lexer import ReadError, unquoted
from gpuprof._trace_tools.reader import EventReader
from gpuprof._trace_tools.scan import Scan
from gpuprof._trace_tools.values import (
    EXACT_IN_DOUBLES,
    MOST_DIGITS,
    MOST_NS,
    Event,
    OddError,
    check_labels,
    microseconds,
    nanoseconds,
    own_args,
    phase_of,
    time_of,
)

MOST_PROCESSES = 20_000
MOST_PID = 256  # characters
MOST_RANK = 1 << 20
MOST_MEMBER = 4096
BASE = "baseTimeNanoseconds"
_LABELS = ("ph", "name", "cat", "pid", "tid")
_get_labels = itemgetter(*_LABELS)
PID_STEP = 1 << 22  # Linux has no pid as large
PIDS = 1 << 32
SCATTER = 0x9E3779B97F4A7C15
_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_NUMBERS = frozenset((int, float, bytes))
_CHANGED = _NUMBERS | {str}
_VALUE = rb'"[ \t\n\r]*:[ \t\n\r]*)("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)'
_MEMBERS = {
    key: re.compile(b'("%s' % key.encode() + _VALUE) for key in ("ts", "pid", "id", "bind_id")
}


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


class FileScan(Scan):
    """What one file says of itself; `read` it first."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.base: int | None = None  # nanoseconds since the epoch
        self.rank: int | None = None
        # In the order of their first event: whether a process has labels.
        self.processes: dict[int | str | float, bool] = {}
        self.headers: list[Header] = []
        self.anchors: list[Anchor] = []
        self._known: set[tuple[Any, ...]] = set()  # labels of events that can be merged

    @property
    def clock(self) -> FileClock | None:
        """What the file says of rank 0's clock, or None."""
        return FileClock(self.anchors) if self.anchors else None

    def read(self, pieces: Iterator[bytes]) -> None:
        """Read a whole file."""
        super().read(pieces)
        self._take_headers(self.reader.headers)

    def leave_out(self, error: OddError) -> None:
        """Refuse the file: all of its events are to be merged."""
        raise self.located(error)

    def visit_many(self, batch: Batch) -> Iterable[int]:
        """Pass over events of labels that were met."""
        with contextlib.suppress(KeyError, TypeError):
            if self._known.issuperset(map(_get_labels, batch.events)) and MARK not in batch.raw:
                return ()
        return super().visit_many(batch)

    def visit(self, event: Event) -> None:
        """Check one event, and take what it says of the file."""
        phase = phase_of(event)
        check_labels(event)
        if "pid" in event and (pid := _number(event["pid"])) not in self.processes:
            if len(self.processes) >= MOST_PROCESSES:
                what = f"there are more than {MOST_PROCESSES} processes"
                raise OddError(what)
            if len(str(pid)) > MOST_PID:
                what = f"a pid is longer than {MOST_PID} characters"
                raise OddError(what)
            self.processes[pid] = False
        labels = tuple(map(event.get, _LABELS))
        if phase == "M":
            self._take_metadata(event)
        elif event.get("cat") == CATEGORY:
            self._take_anchor(event)
        elif None not in labels and len(self._known) < MOST_PROCESSES:
            self._known.add(labels)

    def _take_metadata(self, event: Event) -> None:
        args = own_args(event)
        self.base = _whole(args.get(BASE)) if self.base is None else self.base
        self.rank = _whole(args.get("rank")) if self.rank is None else self.rank
        if event.get("name") == "process_labels" and "pid" in event:
            self.processes[_number(event["pid"])] = True

    def _take_anchor(self, event: Event) -> None:
        with contextlib.suppress(OddError):
            anchor = anchor_of(event, self.time(event)[0])
            if anchor is not None and len(self.anchors) < MOST_ANCHORS:
                self.anchors.append(anchor)

    def _take_headers(self, headers: list[Header]) -> None:
        for header in headers:
            value = _decoded(header)
            if header.key == BASE:
                self.base = _whole(value)
            elif header.key == "mergedFrom":
                self.anchors.clear()  # its times are on one clock already
            elif header.key == "viztracer_metadata" and isinstance(value, dict):
                base = _whole(value.get(BASE))
                self.base = self.base if base is None else base
            elif header.key == "distributedInfo" and isinstance(value, dict):
                rank = _whole(value.get("rank"))
                self.rank = self.rank if rank is None else rank
        known = (BASE, "displayTimeUnit")
        self.headers = [
            header
            for header in headers
            if header.key not in known and header.value and len(header.value) <= MOST_MEMBER
        ]
        if self.rank is not None and not 0 <= self.rank <= MOST_RANK:
            self.rank = None
        if self.base is not None and not 0 <= self.base <= MOST_NS:
            raise ReadError(0, f'"{BASE}" is {self.base}; expected nanoseconds since 1970')


def _number(pid: Any) -> Any:
    return float(pid) if isinstance(pid, bytes) else pid


def _decoded(header: Header) -> object:
    if header.key not in (BASE, "viztracer_metadata", "distributedInfo") or not header.value:
        return None
    try:
        value: object = json.loads(header.value)
    except (ValueError, RecursionError):
        return None
    return value


def _other_pid(pid: str | float, steps: int) -> int | str:
    """Return a pid in the place of another file's: steps added, or written behind it."""
    if isinstance(pid, int) and 0 <= pid < PID_STEP and steps < PIDS // PID_STEP:
        return steps * PID_STEP + pid
    return f"{pid} #{steps}"


class Merge:
    """Writes the files of `scans`, in their order: `begin`, `add` each, `finish`."""

    def __init__(
        self, scans: list[FileScan], *, align: bool, write: Callable[[bytes], object]
    ) -> None:
        self.events = 0
        self._scans, self._write = scans, write
        walls, self.clocks = on_one_clock(
            [scan.base for scan in scans],
            [scan.clock if align else None for scan in scans],
            [scan.rank for scan in scans],
        )
        known = [wall for wall in walls if wall is not None]
        self.base = (min(known) if align else scans[0].base) if known else None
        smallest = self.base or 0
        self.shifts = [wall - smallest if align and wall is not None else 0 for wall in walls]
        self.pids = self._plan_pids()
        self._pid_texts: dict[bytes, bytes] = {}  # of the current file
        self._changes = {
            "ts": self._moved,
            "pid": self._new_pid,
            "id": self._new_id,
            "bind_id": self._new_id,
        }
        self._any = False
        self._number = 0

    def _plan_pids(self) -> list[dict[int | str | float, int | str]]:
        """Answer the new pids by the old ones, for each file."""
        taken: set[int | str | float] = set()
        plan: list[dict[int | str | float, int | str]] = []
        for position, scan in enumerate(self._scans):
            own = set(scan.processes)
            renamed: dict[int | str | float, int | str] = {}
            first = max(position if scan.rank is None else scan.rank, 1)
            for pid in scan.processes:
                if pid not in taken:
                    continue
                steps = first
                while (new := _other_pid(pid, steps)) in taken or new in own:
                    steps += 1
                own.add(new)
                renamed[pid] = new
            taken.update(renamed.get(pid, pid) for pid in scan.processes)
            plan.append(renamed)
        return plan

    def _label(self, number: int, pid: str | float | None) -> str:
        """Return what a person should see beside the name of a process; may be nothing."""
        scan = self._scans[number]
        if scan.rank is not None:
            return f"rank {scan.rank}"
        return scan.name if pid in self.pids[number] else ""

    def begin(self) -> None:
        """Write all before the files' events."""
        head = '{"displayTimeUnit":"ns",'
        if self.base is not None:
            head += f'"{BASE}":{self.base},'
        self._write(f'{head}"mergedFrom":['.encode())
        for number, scan in enumerate(self._scans):
            self._write((b"," if number else b"") + _description(scan, self.clocks[number]))
        self._write(b'],"traceEvents":[')
        for number, scan in enumerate(self._scans):
            for pid, is_labelled in scan.processes.items():
                label = self._label(number, pid)
                if is_labelled or not label:
                    continue
                shown = json.dumps(self.pids[number].get(pid, pid))
                event = f'{{"ph":"M","name":"process_labels","pid":{shown},"tid":0,'
                self._add((f'{event}"args":{{"labels":{json.dumps(label)}}}}}').encode())

    def _add(self, text: bytes) -> None:
        self._write((b",\n" if self._any else b"\n") + text)
        self._any = True

    def add(self, pieces: Iterator[bytes]) -> None:
        """Write the next file's events."""
        for batch in EventReader(pieces).batches():
            try:
                text = self._together(batch.raw, batch.events) or self._one_by_one(batch)
            except (KeyError, TypeError):  # of what was checked by the scan
                reason = "the file has changed while it was read"
                raise ReadError(batch.offset, reason, batch.first) from None
            self._add(text)
            self.events += len(batch.events)
        self._number += 1
        self._pid_texts.clear()

    def finish(self) -> None:
        """Write the end."""
        self._write(b"\n]}\n")

    def _together(self, raw: bytes, events: list[Event]) -> bytes | None:
        """Rewrite a batch at once; None where its members cannot be told by their names alone."""
        if b"\\u00" in raw or b'"id2"' in raw or any(map(_is_special, events)):
            return None
        if {*map(type, [event["ts"] for event in events if "ts" in event])} - _NUMBERS:
            return None
        for key in self._keys():
            if f'"{key}"'.encode() not in raw:
                continue
            values = [event[key] for event in events if key in event]
            wanted = sum([type(value) in _CHANGED for value in values])
            try:
                raw, count = _MEMBERS[key].subn(partial(_with_value, self._changes[key]), raw)
            except (OddError, TypeError):
                return None
            if count != wanted:
                return None
        return raw

    def _keys(self) -> list[str]:
        """Name the members that change in the current file."""
        clock = self.clocks[self._number]
        drifts = clock is not None and not clock.is_steady
        keys = ["ts"] if self.shifts[self._number] or drifts else []
        keys += ["pid"] if self.pids[self._number] else []
        return keys + (["id", "bind_id"] if len(self._scans) > 1 else [])

    def _new_pid(self, text: bytes) -> bytes:
        if text not in self._pid_texts:
            new = self.pids[self._number].get(_value(text))
            self._pid_texts[text] = text if new is None else json.dumps(new).encode()
        return self._pid_texts[text]

    def _moved(self, text: bytes) -> bytes:
        shift = self.shifts[self._number]
        time = nanoseconds(int(text) if text.isdigit() and len(text) < MOST_DIGITS else text)
        if time is not None and (clock := self.clocks[self._number]) is not None:
            shift += clock.drift(time[0])
        if time is None or time[0] + shift > MOST_NS:
            reason = '"ts" is too large; expected a time within 146 years of the others'
            raise OddError(reason, "ts")
        return microseconds(time[0] + shift).encode() if shift else text

    def _new_id(self, text: bytes) -> bytes:
        """Answer an id of this file alone.

        Small ones are multiplied, so that each file has a residue of its own; large ones scattered.
        """
        files = len(self._scans)
        if files == 1:
            return text
        old = int(text) if text.isdigit() and len(text) < MOST_DIGITS else _value(text)
        if type(old) is int and 0 <= old < EXACT_IN_DOUBLES // files - 1:
            return b"%d" % (old * files + self._number)
        if isinstance(old, str):
            match = _ID.fullmatch(old)
            number = int(match[1], 16) if match else None
        else:
            number = old if isinstance(old, int) and 0 <= old < 1 << 64 else None
        if number is None:
            is_own = self._number == 0 or not isinstance(old, str)
            return text if is_own else json.dumps(f"{old} #{self._number}").encode()
        if number < EXACT_IN_DOUBLES // files - 1:
            number = number * files + self._number
        else:
            number ^= self._number * SCATTER & (1 << 64) - 1
        if not isinstance(old, str) and number < EXACT_IN_DOUBLES:
            return b"%d" % number
        return b'"0x%x"' % number

    def _one_by_one(self, batch: Batch) -> bytes:
        texts = []
        for place, event in enumerate(batch.exact_events()):
            try:
                texts.append(self._rewritten(event, batch.text_of(place)))
            except OddError as error:
                scan = self._scans[self._number]
                scan.batch, scan.place = batch, place
                raise scan.located(error) from None
        return b",\n".join(texts)

    def _rewritten(self, event: Event, text: bytes) -> bytes:
        phase = event["ph"]
        found = members(text)
        edits: list[tuple[int, int, bytes]] = []

        def change(key: str, member: tuple[int, int] | None, base: int = 0) -> None:
            if member is None:
                return
            begin, end = base + member[0], base + member[1]
            if text[begin] in b'"-0123456789':
                edits.append((begin, end, self._changes[key](text[begin:end])))

        if "ts" in event:
            time_of(event)
        change("pid", found.get("pid"))
        change("ts", found.get("ts"))
        if phase not in "CM":
            change("id", found.get("id"))
            change("bind_id", found.get("bind_id"))
            if (id2 := found.get("id2")) is not None:
                member = members(text[slice(*id2)]).get("global")
                if member and text[id2[0] + member[0]] in b'"':
                    change("id", member, id2[0])
        elif phase == "M" and event.get("name") == "process_name":
            label, args = self._label(self._number, _number(event.get("pid"))), found.get("args")
            name = members(text[slice(*args)]).get("name") if label and args else None
            if args and name and text[args[0] + name[0]] in b'"':
                end = args[0] + name[1]
                edits.append((end - 1, end, json.dumps(f" ({label})")[1:].encode()))
        for begin, end, new in sorted(edits, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def _with_value(change: Callable[[bytes], bytes], found: re.Match[bytes]) -> bytes:
    return found[1] + change(found[2])


def _is_special(event: Event) -> bool:
    """Whether an event has a name to be changed, or an id that stays."""
    if event["ph"] not in "CM":
        return False
    return event.get("name") == "process_name" or "id" in event or "bind_id" in event


def _value(text: bytes) -> Any:
    """Return what the text of a string or number says, as in an event."""
    return unquoted(text) if text.startswith(b'"') else decoded(text.decode(), exact=False)


def _description(scan: FileScan, clock: FileClock | None) -> bytes:
    """Return what a file says of itself beside its events, where it is short."""
    parts = [b'"file":' + json.dumps(scan.name).encode()]
    if scan.rank is not None:
        parts.append(b'"rank":%d' % scan.rank)
    if scan.base is not None:
        parts.append(b'"%s":%d' % (BASE.encode(), scan.base))
    if clock is not None:
        parts.append(b'"clock":' + json.dumps(clock.to_dict()).encode())
    kept = [
        json.dumps(header.key).encode() + b":" + (header.value or b"null")
        for header in scan.headers
    ]
    if kept:
        parts.append(b'"members":{' + b",".join(kept) + b"}")
    return b"{" + b",".join(parts) + b"}"
