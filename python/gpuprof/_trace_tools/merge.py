"""Several traces made one: on one clock, no two processes with one pid, no two flows with one id.

Each file is read twice: a `FileScan` learns what is in it, then a `Merge` rewrites it. Times are
moved by the difference of the files' clock bases (nanoseconds of the wall clock at time 0), or by
what ranks measured of their clocks (`clocks`); the smallest base becomes the result's. A pid that
an earlier file has used becomes rank * 2^22 + pid. Ids become ones that are the file's own. All
else keeps its value. Memory is bounded by the number of processes.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from gpuprof._trace_tools.batch import Header
from gpuprof._trace_tools.clocks import CATEGORY, MOST_ANCHORS, Anchor, FileClock, anchors_in
from gpuprof._trace_tools.lexer import OddError, ReadError
from gpuprof._trace_tools.scan import (
    EXACT_IN_DOUBLES,
    MOST_NS,
    Event,
    Scan,
    check_labels,
    names_of,
    own_args,
    phase_of,
)

MOST_PROCESSES = 20_000
MOST_PID = 256  # characters
MOST_RANK = 1 << 20
MOST_MEMBER = 4096
BASE = "baseTimeNanoseconds"
PID_STEP = 1 << 22  # Linux has no pid as large
PIDS = 1 << 32
SCATTER = 0x9E3779B97F4A7C15
_ID = re.compile(r"(?:0x)?([0-9a-fA-F]{1,16})")
Pid = int | str | float
_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def _whole(value: object) -> int | None:
    return value if type(value) is int else None


class FileScan(Scan):
    """What one file says of itself; `read` it first. Then `Merge` says what becomes of it."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.base: int | None = None  # nanoseconds since the epoch
        self.rank: int | None = None
        self.pids: dict[Pid, None] = {}  # in the order of their first event
        self.headers: list[Header] = []
        self.anchors: list[Anchor] = []
        self.shift = 0  # nanoseconds by which its times move
        self.clock: FileClock | None = None  # if it counts
        self.renamed: dict[Pid, int | str] = {}

    def read(self, pieces: Iterator[bytes]) -> None:
        super().read(pieces)
        for header in self.reader.headers:
            if header.key == BASE:
                self.base = _whole(header.decoded())
            elif header.key == "mergedFrom":
                self.anchors.clear()  # its times are on one clock already
            elif header.key == "viztracer_metadata":
                self.base = header.number(BASE, self.base)
            elif header.key == "distributedInfo":
                self.rank = header.number("rank", self.rank)
        known = (BASE, "displayTimeUnit")
        self.headers = [
            header
            for header in self.reader.headers
            if header.key not in known and header.value and len(header.value) <= MOST_MEMBER
        ]
        if self.rank is not None and not 0 <= self.rank <= MOST_RANK:
            self.rank = None
        if self.base is not None and not 0 <= self.base <= MOST_NS:
            raise ReadError(0, f'"{BASE}" is {self.base}; expected nanoseconds since 1970')

    def leave_out(self, error: OddError) -> None:
        """Refuse the file: all of its events are to be merged."""
        raise self.located(error)

    def visit(self, event: Event) -> None:
        phase = phase_of(event)
        check_labels(event)
        if "pid" in event and (pid := event["pid"]) not in self.pids:
            if len(self.pids) >= MOST_PROCESSES:
                what = f"there are more than {MOST_PROCESSES} processes"
                raise OddError(what)
            if len(str(pid)) > MOST_PID:
                what = f"a pid is longer than {MOST_PID} characters"
                raise OddError(what)
            self.pids[pid] = None
        if phase == "M":
            args = own_args(event)
            self.base = _whole(args.get(BASE)) if self.base is None else self.base
            self.rank = _whole(args.get("rank")) if self.rank is None else self.rank
        elif event.get("cat") == CATEGORY and len(self.anchors) < MOST_ANCHORS:
            with contextlib.suppress(OddError):
                self.anchors += anchors_in(event, self.time(event)[0])


def _place(scans: list[FileScan]) -> int:
    """Put files whose base is known on one clock, and return the base of that.

    The files with a measured clock keep their distance by it from the one with the lowest rank.
    Those of another run than that one's, and those without, are placed by their own wall clock.
    """
    measured = [scan for scan in scans if scan.anchors]
    measured.sort(key=lambda scan: MOST_NS if scan.rank is None else scan.rank)
    for scan in scans:
        scan.shift = scan.base or 0
        if scan.anchors and scan.anchors[0].reference == measured[0].anchors[0].reference:
            scan.clock = FileClock(scan.anchors)
            ahead = scan.clock.start - FileClock(measured[0].anchors).start
            scan.shift = (measured[0].base or 0) + ahead
    base = min(scan.shift for scan in scans)
    for scan in scans:
        scan.shift -= base
    return base


def _rename(scans: list[FileScan]) -> None:
    """Give each process a pid that no earlier file has."""
    taken: set[Pid] = set()
    for position, scan in enumerate(scans):
        own = set(scan.pids)
        first = max(position if scan.rank is None else scan.rank, 1)
        for pid in scan.pids:
            if pid not in taken:
                continue
            steps = first
            while (new := _other_pid(pid, steps)) in taken or new in own:
                steps += 1
            own.add(new)
            scan.renamed[pid] = new
        taken.update(scan.renamed.get(pid, pid) for pid in scan.pids)


