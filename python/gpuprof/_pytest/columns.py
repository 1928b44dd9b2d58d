"""What the tables at the end of a session show, as ``--gpu-benchmark-columns`` and others ask for.

`grouped` puts records into tables and in order, `names_of` names them, and `line` has the columns
asked for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._common.quantiles import quantile
from gpuprof._common.units import duration, interval_text, percent, rate, ratio_text
from gpuprof._pytest.options import PARAMETER
from gpuprof._pytest.settings import Settings
from gpuprof._results.decision import verdicts_of
from gpuprof._results.export import figures
from gpuprof._results.result import cells
from gpuprof._results.statistics import MIN_FOR_INTERVAL

if TYPE_CHECKING:
    from gpuprof._pytest.json_file import Record

# The headings that are not the names of the options.
_HEADINGS = {"iqr": "IQR", "ops": "OPS", "l2": "L2", "interval": "95 % interval"}
_PERCENTILES = {"p10": 0.1, "p90": 0.9, "p99": 0.99}

_TIMES = ("median", "min", "max", "mean", "stddev", "iqr", "host")
_USUAL = (
    *("median", "precision", "min", "iqr", "samples", "mode", "l2", "bytes", "flops", "memory"),
    *("distribution", "baseline", "ratio", "floor", "verdict"),
)


def grouped(records: Sequence[Record], view: Settings) -> list[tuple[str | None, list[Record]]]:
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
        whole = str(data["name" if label == "func" else "key"])
        parameters = f"[{data['param']}]"
        return whole.removesuffix(parameters) if data["param"] is not None else whole
    found = data["key" if label == "fullname" else label]
    return None if found is None else str(found)


def _sort_key(record: Record, sort: str) -> tuple[Any, str]:
    name = str(record.data["name"])
    if sort in {"name", "fullname"}:
        return record.data["key" if sort == "fullname" else "name"], name
    if sort in _PERCENTILES:
        return quantile(record.result.samples_ms, _PERCENTILES[sort]), name
    return figures(record.result)[sort], name


def names_of(records: Sequence[Record]) -> list[str]:
    """Return the tests' names, and the whole identity of those that share one."""
    counts = Counter(record.data["name"] for record in records)
    return [
        str(record.data["name" if counts[record.data["name"]] == 1 else "key"])
        for record in records
    ]


def line(record: Record, view: Settings, distribution: str) -> dict[str, str]:
    """Return a line of a table by heading, without the name."""
    result, decision = record.result, record.decision
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
        **dict.fromkeys(("ratio", "floor", "verdict"), ""),
    }
    if decision is not None:
        texts["ratio"] = "" if decision.ratio is None else ratio_text(decision.ratio)
        texts["floor"] = "" if decision.floor is None else percent(decision.floor, 2)
        texts["verdict"] = ", ".join(map(str, verdicts_of(decision)))
    return {_HEADINGS.get(label, label): texts[label] for label in view.columns or _USUAL}
