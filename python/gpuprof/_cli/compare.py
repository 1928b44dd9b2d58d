"""``gpuprof compare``: whether saved benchmarks became slower, take more memory or launch more.

Exit codes: 0 nothing failed, 1 SLOW, MEMORY or LAUNCHES, or what ``--fail-on`` names, 2 wrong usage
or an input that cannot be read, 3 nothing could be compared. A speed-up never fails. A reader that
goes away early changes none of this.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpuprof._common import machine
from gpuprof._common.text import MAX_NAME_COLUMNS, output_text, plain_data, shown_text
from gpuprof._common.units import NOTHING, duration, percent
from gpuprof._display.table import Table, markdown_list
from gpuprof._results.baselines import Baselines, Run, load_kind
from gpuprof._results.decision import Decision, MemoryDecision, Verdict
from gpuprof._results.launch_verdict import launch_notes
from gpuprof._results.memory_verdict import NO_MEMORY, without_memory
from gpuprof._results.result import FORMAT as RESULT_FORMAT
from gpuprof._results.result import BenchResult
from gpuprof._results.texts import peak_text
from gpuprof._results.verdict import judge_all
from gpuprof.errors import BaselineError

OK, SLOWER, INCOMPARABLE = 0, 1, 3
FORMAT = "gpuprof-comparison"
VERSION = 1
MOST_NAMES = 20
_NOT_COMPARED = (Verdict.NODATA, Verdict.INCOMPARABLE)
_EXPLAINED = (Verdict.SLOW, Verdict.AMBIGUOUS, *_NOT_COMPARED)
_COLUMNS = (
    "benchmark",
    "machine",
    "base",
    "new",
    "ratio",
    "95 % interval",
    "floor",
    "base memory",
    "new memory",
    "verdict",
)
_LEFT = frozenset({"benchmark", "machine", "verdict"})


class InputError(Exception):
    """One side of a comparison cannot be read; the text says which, why, and what there is."""


@dataclass(frozen=True)
class Source:
    """One side: benchmark runs by the key of their machine, oldest first."""

    label: str
    runs: Mapping[str, list[Run]]
    is_one_result: bool = False

    @property
    def run_count(self) -> int:
        """How many runs there are on all machines."""
        return sum(map(len, self.runs.values()))

    @property
    def created(self) -> str | None:
        """When the last run was saved."""
        times = [run.created for runs in self.runs.values() for run in runs]
        return output_text(max(times)) if times else None

    def by_name(self) -> dict[str, dict[str, list[BenchResult]]]:
        """Return the results by name and by the machine's key, oldest first."""
        found: dict[str, dict[str, list[BenchResult]]] = {}
        for key, runs in self.runs.items():
            for run in runs:
                for name, result in run.results.items():
                    found.setdefault(name, {}).setdefault(key, []).append(result)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return a summary as plain data."""
        return {"what": output_text(self.label), "runs": self.run_count, "created": self.created}


@dataclass(frozen=True)
class Line:
    """One benchmark, and the key of its machine."""

    name: str
    machine: str
    decision: Decision

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict on the time, and those on what there is more of."""
        return [self.decision.verdict, *(each.verdict for each in self.decision.grown)]


