"""What the terminal shows at the end of a session with benchmarks."""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuprof._common.text import encodable, plural, shown_text
from gpuprof._display.table import Table
from gpuprof._pytest import columns
from gpuprof._pytest.judge import place
from gpuprof._results.decision import Verdict, verdicts_of
from gpuprof._results.result import bins_of, warnings_of
from gpuprof._results.two_sides import reasons_of, remarks_of

if TYPE_CHECKING:
    import pytest

    from gpuprof._pytest.json_file import Record
    from gpuprof._pytest.session import Results
    from gpuprof._pytest.settings import Settings
    from gpuprof._results.result import BenchResult

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
    for group, members in columns.grouped(records, view):
        if group is not None:
            out.line(f"group {shown_text(group)}")
        _table(members, out, view)
        out.line("")
    measured = [record.result for record in records]
    judged = [(record.data["key"], record.decision) for record in records if record.decision]
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
        out.line(f"compared with the baseline {results.settings.compare!r}: {_counts(records)}")
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


def _counts(records: Sequence[Record]) -> str:
    """Count the verdicts, such as ``1 SLOW, 3 SAME, 1 NODATA``."""
    found = Counter(verdict for record in records for verdict in verdicts_of(record.decision))
    return ", ".join(f"{found[verdict]} {verdict}" for verdict in Verdict if found[verdict])


def _table(records: Sequence[Record], out: _Lines, view: Settings) -> None:
    names = columns.names_of(records)
    lines = [
        {"benchmark": name, **columns.line(record, view, out.bars(record.result))}
        for name, record in zip(names, records, strict=True)
    ]
    table = Table([*lines[0]], [[*line.values()] for line in lines], _LEFT)
    grid = (table if view.columns else table.without_empty()).plain()
    out.line(grid[0])
    out.line(grid[1])
    for text, record in zip(grid[2:], records, strict=True):
        # The verdicts besides the time's are red; the last one wins.
        found = verdicts_of(record.decision)
        markup = [_MARKUP[verdict] for verdict in found if verdict in _MARKUP]
        out.line(text, **(markup[-1] if markup else {}))


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
