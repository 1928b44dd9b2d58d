"""What the terminal shows at the end of a session with benchmarks.

The tables have the columns, groups and order that ``--gpu-benchmark-columns`` and others ask for.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from gpuprof._common.quantiles import quantile
from gpuprof._common.text import encodable, plural, shown_text
from gpuprof._common.units import duration, interval_text, percent, rate, ratio_text
from gpuprof._display.table import Table
from gpuprof._pytest.json_file import Record
from gpuprof._pytest.judge import place
from gpuprof._pytest.options import PARAMETER
from gpuprof._pytest.session import Results
from gpuprof._pytest.settings import Settings
from gpuprof._results.decision import Verdict, verdicts_of
from gpuprof._results.export import figures
from gpuprof._results.result import BenchResult, bins_of, cells, warnings_of
from gpuprof._results.statistics import MIN_FOR_INTERVAL
from gpuprof._results.two_sides import reasons_of, remarks_of

# The headings that are not the names of the options.
_HEADINGS = {"iqr": "IQR", "ops": "OPS", "l2": "L2", "interval": "95 % interval"}
_PERCENTILES = {"p10": 0.1, "p90": 0.9, "p99": 0.99}

_TIMES = ("median", "min", "max", "mean", "stddev", "iqr", "host")
_USUAL = (
    *("median", "precision", "min", "iqr", "samples", "mode", "l2", "bytes", "flops", "memory"),
    *("distribution", "baseline", "ratio", "floor", "verdict"),
)

_BARS = "▁▂▃▄▅▆▇█"
_PLAIN_BARS = ".:-=+*#@"
_BINS = 10
_LEFT = frozenset({"benchmark", "mode", "L2", "verdict", "distribution"})
_WORSE = (Verdict.SLOW, Verdict.MEMORY, Verdict.LAUNCHES)
_UNDECIDED = {Verdict.AMBIGUOUS, Verdict.INCOMPARABLE}
_MARKUP = {
    **{verdict: {"red": True, "bold": True} for verdict in _WORSE},
    Verdict.FAST: {"green": True},
    **{verdict: {"yellow": True} for verdict in _UNDECIDED},
}
_MAX_WARNINGS = 20


def show(results: Results, reporter: pytest.TerminalReporter) -> None:
    """Write a table for each group, the warnings, the counts of verdicts and the notes."""
    records = results.records
    out = _Lines(reporter)
    if records or results.problems or results.notes:
        reporter.section(_title(records), sep="-", yellow=True)
    view = results.settings
    for group, members in _grouped(records, view):
        if group is not None:
            out.line(f"group {shown_text(group)}")
        _table(members, out, view)
        out.line("")
    measured = [record.result for record in records]
    judged = [(record.data["fullname"], record.decision) for record in records if record.decision]
    warnings = reasons_of(judged, _UNDECIDED, results.settings.compare) + warnings_of(measured)
    warnings += [f"note: {text}" for text in remarks_of(judged)]
    for text in warnings[:_MAX_WARNINGS]:
        out.line(shown_text(text))
    if len(warnings) > _MAX_WARNINGS:
        out.line(f"... and {len(warnings) - _MAX_WARNINGS} more warnings")
    if reporter.verbosity > 0:
        for result in measured:
            out.line(f"{result.name}: {result.count} samples")
            for line in result.histogram().splitlines():
                out.line(f"  {line}")
    if results.settings.compare and records:
        found = Counter(verdict for record in records for verdict in verdicts_of(record.decision))
        counts = ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict])
        out.line(f"compared with the baseline {results.settings.compare!r}: {counts}")
    for note in results.notes:
        out.line(note)
    for problem in results.problems:
        out.line(problem, red=True, bold=True)


def _title(records: Sequence[Record]) -> str:
    """Say what was measured on: a run on the CPU clock must be easy to see."""
    measured = [record.result for record in records]
    if not measured:
        return "gpu_benchmark: nothing was measured"
    places = ", ".join(dict.fromkeys(map(place, measured)))
    on_cpu = sum(result.clock == "cpu" for result in measured)
    clock = f", {on_cpu} of them on the CPU clock" if on_cpu else ""
    if on_cpu == len(measured):
        clock = " on the CPU clock, no GPU time"
    return f"gpu_benchmark: {plural(len(measured), 'benchmark')}{clock}: {places}"


def _table(records: Sequence[Record], out: _Lines, view: Settings) -> None:
    names = Counter(record.data["name"] for record in records)
    lines = []
    for record in records:
        name = record.data["name" if names[record.data["name"]] == 1 else "fullname"]
        lines.append({"benchmark": str(name), **_line(record, view, out.bars(record.result))})
    table = Table([*lines[0]], [[*line.values()] for line in lines], _LEFT)
    grid = (table if view.columns else table.without_empty()).plain()
    out.line(grid[0])
    out.line(grid[1])
    for text, record in zip(grid[2:], records, strict=True):
        # The verdicts besides the time's are red; the last one wins.
        found = verdicts_of(record.decision)
        markup = [_MARKUP[verdict] for verdict in found if verdict in _MARKUP]
        out.line(text, **(markup[-1] if markup else {}))


def _grouped(records: Sequence[Record], view: Settings) -> list[tuple[str | None, list[Record]]]:
    """Return the records by group, sorted by its name; tests of no group are first."""
    found: dict[str | None, list[Record]] = {}
    for record in records:
        parts = [_part(record, label) for label in view.group_by]
        group = " ".join(part for part in parts if part) or None
        found.setdefault(group, []).append(record)
    if sort := view.sort:
        for members in found.values():
            members.sort(key=lambda record: _sort_key(record, sort))
    return sorted(found.items(), key=lambda each: each[0] or "")


def _part(record: Record, label: str) -> str | None:
    """Return what a test's group is called by one of the labels of ``group-by``."""
    data = record.data
    if label.startswith(PARAMETER):
        name, params = label.removeprefix(PARAMETER), data["params"] or {}
        return f"{name}={params[name]}" if name in params else None
    if label in {"func", "fullfunc"}:
        whole = str(data["name" if label == "func" else "fullname"])
        parameters = f"[{data['param']}]"
        return whole.removesuffix(parameters) if data["param"] is not None else whole
    return None if data[label] is None else str(data[label])


