"""``gpuprof list``: what is saved, as a table, Markdown, CSV or JSON.

Without a name it is a line for each baseline and kind of machine; with one, a line for each
benchmark of each run. Damaged files are an error, as in every other place that reads them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprof._cli.compare import InputError, Source, load
from gpuprof._common.text import plain_data, shown_text
from gpuprof._common.units import duration
from gpuprof._display.records import Cell, Records
from gpuprof._display.table import Table
from gpuprof._results.baselines import Baselines
from gpuprof._results.figures import FIGURES, figures
from gpuprof.errors import BaselineError

FORMAT = "gpuprof-list"
VERSION = 1
_COMMIT_DIGITS = 12
_TIMES = ("median", "min", "max", "mean", "stddev", "iqr")
_LEFT = frozenset({"baseline", "machine", "saved", "commit", "benchmark", "mode"})

Row = Mapping[str, Any]


def run(options: argparse.Namespace) -> str:
    """Return the text to print; InputError says what cannot be read."""
    if options.what is None:
        rows = _baselines(Baselines(options.storage))
        shown = [_shown_baseline(row) for row in rows]
        nothing = f"no baseline is saved in {shown_text(options.storage)}\n"
    else:
        rows = _benchmarks(load(options.what, options.storage))
        shown = [_shown_benchmark(row) for row in rows]
        nothing = f"{shown_text(options.what)} holds no benchmark\n"
    if options.format == "json":
        content = {"format": FORMAT, "version": VERSION, "unit": "s", "rows": plain_data(rows)}
        return json.dumps(content, indent=2, allow_nan=False) + "\n"
    if options.format == "csv":
        return _csv(rows, options.what is not None)
    if not rows:
        return nothing
    table = Table([*shown[0]], [[*row.values()] for row in shown], _LEFT).without_empty()
    lines = table.markdown() if options.format == "md" else table.plain()
    return "\n".join(lines) + "\n"


_BASELINE_COLUMNS = ("baseline", "machine", "runs", "benchmarks", "saved", "commit")


def _baselines(baselines: Baselines) -> list[Row]:
    """Return a row for each baseline and kind of machine, what was saved last at the end."""
    try:
        rows = [
            {
                "baseline": name,
                "machine": machine,
                "runs": len(runs),
                "benchmarks": len({each for run in runs for each in run.results}),
                "saved": runs[-1].created,
                "commit": runs[-1].commit,
            }
            for name in baselines.names()
            for machine, runs in baselines.runs(name).items()
            if runs
        ]
    except BaselineError as error:
        raise InputError(str(error)) from error
    return sorted(rows, key=lambda row: (str(row["saved"]), str(row["baseline"])))


def _shown_baseline(row: Row) -> dict[str, str]:
    counts = {name: f"{row[name]:,}" for name in ("runs", "benchmarks")}
    commit = (row["commit"] or "")[:_COMMIT_DIGITS]
    return {name: str(row[name]) for name in row} | counts | {"commit": commit}


_FACTS = ("benchmark", "machine", "run", "saved", "commit", "mode", "clock")


def _benchmarks(source: Source) -> list[Row]:
    """Return a row for each benchmark of each run, the figures in seconds."""
    rows: list[Row] = []
    for machine, runs in source.runs.items():
        for number, run in enumerate(runs, start=1):
            for name, result in run.results.items():
                found = figures(result)
                facts = (name, machine, number, run.created, run.commit, result.mode, result.clock)
                rows.append(
                    dict(zip(_FACTS, facts, strict=True))
                    | {each: found[each] for each in FIGURES}
                    | {"params": dict(result.params), "extra_info": dict(result.extra_info)}
                )
    return sorted(rows, key=lambda row: (row["benchmark"], row["machine"], row["run"]))


def _shown_benchmark(row: Row) -> dict[str, str]:
    return {
        "benchmark": row["benchmark"],
        "run": str(row["run"]),
        **{name: duration(1e3 * row[name]) for name in _TIMES},
        "samples": f"{row['rounds']:,}",
        "mode": row["mode"],
        "saved": row["saved"],
        "commit": (row["commit"] or "")[:_COMMIT_DIGITS],
    }


def _csv(rows: Sequence[Row], is_one_baseline: bool) -> str:
    """Write a line for each row below the names of the columns; mappings get a column a key."""
    columns = [*_FACTS, *FIGURES] if is_one_baseline else [*_BASELINE_COLUMNS]
    more = [
        (mapping, key, f"{short}:{key}")
        for mapping, short in (("params", "param"), ("extra_info", "extra_info"))
        for key in sorted({key for row in rows for key in row.get(mapping, ())})
    ]
    heads = [*columns, *(name for *_, name in more)]
    lines = [
        [_cell(row[name]) for name in columns]
        + [_cell(row[part].get(key)) for part, key, _ in more]
        for row in rows
    ]
    return Records(heads, lines).csv(printed=True)


def _cell(value: object) -> Cell:
    """Return numbers as they are, so that they are read back exactly, and all else as text."""
    return value if value is None or isinstance(value, (int, float)) else str(value)
