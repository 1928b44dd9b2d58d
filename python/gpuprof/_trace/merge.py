"""Several traces made one: on one clock, no two processes with one pid, no two flows with one id.

Each file is read twice: a `Scan` learns what is in it, a `Merge` then rewrites one after the other.
Times are moved by the difference of the files' clock bases (nanoseconds of the wall clock at time
0); the smallest becomes the result's. A pid that an earlier file has used becomes
rank * 2^22 + pid. Ids become ones that are the file's own. All else stays as it was, byte for byte.
Memory is bounded by the number of processes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from gpuprof._trace.batch import Batch
from gpuprof._trace.json_scanner import Member, members, unquoted
from gpuprof._trace.reader import EventReader
from gpuprof._trace.scan import BASE, Scan, bad, checked
from gpuprof._trace.values import (
    EXACT_IN_DOUBLES,
    MOST_NS,
    Event,
    OddError,
    microseconds,
    nanoseconds,
    time_of,
)

PID_STEP = 1 << 22  # Linux has no pid as large
PIDS = 1 << 32
SCATTER = 0x9E3779B97F4A7C15
_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
_VALUE = rb'"[ \t\n\r]*:[ \t\n\r]*)("(?:[^"\\]|\\.)*"|-?[0-9][0-9.eE+-]*)'


def _pid_text(pid: int | str | bytes) -> str:
    return pid.decode() if isinstance(pid, bytes) else json.dumps(pid)


def _other_pid(pid: int | str | bytes, steps: int) -> int | str:
    """Return a pid in the place of another file's: steps added, or written behind it."""
    if isinstance(pid, int) and 0 <= pid < PID_STEP and steps < PIDS // PID_STEP:
        return steps * PID_STEP + pid
    return f"{pid.decode() if isinstance(pid, bytes) else pid} #{steps}"


