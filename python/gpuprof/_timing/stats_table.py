"""The tree table: one content, shown as plain text, rich, Markdown or HTML.

Names come from anywhere, so none reaches an output as it is: control characters and those that turn
the direction of text are replaced by something visible, and what is too long is cut. Numbers carry
the unit that suits them.
"""

from __future__ import annotations

import html
import importlib
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import gpuprof._core as _core
from gpuprof._common.text import MAX_NAME_COLUMNS, _in_markdown, _width, shown_text, write_text
from gpuprof._common.units import NOTHING, byte_size, duration

if TYPE_CHECKING:
    from gpuprof._timing.stats import Row, Stats, Summary

MAX_INDENT = 40
STYLES = ("auto", "rich", "plain")
LEFT_ALIGNED = ("scope", "clock", "notes")
_RICH_MIN = {"scope": 8, "clock": 4, "notes": 10}


@dataclass(frozen=True)
class Line:
    """A row's place in the tree. `label` is what the lines above it do not say of its path."""

    row: Row
    depth: int
    label: str


def lines(stats: Stats) -> list[Line]:
    """Put the rows in the order of the tree: each path, then what is inside it.

    A path stands below the closest path around it that has a row.
    """
    rows: dict[tuple[str, ...], list[Row]] = {}
    for row in stats.values():
        rows.setdefault(row.names, []).append(row)
    inside: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for names in rows:
        outer = names[:-1]
        while outer and outer not in rows:
            outer = outer[:-1]
        inside.setdefault(outer, []).append(names)
    result = []
    waiting = [(names, 0, 0) for names in reversed(inside.get((), []))]
    while waiting:
        names, depth, above = waiting.pop()
        label = shown_text("/".join(names[above:]))
        result += [Line(row, depth, label) for row in rows[names]]
        below = reversed(inside.get(names, []))
        waiting += [(child, depth + 1, len(names)) for child in below]
    return result


def _median(summary: Summary) -> str:
    return duration(summary.p50)


def _notes(row: Row) -> str:
    counts = {
        "dropped": row.dropped,
        "pending": row.pending,
        "failed": row.failed,
        "skipped": row.skipped,
    }
    notes = [f"{count:,} {what}" for what, count in counts.items() if count]
    return ", ".join([*notes, *(["host-bound"] if row.host_bound else [])])


@dataclass(frozen=True)
class Table:
    """What every form of the report shows. The first cell of a line is its label."""

    title: str
    columns: list[str]
    lines: list[Line]
    cells: list[list[str]]
    footers: list[str]


def table(stats: Stats) -> Table:
    """Fill in the cells; columns that would say nothing are left out."""
    tree = lines(stats)
    cells = []
    for line in tree:
        row, share = line.row, stats.share(line.row)
        cells.append(
            {
                "scope": line.label,
                "clock": shown_text(row.clock),
                "GPU p50": _median(row.gpu),
                "host p50": _median(row.host),
                "count": f"{row.time.count:,}",
                "total": duration(row.time.total) if row.time.count else NOTHING,
                "self": duration(stats.self_ms(row)) if row.time.count else NOTHING,
                "% parent": NOTHING if share is None else f"{100 * share:.1f}",
                "first call": duration(row.time.first),
                "notes": _notes(row),
            }
        )
    columns = list(cells[0]) if cells else []
    if len({line.row.clock for line in tree}) < 2:
        columns = [column for column in columns if column != "clock"]
    if not any(line["notes"] for line in cells):
        columns = [column for column in columns if column != "notes"]
    return Table(
        _title(stats),
        columns,
        tree,
        [[line[column] for column in columns] for line in cells],
        _footers(stats),
    )


def _title(stats: Stats) -> str:
    clocks = list(dict.fromkeys(row.clock for row in stats.values()))
    if not clocks and not _core.is_enabled():
        switch = (
            "GPUPROF_DISABLE is set" if _core._is_set("GPUPROF_DISABLE") else "gpuprof.disable()"
        )
        return f"no samples: timing is switched off ({switch})"
    if not clocks:
        return 'no samples yet: `with gpuprof.timer("name"):` around some code adds one'
    names = ", ".join(shown_text(clock) for clock in clocks)
    if len(clocks) > 1:
        return f"clocks: {names} (shares and self time are within one clock)"
    if clocks[0] == "cuda":
        return "clock: cuda (GPU time, from events in the stream)"
    if clocks[0] == "cpu":
        return "clock: cpu (host time; no GPU time was measured)"
    return f"clock: {names} (host time around a body that was waited for)"


def _footers(stats: Stats) -> list[str]:
    found = []
    if stats.dropped:
        found.append(
            f"{stats.dropped:,} samples dropped: too many were waiting for the GPU; read values "
            "or call gpuprof.flush() more often"
        )
    for entry in stats.memory:
        delta = entry["delta_bytes"]
        found.append(
            f"torch memory on {shown_text(entry['device'])}: peak {byte_size(entry['peak_bytes'])},"
            f" {'+' if delta >= 0 else ''}{byte_size(delta)} since the last reset"
        )
    return found


def plain(stats: Stats) -> str:
    """Write the table as text."""
    content = table(stats)
    grid = _plain_grid(content) if content.lines else []
    return "\n".join([content.title, *grid, *content.footers])


