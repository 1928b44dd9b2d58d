"""Rewrite the measured table in README.md from benchmarks/results/*.json, or check it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from _measure import format_ratio, format_target, format_value
from _pages import ROOT, Block
from _results import RESULTS, Result, Row, load_all

BLOCK = Block(ROOT / "README.md", "measured")
_NOTHING_YET = "Nothing has been measured yet."
# Scripts whose figures fill a page of their own: the README shows their rows with a target.
_PAGES = {
    "benchmark_accuracy": "docs/accuracy.md",
    "benchmark_verdicts": "docs/verdicts.md",
    "benchmark_verdicts_busy": "docs/verdicts.md",
    "graphs_callable": "docs/callable.md",
}
_ON_ITS_PAGE_ALONE = {"benchmark_verdicts_noise"}


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    if not results:
        return _NOTHING_YET + "\n"
    shown = (result for result in results if result.script not in _ON_ITS_PAGE_ALONE)
    return "\n".join(map(_section, shown))


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


if __name__ == "__main__":
    sys.exit(BLOCK.main(__doc__, lambda: render(load_all(RESULTS))))
