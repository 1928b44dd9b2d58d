"""The parts of a report: statistics, results, comparisons, graphs and histories, as HTML."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from gpuprof._common.instructions import amount
from gpuprof._common.units import duration, interval_text, percent, ratio_text
from gpuprof._display.tree import tree_lines
from gpuprof._report.page import Cell, details, escaped, notes, table
from gpuprof._results.comparison import CompareResult
from gpuprof._results.count_verdicts import notes_of
from gpuprof._results.decision import Decision
from gpuprof._results.history import History
from gpuprof._results.result import BenchResult, cells
from gpuprof._results.texts import peak_text
from gpuprof._results.two_sides import Comparison
from gpuprof._timing import stats_table
from gpuprof._timing.stats import Stats

MOST_DETAILS = 300  # histograms; each takes some 5 KB
_SHARES = ("total", "self", "share", "count")
_FIGURES = ("p50", "mean", "p99", "max")
_OTHERS = ("first", "flops_per_s", "bytes_per_s", "peak_share", "peak_memory", "memory_change")
_MEDIAN = "median"
_RESULT_TEXTS = ("mode", "clock", "L2", "bytes", "flops")


def stats_part(stats: Stats) -> str:
    """Return the tree of scopes, each with a bar: its share of all time on the same clock."""
    shown = stats._table()
    lines = tree_lines(stats.values())
    roots: dict[str, float] = {}
    for line in lines:
        if not line.depth:
            roots[line.row.clock] = roots.get(line.row.clock, 0.0) + line.row.time.total_ms
    clocks = [*dict.fromkeys(line.row.clock for line in lines)]
    on_gpu = any(line.row.on_gpu for line in lines)
    times = [f"{of}_{figure}" for of in ("gpu", "host")[not on_gpu :] for figure in _FIGURES]
    columns = [*_SHARES, *times, *_OTHERS]
    body = []
    for line in lines:
        row, whole = line.row, roots.get(line.row.clock, 0.0)
        name = Cell(line.label, bar=row.time.total_ms / whole if whole > 0 else 0.0)
        clock = Cell(row.clock if len(clocks) > 1 else "")
        figures = (
            Cell(stats_table.cell_text(stats, row, each), stats_table.value(stats, row, each))
            for each in columns
        )
        body.append([name, clock, *figures, Cell(stats_table.notes_of(row))])
    headings = ["scope", "clock", *(stats_table.HEADINGS[each] for each in columns), "notes"]
    heading = f'<div class="faint">{escaped(" ".join(shown.titles))}</div>'
    grid = table(headings, body, [line.depth for line in lines]) if body else ""
    return f"{heading}{grid}{notes(shown.notes)}"


def _time(ms: float) -> Cell:
    return Cell(duration(ms), ms)


def _known(value: float | None) -> float:
    return math.nan if value is None else value


def results_part(results: Sequence[tuple[BenchResult, Decision | None]]) -> str:
    """Return a table of results with their verdicts, and the histogram of each."""
    lines = []
    for result, decision in results:
        figures = _figures(result)
        lines.append([*figures[:2], _verdict(decision), *figures[2:], *_texts(result)])
    grid = table([*_COLUMNS[:2], "verdict", *_COLUMNS[2:], *_RESULT_TEXTS], lines)
    rules = [
        f"{result.name}: {text}"
        for result, decision in results
        if decision is not None
        for text in _reasons(decision)
        if text
    ]
    return grid + notes(rules) + _histograms([result for result, _ in results])


def _reasons(decision: Decision) -> list[str]:
    """Return what decided on the time and on the rest, and what else to know."""
    beside = [f"{each.verdict}: {each.rule}" for each in decision.grown]
    return [decision.rule, *beside, *notes_of(decision)]


_COLUMNS = (
    "name",
    _MEDIAN,
    "95 % interval",
    "min",
    "mean",
    "p90",
    "max",
    "samples",
    "memory",
    "launches",
    "instructions",
)


def _figures(result: BenchResult) -> list[Cell]:
    low, high = result.interval_ms
    peak, launches = result.peak_bytes, result.launches
    count = result.instructions.median if result.instructions else None
    return [
        Cell(result.name),
        _time(result.median_ms),
        Cell(interval_text(low, high), high - low),
        *(_time(ms) for ms in (result.min_ms, result.mean_ms, result.p90_ms, result.max_ms)),
        Cell(f"{result.count:,}", result.count),
        Cell(peak_text(peak), _known(peak)),
        Cell("") if launches is None else Cell(str(launches), launches.total),
        Cell("" if count is None else amount(count), _known(count)),
    ]


def _texts(result: BenchResult) -> list[Cell]:
    shown = cells(result)
    return [Cell(shown[name]) for name in _RESULT_TEXTS]


def _verdict(decision: Decision | None) -> Cell:
    if decision is None:
        return Cell("")
    verdicts = [decision.verdict, *(each.verdict for each in decision.grown)]
    text = ", ".join(map(str, dict.fromkeys(verdicts)))
    return Cell(text, style=verdicts[-1].value)


def comparison_part(found: CompareResult) -> str:
    """Return a comparison: its table with ratios and verdicts, and the histograms."""
    lines = []
    for row in found.values():
        ratio, interval = "", ""
        if row.decision is not None:
            ratio, interval = ratio_text(row.ratio), ratio_text(*(row.interval or ()))
        figures = _figures(row.result)
        added = [
            Cell(ratio, row.ratio if ratio else math.nan),
            Cell(interval),
            _verdict(row.decision),
        ]
        lines.append([*figures[:2], *added, *figures[2:], *_texts(row.result)])
    columns = [*_COLUMNS[:2], f"ratio to {found.base}", "interval of the ratio", "verdict"]
    grid = table([*columns, *_COLUMNS[2:], *_RESULT_TEXTS], lines)
    return grid + notes(found._notes()) + _histograms(found.results)


def sides_part(found: Comparison) -> str:
    """Return a comparison of saved runs or of two commands: a line for each name that both have."""
    several = len({line.machine for line in found.lines}) > 1
    lines = []
    for line in found.lines:
        decision, ratio = line.decision, line.decision.ratio
        memory, floor = decision.memory, decision.floor
        lines.append(
            [
                Cell(line.name),
                Cell(line.machine if several else ""),
                *map(_time_or_nothing, (decision.base, decision.new)),
                Cell("" if ratio is None else ratio_text(ratio), _known(ratio)),
                Cell(ratio_text(*(decision.interval or ()))),
                Cell("" if floor is None else percent(floor), _known(floor)),
                *map(_peak, (memory.base, memory.new) if memory else (None, None)),
                _verdict(decision),
            ]
        )
    columns = ["benchmark", "machine", *found.names, "ratio", "95 % interval", "floor"]
    columns += [f"{name} memory" for name in found.names]
    grid = table([*columns, "verdict"], lines) if lines else ""
    return notes(found.headline()) + grid + notes([*found.reasons(), *found.remarks()])


def _time_or_nothing(ms: float | None) -> Cell:
    return Cell("") if ms is None else _time(ms)


def _peak(peak: float | None) -> Cell:
    return Cell(peak_text(peak), _known(peak))


def _histograms(results: Sequence[BenchResult]) -> str:
    parts = [details(each.name, each._repr_html_()) for each in results[:MOST_DETAILS]]
    left = len(results) - len(parts)
    more = [f"{left:,} more results have no histogram here"] if left > 0 else []
    return "".join(parts) + notes(more)


def graphs_part(graphs: Iterable[tuple[str, Any]]) -> str:
    """Return the drawing, or the table of nodes, of each graph."""
    return "".join(
        f'<h3>{escaped(name)}</h3><div class="drawing">{graph._repr_html_()}</div>'
        for name, graph in graphs
    )


def history_part(history: History) -> str:
    """Return the plot of each series of a history, with what was found below it."""
    return "".join(
        f'<h3>{escaped(each.name)}</h3><div class="plot">{each.to_svg()}</div>{notes(each.facts())}'
        for each in history.series
    ) or notes(["no saved runs"])
