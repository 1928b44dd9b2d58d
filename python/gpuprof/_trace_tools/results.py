"""What the trace tools found, as plain data that shows itself.

All texts come out of files: they are made fit to be shown before they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprof._common.records import Plain
from gpuprof._common.text import MAX_NAME_COLUMNS, cut, shown_text
from gpuprof._common.units import NOTHING, byte_size, duration, percent
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported
from gpuprof._display.table import Table, html_list, markdown_list

_TITLES = {"gpu": "GPU time", "host": "host time", "async": "asynchronous ranges"}
_GROUPS = {"path": "names", "name": "names", "cat": "categories", "tid": "tracks"}
_HEADINGS = {"path": "name", "name": "name", "cat": "category", "tid": "track"}
_LEFT = frozenset((*_HEADINGS.values(), "track"))
MOST_OF_CODE = 20
# Of a comparison.
_DIFF_TITLES = {
    "gpu": "GPU time by scope",
    "launched": "kernels by the scope that launched them",
    "host": "host time by scope",
    "kernel": "kernels, copies and memsets",
}
_IDLE_COLUMNS = ["cause", "A", "B", "change", "%", "gaps A", "gaps B"]
_CAUSES = {"host_bound": "host-bound", "launch_gap": "launch gap"}  # others as they are


def as_text(headlines: Iterable[str], tables: Iterable[Table], notes: Sequence[str]) -> str:
    text = [*headlines]
    for table in tables:
        text += ["", *table.plain()]
    return "\n".join([*text, *([""] if notes else []), *(f"note: {note}" for note in notes)])


@dataclass(frozen=True)
class Range(Plain):
    """What ranges of one name, category or track took together.

    `self_ms` is the total less what ranges directly inside took, None for asynchronous ranges.
    """

    kind: str  # "gpu", "host", or "async" for ranges that may cross others
    name: str
    count: int
    total_ms: float
    mean_ms: float
    min_ms: float
    max_ms: float
    self_ms: float | None

    def cells(self, heading: str, span_ms: float) -> dict[str, str]:
        return {
            heading: self.name,
            "count": f"{self.count:,}",
            "total": duration(self.total_ms),
            "% span": f"{100 * self.total_ms / span_ms:.1f}" if span_ms else NOTHING,
            "self": duration(self.self_ms),
            "mean": duration(self.mean_ms),
            "min": duration(self.min_ms),
            "max": duration(self.max_ms),
        }


@dataclass(frozen=True)
class GpuTrack(Plain):
    """When one stream was busy. Times count from the begin of the trace's first range."""

    name: str
    pid: str
    tid: str
    ranges: int
    begin_ms: float
    span_ms: float  # from there to the end of its last range
    busy_ms: float
    busy_percent: float
    gaps: int
    largest_gaps: list[tuple[float, float]]  # begin and length, the longest first

    def cells(self) -> dict[str, str]:
        at, gap = self.largest_gaps[0] if self.largest_gaps else (None, None)
        return {
            "track": self.name,
            "ranges": f"{self.ranges:,}",
            "span": duration(self.span_ms),
            "busy": duration(self.busy_ms),
            "% busy": f"{self.busy_percent:.1f}",
            "gaps": f"{self.gaps:,}",
            "largest gap": duration(gap),
            "at": duration(at),
        }


@dataclass(frozen=True)
class TraceSummary(Plain):
    path: str
    by: str
    events: int
    bytes: int  # uncompressed
    cut: str | None  # where and how the file is cut off
    open_ended: bool  # the array form without its end: being written, or left
    span_ms: float  # from the begin of the first range to the end of the last
    ranges: list[Range]  # the longest totals first, of each kind at most as many as asked for
    groups: dict[str, int]  # how many names, categories or tracks of each kind
    gpu_tracks: list[GpuTrack]
    left_out: int  # events that could not be used
    notes: list[str]  # what is missing from the figures

    def __str__(self) -> str:
        size, span = byte_size(self.bytes), duration(self.span_ms)
        what = (
            f"{self.events:,} events in {size}, {span} from the first range to the end of the last"
        )
        ended = "the trace has no end: it is being written, or its program was killed"
        notes = [self.cut, ended if self.open_ended else None, *self.notes]
        headline = f"{shown_text(self.path)}: {what}"
        return as_text([headline], self._tables(), [note for note in notes if note])

    def _tables(self) -> list[Table]:
        tables = []
        for kind, title in _TITLES.items():
            rows = [row for row in self.ranges if row.kind == kind]
            if not rows:
                continue
            more = self.groups[kind] - len(rows)
            note = f" ({more:,} more {_GROUPS[self.by]})" if more else ""
            lines = [row.cells(_HEADINGS[self.by], self.span_ms) for row in rows]
            tables.append(Table.of(lines, left=_LEFT, title=title + note))
        if self.gpu_tracks:
            lines = [track.cells() for track in self.gpu_tracks]
            tables.append(Table.of(lines, left=_LEFT, title="GPU tracks"))
        return tables