@dataclass(frozen=True)
class Comparison:
    """Both sides, a line for each name that both have, and the names that one side lacks."""

    base: Source
    new: Source
    lines: Sequence[Line]
    only_base: Sequence[str]
    only_new: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How often there is each verdict."""
        return Counter(verdict for line in self.lines for verdict in line.verdicts)

    @property
    def compared(self) -> bool:
        """Whether any line was compared: its time, or what it launches."""
        decisions = [line.decision for line in self.lines]
        verdicts = [each.verdict for each in decisions]
        verdicts += [each.launches.verdict for each in decisions if each.launches]
        return any(verdict not in _NOT_COMPARED for verdict in verdicts)


def run(options: argparse.Namespace) -> tuple[int, str]:
    """Compare; return the exit code and the text to print.

    Raises InputError, and ModuleNotFoundError without NumPy and SciPy.
    """
    base, new = load(options.base, options.storage), load(options.new, options.storage)
    found = compare(base, new, options.threshold, options.memory_threshold)
    write = {"json": _json, "md": _markdown, "table": _plain}[options.format]
    return exit_code(found, options.fail_on), write(found)


def load(given: str, storage: str) -> Source:
    """Find what `given` names: a saved baseline in the folder `storage`, else a file."""
    try:
        baselines = Baselines(storage)
        names = baselines.names()
        if given in names:
            return Source(f"baseline {given!r} in {storage}", baselines.runs(given))
    except BaselineError as error:
        raise InputError(str(error)) from error
    path = Path(given)
    if path.suffix == ".json" or os.sep in given or os.path.lexists(path):
        return _from_file(path)
    there = ", ".join(map(repr, names)) if names else "none"
    message = f"{given!r} is neither a file nor a baseline saved in {storage} (there: {there})"
    raise InputError(message)


def _from_file(path: Path) -> Source:
    try:
        form, found = load_kind(path)
    except BaselineError as error:
        raise InputError(str(error)) from error
    runs: dict[str, list[Run]] = {}
    for run in found:
        runs.setdefault(machine.key(run.machine), []).append(run)
    return Source(f"file {path}", runs, is_one_result=form == RESULT_FORMAT)


def exit_code(found: Comparison, fail_on: frozenset[str]) -> int:
    """Return the exit code. What only one side has counts as ``nodata``."""
    verdicts = {verdict.value for verdict in found.verdicts}
    if found.only_base or found.only_new:
        verdicts.add("nodata")
    if verdicts & fail_on:
        return SLOWER
    return OK if found.compared else INCOMPARABLE


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
    decisions = judge_all(pairs, threshold=threshold, memory_threshold=memory_threshold)
    lines = [Line(*groups[int(place)], decision) for place, decision in decisions.items()]
    only_base = [name for name in old if name not in names.values()]
    only_new = [name for name in now if name not in names]
    return Comparison(base, new, lines, only_base, only_new, notes)


def _json(found: Comparison) -> str:
    content = {
        "format": FORMAT,
        "version": VERSION,
        "unit": "ms",
        "base": found.base.to_dict(),
        "new": found.new.to_dict(),
        "verdicts": {verdict.value: found.verdicts[verdict] for verdict in Verdict},
        "only_in_base": [output_text(name) for name in found.only_base],
        "only_in_new": [output_text(name) for name in found.only_new],
        "notes": [output_text(note) for note in found.notes],
        "rows": [
            {"name": output_text(line.name), "machine": output_text(line.machine)}
            | plain_data(line.decision.to_dict())
            for line in found.lines
        ],
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _table(found: Comparison, longest: int | None) -> Table:
    """Fill in the table; names longer than `longest` lose their beginning, as paths differ late."""
    several = len({line.machine for line in found.lines}) > 1
    cells = []
    for line in found.lines:
        decision, name = line.decision, shown_text(line.name)
        if longest is not None and len(name) > longest:
            name = f"…{name[1 - longest :]}"
        interval = decision.interval
        cells.append(
            [
                name,
                line.machine if several else "",
                duration(decision.base_ms),
                duration(decision.new_ms),
                _ratio(decision.ratio),
                " to ".join(map(_ratio, interval)) if interval else NOTHING,
                NOTHING if decision.floor is None else percent(decision.floor),
                *_peaks(decision.memory),
                ", ".join(map(str, line.verdicts)),
            ]
        )
    return Table(_COLUMNS, cells, _LEFT).without_empty()


def _peaks(memory: MemoryDecision | None) -> tuple[str, str]:
    return (
        ("", "") if memory is None else (peak_text(memory.base_bytes), peak_text(memory.new_bytes))
    )


def _ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.3g}"


def _headline(found: Comparison) -> list[str]:
    text = []
    for label, source in (("base", found.base), ("new", found.new)):
        count, created = source.run_count, source.created
        facts = f"{count} run{'s' * (count != 1)}"
        if created:
            facts += f", last {created}" if count > 1 else f", {created}"
        text.append(f"{label}: {source.label} ({facts})")
    return text


def _reasons(found: Comparison) -> list[str]:
    """Return why, for each line whose verdict needs a reason."""
    reasons = []
    for line in found.lines:
        decision, name = line.decision, _called(found, line)
        if decision.verdict in _EXPLAINED:
            reasons.append(f"{decision.verdict} {name}: {decision.rule}")
        reasons += [f"{each.verdict} {name}: {each.rule}" for each in decision.grown]
    return reasons


def _called(found: Comparison, line: Line) -> str:
    others = sum(other.name == line.name for other in found.lines)
    return line.name if others == 1 else f"{line.name} ({line.machine})"


def _notes(found: Comparison) -> list[str]:
    """Return the warnings, each once with the benchmarks it is about, and what was not compared."""
    concerned: dict[str, list[str]] = {}
    for line in found.lines:
        for warning in (*line.decision.warnings, *launch_notes(line.decision)):
            concerned.setdefault(warning, []).append(_called(found, line))
        if without_memory(line.decision):
            concerned.setdefault(NO_MEMORY, []).append(_called(found, line))
    notes = []
    for warning, names in concerned.items():
        everybody = len(names) == len(found.lines)
        notes.append(warning if everybody else f"{_some(names)}: {warning}")
    for side, only in (("base", found.only_base), ("new", found.only_new)):
        if only:
            notes.append(f"only in {side}: {_some(only)}")
    return [*notes, *found.notes]


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join([*names[:MOST_NAMES], *([f"and {rest:,} more"] if rest > 0 else [])])


def _summary(found: Comparison) -> str:
    verdicts = found.verdicts
    counts = [f"{verdicts[verdict]:,} {verdict.value}" for verdict in Verdict if verdicts[verdict]]
    if not counts:
        return "nothing to compare: the two sides have no name in common"
    ratios = [line.decision.ratio for line in found.lines]
    logs = [math.log(ratio) for ratio in ratios if ratio and math.isfinite(ratio)]
    if len(logs) > 1:
        mean = math.exp(math.fsum(logs) / len(logs))
        counts.append(f"geometric mean of the ratios {mean:.3f} (for information)")
    return ", ".join(counts)


def _plain(found: Comparison) -> str:
    text = _headline(found)
    if found.lines:
        text += ["", *_table(found, MAX_NAME_COLUMNS).plain()]
    for block in (_reasons(found), [f"note: {note}" for note in _notes(found)], [_summary(found)]):
        text += ["", *block] if block else []
    return "\n".join(map(shown_text, text))


def _markdown(found: Comparison) -> str:
    text = markdown_list(_headline(found))[1:]
    if found.lines:
        text += ["", *_table(found, None).markdown()]
    for block in (_reasons(found), _notes(found), [_summary(found)]):
        text += markdown_list(block)
    return "\n".join(text)
