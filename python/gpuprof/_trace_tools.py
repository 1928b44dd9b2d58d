"""What the command ``gpuprof trace`` does: summary, validate, repair and merge.

They read traces of gpuprof, torch.profiler, viztracer and whatever else writes the Trace Event
Format, compressed or not, in pieces and bounded memory. An input that cannot be read as a trace is
a `TraceError` that says where and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

from gpuprof import _core
from gpuprof._trace_files import Damage, Output, pieces
from gpuprof._trace_results import (
    GpuTrack,
    Range,
    TraceMerge,
    TraceRepair,
    TraceSummary,
    TraceValidation,
)
from gpuprof.errors import TraceError

By = Literal["name", "cat", "tid"]
GROUPINGS = ("name", "cat", "tid")
DEFAULT_TOP = 20
MOST_GAPS = 5
UNNAMED = "(unnamed)"
OTHER = "(other)"


def _read(path: Path, feed: Callable[[bytes], object], damage: Damage) -> None:
    with closing(pieces(path, damage)) as contents:
        for piece in contents:
            feed(piece)


def _cut(end: dict[str, Any], damage: Damage) -> str | None:
    """Say how a file is cut off; the array form may do without its end."""
    if damage.gzip:
        return f"{damage.gzip}, after {end['events']:,} complete events"
    if end["complete"] or (end["form"] == "array" and not end["inside_event"]):
        return None
    inside = " inside an event" if end["inside_event"] else ""
    return f"cut off{inside} at byte {end['bytes']}, after {end['events']:,} complete events"


def summary(
    path: str | os.PathLike[str], *, by: By = "name", top: int = DEFAULT_TOP
) -> TraceSummary:
    """Sum up a trace.

    Parameters
    ----------
    path
        The file, compressed or not.
    by
        Group ranges by ``"name"``, ``"cat"`` (category) or ``"tid"`` (track).
    top
        How many groups of each kind to return.

    Returns
    -------
    TraceSummary

    Raises
    ------
    TraceError
        The file cannot be read as a trace. One that is cut off can, up to there.
    """
    if by not in GROUPINGS:
        message = f"by is {by!r}; expected one of {', '.join(map(repr, GROUPINGS))}"
        raise ValueError(message)
    if top < 1:
        message = f"top is {top!r}; expected a whole number from 1"
        raise ValueError(message)
    file, damage = Path(path), Damage()
    native = _core._TraceSummary(by)
    try:
        _read(file, native.feed, damage)
        native.finish()
    except TraceError as error:
        raise _named(file, error, damage) from error.__cause__
    found = native.result(top, MOST_GAPS)
    end, begin_ns = found["end"], found["begin_ns"]
    return TraceSummary(
        path=str(file),
        by=by,
        events=end["events"],
        bytes=end["bytes"],
        cut=_cut(end, damage),
        open_ended=end["form"] == "array" and not end["complete"],
        span_ms=(found["end_ns"] - begin_ns) / 1e6,
        ranges=[_range(row) for row in found["rows"]],
        groups=found["groups"],
        gpu_tracks=[_gpu_track(row, begin_ns) for row in found["gpu_tracks"]],
        phases=found["phases"],
        notes=_summary_notes(found),
    )


def _named(path: Path, error: TraceError, damage: Damage) -> TraceError:
    """Put the file's name before what is wrong inside it."""
    text = str(error)
    if text.startswith((str(path), repr(str(path)))):
        return error
    return TraceError(f"{path}: {text} ({damage.gzip})" if damage.gzip else f"{path}: {text}")


def _track_name(track: dict[str, str]) -> str:
    process = f"{track['process']} " if track["process"] else ""
    thread = f"{track['thread']} " if track["thread"] else ""
    return f"{process}{track['pid']} / {thread}{track['tid']}"


def _range(row: dict[str, Any]) -> Range:
    name = _track_name(row["track"]) if row["track"] else row["key"] or UNNAMED
    return Range(
        kind=row["kind"],
        name=OTHER if row["other"] else name,
        count=row["count"],
        total_ms=row["total_ns"] / 1e6,
        mean_ms=row["total_ns"] / 1e6 / row["count"],
        min_ms=row["min_ns"] / 1e6,
        max_ms=row["max_ns"] / 1e6,
        self_ms=None if row["self_ns"] is None else row["self_ns"] / 1e6,
    )


def _gpu_track(row: dict[str, Any], begin_ns: int) -> GpuTrack:
    span = row["end_ns"] - row["begin_ns"]
    return GpuTrack(
        name=_track_name(row),
        pid=row["pid"],
        tid=row["tid"],
        ranges=row["ranges"],
        begin_ms=(row["begin_ns"] - begin_ns) / 1e6,
        span_ms=span / 1e6,
        busy_ms=row["busy_ns"] / 1e6,
        busy_percent=100 * row["busy_ns"] / span if span else 100.0,
        gaps=row["gap_count"],
        largest_gaps=[
            ((begin - begin_ns) / 1e6, (end - begin) / 1e6) for begin, end in row["largest_gaps"]
        ],
    )


def _summary_notes(found: dict[str, Any]) -> list[str]:
    notes = []
    if found["dropped"]:
        notes.append(f"{found['dropped']:,} events were dropped while the trace was written")
    if found["unplaced"]:
        notes.append(f"{found['unplaced']:,} GPU ranges could not be placed on the host's clock")
    if found["unmatched"]:
        notes.append(f"{found['unmatched']:,} begins or ends without the other are not counted")
    if found["crossings"]:
        notes.append(
            f"{found['crossings']:,} times ranges overlap on a track without nesting: self times "
            "around them are too short"
        )
    if found["self_is_approximate"]:
        notes.append("self times are approximate: ranges come far out of the order of time")
    if found["gpu_ranges_left_out"]:
        notes.append(f"{found['gpu_ranges_left_out']:,} ranges are on further GPU tracks")
    return notes