def _other_pid(pid: Pid, steps: int) -> int | str:
    """Return a pid in the place of another file's: steps added, or written behind it."""
    if isinstance(pid, int) and 0 <= pid < PID_STEP and steps < PIDS // PID_STEP:
        return steps * PID_STEP + pid
    return f"{pid} #{steps}"


class Merge(Scan):
    """Writes the files of `scans`, whose events they have checked: `begin`, `read` each, `finish`.

    With `align`, all bases must be known.
    """

    def __init__(
        self, scans: list[FileScan], *, align: bool, write: Callable[[bytes], object]
    ) -> None:
        super().__init__()
        self.events = 0
        self._scans, self._write = scans, write
        self._base = _place(scans) if align else scans[0].base
        _rename(scans)
        self._number = -1
        self._any = False
        self._texts: list[str] = []

    leave_out = FileScan.leave_out

    def begin(self) -> None:
        head = '{"displayTimeUnit":"ns",'
        if self._base is not None:
            head += f'"{BASE}":{self._base},'
        descriptions = b",".join(map(_description, self._scans))
        self._write(b'%s"mergedFrom":[%s],"traceEvents":[' % (head.encode(), descriptions))

    def read(self, pieces: Iterator[bytes]) -> None:
        self._number += 1
        super().read(pieces)
        self.events += self.end.events

    def finish(self) -> None:
        self._write(b"\n]}\n")

    def after_batch(self) -> None:
        self._write((b",\n" if self._any else b"\n") + ",\n".join(self._texts).encode())
        self._any = True
        self._texts.clear()

    def visit(self, event: Event) -> None:
        scan = self._scans[self._number]
        time = self.time(event)[0] if "ts" in event else None
        phase, begin = phase_of(event), "{"
        try:
            if time is not None and (moved := _moved(scan, time)) != time:
                del event["ts"]
                begin = f'{{"ts":{_microseconds(moved)},'
            named = names_of(event) if phase == "M" else None
            if named and len(named[0]) == 1:  # a process
                event["args"]["name"] = _new_name(scan, event.get("pid"), named[1])
            if "pid" in event:
                event["pid"] = scan.renamed.get(event["pid"], event["pid"])
            if phase not in "CM":
                for key in ("id", "bind_id"):
                    if key in event:
                        event[key] = self._new_id(event[key])
                id2 = event.get("id2")
                if isinstance(id2, dict) and isinstance(id2.get("global"), str):
                    id2["global"] = self._new_id(id2["global"])
            self._texts.append(begin + _encode(event)[1:])
        except (ValueError, RecursionError):
            reason = "a number or a value that cannot be written again"
            raise OddError(reason) from None
        except (KeyError, TypeError):  # of what was checked by the scan
            reason = "the file has changed while it was read"
            raise OddError(reason) from None

    def _new_id(self, old: Any) -> Any:
        """Return an id that is the file's alone.

        Small ones are multiplied, so that each file has a residue of its own; large ones scattered.
        """
        files = len(self._scans)
        match = _ID.fullmatch(old) if isinstance(old, str) else None
        value = int(match[1], 16) if match else old
        if files == 1 or type(value) not in (int, str):
            return old
        if isinstance(value, str):
            return f"{old} #{self._number}" if self._number else old
        if not 0 <= value < 1 << 64:
            return old
        if value < EXACT_IN_DOUBLES // files - 1:
            value = value * files + self._number
        else:
            value ^= self._number * SCATTER & (1 << 64) - 1
        return value if match is None and value < EXACT_IN_DOUBLES else f"0x{value:x}"


def _moved(scan: FileScan, time: int) -> int:
    time += scan.shift + (scan.clock.drift(time) if scan.clock else 0)
    if time > MOST_NS:
        reason = '"ts" is too large; expected a time within 146 years of the others'
        raise OddError(reason)
    return time


def _microseconds(time: int) -> str:
    return f"{'-' if time < 0 else ''}{abs(time) // 1000}.{abs(time) % 1000:03}"


def _new_name(scan: FileScan, pid: Any, name: str) -> str:
    """Return the name of a process with its rank, or else with its file if it was renamed."""
    if scan.rank is not None:
        return f"{name} (rank {scan.rank})"
    return f"{name} ({scan.name})" if pid in scan.renamed else name


def _description(scan: FileScan) -> bytes:
    """Return what a file says of itself beside its events, where it is short."""
    parts = [b'"file":' + json.dumps(scan.name).encode()]
    if scan.rank is not None:
        parts.append(b'"rank":%d' % scan.rank)
    if scan.base is not None:
        parts.append(b'"%s":%d' % (BASE.encode(), scan.base))
    if scan.clock is not None:
        parts.append(b'"clock":' + json.dumps(scan.clock.to_dict()).encode())
    kept = [header.member() for header in scan.headers]
    if kept:
        parts.append(b'"members":{' + b",".join(kept) + b"}")
    return b"{" + b",".join(parts) + b"}"
