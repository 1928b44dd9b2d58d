"""What the tables at the end show: columns, order, groups, names and the unit, as options say.

Every start of pytest imports it, so it imports pytest and the standard library only; `columns` has
the cells.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from gpuprof._pytest import options

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


def read_view(config: pytest.Config) -> View:
    """Read the options; raise a usage error if one has an invalid value."""
    columns = [name.lower() for name in options.words(config, "columns")]
    _check("columns", columns, COLUMNS)
    groups = options.words(config, "group-by") or ["group"]
    named = [name for name in groups if not (name.startswith(PARAMETER) and name != PARAMETER)]
    _check("group-by", named, GROUPS, f" or {PARAMETER}NAME")
    unit = options.choice(config, "time-unit", (*UNITS, AUTO))
    return View(
        columns=tuple(columns),
        sort=options.choice(config, "sort", SORT),
        group_by=tuple(groups),
        names=options.choice(config, "name", NAMES),
        unit=None if unit == AUTO else unit,
    )


def _check(option: str, given: list[str], known: tuple[str, ...], more: str = "") -> None:
    for name in given:
        if name not in known:
            expected = f"some of {', '.join(known)}{more}, separated by commas"
            raise options.wrong(option, name, expected)
