"""``gpuprof compare``: whether saved benchmarks became slower, take more memory or launch more.

`gpuprof ab` prints what it found as this does, and has its exit codes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuprof._cli.command import Answer, Refused, refusing
from gpuprof._common import machine
from gpuprof._common.records import format_of
from gpuprof._common.text import ending, output_text, shown_text
from gpuprof._display.records import Records
from gpuprof._display.table import Table, markdown_list
from gpuprof._results.decision import Verdict
from gpuprof._results.git_store import opened
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import Run, load_kind
from gpuprof._results.two_sides import Comparison, Line, Side
from gpuprof._results.verdict import judge_all
from gpuprof.errors import BaselineError

OK, SLOWER, INCOMPARABLE = 0, 1, 3
_LEFT = frozenset({"benchmark", "machine", "verdict"})


@dataclass(frozen=True)
class Source:
    """One side: benchmark runs by the key of their machine, oldest first."""

    label: str
    runs: Mapping[str, list[Run]]
    is_one_result: bool = False
    baseline: str | None = None  # what it is saved as

    @property
    def side(self) -> Side:
        times = [run.created for runs in self.runs.values() for run in runs]
        created = output_text(max(times)) if times else None
        return Side(self.label, len(times), created)

    def by_name(self) -> dict[str, dict[str, list[BenchResult]]]:
        """Return the results by name and by the machine's key, oldest first."""
        found: dict[str, dict[str, list[BenchResult]]] = {}
        for key, runs in self.runs.items():
            for run in runs:
                for name, result in run.results.items():
                    found.setdefault(name, {}).setdefault(key, []).append(result)
        return found


def run(options: argparse.Namespace) -> Answer:
    base, new = load(options.base, options.storage), load(options.new, options.storage)
    found = compare(base, new, options.threshold, options.memory_threshold)
    return Answer(text_of(found, options.format), exit_code(found, options.fail_on))


@refusing(BaselineError)
def load(given: str, storage: str) -> Source:
    """Find what `given` names: a baseline saved in `storage`, else a file."""
    baselines = opened(storage)
    names = baselines.names()
    if given in names:
        label = f"baseline {given!r} in {storage}"
        return Source(label, baselines.runs(given), baseline=given)
    path = Path(given)
    if path.suffix != ".json" and os.sep not in given and not os.path.lexists(path):
        there = ", ".join(map(repr, names)) if names else "none"
        message = f"{given!r} is neither a file nor a baseline saved in {storage} (there: {there})"
        raise Refused(message)
    form, run = load_kind(path)
    runs = {machine.key(run.machine): [run]}
    return Source(f"file {path}", runs, is_one_result=form == format_of(BenchResult))


def compare(
    base: Source, new: Source, threshold: float | None, memory_threshold: float | None = None
) -> Comparison:
    """Judge each benchmark that both sides have, on each machine."""
    old, now = base.by_name(), new.by_name()
    notes = []
    names = {name: name for name in now if name in old}
    if base.is_one_result and new.is_one_result and not names:
        # Two results that were saved one by one are compared, whatever they are called.
        ((old_name, _),), ((new_name, _),) = old.items(), now.items()
        names = {new_name: old_name}
        notes.append(f"the base is called {old_name!r}, the new one {new_name!r}")
    pairs: dict[tuple[str, str], tuple[list[BenchResult], list[BenchResult]]] = {}
    for name, old_name in names.items():
        for key, results in now[name].items():
            # Without runs of this machine the verdict is INCOMPARABLE, and says what differs.
            others = [result for runs in old[old_name].values() for result in runs]
            pairs[name, key] = old[old_name].get(key, others), results
    decisions = judge_all(
        pairs,
        threshold=threshold,
        memory_threshold=memory_threshold,
        baseline=base.baseline or "NAME",
    )
    return Comparison(
        base.side,
        new.side,
        tuple(Line(*of, decision) for of, decision in decisions.items()),
        only_in_base=tuple(name for name in old if name not in names.values()),
        only_in_new=tuple(name for name in now if name not in names),
        notes=tuple(notes),
        baseline=base.baseline,
    )


def exit_code(found: Comparison, fail_on: frozenset[str]) -> int:
    """Return the exit code. What only one side has counts as ``nodata``.

    Launches that cannot be compared count as ``incomparable``, as in the pytest plugin.
    """
    verdicts = {verdict.value for verdict in found.verdicts}
    verdicts |= {each.verdict.value for each in found.launches} & {Verdict.INCOMPARABLE.value}
    if found.only_in_base or found.only_in_new:
        verdicts.add("nodata")
    if verdicts & fail_on:
        return SLOWER
    return OK if found.compared else INCOMPARABLE


def text_of(found: Comparison, form: str) -> str:
    if form == "json":
        return json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n"
    if form == "csv":
        return _csv(found)
    is_text = form == "text"
    table = _table(found, is_text=is_text)
    grid = (table.plain() if is_text else table.markdown()) if found.rows else []
    remarks = [f"note: {each}" if is_text else each for each in found.remarks()]
    head, *rest = (
        [*map(shown_text, block)] if is_text else markdown_list(block)[1:]
        for block in (found.headline(), found.reasons(), remarks, [_summary(found)])
    )
    return "\n\n".join("\n".join(block) for block in (head, grid, *rest) if block) + "\n"


def _csv(found: Comparison) -> str:
    """Return a line for each benchmark; what only one side has is a line without times."""
    lines = []
    for line in found.rows:
        low, high = line.decision.interval or (None, None)
        lines.append({**line.to_dict(), "interval": {"low": low, "high": high}})
    for side, names in zip(found.names, (found.only_in_base, found.only_in_new), strict=True):
        nodata = Verdict.NODATA.value
        lines += [{"name": name, "verdict": nodata, "rule": f"only in {side}"} for name in names]
    return Records.of_plain(lines).csv(printed=True)


def _table(found: Comparison, *, is_text: bool) -> Table:
    lines = []
    for cells in found.lines():
        line = {column: text for column, (text, _) in cells.items()}
        name = shown_text(line["benchmark"])
        lines.append({**line, "benchmark": ending(name) if is_text else name})
    return Table.of(lines, left=_LEFT)


def _summary(found: Comparison) -> str:
    verdicts = found.verdicts
    counts = [f"{verdicts[verdict]:,} {verdict.value}" for verdict in Verdict if verdicts[verdict]]
    if not counts:
        return "nothing to compare: the two sides have no name in common"
    ratios = [line.decision.ratio for line in found.rows]
    logs = [math.log(ratio) for ratio in ratios if ratio and math.isfinite(ratio)]
    if len(logs) > 1:
        mean = math.exp(math.fsum(logs) / len(logs))
        counts.append(f"geometric mean of the ratios {mean:.3f} (for information)")
    return ", ".join(counts)
