"""Rewrite the shares in docs/verdicts.md from the results of its three scripts, or check them."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from _measure import format_target, format_value
from _pages import ROOT, Block
from _results import Result, Row, load_all

BLOCK = Block(ROOT / "docs" / "verdicts.md", "verdicts")
_NOTHING_YET = "Nothing has been measured yet.\n"
_SCRIPTS = ("benchmark_verdicts", "benchmark_verdicts_noise", "benchmark_verdicts_busy")


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    own = [result for script in _SCRIPTS for result in results if result.script == script]
    return "\n".join(_section(result) for result in own) or _NOTHING_YET


def _section(result: Result) -> str:
    place = result.machine["gpu"] or f"a machine without a GPU ({result.machine['cpu']})"
    lines = [
        f"Computed and measured on {result.date}, on {place}:",
        "",
        "| | share | asked for | |",
        "|---|---:|---:|---|",
        *map(_line, result.rows),
        "",
        *(f"{note[0].upper()}{note[1:]}.\n" for note in result.notes),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    verdict = {None: "", True: "met", False: "**not met**"}[row.met]
    cells = (row.name, format_value(row.value, row.unit), format_target(row), verdict)
    return "| " + " | ".join(cells) + " |"


if __name__ == "__main__":
    sys.exit(BLOCK.main(__doc__, lambda: render(load_all())))
