"""A history as records, and read back from its plain form, which is not trusted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gpuprof._common import checks
from gpuprof._display.records import Cell, Records
from gpuprof._results.change_point import HistoryChange
from gpuprof._results.history_series import HistoryPoint, HistorySeries

FORMAT = "gpuprof-history"
VERSION = 1
_COLUMNS = (
    "benchmark",
    "baseline",
    "machine",
    "time",
    "value_ms",
    "low_ms",
    "high_ms",
    "commit",
    "compared",
    "changed",
)


def records(series: Iterable[HistorySeries]) -> Records:
    """Return a record for each run."""
    lines: list[list[Cell]] = []
    for each in series:
        for place, point in enumerate(each.points):
            changed = each.change is not None and each.change.index == place
            what = [each.benchmark, each.baseline, point.machine, point.time]
            figures = [point.value, point.low, point.high]
            lines.append([*what, *figures, point.commit, point.compared, changed])
    return Records(_COLUMNS, lines)


def read(data: object) -> list[HistorySeries]:
    """Return the series of a plain form; ValueError says what is wrong."""
    kind = (data.get("format"), data.get("version")) if isinstance(data, Mapping) else data
    if not isinstance(data, Mapping) or kind != (FORMAT, VERSION):
        message = (
            f"data has format and version {checks.shortened(kind)}; expected {FORMAT!r} and "
            f"{VERSION}: pass what History.to_dict() of a matching gpuprof returned"
        )
        raise ValueError(message)
    with checks.damaged("the history"):
        found = checks.sequence("series", data["series"])
        return [_series(f"series[{place}]", each) for place, each in enumerate(found)]


def _series(name: str, data: object) -> HistorySeries:
    found = checks.mapping(name, data)
    points = checks.sequence(f"{name}.points", found["points"])
    if not points:
        raise checks.value_error(points, f"{name}.points", "at least one run")
    notes = checks.sequence(f"{name}.notes", found["notes"])
    texts = ("name", "benchmark", "baseline", "machine", "unit")
    series = HistorySeries(
        **{key: checks.text(f"{name}.{key}", found[key]) for key in texts},
        points=tuple(_point(f"{name}.points[{at}]", each) for at, each in enumerate(points)),
        change=_change(f"{name}.change", found["change"], len(points)),
        notes=tuple(checks.text(f"{name}.notes", note) for note in notes),
    )
    if series.change is not None and not _has_ratio(series):
        message = f"{name}.change has no compared run with a time on one of its sides"
        raise ValueError(message)
    return series


def _has_ratio(series: HistorySeries) -> bool:
    at = series.change.index if series.change else 0
    sides = series.points[:at], series.points[at:]
    return all(any(each.compared and each.value > 0.0 for each in side) for side in sides)


def _point(name: str, data: object) -> HistoryPoint:
    found = checks.mapping(name, data)
    value, low, high = (
        checks.number(f"{name}.{key}", found[key], 0.0) for key in ("value", "low", "high")
    )
    time, machine = (checks.text(f"{name}.{key}", found[key]) for key in ("time", "machine"))
    commit = found["commit"]
    if commit is not None:
        checks.text(f"{name}.commit", commit)
    compared = checks.flag(f"{name}.compared", found["compared"])
    return HistoryPoint(time, value, low, high, commit, machine, compared)


def _change(name: str, data: object, count: int) -> HistoryChange | None:
    if data is None:
        return None
    found = checks.mapping(name, data)
    index = checks.whole(f"{name}.index", found["index"], 1, count - 1)
    return HistoryChange(index, checks.number(f"{name}.p", found["p"], 0.0, 1.0))
