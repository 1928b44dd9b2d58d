"""Rewrite the shares in docs/verdicts.md from the results of benchmark_verdicts, or check them."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _measure import format_target, format_value
from _results import Result, Row, load_all

PAGE = Path(__file__).resolve().parents[1] / "docs" / "verdicts.md"
BEGIN = "<!-- verdicts:begin -->"
END = "<!-- verdicts:end -->"
_NOTHING_YET = "Nothing has been measured yet.\n"
_SCRIPT = "benchmark_verdicts"


class PageError(ValueError):
    """The page has no place for the table."""


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    own = [result for result in results if result.script == _SCRIPT]
    return "\n".join(_section(result) for result in own) or _NOTHING_YET


def replace_block(text: str, block: str) -> str:
    """Return `text` with what stands between the two marks replaced by `block`."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise PageError(f"{PAGE.name} needs the lines {BEGIN} and {END}, in this order")
    return f"{before}{begin}\n{block}{end}{after}"


def _section(result: Result) -> str:
    place = result.machine["gpu"] or "a machine without a GPU"
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


def main() -> int:
    """Rewrite the page; with --check, return 1 if that would change it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    options = parser.parse_args()
    text = PAGE.read_text(encoding="utf-8")
    wanted = replace_block(text, render(load_all()))
    if options.check:
        if text != wanted:
            print(f"{PAGE.name} is out of date: run python benchmarks/render_verdicts.py")
        return int(text != wanted)
    PAGE.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
