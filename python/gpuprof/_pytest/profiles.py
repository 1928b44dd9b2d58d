"""What ``--gpu-benchmark-cprofile`` shows: the functions that a call spends its time in.

The call is one more, after the measurement, because cProfile slows down what it watches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

_BY_DEFAULT = "cumtime"
_MOST = 25  # functions, as in pytest-benchmark
_HEADINGS = ("ncalls", "tottime", "percall", "cumtime", "percall", "filename:lineno(function)")
_COLUMNS = ("ncalls_recursion", "tottime", "tottime_per", "cumtime", "cumtime_per", "function_name")


def of(call: Callable[[Callable[..., Any]], object], column: Any) -> list[dict[str, Any]]:
    """Profile a call; return the functions that took most by a column, True for the usual one.

    Times are seconds, and the keys those of pytest-benchmark. `call` is given what runs the
    function with its arguments: set-up steps around that are not in the profile.
    """
    import cProfile
    import pstats

    profile = cProfile.Profile()
    call(profile.runcall)
    column = _BY_DEFAULT if column is True else column
    found = [_row(*each) for each in vars(pstats.Stats(profile))["stats"].items()]
    return sorted(found, key=lambda row: row[column], reverse=True)[:_MOST]


def _row(function: tuple[str, int, str], figures: Sequence[Any]) -> dict[str, Any]:
    file, line, name = function
    primitive, calls, own, whole = figures[:4]
    file = file.removeprefix(f"{Path.cwd().parent}/")
    return {
        "ncalls_recursion": str(calls) if calls == primitive else f"{calls}/{primitive}",
        "ncalls": calls,
        "tottime": own,
        "tottime_per": own / max(primitive, 1),
        "cumtime": whole,
        "cumtime_per": whole / max(primitive, 1),
        "function_name": f"{file}:{line}({name})",
    }


def rows(profile: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the lines of a table."""
    cells = [[_cell(row[column]) for column in _COLUMNS] for row in profile]
    return ["\t".join(row) for row in (_HEADINGS, *cells)]


def _cell(value: Any) -> str:
    return f"{value:.4f}" if isinstance(value, float) else str(value)
