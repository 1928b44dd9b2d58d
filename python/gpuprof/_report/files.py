"""What a report is made of, read from files: statistics, results, comparisons, histories.

Files are not trusted: their reader bounds size, depth and memory.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuprof._common.records import format_of
from gpuprof._results.comparison import CompareResult
from gpuprof._results.decision import Decision
from gpuprof._results.history import History
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import kind_of, load_data
from gpuprof._results.two_sides import Comparison
from gpuprof._timing.stats import Stats
from gpuprof.errors import BaselineError

Judged = tuple[BenchResult, "Decision | None"]
_DAMAGE = (LookupError, TypeError, ValueError, AttributeError, OverflowError)


@dataclass
class Contents:
    """What files hold: statistics and histories by the name of their file, results in order."""

    stats: dict[str, Stats] = field(default_factory=dict)
    results: list[Judged | CompareResult | Comparison] = field(default_factory=list)
    history: dict[str, History] = field(default_factory=dict)


def read(paths: Iterable[str]) -> Contents:
    """Read files of any kind that a report can show; BaselineError says what is wrong with one."""
    found = Contents()
    for path in paths:
        _add(found, Path(path))
    return found


def _add(found: Contents, path: Path) -> None:
    data = load_data(path)
    kind = data.get("format") if isinstance(data, dict) else None
    try:
        if kind == format_of(Stats):
            name = _name(path, found.stats)
            found.stats[name] = Stats.from_dict(data)
            repr(found.stats[name])  # which reads all of it: damage shows here
        elif kind == format_of(History):
            found.history[_name(path, found.history)] = History.from_dict(data)
        elif kind == format_of(CompareResult):
            found.results.append(CompareResult.from_dict(data))
        elif kind == format_of(Comparison):
            found.results.append(Comparison.from_dict(data))
        else:
            found.results += _results(path, data)
    except _DAMAGE as error:
        what = type(error).__name__
        reason = str(error) if what == "ValueError" else f"it is damaged: {what}: {error}"
        message = f"{path} cannot be used: {reason}"
        raise BaselineError(message) from None


def _name(path: Path, taken: Container[str]) -> str:
    return path.stem if path.stem not in taken else str(path)


def _results(path: Path, data: Any) -> list[Judged]:
    """Return the results in a file, with the verdicts that a test session has."""
    _, run = kind_of(path, data)
    decisions = {}
    for entry in data.get("benchmarks", ()):
        decision = entry["gpuprof"].get("decision")
        name = str(entry.get("fullname") or entry["gpuprof"]["result"]["name"])
        decisions[name] = None if decision is None else Decision.from_dict(decision)
    return [(result, decisions.get(name)) for name, result in run.results.items()]