@dataclass(frozen=True)
class TraceValidation(Plain):
    """What is wrong with a trace. A fault breaks some reader; a note does not."""

    path: str
    ok: bool  # there are no faults
    events: int
    faults: dict[str, int]  # by code
    notes: dict[str, int]
    # The first of each code in the order of the file: severity, code, event (its index, or None),
    # offset (in the uncompressed file) and message.
    findings: list[dict[str, Any]]
    unchecked: list[str] = field(default_factory=list)  # to keep memory bounded

    def __str__(self) -> str:
        text = []
        told: Counter[tuple[str, str]] = Counter()
        for finding in self.findings:
            kind = finding["severity"], finding["code"]
            told[kind] += 1
            if told[kind] > MOST_OF_CODE:
                continue
            event, offset = finding["event"], finding["offset"]
            where = [f"event {event:,}"] if event is not None else []
            where += [f"byte {offset:,}"] if offset is not None else []
            place = f"{', '.join(where)}: " if where else ""
            text.append(f"{finding['severity']}: {place}{finding['message']} [{finding['code']}]")
        for severity, counts in (("fault", self.faults), ("note", self.notes)):
            text += [
                f"{severity}: ... and {count - MOST_OF_CODE:,} more [{code}]"
                for code, count in counts.items()
                if count > MOST_OF_CODE
            ]
        faults, notes = sum(self.faults.values()), sum(self.notes.values())
        text += [f"not checked: {what}" for what in self.unchecked]
        verdict = f"{faults:,} faults" if faults else "no faults"
        where_found = f"{notes:,} notes in {self.events:,} events"
        return "\n".join([*text, f"{shown_text(self.path)}: {verdict}, {where_found}"])


@dataclass(frozen=True)
class TraceRepair(Plain):
    path: str
    output: str
    events: int
    left_out: int  # events that are empty, no objects, nested too deep, or of endless numbers
    lost_members: list[str]  # of the file, beside its events
    stopped: str | None  # where it is cut off

    def __str__(self) -> str:
        text = [f"{shown_text(self.output)}: {self.events:,} events"]
        if self.left_out:
            text.append(f"{self.left_out:,} events left out: empty, no objects, or not readable")
        if self.lost_members:
            names = ", ".join(cut(shown_text(name), MAX_NAME_COLUMNS) for name in self.lost_members)
            text.append(f"left out beside the events: {names}")
        if self.stopped:
            text.append(f"the input ends early: {self.stopped}")
        return "\n".join(text)


@dataclass(frozen=True)
class TraceMerge(Plain):
    output: str
    events: int
    # Of each file its path, rank (or None), shift_ms by which its times moved, clock_error_ms by
    # which they may be off where the clock was measured (or None), renamed_pids from old to new,
    # and open_ended where it had no end.
    inputs: list[dict[str, Any]]

    def __str__(self) -> str:
        text = [f"{shown_text(self.output)}: {self.events:,} events"]
        for source in self.inputs:
            rank = f", rank {source['rank']}" if source["rank"] is not None else ""
            pids = ", ".join(
                f"{shown_text(old)} to {shown_text(new)}"
                for old, new in source["renamed_pids"].items()
            )
            renamed = f", pids renamed: {pids}" if pids else ""
            ended = ", without its end" if source["open_ended"] else ""
            moved = duration(source["shift_ms"])
            if source["clock_error_ms"] is not None:
                moved += f" (clock measured to within {duration(source['clock_error_ms'])})"
            text.append(f"  {shown_text(source['path'])}{rank}: moved by {moved}{renamed}{ended}")
        return "\n".join(text)


