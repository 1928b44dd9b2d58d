"""What the tables at the end of a session show, as ``--gpu-benchmark-columns`` and others ask for.

`grouped` puts records into tables and in order, `names_of` names them, and `arranged` picks the
columns of a line and writes its times in the unit asked for.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._common.quantiles import quantile
from gpuprof._common.units import duration, interval_text, percent, rate
from gpuprof._pytest.options import PARAMETER, UNITS
from gpuprof._pytest.settings import View
from gpuprof._results.export import figures
from gpuprof._results.result import cells

if TYPE_CHECKING:
    from gpuprof._pytest.json_file import Record
    from gpuprof._results.result import BenchResult

NAME = "benchmark"
# The headings that are not the names of the options.
_HEADINGS = {"iqr": "IQR", "ops": "OPS", "l2": "L2", "interval": "95 % interval"}
_PERCENTILES = {"p10": 0.1, "p90": 0.9, "p99": 0.99}
_DIGITS = 4
_MAX_PLACES = 9

# In milliseconds.
_TIMES: dict[str, Callable[[Record], float | None]] = {
    "median": lambda record: record.result.median_ms,
    "min": lambda record: record.result.min_ms,
    "max": lambda record: record.result.max_ms,
    "mean": lambda record: record.result.mean_ms,
    "stddev": lambda record: record.result.stddev_ms,
    "iqr": lambda record: record.result.iqr_ms,
    "p10": lambda record: _percentile(record.result, "p10"),
    "p90": lambda record: _percentile(record.result, "p90"),
    "p99": lambda record: _percentile(record.result, "p99"),
    "host": lambda record: record.result.host_ms,
    "baseline": lambda record: record.decision.base if record.decision else None,
}


def grouped(records: Sequence[Record], view: View) -> list[tuple[str | None, list[Record]]]:
    """Return the records by group, sorted by its name; tests of no group are first."""
    found: dict[str | None, list[Record]] = {}
    for record in records:
        parts = [_part(record, label) for label in view.group_by]
        group = " ".join(part for part in parts if part) or None
        found.setdefault(group, []).append(record)
    return [
        (group, _in_order(members, view.sort))
        for group, members in sorted(found.items(), key=lambda each: each[0] or "")
    ]


def _part(record: Record, label: str) -> str | None:
    """Return what a test's group is called by one of the labels of ``group-by``."""
    data = record.data
    if label.startswith(PARAMETER):
        name, params = label.removeprefix(PARAMETER), data["params"] or {}
        return f"{name}={params[name]}" if name in params else None
    if label in {"func", "fullfunc"}:
        whole = str(data["name" if label == "func" else "key"])
        parameters = f"[{data['param']}]"
        return whole.removesuffix(parameters) if data["param"] is not None else whole
    found = data["key" if label == "fullname" else label]
    return None if found is None else str(found)


def _in_order(records: list[Record], sort: str | None) -> list[Record]:
    if sort is None:
        return records
    return sorted(records, key=lambda record: _sort_key(record, sort))


def _sort_key(record: Record, sort: str) -> tuple[Any, str]:
    name = str(record.data["name"])
    if sort in {"name", "fullname"}:
        return record.data["key" if sort == "fullname" else "name"], name
    if sort in _PERCENTILES:
        return _percentile(record.result, sort), name
    return figures(record.result)[sort], name


def names_of(records: Sequence[Record], names: str | None) -> list[str]:
    """Return what a table calls each record."""
    if names == "long":
        return [str(record.data["key"]) for record in records]
    if names is not None:
        given = [str(record.data["name"]) for record in records]
        return [name.removeprefix("test_") for name in given] if names == "short" else given
    counts = Counter(record.data["name"] for record in records)
    return [
        str(record.data["name" if counts[record.data["name"]] == 1 else "key"])
        for record in records
    ]


def arranged(usual: Mapping[str, str], record: Record, view: View) -> dict[str, str]:
    """Return a line of a table by heading: the usual one as the options change it."""
    line = dict(usual)
    by_label = {heading.lower(): heading for heading in line}
    for label, value in _TIMES.items():
        if view.unit is not None and label in by_label:
            line[by_label[label]] = time_text(value(record), view.unit)
    if not view.columns:
        return line
    chosen = {NAME: line[NAME]}
    for label in view.columns:
        found = by_label.get(label)
        chosen[heading(label)] = line[found] if found else _cell(record, label, view.unit)
    return chosen


def heading(label: str) -> str:
    """Return what stands above a column."""
    return _HEADINGS.get(label, label)


def _cell(record: Record, label: str, unit: str | None) -> str:
    """Return a cell of a column that the usual table does not have."""
    result = record.result
    if label in _TIMES:
        return time_text(_TIMES[label](record), unit)
    if label == "interval":
        low, high = result.interval_ms
        if unit is None:
            return interval_text(low, high)
        return f"{time_text(low, unit)} to {time_text(high, unit)}"
    if label == "ops":
        return rate(figures(result)["ops"], "").replace(" /s", "/s")
    if label == "precision":
        return percent(result.rel_precision, 2)
    if label in {"outliers", "rounds", "iterations"}:
        found = figures(result)[label]
        return found if isinstance(found, str) else f"{found:,}"
    return cells(result).get(heading(label), "")


def time_text(ms: float | None, unit: str | None) -> str:
    """Write milliseconds in a unit with four digits or more; None is the unit that suits them."""
    if ms is None:
        return ""
    if unit is None or math.isnan(ms):
        return duration(ms)
    scale, name = UNITS[unit]
    value = ms / scale
    places = 0
    while places < _MAX_PLACES and 0 < abs(value) < 10 ** (_DIGITS - 1 - places):
        places += 1
    return f"{value:,.{places}f} {name}"


def _percentile(result: BenchResult, label: str) -> float:
    return quantile(result.samples_ms, _PERCENTILES[label])