class Merge:
    """Writes the files of `scans`, in their order: `begin`, `add` each, `finish`."""

    def __init__(self, scans: list[Scan], *, align: bool, write: Callable[[bytes], object]) -> None:
        self.events = 0
        self._scans, self._write = scans, write
        bases = [scan.base for scan in scans if scan.base is not None]
        self.base = (min(bases) if align else scans[0].base) if bases else None
        smallest = self.base or 0
        self.shifts = [
            scan.base - smallest if align and scan.base is not None else 0 for scan in scans
        ]
        self.pids = self._plan_pids()
        self._pid_texts: dict[bytes, bytes | None] = {}  # of the current file
        self._any = False
        self._number = 0

    def _plan_pids(self) -> list[dict[int | str | bytes, int | str]]:
        """Answer the new pids by the old ones, for each file."""
        taken: set[int | str | bytes] = set()
        plan: list[dict[int | str | bytes, int | str]] = []
        for position, scan in enumerate(self._scans):
            own = set(scan.processes)
            renamed: dict[int | str | bytes, int | str] = {}
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

    def _label(self, number: int, pid: int | str | bytes | None) -> str:
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
            self._write((b"," if number else b"") + _description(scan))
        self._write(b'],"traceEvents":[')
        for number, scan in enumerate(self._scans):
            for pid, is_labelled in scan.processes.items():
                label = self._label(number, pid)
                if is_labelled or not label:
                    continue
                shown = _pid_text(self.pids[number].get(pid, pid))
                event = f'{{"ph":"M","name":"process_labels","pid":{shown},"tid":0,'
                self._add((f'{event}"args":{{"labels":{json.dumps(label)}}}}}').encode())

    def _add(self, text: bytes) -> None:
        self._write((b",\n" if self._any else b"\n") + text)
        self._any = True

    def add(self, pieces: Iterator[bytes]) -> None:
        """Write the next file's events."""
        known: set[tuple[Any, ...]] = set()
        for batch in EventReader(pieces, exact=True).batches():
            events = checked(batch, known)
            self._add(self._together(batch.raw, events) or self._one_by_one(batch))
            self.events += len(events)
        self._number += 1
        self._pid_texts.clear()

    def finish(self) -> None:
        """Write the end."""
        self._write(b"\n]}\n")

    def _together(self, raw: bytes, events: list[Event]) -> bytes | None:
        """Rewrite a batch at once; None where its members cannot be told by their names alone."""
        keys = ["ts"] if self.shifts[self._number] else []
        keys += ["pid"] if self.pids[self._number] else []
        keys += ["id", "bind_id"] if len(self._scans) > 1 else []
        if b"\\u00" in raw or b'"id2"' in raw or any(map(_is_special, events)):
            return None
        wanted = Counter(
            key for event in events for key in keys if type(event.get(key)) in (int, str, bytes)
        )
        found: Counter[str] = Counter()

        def changed(match: re.Match[bytes]) -> bytes:
            key = match[1].split(b'"')[1].decode()
            found[key] += 1
            return match[1] + (self._changed(key, match[2]) or match[2])

        try:
            for event in events:
                if "ts" in event and type(event["ts"]) not in (int, bytes):
                    return None
            text = (
                re.sub(rb'("(?:%s)' % "|".join(keys).encode() + _VALUE, changed, raw)
                if keys
                else raw
            )
        except (OddError, TypeError):
            return None
        return text if found == wanted else None

    def _changed(self, key: str, text: bytes) -> bytes | None:
        """Answer the new text of a member; None where it stays."""
        if key == "ts":
            return self._moved(text)
        if key == "pid":
            if text not in self._pid_texts:
                new = self.pids[self._number].get(_value(text))
                self._pid_texts[text] = None if new is None else _pid_text(new).encode()
            return self._pid_texts[text]
        return self._new_id(text)

    def _moved(self, text: bytes) -> bytes | None:
        shift = self.shifts[self._number]
        time = nanoseconds(_value(text))
        if time is None or time[0] + shift > MOST_NS:
            reason = '"ts" is too large; expected a time within 146 years of the others'
            raise OddError(member="ts", reason=reason)
        return microseconds(time[0] + shift).encode() if shift else None

    def _new_id(self, text: bytes) -> bytes | None:
        """Answer an id of this file alone.

        Small ones are multiplied, so that each file has a residue of its own; large ones scattered.
        """
        files = len(self._scans)
        if files == 1:
            return None
        old = _value(text)
        if isinstance(old, str):
            match = _ID.fullmatch(old)
            number = int(match[1], 16) if match else None
        else:
            number = old if isinstance(old, int) and 0 <= old < 1 << 64 else None
        if number is None:
            is_own = self._number == 0 or not isinstance(old, str)
            return None if is_own else json.dumps(f"{old} #{self._number}").encode()
        if number < EXACT_IN_DOUBLES // files - 1:
            number = number * files + self._number
        else:
            number ^= self._number * SCATTER & (1 << 64) - 1
        if not isinstance(old, str) and number < EXACT_IN_DOUBLES:
            return b"%d" % number
        return b'"0x%x"' % number

    def _one_by_one(self, batch: Batch) -> bytes:
        texts = []
        for place, event in enumerate(batch.events):
            try:
                texts.append(self._rewritten(event, batch.text_of(place)))
            except OddError as error:
                raise bad(batch, place, error) from None
        return b",\n".join(texts)

    def _rewritten(self, event: Event, text: bytes) -> bytes:
        phase = event["ph"]
        found = members(text)
        edits: list[tuple[int, int, bytes]] = []

        def change(key: str, member: Member | None, base: int = 0) -> None:
            if member is None or member.kind not in ("number", "string"):
                return
            begin, end = base + member.begin, base + member.end
            new = self._changed(key, text[begin:end])
            if new is not None:
                edits.append((begin, end, new))

        if "ts" in event:
            time_of(event)
        change("pid", found.get("pid"))
        change("ts", found.get("ts"))
        if phase not in "CM":
            change("id", found.get("id"))
            change("bind_id", found.get("bind_id"))
            if (id2 := found.get("id2")) is not None:
                member = members(text[id2.begin : id2.end]).get("global")
                if member and member.kind == "string":
                    change("id", member, id2.begin)
        elif phase == "M" and event.get("name") == "process_name":
            label, args = self._label(self._number, event.get("pid")), found.get("args")
            name = members(text[args.begin : args.end]).get("name") if label and args else None
            if args and name and name.kind == "string":
                end = args.begin + name.end
                edits.append((end - 1, end, json.dumps(f" ({label})")[1:].encode()))
        for begin, end, new in sorted(edits, reverse=True):
            text = text[:begin] + new + text[end:]
        return text


def _is_special(event: Event) -> bool:
    """Whether an event has a name to be changed, or an id that stays."""
    if event["ph"] not in "CM":
        return False
    return event.get("name") == "process_name" or "id" in event or "bind_id" in event


def _value(text: bytes) -> Any:
    """Return what the text of a string or number says; numbers with a fraction stay bytes."""
    if text.startswith(b'"'):
        return unquoted(text)
    digits = text.lstrip(b"-").isdigit() and len(text) < 4000
    return int(text) if digits else text


def _description(scan: Scan) -> bytes:
    """Return what a file says of itself beside its events, where it is short."""
    parts = [b'"file":' + json.dumps(scan.name).encode()]
    if scan.rank is not None:
        parts.append(b'"rank":%d' % scan.rank)
    if scan.base is not None:
        parts.append(b'"%s":%d' % (BASE.encode(), scan.base))
    kept = [
        json.dumps(header.key).encode() + b":" + (header.value or b"null")
        for header in scan.headers
    ]
    if kept:
        parts.append(b'"members":{' + b",".join(kept) + b"}")
    return b"{" + b",".join(parts) + b"}"
