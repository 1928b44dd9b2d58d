"""A comparison of two sides, name by name: its exit code, and how it is printed.

`gpuprof compare` has saved runs on its sides, `gpuprof ab` two commands. Exit codes: 0 nothing
failed, 1 SLOW, MEMORY or LAUNCHES, or what ``--fail-on`` names, 3 nothing could be compared. A
speed-up never fails.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprof._common.text import MAX_NAME_COLUMNS, output_text, plain_data, shown_text
from gpuprof._common.units import NOTHING, duration, percent
from gpuprof._display.records import Cell, Records
from gpuprof._display.table import Table, markdown_list
from gpuprof._results.decision import Decision, LaunchDecision, MemoryDecision, Verdict
from gpuprof._results.launch_verdict import launch_notes
from gpuprof._results.memory_verdict import NO_MEMORY, without_memory
from gpuprof._results.texts import peak_text

OK, SLOWER, INCOMPARABLE = 0, 1, 3
FORMAT = "gpuprof-comparison"
VERSION = 1
MOST_NAMES = 20
_NOT_COMPARED = (Verdict.NODATA, Verdict.INCOMPARABLE)
_EXPLAINED = (Verdict.SLOW, Verdict.AMBIGUOUS, *_NOT_COMPARED)
_CSV_COLUMNS = (
    "benchmark",
    "machine",
    "base_ms",
    "new_ms",
    "ratio",
    "ratio_low",
    "ratio_high",
    "floor",
    "base_bytes",
    "new_bytes",
    "base_launches",
    "new_launches",
    "base_instructions",
    "new_instructions",
    "verdict",
    "rule",
)
_LEFT = frozenset({"benchmark", "machine", "verdict"})


@dataclass(frozen=True)
class Side:
    """One side: what it is, how many runs it has, and when the last was made."""

    label: str
    run_count: int
    created: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
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

    base: Side
    new: Side
    lines: Sequence[Line]
    only_base: Sequence[str]
    only_new: Sequence[str]
    notes: Sequence[str] = ()
    names: tuple[str, str] = ("base", "new")
    facts: Sequence[str] = ()  # below the two sides
    data: Mapping[str, Any] = field(default_factory=dict)  # more members for the JSON

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How often there is each verdict."""
        return Counter(verdict for line in self.lines for verdict in line.verdicts)

    @property
    def compared(self) -> bool:
        """Whether any line was compared: its time, or what it launches."""
        verdicts = [line.decision.verdict for line in self.lines]
        verdicts += [each.verdict for each in self.launches]
        return any(verdict not in _NOT_COMPARED for verdict in verdicts)

    @property
    def launches(self) -> list[LaunchDecision]:
        """What is said of the launches, of the lines where they were counted."""
        found = [line.decision.launches for line in self.lines]
        return [each for each in found if each is not None]


def exit_code(found: Comparison, fail_on: frozenset[str]) -> int:
    """Return the exit code. What only one side has counts as ``nodata``.

    Launches that cannot be compared count as ``incomparable``, as in the pytest plugin.
    """
    verdicts = {verdict.value for verdict in found.verdicts}
    verdicts |= {each.verdict.value for each in found.launches} & {Verdict.INCOMPARABLE.value}
    if found.only_base or found.only_new:
        verdicts.add("nodata")
    if verdicts & fail_on:
        return SLOWER
    return OK if found.compared else INCOMPARABLE


def text_of(found: Comparison, form: str) -> str:
    """Return the text to print; `form` is ``table``, ``md``, ``csv`` or ``json``."""
    return {"json": _json, "md": _markdown, "csv": _csv, "table": _plain}[form](found)


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
        **plain_data(found.data),
    }
    return json.dumps(content, indent=2, allow_nan=False)


def _csv(found: Comparison) -> str:
    """Return a line for each benchmark; what only one side has is a line without times."""
    lines: list[list[Cell]] = []
    for line in found.lines:
        decision = line.decision
        low, high = decision.interval or (None, None)
        verdicts = " ".join(verdict.value for verdict in line.verdicts)
        times = (decision.base_ms, decision.new_ms, decision.ratio, low, high, decision.floor)
        lines.append([line.name, line.machine, *times, *_counts(decision), verdicts, decision.rule])
    for side, names in zip(found.names, (found.only_base, found.only_new), strict=True):
        empty = [None] * (len(_CSV_COLUMNS) - 3)
        lines += [[name, *empty, Verdict.NODATA.value, f"only in {side}"] for name in names]
    return Records(_CSV_COLUMNS, lines).csv("\n").removesuffix("\n")


def _counts(decision: Decision) -> list[Cell]:
    """Return the bytes, the launches and the instructions of both sides."""
    memory, launches, instructions = decision.memory, decision.launches, decision.instructions
    return [
        *((memory.base_bytes, memory.new_bytes) if memory else (None, None)),
        *((launches.base_total, launches.new_total) if launches else (None, None)),
        *((instructions.base_count, instructions.new_count) if instructions else (None, None)),
    ]


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
    base, new = found.names
    columns = ["benchmark", "machine", base, new, "ratio", "95 % interval", "floor"]
    columns += [f"{base} memory", f"{new} memory", "verdict"]
    return Table(columns, cells, _LEFT).without_empty()


def _peaks(memory: MemoryDecision | None) -> tuple[str, str]:
    return (
        ("", "") if memory is None else (peak_text(memory.base_bytes), peak_text(memory.new_bytes))
    )


def _ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.3g}"


def _headline(found: Comparison) -> list[str]:
    text = []
    for label, source in zip(found.names, (found.base, found.new), strict=True):
        count, created = source.run_count, source.created
        facts = f"{count} run{'s' * (count != 1)}"
        if created:
            facts += f", last {created}" if count > 1 else f", {created}"
        text.append(f"{label}: {source.label} ({facts})")
    return [*text, *found.facts]


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
    for side, only in zip(found.names, (found.only_base, found.only_new), strict=True):
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
