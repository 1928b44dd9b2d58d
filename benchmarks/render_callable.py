"""Rewrite the table in docs/callable.md from the results of graphs_callable, or check it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from _measure import format_value
from _pages import ROOT, Block
from _results import Result, Row, load_all

BLOCK = Block(ROOT / "docs" / "callable.md", "callable")
_NOTHING_YET = "Nothing has been measured yet.\n"
_SCRIPT = "graphs_callable"
_KINDS = ("host time", "GPU time")
_LEFT_OUT = ("host", "beside")  # of comparisons, which the README has


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    own = [result for result in results if result.script == _SCRIPT]
    return "\n".join(_section(result) for result in own) or _NOTHING_YET


def _section(result: Result) -> str:
    place = result.machine["gpu"] or "a machine without a GPU"
    rows = [row for row in result.rows if not _is_comparison(row)]
    by_name = {row.name: row for row in rows}
    lines = [
        f"Measured on {result.date}, on {place}, with torch {result.versions.get('torch')}; the "
        "best of several turns:",
        "",
        "| | a call, in a loop | host time | GPU time |",
        "|---|---:|---:|---:|",
    ]
    for row in rows:
        if not row.name.endswith(_KINDS):
            cells = [_value(by_name.get(name)) for name in _names(row.name)]
            lines.append(f"| {' | '.join([row.name, *cells])} |")
    return "\n".join([*lines, "", *(f"{note[0].upper()}{note[1:]}.\n" for note in result.notes)])


def _names(name: str) -> list[str]:
    return [name, *(f"{name}, {kind}" for kind in _KINDS)]


def _is_comparison(row: Row) -> bool:
    first, last = row.name.split(", ")[0], row.name.rsplit(", ", 1)[-1].split(" ")[0]
    return first == _LEFT_OUT[0] or last == _LEFT_OUT[1]


def _value(row: Row | None) -> str:
    return "" if row is None else format_value(row.value, row.unit)


if __name__ == "__main__":
    sys.exit(BLOCK.main(__doc__, lambda: render(load_all())))
