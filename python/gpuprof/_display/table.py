"""A table of texts, as plain text, Markdown or HTML; the texts come from anywhere.

Each cell is made fit to be shown in the form asked for: no control character, no markup.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import MAX_NAME_COLUMNS, _in_markdown, _width, shown_text


@dataclass(frozen=True)
class Grid:
    """Columns and lines of cells. The columns named in `left` are left-aligned, others right."""

    columns: Sequence[str]
    lines: Sequence[Sequence[str]]
    left: frozenset[str] = frozenset()

    def without_empty(self) -> Grid:
        """Leave out the columns that have no text in any line."""
        kept = [
            place for place in range(len(self.columns)) if any(line[place] for line in self.lines)
        ]
        return Grid(
            [self.columns[place] for place in kept],
            [[line[place] for place in kept] for line in self.lines],
            self.left,
        )

    def plain(self) -> list[str]:
        """Return the lines of text: head, rule, body. Long cells are cut."""
        grid = [[_cut(shown_text(cell)) for cell in line] for line in (self.columns, *self.lines)]
        widths = [max(map(_width, column)) for column in zip(*grid, strict=True)]
        text = []
        for line in grid:
            padded = []
            for column, cell, width in zip(self.columns, line, widths, strict=True):
                space = " " * (width - _width(cell))
                padded.append(cell + space if column in self.left else space + cell)
            text.append("  ".join(padded).rstrip())
        return [text[0], "-" * (sum(widths) + 2 * (len(widths) - 1)), *text[1:]]

    def markdown(self) -> list[str]:
        """Return the lines of a Markdown table, with whole cells."""
        bars = [":--" if column in self.left else "--:" for column in self.columns]
        head, *body = (
            f"| {' | '.join(_in_markdown(shown_text(cell)) for cell in line)} |"
            for line in (self.columns, *self.lines)
        )
        return [head, f"| {' | '.join(bars)} |", *body]

    def html(self) -> str:
        """Return a table element, with whole cells."""
        head, *body = (
            f"<tr>{self._html_cells(tag, line)}</tr>"
            for tag, line in [("th", self.columns), *(("td", line) for line in self.lines)]
        )
        return f"<table><thead>{head}</thead><tbody>{''.join(body)}</tbody></table>"

    def _html_cells(self, tag: str, line: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"left" if column in self.left else "right"}">'
            f"{html.escape(shown_text(cell))}</{tag}>"
            for column, cell in zip(self.columns, line, strict=True)
        )


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME_COLUMNS else f"{text[: MAX_NAME_COLUMNS - 1]}…"


def markdown_list(texts: Sequence[str]) -> list[str]:
    """Return a Markdown list with a blank line before it; nothing for no texts."""
    return ["", *(f"- {_in_markdown(shown_text(text))}" for text in texts)] if texts else []


def html_list(texts: Sequence[str]) -> str:
    """Return the texts as lines of HTML."""
    return "".join(f"<div>{html.escape(shown_text(text))}</div>" for text in texts)
