"""The parts of a report: statistics, results, comparisons, graphs and histories, as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from gpuprof._common.text import in_html
from gpuprof._common.units import duration, ratio_text
from gpuprof._display.table import Table, html_list, tree_lines
from gpuprof._report.page import details
from gpuprof._results.comparison import CompareResult
from gpuprof._results.count_verdicts import notes_of
from gpuprof._results.decision import Decision, verdicts_of
from gpuprof._results.history import History
from gpuprof._results.result import BenchResult, cells
from gpuprof._results.two_sides import Comparison
from gpuprof._timing import stats_table
from gpuprof._timing.stats import Stats

MOST_DETAILS = 300  # histograms; each takes some 5 KB
_SHARES = ("total", "self", "share", "count")
_FIGURES = ("p50", "mean", "p99", "max")
_OTHERS = ("first", "flops_per_s", "bytes_per_s", "peak_share", "peak_memory", "memory_change")

# A line of a table: the text of each column, and the number by which it is sorted.
_Line: TypeAlias = "dict[str, tuple[str, float | None]]"


def stats_part(stats: Stats) -> str:
    """Return the tree of scopes, each with a bar: its share of all time on the same clock."""
    rows = [(line.row, line.depth) for line in tree_lines(stats.values())]
    whole: dict[str, float] = {}
    for row, depth in rows:
        if not depth:
            whole[row.clock] = whole.get(row.clock, 0.0) + row.time.total_ms
    on_gpu = any(row.on_gpu for row, _ in rows)
    times = [f"{of}_{figure}" for of in ("gpu", "host")[not on_gpu :] for figure in _FIGURES]
    columns = [*_SHARES, *times, *_OTHERS]
    numbers = {
        stats_table.HEADINGS[each]: [stats_table.value(stats, row, each) for row, _ in rows]
        for each in columns
    }
    bars = [row.time.total_ms / (whole.get(row.clock) or math.inf) for row, _ in rows]
    return stats._table(columns=columns).html(numbers, bars)


def results_part(results: Sequence[tuple[BenchResult, Decision | None]]) -> str:
    """Return a table of results with their verdicts, and the histogram of each."""
    lines = [_line(result, {"verdict": _verdict(decision)}) for result, decision in results]
    rules = [
        f"{result.name}: {text}"
        for result, decision in results
        if decision is not None
        for text in (
            decision.rule,
            *(f"{each.verdict}: {each.rule}" for each in decision.grown),
            *notes_of(decision),
        )
        if text
    ]
    return _grid(lines, notes=rules) + _histograms([result for result, _ in results])


def comparison_part(found: CompareResult | Comparison) -> str:
    """Return a comparison: its table with ratios and verdicts, and the histograms of results."""
    if isinstance(found, Comparison):
        notes = [*found.reasons(), *found.remarks()]
        return _grid(found.lines(), title=found.headline(), notes=notes)
    lines = []
    for row in found.values():
        judged = row.decision is not None
        added: _Line = {
            f"ratio to {found.base}": (ratio_text(row.ratio), row.ratio) if judged else ("", None),
            "interval of the ratio": (ratio_text(*(row.interval or ())) if judged else "", None),
            "verdict": _verdict(row.decision),
        }
        lines.append(_line(row.result, added))
    return _grid(lines, notes=found._notes()) + _histograms(found.results)


def _grid(lines: Sequence[_Line], **options: Any) -> str:
    """Return a table in which columns with a number in any line are sorted by numbers."""
    columns = [*lines[0]] if lines else []
    found = {name: [line[name][1] for line in lines] for name in columns}
    numbers = {
        name: [math.nan if each is None else each for each in column]
        for name, column in found.items()
        if any(each is not None for each in column)
    }
    texts = [{name: text for name, (text, _) in line.items()} for line in lines]
    return Table.of(texts, left={*columns} - numbers.keys(), **options).html(numbers)


def _line(result: BenchResult, added: _Line) -> _Line:
    low, high = result.interval_ms
    launches, shown = result.launches, cells(result)
    return {
        "name": (result.name, None),
        "median": (shown["median"], result.median_ms),
        **added,
        "95 % interval": (shown["95 % interval"], high - low),
        "min": (shown["min"], result.min_ms),
        "mean": (duration(result.mean_ms), result.mean_ms),
        "p90": (duration(result.p90_ms), result.p90_ms),
        "max": (duration(result.max_ms), result.max_ms),
        "samples": (shown["samples"], result.count),
        "memory": (shown["memory"], result.peak_bytes),
        "launches": (str(launches or ""), launches.total if launches else None),
        **{name: (shown[name], None) for name in ("mode", "clock", "L2", "bytes", "flops")},
    }


def _verdict(decision: Decision | None) -> tuple[str, None]:
    return ", ".join(map(str, verdicts_of(decision))), None


def _histograms(results: Sequence[BenchResult]) -> str:
    parts = [details(each.name, each._repr_html_()) for each in results[:MOST_DETAILS]]
    left = len(results) - len(parts)
    more = [f"{left:,} more results have no histogram here"] if left > 0 else []
    return "".join(parts) + html_list(more)


def graphs_part(graphs: Iterable[tuple[str, Any]]) -> str:
    """Return the drawing, or the table of nodes, of each graph."""
    return "".join(
        f'<h3>{in_html(name)}</h3><div class="drawing">{graph._repr_html_()}</div>'
        for name, graph in graphs
    )


def history_part(history: History) -> str:
    """Return the plot of each series of a history, with what was found below it."""
    parts = (
        f'<h3>{in_html(each.name)}</h3><div class="plot">{each.to_svg()}</div>'
        f"<div>{html_list(each.facts())}</div>"
        for each in history.series
    )
    return "".join(parts) or "no saved runs"
