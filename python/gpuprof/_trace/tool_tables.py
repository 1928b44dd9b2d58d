"""How the trace tools show what they found: plain tables, and HTML.

All texts come out of files: they are made fit to be shown before they are.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from gpuprof._common.text import MAX_NAME_COLUMNS, shown_text
from gpuprof._common.units import NOTHING, byte_size, duration

if TYPE_CHECKING:
    from gpuprof._trace.tool_results import (
        Range,
        TraceMerge,
        TraceRepair,
        TraceSummary,
        TraceValidation,
    )

_TITLES = {"gpu": "GPU time", "host": "host time", "async": "asynchronous ranges"}
_GROUPS = {"name": "names", "cat": "categories", "tid": "tracks"}
_HEADINGS = {"name": "name", "cat": "category", "tid": "track"}
MOST_FINDINGS = 50

# A table: a title, the columns, and lines of cells of which the first is a name.
_Table = tuple[str, list[str], list[list[str]]]


def _shortened(text: str) -> str:
    shown = shown_text(text)
    return shown if len(shown) <= MAX_NAME_COLUMNS else shown[: MAX_NAME_COLUMNS - 1] + "…"


def _range_cells(row: Range, whole: float) -> list[str]:
    return [
        row.name,
        f"{row.count:,}",
        duration(row.total_ms),
        f"{100 * row.total_ms / whole:.1f}" if whole else NOTHING,
        duration(row.self_ms),
        duration(row.mean_ms),
        duration(row.min_ms),
        duration(row.max_ms),
    ]


def _tables(found: TraceSummary) -> list[_Table]:
    tables: list[_Table] = []
    for kind, title in _TITLES.items():
        rows = [row for row in found.ranges if row.kind == kind]
        if not rows:
            continue
        more = found.groups[kind] - len(rows)
        note = f" ({more:,} more {_GROUPS[found.by]})" if more else ""
        columns = [_HEADINGS[found.by], "count", "total", "% span", "self", "mean", "min", "max"]
        cells = [_range_cells(row, found.span_ms) for row in rows]
        tables.append((title + note, columns, cells))
    if found.gpu_tracks:
        columns = ["track", "ranges", "span", "busy", "% busy", "gaps", "largest gap", "at"]
        cells = []
        for track in found.gpu_tracks:
            at, gap = track.largest_gaps[0] if track.largest_gaps else (None, None)
            cells.append(
                [
                    track.name,
                    f"{track.ranges:,}",
                    duration(track.span_ms),
                    duration(track.busy_ms),
                    f"{track.busy_percent:.1f}",
                    f"{track.gaps:,}",
                    duration(gap),
                    duration(at),
                ]
            )
        tables.append(("GPU tracks", columns, cells))
    return tables


def _headline(found: TraceSummary) -> str:
    return (
        f"{shown_text(found.path)}: {found.events:,} events in {byte_size(found.bytes)}, "
        f"{duration(found.span_ms)} from the first range to the end of the last"
    )


def _notes(found: TraceSummary) -> list[str]:
    notes = list(found.notes)
    if found.open_ended:
        notes.insert(0, "the trace has no end: it is being written, or its program was killed")
    if found.cut:
        notes.insert(0, found.cut)
    return notes


def _grid(columns: list[str], lines: list[list[str]]) -> list[str]:
    from gpuprof._common.text import width as columns_of

    grid = [columns, *([_shortened(line[0]), *line[1:]] for line in lines)]
    widths = [max(map(columns_of, column)) for column in zip(*grid, strict=True)]
    text = []
    for cells in grid:
        padded = [
            cell + " " * (width - columns_of(cell)) if place == 0 else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        text.append("  ".join(padded).rstrip())
    return [text[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *text[1:]]


def plain(found: TraceSummary) -> str:
    """Write a summary as text."""
    text = [_headline(found)]
    for title, columns, lines in _tables(found):
        text += ["", title, *_grid(columns, lines)]
    notes = _notes(found)
    return "\n".join([*text, *([""] if notes else []), *(f"note: {note}" for note in notes)])


def html_tables(found: TraceSummary) -> str:
    """Write a summary as an HTML fragment, without scripts."""
    text = [f"<div>{html.escape(_headline(found))}</div>"]
    for title, columns, lines in _tables(found):
        rows = []
        for tag, cells in [("th", columns), *(("td", line) for line in lines)]:
            aligned = ["left"] + ["right"] * (len(cells) - 1)
            rows.append(
                "".join(
                    f'<{tag} style="text-align:{side}">{html.escape(shown_text(cell))}</{tag}>'
                    for side, cell in zip(aligned, cells, strict=True)
                )
            )
        head, *body = (f"<tr>{row}</tr>" for row in rows)
        grid = f"<thead>{head}</thead><tbody>{''.join(body)}</tbody>"
        text.append(f"<table><caption>{html.escape(title)}</caption>{grid}</table>")
    text += [f"<div>{html.escape(note)}</div>" for note in _notes(found)]
    return f"<div>{''.join(text)}</div>"


def findings(found: TraceValidation) -> str:
    """Write what a validation found as text."""
    text = []
    for finding in found.findings[:MOST_FINDINGS]:
        event, offset = finding["event"], finding["offset"]
        where = [f"event {event:,}"] if event is not None else []
        where += [f"byte {offset:,}"] if offset is not None else []
        place = f"{', '.join(where)}: " if where else ""
        text.append(f"{finding['severity']}: {place}{finding['message']} [{finding['code']}]")
    total = sum(found.faults.values()) + sum(found.notes.values())
    if total > len(text):
        text.append(f"... and {total - len(text):,} more")
    text += [f"not checked: {what}" for what in found.unchecked]
    faults, notes = sum(found.faults.values()), sum(found.notes.values())
    verdict = f"{faults:,} faults" if faults else "no faults"
    text.append(f"{shown_text(found.path)}: {verdict}, {notes:,} notes in {found.events:,} events")
    return "\n".join(text)


def repaired(found: TraceRepair) -> str:
    """Write what a repair did as text."""
    text = [f"{shown_text(found.output)}: {found.events:,} events"]
    if found.mended:
        text.append(f"{found.mended:,} of them had to be mended")
    if found.left_out:
        text.append(
            f"{found.left_out:,} events left out: empty, no objects, with a key twice or NaN"
        )
    if found.lost_members:
        names = ", ".join(map(_shortened, found.lost_members))
        text.append(f"left out beside the events: {names}")
    if found.stopped:
        text.append(f"the input ends early: {found.stopped}")
    return "\n".join(text)


def merged(found: TraceMerge) -> str:
    """Write what a merge did as text."""
    text = [f"{shown_text(found.output)}: {found.events:,} events"]
    for source in found.inputs:
        rank = f", rank {source['rank']}" if source["rank"] is not None else ""
        pids = ", ".join(
            f"{shown_text(old)} to {shown_text(new)}" for old, new in source["renamed_pids"].items()
        )
        renamed = f", pids renamed: {pids}" if pids else ""
        ended = ", without its end" if source["open_ended"] else ""
        moved = duration(source["shift_ms"])
        text.append(f"  {shown_text(source['path'])}{rank}: moved by {moved}{renamed}{ended}")
    return "\n".join(text)
