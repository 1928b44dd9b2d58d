"""Rewrite the measured tables in docs/accuracy.md from benchmark_accuracy's results, or check them.

One table holds what the hardware profiler says a call takes, the other how far each tool's reading
is from that. A row's name is its case and, after a colon, what was measured of it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

import _benchmark_peers as peers
import benchmark_accuracy as accuracy
from _measure import format_value
from _pages import ROOT, Block
from _results import Result, Row, load_all

BLOCK = Block(ROOT / "docs" / "accuracy.md", "benchmark-accuracy")
_NOTHING_YET = "Nothing has been measured yet.\n"
_SCRIPT = "benchmark_accuracy"

# What a table's columns are called, and how the rows that fill them are named.
_REFERENCES = {
    state: f"CUPTI, {state}"
    for state in (accuracy.IN_GRAPH, accuracy.IN_STREAM, accuracy.FLUSHED, accuracy.ROTATED)
}
_TOOLS = {
    "`graph`": accuracy.GRAPH,
    "`batched`": accuracy.BATCHED,
    "`do_bench_cudagraph`": peers.DO_BENCH_CUDAGRAPH,
    "torch events": peers.TORCH_EVENTS,
    "CuPy `benchmark`": peers.CUPY_BENCHMARK,
    "`do_bench`": peers.DO_BENCH,
    "cold": accuracy.COLD,
}


def render(results: Sequence[Result]) -> str:
    """Return the Markdown that stands between the two marks."""
    own = [result for result in results if result.script == _SCRIPT]
    return "\n".join(_section(result) for result in own) or _NOTHING_YET


def _section(result: Result) -> str:
    by_case: dict[str, dict[str, Row]] = {}
    for row in result.rows:
        case, _, what = row.name.partition(": ")
        by_case.setdefault(case, {})[what] = row
    versions = ", ".join(f"{name} {version}" for name, version in result.versions.items())
    gpu, driver = result.machine["gpu"], result.machine["driver"]
    lines = [
        f"Measured on an {gpu}, driver {driver}, on {result.date} ({versions}).",
        "",
        "What CUPTI says one call takes:",
        "",
        *_table(by_case, _REFERENCES),
        "",
        "How far each reading is from that; a gpuprof reading that is too far is marked:",
        "",
        *_table(by_case, _TOOLS),
        "",
        *(f"{note[0].upper()}{note[1:]}.\n" for note in result.notes),
    ]
    return "\n".join(lines)


def _table(by_case: Mapping[str, Mapping[str, Row]], columns: Mapping[str, str]) -> Sequence[str]:
    shown = {
        head: what
        for head, what in columns.items()
        if any(what in rows for rows in by_case.values())
    }
    cells = [
        [case, *(_cell(rows.get(what)) for what in shown.values())]
        for case, rows in by_case.items()
    ]
    return [
        "| " + " | ".join(["", *shown]) + " |",
        "|---|" + "---:|" * len(shown),
        *("| " + " | ".join(line) + " |" for line in cells),
    ]


def _cell(row: Row | None) -> str:
    if row is None:
        return ""
    return format_value(row.value, "µs") + (" **(!)**" if row.met is False else "")


if __name__ == "__main__":
    sys.exit(BLOCK.main(__doc__, lambda: render(load_all())))