@dataclass(frozen=True)
class DiffRow(Plain):
    """One scope or kernel in both traces; totals and calls are per call of the scope ``per``."""

    _MEMBERS = (..., "change_ms", "each_a_ms", "each_b_ms")

    kind: str  # "gpu", "launched", "host" or "kernel"
    name: str
    state: str  # "both", "new": only in B, or "gone": only in A
    calls_a: float
    calls_b: float
    total_a_ms: float
    total_b_ms: float

    @property
    def change_ms(self) -> float:
        """How much longer it takes in B."""
        return self.total_b_ms - self.total_a_ms

    @property
    def each_a_ms(self) -> float | None:
        """The mean of a call in A."""
        return self.total_a_ms / self.calls_a if self.calls_a else None

    @property
    def each_b_ms(self) -> float | None:
        """The mean of a call in B."""
        return self.total_b_ms / self.calls_b if self.calls_b else None

    def cells(self) -> dict[str, str]:
        heading = "kernel" if self.kind == "kernel" else "scope"
        only = self.state if self.state != "both" else ""
        return {
            heading: cut(shown_text(self.name), MAX_NAME_COLUMNS),
            "A": duration(self.total_a_ms) if self.calls_a else NOTHING,
            "B": duration(self.total_b_ms) if self.calls_b else NOTHING,
            "change": _signed(self.change_ms),
            "%": only or _change(self.total_a_ms, self.total_b_ms),
            "calls A": _count(self.calls_a),
            "calls B": _count(self.calls_b),
            "each A": duration(self.each_a_ms),
            "each B": duration(self.each_b_ms),
        }


@dataclass(frozen=True)
class IdleRow(Plain):
    """GPU time without work, of one cause, or the time with work, whose cause is ``busy``."""

    cause: str
    gaps_a: float
    gaps_b: float
    total_a_ms: float
    total_b_ms: float

    def cells(self) -> list[str]:
        is_busy = self.cause == "busy"
        return [
            _CAUSES.get(self.cause, self.cause),
            duration(self.total_a_ms),
            duration(self.total_b_ms),
            _signed(self.total_b_ms - self.total_a_ms),
            _change(self.total_a_ms, self.total_b_ms),
            "" if is_busy else _count(self.gaps_a),
            "" if is_busy else _count(self.gaps_b),
        ]


@dataclass(frozen=True)
class TraceDiff(Plain, Exported):
    """How two traces differ; made by `gpuprof.trace_diff`.

    ``rows`` are by scope and by kernel, the largest changes first; ``idle`` is the GPU's time
    without work by cause, empty where a trace has no GPU work. With ``per``, totals and counts are
    per call of that scope, of which there are ``per_calls`` in A and in B.
    """

    path_a: str
    path_b: str
    per: str | None
    per_calls: tuple[int, int] | None
    rows: list[DiffRow]
    hidden: dict[str, int]  # of each kind, how many rows are left out
    idle: list[IdleRow]
    notes: list[str]
    cut: list[str]  # of files that are cut off: which, and where

    __module__ = "gpuprof"

    def to_markdown(self) -> str:
        """Return the headlines, the tables in Markdown, and the notes as a list."""
        lines = [line for table in self._tables() for line in ("", *table.markdown())]
        return "\n".join([*self._headlines(), *lines, *markdown_list(self._all_notes())]) + "\n"

    def _records(self) -> Records:
        return Records.of_plain(row.to_dict() for row in self.rows)

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self._tables())
        notes = html_list(self._all_notes())
        return f"<div>{html_list(self._headlines())}{tables}{notes}</div>"

    def _headlines(self) -> list[str]:
        lines = [f"A: {shown_text(self.path_a)}", f"B: {shown_text(self.path_b)}"]
        if self.per is not None and self.per_calls is not None:
            calls = f"{self.per_calls[0]:,} in A, {self.per_calls[1]:,} in B"
            lines.append(f"all figures are per call of {shown_text(self.per)}: {calls}")
        return lines

    def _tables(self) -> list[Table]:
        tables = []
        for kind, title in _DIFF_TITLES.items():
            rows = [row for row in self.rows if row.kind == kind]
            if not rows:
                continue
            more = self.hidden.get(kind, 0)
            note = f" ({more:,} more with smaller changes)" if more else ""
            lines = [row.cells() for row in rows]
            tables.append(Table.of(lines, left={"kernel", "scope"}, title=title + note))
        if self.idle:
            cells = [row.cells() for row in self.idle]
            tables.append(Table(_IDLE_COLUMNS, cells, {"cause"}, "GPU idle by cause"))
        return tables

    def _all_notes(self) -> list[str]:
        return [shown_text(note) for note in (*self.cut, *self.notes)]

    def __str__(self) -> str:
        return as_text(self._headlines(), self._tables(), self._all_notes())

    def __repr__(self) -> str:
        return f"<TraceDiff of {self.path_a!r} and {self.path_b!r}>\n{self}"


def _signed(ms: float) -> str:
    return duration(ms) if ms <= 0 else f"+{duration(ms)}"


def _change(before: float, after: float) -> str:
    if before <= 0:
        return NOTHING if after <= 0 else "new"
    change = after / before - 1
    return f"{'+' if change > 0 else ''}{percent(change)}"


def _count(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.2f}"
