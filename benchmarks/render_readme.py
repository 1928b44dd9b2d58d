"""Rewrite the measured table in README.md from benchmarks/results/*.json, or check it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from _measure import format_ratio, format_target, format_value
from _results import RESULTS, Result, Row, load_all

README = Path(__file__).resolve().parents[1] / "README.md"
BEGIN = "<!-- measured:begin -->"
END = "<!-- measured:end -->"
_NOTHING_YET = "Nothing has been measured yet."
# Scripts whose figures fill a page of their own: the README shows their rows with a target.
_PAGES = {
    "benchmark_accuracy": "docs/accuracy.md",
    "benchmark_verdicts": "docs/verdicts.md",
}


class ReadmeError(ValueError):
    """The README has no place for the table."""


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    if not results:
        return _NOTHING_YET + "\n"
    return "\n".join(_section(result) for result in results)


def replace_block(text: str, block: str) -> str:
    """Return `text` with what stands between the two marks replaced by `block`."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ReadmeError(f"README.md needs the lines {BEGIN} and {END}, in this order")
    return f"{before}{begin}\n{block}{end}{after}"


def _section(result: Result) -> str:
    place = result.machine["gpu"] or result.machine["cpu"]
    driver = result.machine["driver"]
    facts = [f"{place}", *([f"driver {driver}"] if driver else [])]
    facts += [f"{name} {version}" for name, version in result.versions.items()]
    page = _PAGES.get(result.script)
    shown = [row for row in result.rows if page is None or row.target is not None]
    lines = [
        f"`benchmarks/{result.script}.py`, {result.date}: {', '.join(facts)}",
        *(["", f"Rows with a target; [{page}]({page}) has the others."] if page else []),
        "",
        "| what | best | ratio | to | target | |",
        "|---|---:|---:|---|---:|---|",
        *(_line(row) for row in shown),
        "",
        *(f"{note[0].upper()}{note[1:]}.\n" for note in result.notes),
    ]
    return "\n".join(lines)


def _line(row: Row) -> str:
    verdict = {None: "", True: "met", False: "**not met**"}[row.met]
    cells = (
        row.name,
        format_value(row.value, row.unit),
        "" if row.ratio is None else format_ratio(row.ratio),
        row.ratio_to or "",
        format_target(row),
        verdict,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Rewrite the README; with --check, return 1 if that would change it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    options = parser.parse_args()
    text = README.read_text(encoding="utf-8")
    wanted = replace_block(text, render(load_all(RESULTS)))
    if options.check:
        if text != wanted:
            print("README.md is out of date: run python benchmarks/render_readme.py")
        return int(text != wanted)
    README.write_text(wanted, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
