"""One table of texts, as plain text, Markdown, HTML or rich, and the order of rows in a tree.

The texts come from anywhere; each is made fit to be shown in the form asked for: no control
character, no markup.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TextIO

from gpuprof._common.checks import choice
from gpuprof._common.text import (
    MAX_NAME_COLUMNS,
    MAX_TEXT_BYTES,
    cut,
    in_html,
    in_markdown,
    shown_text,
    width,
    write_text,
)

MAX_INDENT = 40
_LEAST_LABEL = 24  # columns of a name that stay, however deep it is nested
_RICH_LABEL, _RICH_TEXT = 8, 10  # columns of a terminal that these get at least
STYLES = ("auto", "rich", "plain")

Names = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Columns and lines of cells, a title of a line or more above them, and notes below.

    The columns named in `left` are left-aligned, the others right-aligned.

    With `depths`, one for each line, it is a tree: the first cell of each line is indented. Forms
    that do not indent show `paths` in place of the first cells. Plain text cuts long cells so that
    the columns stay below each other; the other forms have them whole.
    """

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: Collection[str] = frozenset()
    title: str | Sequence[str] = ""
    notes: Sequence[str] = ()
    depths: Sequence[int] = ()
    paths: Sequence[str] = ()

    @classmethod
    def of(cls, lines: Sequence[Mapping[str, str]], **options: Any) -> Table:
        """Return the table of lines of cells by column, without empty columns."""
        columns = [*lines[0]] if lines else []
        return cls(columns, [[*line.values()] for line in lines], **options).without_empty()

    @property
    def titles(self) -> list[str]:
        return [
            each for each in ([self.title] if isinstance(self.title, str) else self.title) if each
        ]

    def without_empty(self) -> Table:
        """Leave out the columns, but the first, that have no text in any line."""
        places = range(len(self.columns))
        kept = [place for place in places if not place or any(line[place] for line in self.lines)]
        columns = [self.columns[place] for place in kept]
        return replace(
            self, columns=columns, lines=[[line[place] for place in kept] for line in self.lines]
        )

    def plain(self) -> list[str]:
        return [
            *map(shown_text, self.titles),
            *self._plain_grid(),
            *map(shown_text, self.notes),
        ]

    def markdown(self) -> list[str]:
        """Return the lines of Markdown with whole cells, and the notes as a list."""
        title = [*map(shown_text, self.titles)]
        if not self.lines:
            return [*title, *markdown_list(self.notes)]
        lines: Iterable[Sequence[str]] = self.lines
        if self.paths:
            lines = ([path, *line[1:]] for path, line in zip(self.paths, lines, strict=True))
        bars = [":--" if column in self.left else "--:" for column in self.columns]
        head, *body = (
            f"| {' | '.join(in_markdown(shown_text(cell)) for cell in line)} |"
            for line in (self.columns, *lines)
        )
        grid = [head, f"| {' | '.join(bars)} |", *body]
        return [*title, *([""] if title else []), *grid, *markdown_list(self.notes)]

    def html(
        self, sort: Mapping[str, Sequence[float]] | None = None, bars: Sequence[float] = ()
    ) -> str:
        """Return an HTML fragment with whole cells, without scripts.

        With `sort` it is a table that the script of a report sorts by a click: a column in `sort`
        by these numbers, one for each line, of which NaN comes last, and others by their text.
        `bars` are fractions, one for each line, that are drawn below the first cells.
        """
        grid = self._html_grid(sort, bars)
        if not self.titles and not self.notes:
            return grid
        return f"<div>{html_list(self.titles)}{grid}{html_list(self.notes)}</div>"

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        text = importlib.import_module("rich.text").Text
        yield from (text(shown_text(title), style="bold") for title in self.titles)
        if self.lines:
            yield self._rich_grid(options.max_width)
        yield from (text(shown_text(note), style="dim") for note in self.notes)

    def _cells(self, label: int = MAX_NAME_COLUMNS) -> list[list[str]]:
        """Return all cells as text, the head first; the labels of a tree in so many columns."""
        grid = [[shown_text(cell) for cell in line] for line in (self.columns, *self.lines)]
        if not self.depths:
            return [[*map(cut, line)] for line in grid]
        for line, depth in zip(grid[1:], self.depths, strict=True):
            indent = "  " * min(depth, MAX_INDENT)
            room = max(label - len(indent), _LEAST_LABEL)
            line[0] = indent + cut(line[0], room, middle=True)
        return grid

    def _plain_grid(self) -> list[str]:
        if not self.lines:
            return []
        grid = self._cells()
        widths = [max(map(width, column)) for column in zip(*grid, strict=True)]
        text = []
        for line in grid:
            padded = []
            for column, cell, wide in zip(self.columns, line, widths, strict=True):
                space = " " * (wide - width(cell))
                padded.append(cell + space if column in self.left else space + cell)
            text.append("  ".join(padded).rstrip())
        return [text[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *text[1:]]

    def _html_grid(self, sort: Mapping[str, Sequence[float]] | None, bars: Sequence[float]) -> str:
        if not self.lines:
            return ""
        head = "".join(self._heading(column, sort) for column in self.columns)
        body = "".join(self._html_line(place, sort, bars) for place in range(len(self.lines)))
        grid = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        if sort is None:
            return f"<table>{grid}"
        return f'<div class="scroll" tabindex="0"><table class="sorted">{grid}</div>'

    def _align(self, column: str) -> str:
        return f"text-align:{'left' if column in self.left else 'right'}"

    def _heading(self, column: str, sort: Collection[str] | None) -> str:
        start, text = f'<th style="{self._align(column)}"', in_html(column)
        if sort is None:
            return f"{start}>{text}</th>"
        kind = "number" if column in sort else "text"
        return f'{start} scope="col" data-kind="{kind}"><button type="button">{text}</button></th>'

    def _html_line(
        self, place: int, sort: Mapping[str, Sequence[float]] | None, bars: Sequence[float]
    ) -> str:
        cells: list[str] = []
        for column, text in zip(self.columns, self.lines[place], strict=True):
            style, bar, value = self._align(column), "", ""
            if not cells and self.depths:
                style += f";padding-left:{0.5 + 1.2 * min(self.depths[place], MAX_INDENT):.1f}em"
            if not cells and bars:
                wide = f"width:{100 * min(max(bars[place], 0.0), 1.0):.1f}%"
                bar = f'<span class="bar" style="{wide}"></span>'
            if sort is not None:
                number = sort[column][place] if column in sort else math.nan
                of = text if column not in sort else repr(number) if math.isfinite(number) else ""
                value = f' data-value="{in_html(of)}"' if of else ""
            cells.append(f'<td style="{style}"{value}>{in_html(text)}{bar}</td>')
        depth = f' data-depth="{self.depths[place]}"' if sort is not None and self.depths else ""
        return f"<tr{depth}>{''.join(cells)}</tr>"

    def _rich_grid(self, columns: int) -> Any:
        """Build rich's table for a terminal of that many columns; names are no markup to it."""
        styled = importlib.import_module("rich.text").Text
        roomy = max(map(width, self._plain_grid())) <= columns
        grid = importlib.import_module("rich.table").Table(
            box=importlib.import_module("rich.box").SIMPLE_HEAD,
            padding=(0, int(roomy)),
            pad_edge=False,
            show_edge=False,
            collapse_padding=True,
        )
        head, *body = self._cells(MAX_TEXT_BYTES)  # which rich folds
        for place, cells in enumerate(zip(*body, strict=True)):
            column = head[place]
            # Headings on two lines leave a narrow terminal's width to the figures.
            heading = styled(column if roomy else column.replace(" ", "\n"))
            if self.columns[place] in self.left:
                least = min(_RICH_TEXT, max(map(width, cells))) if place else _RICH_LABEL
                grid.add_column(heading, justify="left", overflow="fold", min_width=least)
            else:
                grid.add_column(heading, justify="right", no_wrap=True)
        for line in body:
            grid.add_row(styled(line[0], style="cyan"), *map(styled, line[1:]))
        return grid


def write(table: Table, file: TextIO | None, style: str) -> None:
    """Write a table to a file and in a style, as `Shown.print` says."""
    choice("style", style, STYLES)
    out = sys.stdout if file is None else file
    if style == "rich" or (style == "auto" and _fits_rich(out)):
        try:
            console = importlib.import_module("rich.console").Console
        except ModuleNotFoundError:  # then the plain table says the same
            pass
        else:
            console(file=out, force_terminal=True if style == "rich" else None).print(table)
            return
    write_text(out, "\n".join([*table.plain(), ""]))


def _fits_rich(out: TextIO) -> bool:
    unicode_out = (getattr(out, "encoding", None) or "").lower().startswith("utf")
    return unicode_out and out.isatty() and os.environ.get("TERM") != "dumb"


def aligned(entries: Sequence[tuple[str, str]], indent: str = "") -> list[str]:
    """Return a line of text for each heading and its text, the texts below each other."""
    shown = [(shown_text(heading), shown_text(text)) for heading, text in entries]
    wide = max((width(heading) for heading, _ in shown), default=0)
    return [f"{indent}{heading}{' ' * (wide - width(heading))}  {text}" for heading, text in shown]


def markdown_list(texts: Sequence[str]) -> list[str]:
    """Return a Markdown list with a blank line before it; nothing for no texts."""
    return ["", *(f"- {in_markdown(shown_text(text))}" for text in texts)] if texts else []


def html_list(texts: Sequence[str]) -> str:
    return "".join(f"<div>{in_html(text)}</div>" for text in texts)


class Line(NamedTuple):
    """A row's place in the tree. `label` is what the lines above it do not say of its path."""

    row: Any
    depth: int
    label: str


def tree_lines(rows: Iterable[Any]) -> list[Line]:
    """Put rows in the order of the tree of their `names`, outermost first.

    A path stands below the closest path around it that has a row. Paths side by side, and rows of
    one path, keep their order.
    """
    by_names: dict[Names, list[Any]] = {}
    for row in rows:
        by_names.setdefault(row.names, []).append(row)
    inside: dict[Names, list[Names]] = {}
    for names in by_names:
        outer = names[:-1]
        while outer and outer not in by_names:
            outer = outer[:-1]
        inside.setdefault(outer, []).append(names)
    result = []
    waiting = [(names, 0, 0) for names in reversed(inside.get((), []))]
    while waiting:
        names, depth, above = waiting.pop()
        label = "/".join(names[above:])
        result += [Line(row, depth, label) for row in by_names[names]]
        below = reversed(inside.get(names, []))
        waiting += [(child, depth + 1, len(names)) for child in below]
    return result
