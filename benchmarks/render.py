"""Rewrite what the pages show of benchmarks/results/, or with --check tell what is out of date.

A page has one generated block, between the marks `<!-- NAME:begin -->` and `<!-- NAME:end -->`.
Which rows a page shows, and under which words, stands in the tables of support/pages.py.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.measure import format_ratio, format_target, format_value
from support.pages import HIGHLIGHTS, NOT_BETTER, PIVOTS, SCRIPTS, VERDICTS, Highlight
from support.results import Result, Row, load_all

ROOT = Path(__file__).resolve().parents[1]
BREAKS = ROOT / "docs" / "capture_breaks.json"
_NOTHING_YET = "Nothing has been measured yet.\n"
_WIDTH = 100
_RUN_BY = "<!-- example: run by benchmarks/graphs_breaks.py -->\n"


class PageError(ValueError):
    """A page has no place for its block, or a result that it shows is missing."""


@dataclass(frozen=True)
class Page:
    """A file with a generated block, and what makes the block of the results."""

    path: str
    block: str
    render: Callable[[Sequence[Result]], str]

    def replace(self, text: str, block: str) -> str:
        """Return `text` with `block` between the marks."""
        begin, end = f"<!-- {self.block}:begin -->", f"<!-- {self.block}:end -->"
        before, found, rest = text.partition(begin)
        _, also_found, after = rest.partition(end)
        if not found or not also_found:
            raise PageError(f"{self.path} needs the lines {begin} and {end}, in this order")
        return f"{before}{begin}\n{block}{end}{after}"

    def update(self, results: Sequence[Result], *, check: bool) -> bool:
        """Rewrite the file unless `check` is given; return whether it was out of date."""
        path = ROOT / self.path
        text = path.read_text(encoding="utf-8")
        wanted = self.replace(text, self.render(results))
        if wanted != text and not check:
            path.write_text(wanted, encoding="utf-8")
        return wanted != text


def readme(results: Sequence[Result]) -> str:
    """Return the figures that stand for all: a few rows, and what is not better."""
    if not results:
        return _NOTHING_YET
    used = [result for result in results if any(h.script == result.script for h in HIGHLIGHTS)]
    months = " and ".join(sorted({result.date[:7] for result in used}))
    shown = [_in_words(each, results) for each in HIGHLIGHTS]
    worse = [_in_words(each, results) for each in NOT_BETTER]
    missed = "; ".join(
        f"{what} {value}, {against}" for what, value, against, met in worse if not met
    )
    return "\n".join(
        [
            f"Measured on {_place(used[0])}, in {months}:",
            "",
            *_table(("what", "measured", "compared with"), [cells[:3] for cells in shown]),
            "",
            *textwrap.wrap(f"Not better: {missed}.", _WIDTH),
            "",
        ]
    )


def _in_words(given: Highlight, results: Sequence[Result]) -> tuple[str, str, str, bool | None]:
    for result in results:
        for row in result.rows:
            if (result.script, row.name) == (given.script, given.row):
                value, against = format_value(row.value, row.unit), given.peer or ""
                if row.ratio is not None:
                    ratio = format_ratio(row.ratio)
                    against = f"{ratio} {'than ' if ratio.endswith('less') else ''}{against}"
                return given.what, value, against, row.met
    raise PageError(f"the results of {given.script} have no row {given.row!r}")


def measurements(results: Sequence[Result]) -> str:
    """Return every row with a target that was missed, then a section for each script."""
    if not results:
        return _NOTHING_YET
    judged = [(result, row) for result in results for row in result.rows if row.met is not None]
    missed = [(result.script, *_cells(row)[:5]) for result, row in judged if not row.met]
    lines = ["## Targets missed", "", f"{len(missed)} of {len(judged)} targets were missed.", ""]
    lines += [*_table(("script", *_HEAD[:5]), missed), ""] if missed else []
    for script, (title, page) in SCRIPTS.items():
        for result in (each for each in results if each.script == script):
            rows = [row for row in result.rows if page is None or row.target is not None]
            if not rows:
                continue
            more = f" Only rows with a target: [{page}]({page}) has all of them." if page else ""
            lines += [f"## {title}", "", f"`benchmarks/{script}.py`. {_source(result)}{more}", ""]
            lines += [*_table(_HEAD, map(_cells, rows)), "", *_notes(result)]
    return "\n".join(lines)


def breaks(_results: Sequence[Result], path: Path = BREAKS) -> str:
    """Return what captures that break say, out of the file of `graphs_breaks.py --json`."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if (data.get("format"), data.get("version")) != ("gpuprof-breaks", 1):
        raise PageError(f"{path.name}: expected what graphs_breaks.py --json writes")
    versions = ", ".join(f"{name} {version}" for name, version in data["versions"].items())
    gpu, driver = data["machine"]["gpu"], data["machine"]["driver"]
    where = f"on an {gpu}, driver {driver}" if gpu else "without a GPU, on the driver of the tests"
    opening = (
        f"`benchmarks/graphs_breaks.py` printed these messages on {data['date']}, {where} "
        f"({versions}). Long lines are broken; of torch's messages only the first line is shown."
    )
    parts = [textwrap.fill(opening, _WIDTH) + "\n"]
    for case in data["cases"]:
        parts.append(f"### {case['title']}\n\n{_RUN_BY}```python\n{case['code']}```\n")
        for key, who in _WHO.items():
            if case[key] is not None:
                said = (line for line in case[key].splitlines() if line.strip())
                text = "\n".join(textwrap.fill(x, _WIDTH, break_on_hyphens=False) for x in said)
                parts.append(f"{who}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


_WHO = {
    "torch": "A capture by `torch.cuda.graph` says",
    "gpuprof": "gpuprof says",
    "debug": "With `debug=True` it says",
}
_WORDS = {"what", "compared with", "met"}  # columns that hold no figures
_HEAD = ("what", "measured", "ratio", "compared with", "target", "met")


def _cells(row: Row) -> tuple[str, ...]:
    value = format_value(row.value, row.unit)
    ratio = "" if row.ratio is None else format_ratio(row.ratio)
    met = {None: "", True: "yes", False: "**no**"}[row.met]
    return (row.name, value, ratio, row.ratio_to or "", format_target(row), met)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table, without columns that hold nothing."""
    found = [tuple(cell.replace("|", "\\|") for cell in row) for row in rows]
    kept = [n for n in range(len(head)) if n == 0 or any(row[n] for row in found)]
    rule = ["---" if n == 0 or head[n] in _WORDS else "---:" for n in kept]
    lines = [[head[n] for n in kept], rule, *([row[n] for n in kept] for row in found)]
    return ["| " + " | ".join(line) + " |" for line in lines]


def _sections(
    scripts: Sequence[str], tables: Callable[[Result], list[str]]
) -> Callable[[Sequence[Result]], str]:
    """Return what makes a section with tables of each result of these scripts."""

    def render(results: Sequence[Result]) -> str:
        own = [result for script in scripts for result in results if result.script == script]
        parts = [[_source(each), "", *tables(each), *_notes(each)] for each in own]
        return "\n".join(map("\n".join, parts)) or _NOTHING_YET

    return render


def _source(result: Result) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    return f"Measured on {result.date} on {_place(result)} ({versions})."


def _place(result: Result) -> str:
    gpu, driver, cpu = (result.machine[key] for key in ("gpu", "driver", "cpu"))
    return f"an {gpu}, driver {driver}" if gpu else f"a machine without a GPU ({cpu})"


def _notes(result: Result) -> list[str]:
    notes = [f"- {note[0].upper()}{note[1:]}." for note in result.notes]
    return [*notes, ""] if notes else []


def _rows(result: Result) -> list[str]:
    return [*_table(_HEAD, map(_cells, result.rows)), ""]


def _pivots(result: Result) -> list[str]:
    """Return tables with a line for each case and a column for each thing measured of it."""
    rows = {row.name: row for row in result.rows}
    lines: list[str] = []
    for pivot in PIVOTS[result.script]:
        cases = dict.fromkeys(case for name in rows if (case := pivot.case(name)) is not None)
        if not cases:
            continue
        cells = [
            (case, *(_marked(rows.get(name.format(case))) for name in pivot.columns.values()))
            for case in cases
        ]
        lines += [pivot.title, "", *_table(("", *pivot.columns), cells), ""]
    return lines


def _marked(row: Row | None) -> str:
    if row is None:
        return ""
    return format_value(row.value, row.unit) + (" **(!)**" if row.met is False else "")


PAGES = {
    "readme": Page("README.md", "measured", readme),
    "measurements": Page("docs/measurements.md", "measured", measurements),
    "production": Page("docs/production.md", "production", _sections(["timing_production"], _rows)),
    "accuracy": Page(
        "docs/accuracy.md", "benchmark-accuracy", _sections(["benchmark_accuracy"], _pivots)
    ),
    "callable": Page("docs/callable.md", "callable", _sections(["graphs_callable"], _pivots)),
    "training": Page("docs/callable.md", "training", _sections(["graphs_training"], _pivots)),
    "decode": Page("docs/integrations/decode.md", "decode", _sections(["graphs_decode"], _pivots)),
    "verdicts": Page("docs/verdicts.md", "verdicts", _sections(VERDICTS, _rows)),
    "power": Page("docs/verdicts.md", "power", _sections(["verdict_power"], _pivots)),
    "ab": Page("docs/ab.md", "ab", _sections(["verdict_ab"], _pivots)),
    "promises": Page("docs/promises.md", "promises", _sections(["promises"], _pivots)),
    "history": Page("docs/history.md", "history-power", _sections(["history_power"], _rows)),
    "breaks": Page("docs/when_a_capture_breaks.md", "breaks", breaks),
}


def main() -> int:
    """Rewrite the pages that are named, or all; with --check, return 1 if that would change one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("page", nargs="*", choices=["all", *PAGES], default="all")
    parser.add_argument("--check", action="store_true", help="change nothing, tell by the status")
    options = parser.parse_args()
    results = load_all()
    pages = PAGES.values() if "all" in options.page else [PAGES[name] for name in options.page]
    stale = [page.path for page in pages if page.update(results, check=options.check)]
    if options.check and stale:
        print(f"out of date: {', '.join(stale)}; run python benchmarks/render.py")
    return int(options.check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