def validate(path: str | os.PathLike[str]) -> TraceValidation:
    """Say what is wrong with a trace, and at which event.

    Parameters
    ----------
    path
        The file, compressed or not.

    Returns
    -------
    TraceValidation

    Raises
    ------
    TraceError
        The file is no trace at all.
    """
    file, damage = Path(path), Damage()
    native = _core._TraceValidation()
    try:
        _read(file, native.feed, damage)
        native.finish()
    except TraceError as error:
        raise _named(file, error, damage) from error.__cause__
    found = native.result()
    faults, findings = found["faults"], found["findings"]
    if damage.gzip:
        faults = {"gzip": 1, **faults}
        gzip_fault = {"severity": "fault", "code": "gzip", "event": None, "offset": None}
        findings = [gzip_fault | {"message": damage.gzip}, *findings]
    return TraceValidation(
        path=str(file),
        ok=not faults,
        events=found["end"]["events"],
        faults=faults,
        notes=found["notes"],
        findings=findings,
        unchecked=found["unchecked"],
    )


def repaired_path(path: Path) -> Path:
    """Return where `repair` writes by default.

    ``x.json.part`` becomes ``x.json`` if there is none; else ``.repaired`` comes before the suffix.
    """
    if path.suffix == ".part":
        path = path.with_suffix("")
        if not path.exists():
            return path
    compressed = ".gz" if path.suffix == ".gz" else ""
    stem = path.with_suffix("") if compressed else path
    return stem.with_name(f"{stem.stem}.repaired{stem.suffix}{compressed}")


def _refuse_same(path: Path, output: Path) -> None:
    if output.exists() and path.exists() and output.samefile(path):
        message = f"{output} is an input; write to another file"
        raise ValueError(message)


def repair(
    path: str | os.PathLike[str], output: str | os.PathLike[str] | None = None
) -> TraceRepair:
    """Write a strict copy of a damaged trace, with every complete event.

    Parameters
    ----------
    path
        The file, compressed or not.
    output
        Where to write, compressed if it ends in ``.gz``; None for the default of `repaired_path`.

    Returns
    -------
    TraceRepair

    Raises
    ------
    TraceError
        There is no complete event.
    OSError
        The new file cannot be written.
    """
    file, damage = Path(path), Damage()
    target = repaired_path(file) if output is None else Path(output)
    _refuse_same(file, target)
    native = _core._TraceRepair()
    try:
        with Output(target) as out:
            _read(file, lambda piece: out.write(native.feed(piece)), damage)
            out.write(native.finish())
            found = native.result()
            if not found["events"]:
                message = f"{file} has no complete event; there is nothing to repair"
                raise TraceError(message)
    except TraceError as error:
        raise _named(file, error, damage) from error.__cause__
    stopped = found["stopped"] or _cut(found["end"], damage)
    return TraceRepair(
        path=str(file),
        output=str(target),
        events=found["events"],
        mended=found["mended"],
        left_out=found["left_out"],
        lost_members=found["lost_members"],
        stopped=stopped,
    )


def merge(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    align: bool = True,
) -> TraceMerge:
    """Make one trace of several, on one clock.

    Parameters
    ----------
    paths
        The files, compressed or not: of one process, of several, of the ranks of a job.
    output
        Where to write, compressed if it ends in ``.gz``.
    align
        Move the times by what the files say of their clocks; False leaves them as they are.

    Returns
    -------
    TraceMerge

    Raises
    ------
    TraceError
        A file cannot be read, is cut off inside, or says nothing of its clock.
    OSError
        The new file cannot be written.
    """
    files, target = [Path(path) for path in paths], Path(output)
    for file in files:
        _refuse_same(file, target)
    inputs = [_scan(file, align) for file in files]
    native = _core._Merge(inputs, align)
    with Output(target) as out:
        out.write(native.begin())
        for file in files:
            native.begin_file()
            damage = Damage()
            try:
                _read(file, lambda piece: out.write(native.feed(piece)), damage)
                native.end_file()
            except TraceError as error:
                raise _named(file, error, damage) from error.__cause__
        out.write(native.finish())
    found = native.result()
    return TraceMerge(
        output=str(target),
        events=found["events"],
        inputs=[
            {
                "path": str(file),
                "rank": scanned.result()["rank"],
                "shift_ms": shift / 1e6,
                "renamed_pids": renamed,
                "open_ended": not scanned.result()["end"]["complete"],
            }
            for file, scanned, shift, renamed in zip(
                files, inputs, found["shifts_ns"], found["renamed_pids"], strict=True
            )
        ],
    )


def _scan(file: Path, align: bool) -> _core._MergeInput:
    damage = Damage()
    scan = _core._MergeScan(file.name.encode("utf-8", "replace").decode())
    try:
        _read(file, scan.feed, damage)
        scanned = scan.finish()
    except TraceError as error:
        raise _named(file, error, damage) from error.__cause__
    found = scanned.result()
    cut = _cut(found["end"], damage)
    if cut and (damage.gzip or found["end"]["form"] == "object"):
        message = f"{file}: {cut}; run `gpuprof trace repair` on it first"
        raise TraceError(message)
    if align and found["base"] is None:
        message = (
            f"{file} does not say what its clock was (no baseTimeNanoseconds); "
            "--no-align merges it with its times as they are"
        )
        raise TraceError(message)
    return scanned