def _sort_key(record: Record, sort: str) -> tuple[Any, str]:
    name = str(record.data["name"])
    if sort in {"name", "fullname"}:
        return record.data[sort], name
    if sort in _PERCENTILES:
        return quantile(record.result.samples_ms, _PERCENTILES[sort]), name
    return figures(record.result)[sort], name


def _line(record: Record, view: Settings, distribution: str) -> dict[str, str]:
    """Return a line of a table by heading, without the name."""
    result, decision = record.result, record.decision
    ratio, floor = (decision.ratio, decision.floor) if decision else (None, None)
    times = {label: getattr(result, f"{label}_ms") for label in _TIMES}
    times |= {label: quantile(result.samples_ms, q) for label, q in _PERCENTILES.items()}
    times["baseline"] = decision.base if decision else None
    found = figures(result)
    texts = {name.lower(): text for name, text in cells(result).items()}
    texts |= {label: "" if ms is None else duration(ms) for label, ms in times.items()}
    texts |= {
        "interval": interval_text(*result.interval_ms),
        "ops": rate(found["ops"], "").replace(" /s", "/s"),
        "outliers": found["outliers"],
        "rounds": f"{found['rounds']:,}",
        "iterations": f"{found['iterations']:,}",
        "precision": percent(result.rel_precision, 2) if result.count >= MIN_FOR_INTERVAL else "",
        "distribution": distribution,
        "ratio": "" if ratio is None else ratio_text(ratio),
        "floor": "" if floor is None else percent(floor, 2),
        "verdict": ", ".join(map(str, verdicts_of(decision))),
    }
    return {_HEADINGS.get(label, label): texts[label] for label in view.columns or _USUAL}


class _Lines:
    """Writes lines, with replacements for what the terminal's encoding lacks."""

    def __init__(self, reporter: pytest.TerminalReporter) -> None:
        self._reporter = reporter
        file = getattr(reporter._tw, "_file", sys.stdout)
        self._encoding = getattr(file, "encoding", None) or "utf-8"

    def line(self, text: str, **markup: bool) -> None:
        self._reporter.write_line(encodable(text, self._encoding), **markup)

    def bars(self, result: BenchResult) -> str:
        """Draw the distribution of the samples in a few characters, shortest times left."""
        steps = _BARS if self._encoding.lower().startswith("utf") else _PLAIN_BARS
        found = bins_of(result, _BINS)
        most = max(each.count for each in found)
        return "".join(
            steps[math.ceil(len(steps) * each.count / most) - 1] if each.count else " "
            for each in found
        )
