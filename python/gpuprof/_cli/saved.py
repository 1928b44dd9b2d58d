"""``gpuprof list``, ``history``, ``save``, ``drop``, ``report``, ``sync``: runs that are saved.

Without a name, ``list`` has a line for each baseline and kind of machine; with one, a line for each
benchmark of each run. Damaged files are an error, as in every other place that reads them.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuprof._cli.command import FAILED, Answer, Refused, check_output, complain, printed, refusing
from gpuprof._cli.compare import Source, load
from gpuprof._common import machine, outputs
from gpuprof._common.records import head
from gpuprof._common.text import plain_data, plural, shown_text, write_text
from gpuprof._common.units import byte_size, duration
from gpuprof._display.records import Records
from gpuprof._display.table import Table
from gpuprof._results.export import figures
from gpuprof._results.git_store import opened
from gpuprof._results.history import history as history_of
from gpuprof._results.result_files import Run, load_kind
from gpuprof.errors import BaselineError

_COMMIT_DIGITS = 12
_COMMIT = re.compile(r"[0-9a-f]{7,40}")
_TIMES = ("median", "min", "max", "mean", "stddev", "iqr")
_LEFT = frozenset({"baseline", "machine", "saved", "commit", "benchmark", "mode"})

Row = Mapping[str, Any]


def listed(options: argparse.Namespace) -> Answer:
    if options.what is None:
        rows = _baselines(options.storage)
        shown = [_shown_baseline(row) for row in rows]
        nothing = f"no baseline is saved in {shown_text(options.storage)}\n"
    else:
        rows = _benchmarks(load(options.what, options.storage))
        shown = [_shown_benchmark(row) for row in rows]
        nothing = f"{shown_text(options.what)} holds no benchmark\n"
    if options.format == "json":
        content = {**head("gpuprof-list", unit="s"), "rows": plain_data(rows)}
        return Answer(json.dumps(content, indent=2, allow_nan=False) + "\n")
    if options.format == "csv":
        return Answer(Records.of_plain(plain_data(rows)).csv(printed=True) if rows else "")
    if not rows:
        return Answer(nothing)
    table = Table.of(shown, left=_LEFT)
    lines = table.markdown() if options.format == "markdown" else table.plain()
    return Answer("\n".join(lines) + "\n")


@refusing(BaselineError)
def _baselines(storage: str) -> list[Row]:
    """Return a row for each baseline and kind of machine, what was saved last at the end."""
    baselines = opened(storage)
    rows: list[Row] = [
        {
            "baseline": name,
            "machine": place,
            "runs": len(runs),
            "benchmarks": len({each for run in runs for each in run.results}),
            "saved": runs[-1].created,
            "commit": runs[-1].commit,
        }
        for name in baselines.names()
        for place, runs in baselines.runs(name).items()
        if runs
    ]
    return sorted(rows, key=lambda row: (str(row["saved"]), str(row["baseline"])))


def _shown_baseline(row: Row) -> dict[str, str]:
    counts = {name: f"{row[name]:,}" for name in ("runs", "benchmarks")}
    commit = (row["commit"] or "")[:_COMMIT_DIGITS]
    return {name: str(row[name]) for name in row} | counts | {"commit": commit}


def _benchmarks(source: Source) -> list[Row]:
    """Return a row for each benchmark of each run, the figures in seconds."""
    rows: list[Row] = [
        {
            "benchmark": name,
            "machine": place,
            "run": number,
            "saved": run.created,
            "commit": run.commit,
            "mode": result.mode,
            "clock": result.clock,
            **{figure: value for figure, value in figures(result).items() if figure != "data"},
            "params": dict(result.params),
            "extra_info": dict(result.extra_info),
        }
        for place, runs in source.runs.items()
        for number, run in enumerate(runs, start=1)
        for name, result in run.results.items()
    ]
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


def history(options: argparse.Namespace) -> Answer:
    """Write the plots, and return what to print; Refused says why there is nothing."""
    check_output("--svg", outputs.SVG, options.svg)
    with refusing(ValueError, code=FAILED):  # no name of a baseline
        found = history_of(
            options.storage, options.name, baseline=options.baseline, threshold=options.threshold
        )
    if not found.series:
        raise Refused(_what_there_is(options), code=FAILED)
    if options.svg is not None:
        outputs.write_whole(options.svg, found.to_svg())
        write_text(sys.stderr, f"wrote {options.svg}\n")
    if options.svg is not None and options.format == "text":
        return Answer()
    return Answer(printed(options.format, found.to_dict(), lambda: f"{found}\n", found._records))


def sync(options: argparse.Namespace) -> Answer:
    return Answer(f"{shown_text(opened(options.storage).sync(options.remote))}\n")


def _what_there_is(options: argparse.Namespace) -> str:
    if not opened(options.storage).names():
        how = "pytest --gpu-benchmark-save=NAME saves a run"
        return f"nothing is saved in {options.storage}: {how}"
    names = history_of(options.storage, baseline=options.baseline).names
    shown = ", ".join(names[:20]) + (" and more" if len(names) > 20 else "")
    return f"no saved benchmark is called {options.name!r}; there are {shown}"


@refusing(BaselineError, ValueError)
def save(options: argparse.Namespace) -> Answer:
    """Append the run of a file to a baseline, unless it is there; return what to print."""
    baselines, run = opened(options.storage), load_kind(options.file)[1]
    run = replace(run, commit=options.commit or run.commit)
    stored = baselines.runs(options.name) if options.name in baselines.names() else {}
    count = f"{plural(len(run.results), 'benchmark')} of {run.created}"
    if run in stored.get(machine.key(run.machine), ()):
        said = f"left out {count}: {options.name} has that run"
    else:
        said = f"saved {count} as {options.name} in {baselines.append(options.name, run)}"
    return Answer(f"{shown_text(said)}\n")


@refusing(BaselineError, ValueError)
def drop(options: argparse.Namespace) -> Answer:
    """Remove the runs, and return what to print; Refused where not exactly these are meant."""
    baselines = opened(options.storage)
    stored = baselines.runs(options.name)
    if options.machine is not None:
        stored = {key: runs for key, runs in stored.items() if key == options.machine}
    dropped = {key: set[str]() for key in stored}
    for each in options.runs:
        for key, chosen in _meant(each, stored, options.name):
            dropped[key].add(chosen.created)
    lines = []
    for key, created in dropped.items():
        gone = baselines.drop(options.name, key, created) if created else []
        lines += [f"dropped from {options.name} ({key}): {_shown_run(each)}" for each in gone]
    return Answer("".join(f"{shown_text(line)}\n" for line in lines))


def _meant(given: str, stored: dict[str, list[Run]], name: str) -> list[tuple[str, Run]]:
    """Return the run that is meant, or all of a commit, each with its machine."""
    every = [
        (key, number, run) for key, runs in stored.items() for number, run in enumerate(runs, 1)
    ]
    if given.isdecimal() and len(given) < 4:
        found = [(key, run) for key, number, run in every if number == int(given)]
    elif _COMMIT.fullmatch(given):
        found = [(key, run) for key, _, run in every if (run.commit or "").startswith(given)]
    else:
        found = [(key, run) for key, _, run in every if run.created.startswith(given)]
    if not found:
        message = (
            f"no run of the baseline {name!r} is {given!r}; expected a number, or the beginning of "
            f"a date or of a commit, as `gpuprof list {name}` shows them"
        )
        raise Refused(message)
    if len(found) > 1 and not _COMMIT.fullmatch(given):
        which = ", ".join(f"{_shown_run(run)} ({key})" for key, run in found)
        message = f"{given!r} may be any of {which}: give the whole date, or --machine"
        raise Refused(message)
    return found


def _shown_run(run: Run) -> str:
    return f"the run of {run.created}" + (f", commit {run.commit[:12]}" if run.commit else "")


@refusing(BaselineError)
def report(options: argparse.Namespace) -> Answer:
    from gpuprof._report import files
    from gpuprof._report.html import write_report

    inputs = [("an input", each) for each in options.files]
    check_output("-o", outputs.HTML, options.output, inputs)
    found = files.read(options.files)
    write_report(
        options.output,
        stats=found.stats or None,
        results=found.results or None,
        history=found.history or None,
        title=options.title,
    )
    if options.output != outputs.STANDARD:
        complain(f"wrote {options.output} ({byte_size(Path(options.output).stat().st_size)})")
    return Answer()
