"""What the tables at the end show: columns, order, groups, names and the unit, as options say.

Every start of pytest imports it, so it imports the standard library only; `columns` has the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

# What pytest-benchmark has, then what only gpuprof has.
COLUMNS = (
    *("min", "max", "mean", "stddev", "median", "iqr", "outliers", "ops", "rounds", "iterations"),
    *("interval", "precision", "p10", "p90", "p99", "host", "samples", "mode", "l2", "bytes"),
    *("flops", "memory", "distribution", "baseline", "ratio", "floor", "verdict"),
)
SORT = (
    *("min", "max", "mean", "stddev", "name", "fullname"),
    *("median", "iqr", "ops", "rounds", "p10", "p90", "p99"),
)
GROUPS = ("group", "name", "func", "fullname", "fullfunc", "param")
PARAMETER = "param:"
NAMES = ("short", "normal", "long")
# The length of each unit in milliseconds, and how it is written.
UNITS = {"ns": (1e-6, "ns"), "us": (1e-3, "µs"), "ms": (1.0, "ms"), "s": (1e3, "s")}
AUTO = "auto"


@dataclass(frozen=True)
class View:
    """Without `columns` there are the usual ones; without `sort` the tests are in their order.

    Without `names` a test has its name, and its whole identity where two have the same name. `unit`
    is a key of `UNITS`, or None for the one that suits each time.
    """

    columns: tuple[str, ...] = ()
    sort: str | None = None
    group_by: tuple[str, ...] = ("group",)
    names: str | None = None
    unit: str | None = None
