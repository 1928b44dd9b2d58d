"""``gpuprof compare``: whether saved benchmarks became slower, take more memory or launch more.

Exit codes: those of `comparison`, and 2 for wrong usage or an input that cannot be read.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuprof._cli.command import Answer, Refused
from gpuprof._cli.comparison import exit_code, text_of
from gpuprof._common import machine
from gpuprof._common.records import format_of
from gpuprof._common.text import output_text
from gpuprof._results.baselines import Run, load_kind
from gpuprof._results.git_store import opened
from gpuprof._results.result import BenchResult
from gpuprof._results.two_sides import Comparison, Line, Side
from gpuprof._results.verdict import judge_all
from gpuprof.errors import BaselineError


@dataclass(frozen=True)
class Source:
    """One side: benchmark runs by the key of their machine, oldest first."""

    label: str
    runs: Mapping[str, list[Run]]
    is_one_result: bool = False
    baseline: str | None = None  # what it is saved as

    @property
    def side(self) -> Side:
        """What is printed of it."""
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
    """Compare, and return what to print; Refused says what cannot be read."""
    base, new = load(options.base, options.storage), load(options.new, options.storage)
    found = compare(base, new, options.threshold, options.memory_threshold)
    return Answer(text_of(found, options.format), exit_code(found, options.fail_on))


def load(given: str, storage: str) -> Source:
    """Find what `given` names: a baseline saved in `storage`, else a file."""
    try:
        baselines = opened(storage)
        names = baselines.names()
        if given in names:
            label = f"baseline {given!r} in {storage}"
            return Source(label, baselines.runs(given), baseline=given)
    except BaselineError as error:
        raise Refused(str(error)) from error
    path = Path(given)
    if path.suffix == ".json" or os.sep in given or os.path.lexists(path):
        return _from_file(path)
    there = ", ".join(map(repr, names)) if names else "none"
    message = f"{given!r} is neither a file nor a baseline saved in {storage} (there: {there})"
    raise Refused(message)


def _from_file(path: Path) -> Source:
    try:
        form, found = load_kind(path)
    except BaselineError as error:
        raise Refused(str(error)) from error
    runs: dict[str, list[Run]] = {}
    for run in found:
        runs.setdefault(machine.key(run.machine), []).append(run)
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
    groups: list[tuple[str, str]] = []
    pairs: dict[str, tuple[list[BenchResult], list[BenchResult]]] = {}
    for name, old_name in names.items():
        for key, results in now[name].items():
            # Without runs of this machine the verdict is INCOMPARABLE, and says what differs.
            others = [result for runs in old[old_name].values() for result in runs]
            pairs[str(len(groups))] = (old[old_name].get(key, others), results)
            groups.append((name, key))
    decisions = judge_all(
        pairs,
        threshold=threshold,
        memory_threshold=memory_threshold,
        baseline=base.baseline or "NAME",
    )
    lines = [Line(*groups[int(place)], decision) for place, decision in decisions.items()]
    only_base = tuple(name for name in old if name not in names.values())
    only_new = tuple(name for name in now if name not in names)
    return Comparison(
        *(base.side, new.side, tuple(lines), only_base, only_new, tuple(notes)),
        baseline=base.baseline,
    )
