"""What the command ``gpuprof trace`` does: summary, validate, repair and merge.

They take paths, ``-`` for the standard input or output, and read in pieces, in bounded memory. An
input that cannot be read as a trace is a `TraceError` that says where and why.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Literal

from gpuprof._common import checks
from gpuprof._common.outputs import STANDARD, TRACE, refuse_foreign, writing
from gpuprof._trace_tools.batch import End
from gpuprof._trace_tools.files import Damage, pieces, shown
from gpuprof._trace_tools.lexer import ReadError
from gpuprof._trace_tools.merge import FileScan, Merge
from gpuprof._trace_tools.repair import Repair
from gpuprof._trace_tools.results import TraceMerge, TraceRepair, TraceSummary, TraceValidation
from gpuprof._trace_tools.summary import Summary
from gpuprof._trace_tools.validate import Validation
from gpuprof.errors import TraceError

By = Literal["path", "name", "cat", "tid"]
GROUPINGS = ("path", "name", "cat", "tid")
DEFAULT_TOP = 20


def read(path: Path, into: Callable[[Iterator[bytes]], object], *, twice: bool = False) -> Damage:
    damage = Damage()
    with closing(pieces(path, damage, twice=twice)) as contents:
        try:
            into(contents)
        except ReadError as error:
            gzip = f" ({damage.gzip})" if damage.gzip else ""
            message = f"{shown(path)}: {error}{gzip}"
            raise TraceError(message) from None
    return damage


def cut_of(end: End, damage: Damage) -> str | None:
    """Say how a file is cut off; the array form may do without its end."""
    if damage.gzip:
        return f"{damage.gzip}, after {end.events:,} complete events"
    if end.complete or end.may_go_on:
        return None
    inside = " inside an event" if end.inside_event else ""
    return f"cut off{inside} at byte {end.bytes}, after {end.events:,} complete events"


def summary(
    path: str | os.PathLike[str], *, by: By = "path", top: int = DEFAULT_TOP
) -> TraceSummary:
    """Sum up a trace, up to where it is cut off.

    `top` is how many groups of each kind to return. Events that cannot be used are left out; it is
    a `TraceError` if there are no others.
    """
    checks.choice("by", by, GROUPINGS)
    checks.whole("top", top)
    file, found = Path(path), Summary(by)
    damage = read(file, found.read)
    begin, end = found.ranges.extent()
    return TraceSummary(
        path=shown(file),
        by=by,
        events=found.end.events,
        bytes=found.end.bytes,
        cut=cut_of(found.end, damage),
        open_ended=found.end.form == "array" and not found.end.complete,
        span_ms=(end - begin) / 1e6,
        ranges=found.ranges.longest(top),
        groups=found.ranges.groups(),
        gpu_tracks=found.ranges.gpu_tracks(),
        left_out=found.left_out,
        notes=found.notes(),
    )


def validate(path: str | os.PathLike[str]) -> TraceValidation:
    """Say what is wrong with a trace, and at which event; a `TraceError` if it is none at all."""
    file, checked = Path(path), Validation()
    damage = read(file, checked.read)
    found = checked.findings
    if damage.gzip:
        found.add("fault", "gzip", damage.gzip, None)
    return TraceValidation(
        path=shown(file),
        ok=not found.counts["fault"],
        events=checked.end.events,
        faults=dict(found.counts["fault"]),
        notes=dict(found.counts["note"]),
        findings=found.in_order(checked.end.events),
        unchecked=checked.unchecked,
    )


def repaired_path(path: Path) -> Path:
    """Return where `repair` writes by default: see docs/trace_tools.md."""
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
    """Write a strict copy of a trace that is cut off, with every complete event.

    A `TraceError` if there is none, or something before the end is damaged; an `OSError` if the new
    file cannot be written.
    """
    file = Path(path)
    if output is None and str(file) == STANDARD:
        raise checks.value_error(output, "output", "a file, as the standard input has no name")
    target = repaired_path(file) if output is None else Path(output)
    _refuse_same(file, target)
    refuse_foreign(target, TRACE)
    with writing(target) as out:
        found = Repair(out.write)
        damage = read(file, found.read)
        if not found.events:
            message = f"{shown(file)} has no complete event; there is nothing to repair"
            raise TraceError(message)
    return TraceRepair(
        path=shown(file),
        output=str(target),
        events=found.events,
        left_out=found.left_out,
        lost_members=found.lost_members,
        stopped=cut_of(found.end, damage),
    )


def merge(
    paths: Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str],
    *,
    align: bool = True,
    left_out: dict[str, str] | None = None,
) -> TraceMerge:
    """Make one trace of several, on one clock; `align` False leaves the times as they are.

    A `TraceError` if a file cannot be read, is cut off inside, or says nothing of its clock. With
    `left_out` such a file is only noted there, by its path, unless there is no other.
    """
    files, target = [Path(path) for path in paths], Path(output)
    scans = []
    for file in list(files):
        _refuse_same(file, target)
        try:
            scans.append(_scan(file, align))
        except TraceError as error:
            if left_out is None:
                raise
            left_out[str(file)] = str(error)
            files.remove(file)
            if not files:
                raise
    refuse_foreign(target, TRACE)
    with writing(target) as out:
        merged = Merge(scans, align=align, write=out.write)
        merged.begin()
        for file in files:
            read(file, merged.read, twice=True)
        merged.finish()
    return TraceMerge(
        output=str(target),
        events=merged.events,
        inputs=[
            {
                "path": str(file),
                "rank": scan.rank,
                "shift_ms": scan.shift / 1e6,
                "clock_error_ms": None if scan.clock is None else scan.clock.error / 1e6,
                "renamed_pids": {str(old): str(new) for old, new in scan.renamed.items()},
                "open_ended": not scan.end.complete,
            }
            for file, scan in zip(files, scans, strict=True)
        ],
    )


def _scan(file: Path, align: bool) -> FileScan:
    scan = FileScan(file.name.encode("utf-8", "replace").decode())
    damage = read(file, scan.read, twice=True)
    cut = cut_of(scan.end, damage)
    if cut and (damage.gzip or scan.end.form == "object"):
        message = f"{file}: {cut}; run `gpuprof trace repair` on it first"
        raise TraceError(message)
    if align and scan.base is None:
        message = (
            f"{file} does not say what its clock was (no baseTimeNanoseconds); "
            "--no-align merges it with its times as they are"
        )
        raise TraceError(message)
    return scan
