"""What the trace tools found, as plain data that shows itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True)
class Range:
    """What ranges of one name, category or track took together.

    Attributes
    ----------
    kind
        ``"gpu"``, ``"host"``, or ``"async"`` for ranges that may cross others.
    name
        The name, category or track.
    count
        How many there were.
    total_ms, mean_ms, min_ms, max_ms
        Their durations.
    self_ms
        The total less what ranges directly inside took; None for asynchronous ranges.
    """

    kind: str
    name: str
    count: int
    total_ms: float
    mean_ms: float
    min_ms: float
    max_ms: float
    self_ms: float | None


@dataclass(frozen=True)
class GpuTrack:
    """When one stream was busy.

    Attributes
    ----------
    name
        What the trace calls it.
    pid, tid
        Its numbers in the trace.
    ranges
        How many ranges are on it.
    begin_ms, span_ms
        When its first range began, and from there to the end of its last. Times count from the
        begin of the trace's first range.
    busy_ms, busy_percent
        How long something was on it, and which part of the span that is.
    gaps
        How many gaps there are between its ranges.
    largest_gaps
        Begin and length of the largest ones, in milliseconds.
    """

    name: str
    pid: str
    tid: str
    ranges: int
    begin_ms: float
    span_ms: float
    busy_ms: float
    busy_percent: float
    gaps: int
    largest_gaps: list[tuple[float, float]]


@dataclass(frozen=True)
class TraceSummary:
    """What a trace holds; see `summary`.

    Attributes
    ----------
    path
        The file.
    by
        What ranges are grouped by.
    events, bytes
        How many complete events there are, in how many (uncompressed) bytes.
    cut
        Where and how the file is cut off; None if it is whole.
    open_ended
        The file is the array form without its end: a trace that is being written, or was left.
    span_ms
        From the begin of the first range to the end of the last.
    ranges
        The longest totals first, of each kind at most as many as asked for.
    groups
        How many names, categories or tracks of each kind there are in all.
    gpu_tracks
        One for each stream.
    phases
        How many events of each phase.
    left_out
        How many events could not be used.
    notes
        What is missing from the figures, in words.
    """

    path: str
    by: str
    events: int
    bytes: int
    cut: str | None
    open_ended: bool
    span_ms: float
    ranges: list[Range]
    groups: dict[str, int]
    gpu_tracks: list[GpuTrack]
    phases: dict[str, int]
    left_out: int
    notes: list[str]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, fit for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        from gpuprof._trace import tool_tables

        return tool_tables.plain(self)

    def __repr__(self) -> str:
        return f"<TraceSummary of {self.path!r}: {self.events:,} events>\n{self}"

    def _repr_html_(self) -> str:
        from gpuprof._trace import tool_tables

        return tool_tables.html_tables(self)


@dataclass(frozen=True)
class TraceValidation:
    """What is wrong with a trace; see `validate`.

    Attributes
    ----------
    path
        The file.
    ok
        There are no faults.
    events
        How many complete events there are.
    faults, notes
        How many findings of each code. A fault breaks some reader; a note does not.
    findings
        The first of them in the order of the file: ``severity``, ``code``, ``event`` (its index, or
        None), ``offset`` (in the uncompressed file) and ``message``.
    unchecked
        What was not checked to keep memory bounded, in words.
    """

    path: str
    ok: bool
    events: int
    faults: dict[str, int]
    notes: dict[str, int]
    findings: list[dict[str, Any]]
    unchecked: list[str] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, fit for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        from gpuprof._trace import tool_tables

        return tool_tables.findings(self)


@dataclass(frozen=True)
class TraceRepair:
    """What `repair` wrote.

    Attributes
    ----------
    path, output
        The damaged file and the new one.
    events
        How many events were written.
    mended
        How many of them had to be changed to be JSON.
    left_out
        How many were left out, because they were empty, no objects, or had a key twice or NaN as a
        value.
    lost_members
        Members of the file beside the events that are not in the new one.
    stopped
        Why nothing after this point could be read; None if all of the file was.
    """

    path: str
    output: str
    events: int
    mended: int
    left_out: int
    lost_members: list[str]
    stopped: str | None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, fit for JSON."""
        return asdict(self)


@dataclass(frozen=True)
class TraceMerge:
    """What `merge` wrote.

    Attributes
    ----------
    output
        The new file.
    events
        How many events were written.
    inputs
        For each file its ``path``, ``rank`` (or None), ``shift_ms`` by which its times moved,
        ``renamed_pids`` from old to new, and ``cut`` if it had no end.
    """

    output: str
    events: int
    inputs: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, fit for JSON."""
        return asdict(self)