def _indented(line: Line, label: str) -> str:
    return "  " * min(line.depth, MAX_INDENT) + label


def _plain_grid(content: Table) -> list[str]:
    grid = [content.columns]
    for line, cells in zip(content.lines, content.cells, strict=True):
        grid.append([_indented(line, cells[0]), *cells[1:]])
    widths = [max(map(_width, column)) for column in zip(*grid, strict=True)]
    widths[0] = min(widths[0], MAX_NAME_COLUMNS)  # a longer name pushes its own line only
    text = ["  ".join(_padded(content.columns, cells, widths)).rstrip() for cells in grid]
    rule = "-" * (sum(widths) + 2 * (len(widths) - 1))
    return [text[0], rule, *text[1:]]


def _padded(columns: list[str], cells: list[str], widths: list[int]) -> list[str]:
    spaces = [" " * (width - _width(cell)) for cell, width in zip(cells, widths, strict=True)]
    return [
        cell + space if column in LEFT_ALIGNED else space + cell
        for column, cell, space in zip(columns, cells, spaces, strict=True)
    ]


def markdown(stats: Stats) -> str:
    """Write the table in Markdown, with whole paths."""
    content = table(stats)
    text = [content.title, ""] if content.lines else [content.title]
    if content.lines:
        bars = [":--" if column in LEFT_ALIGNED else "--:" for column in content.columns]
        text += [f"| {' | '.join(cells)} |" for cells in (content.columns, bars)]
    for line, cells in zip(content.lines, content.cells, strict=True):
        whole = [shown_text(line.row.path), *cells[1:]]
        text.append(f"| {' | '.join(map(_in_markdown, whole))} |")
    for footer in content.footers:
        text += ["", _in_markdown(footer)]
    return "\n".join(text) + "\n"


def html_table(stats: Stats) -> str:
    """Write the table as an HTML fragment, without scripts."""
    content = table(stats)
    aligned = [
        f"text-align:{'left' if column in LEFT_ALIGNED else 'right'}" for column in content.columns
    ]
    head = "".join(
        f'<th style="{style}">{html.escape(column)}</th>'
        for column, style in zip(content.columns, aligned, strict=True)
    )
    body = []
    for line, cells in zip(content.lines, content.cells, strict=True):
        indented = f"{aligned[0]};padding-left:{0.5 + 1.2 * min(line.depth, MAX_INDENT):.1f}em"
        styles = [indented, *aligned[1:]]
        body.append(
            "".join(
                f'<td style="{style}">{html.escape(cell)}</td>'
                for cell, style in zip(cells, styles, strict=True)
            )
        )
    rows = "".join(f"<tr>{cells}</tr>" for cells in body)
    grid = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>" if body else ""
    notes = "".join(f"<div>{html.escape(footer)}</div>" for footer in content.footers)
    return f"<div><div>{html.escape(content.title)}</div>{grid}{notes}</div>"


def rich_table(stats: Stats, columns: int) -> Any:
    """Build rich's renderable of the table for a terminal of that many columns.

    Names are never read as rich's markup.
    """
    styled = importlib.import_module("rich.text").Text
    content = table(stats)
    parts = [styled(content.title, style="bold")]
    if content.lines:
        parts.append(_rich_grid(content, columns))
    parts += [styled(footer, style="dim") for footer in content.footers]
    return importlib.import_module("rich.console").Group(*parts)


def _rich_grid(content: Table, columns: int) -> Any:
    styled = importlib.import_module("rich.text").Text
    grid_type = importlib.import_module("rich.table").Table
    roomy = max(map(_width, _plain_grid(content))) <= columns
    grid = grid_type(box=importlib.import_module("rich.box").SIMPLE_HEAD, pad_edge=False)
    grid.padding, grid.show_edge, grid.collapse_padding = (0, int(roomy)), False, True
    for column in content.columns:
        # Headings on two lines leave a narrow terminal's width to the figures.
        heading = styled(column if roomy else column.replace(" ", "\n"))
        if column in LEFT_ALIGNED:
            grid.add_column(heading, justify="left", overflow="fold", min_width=_RICH_MIN[column])
        else:
            grid.add_column(heading, justify="right", no_wrap=True)
    for line, cells in zip(content.lines, content.cells, strict=True):
        label = styled(_indented(line, cells[0]), style="cyan")
        grid.add_row(label, *map(styled, cells[1:]))
    return grid


def write(stats: Stats, file: TextIO | None, style: str) -> None:
    """Write the table to `file`, None for standard output; see ``Stats.print``."""
    if style not in STYLES:
        message = f"style is {style!r}; expected one of {', '.join(map(repr, STYLES))}"
        raise ValueError(message)
    out = sys.stdout if file is None else file
    if style == "rich" or (style == "auto" and _fits_rich(out)):
        try:
            console = importlib.import_module("rich.console").Console
        except ModuleNotFoundError:  # then the plain table says the same
            pass
        else:
            console(file=out, force_terminal=True if style == "rich" else None).print(stats)
            return
    write_text(out, plain(stats) + "\n")


def _fits_rich(out: TextIO) -> bool:
    unicode_out = (getattr(out, "encoding", None) or "").lower().startswith("utf")
    return unicode_out and out.isatty() and os.environ.get("TERM") != "dumb"
