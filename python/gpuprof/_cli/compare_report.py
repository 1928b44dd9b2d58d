"""The comparison that ``gpuprof compare`` makes, and how it is shown: table, Markdown or JSON."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gpuprof._common.text import MAX_NAME_COLUMNS, output_text, shown_text
from gpuprof._common.units import NOTHING, duration, percent
from gpuprof._display.table import Table, markdown_list
from gpuprof._results.decision import Decision, Verdict

if TYPE_CHECKING:
    from gpuprof._cli.compare_inputs import Source

FORMAT = "gpuprof-comparison"
VERSION = 1
FORMATS = ("table", "md", "json")
MOST_NAMES = 20
NOT_COMPARED = (Verdict.NODATA, Verdict.INCOMPARABLE)
_EXPLAINED = (Verdict.SLOW, Verdict.AMBIGUOUS, *NOT_COMPARED)
_LEFT = frozenset({"benchmark", "machine", "verdict"})


@dataclass(frozen=True)
class Line:
    """One benchmark, and the key of its machine."""

    name: str
    machine: str
    decision: Decision


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
        return Counter(line.decision.verdict for line in self.lines)

    @property
    def compared(self) -> bool:
        """Whether any line was compared."""
        return any(line.decision.verdict not in NOT_COMPARED for line in self.lines)


def write(found: Comparison, form: str) -> str:
    """Return the comparison in one of `FORMATS`."""
    if form == "json":
        return json.dumps(to_dict(found), indent=2, allow_nan=False)
    return _markdown(found) if form == "md" else _plain(found)


def to_dict(found: Comparison) -> dict[str, Any]:
    """Return everything as plain data."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "unit": "ms",
        "base": _side(found.base),
        "new": _side(found.new),
        "verdicts": {verdict.value: found.verdicts[verdict] for verdict in Verdict},
        "only_in_base": [output_text(name) for name in found.only_base],
        "only_in_new": [output_text(name) for name in found.only_new],
        "notes": [output_text(note) for note in found.notes],
        "rows": [
            {"name": output_text(line.name), "machine": output_text(line.machine)}
            | {key: _finite(value) for key, value in line.decision.to_dict().items()}
            for line in found.lines
        ],
    }


def _side(source: Source) -> dict[str, Any]:
    return {
        "what": output_text(source.label),
        "runs": source.run_count,
        "created": _created(source),
    }


def _created(source: Source) -> str | None:
    times = [run.created for runs in source.runs.values() for run in runs]
    return output_text(max(times)) if times else None


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return output_text(value) if isinstance(value, str) else value


def _grid(found: Comparison, longest: int | None) -> Table:
    """Fill in the table. Names longer than `longest` lose their beginning: paths differ late."""
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
                str(decision.verdict),
            ]
        )
    columns = ["benchmark", "machine", "base", "new", "ratio", "95 % interval", "floor", "verdict"]
    return Table(columns, cells, _LEFT).without_empty()


def _ratio(ratio: float | None) -> str:
    return NOTHING if ratio is None else f"{ratio:.3f}" if ratio < 100 else f"{ratio:.3g}"


def _headline(found: Comparison) -> list[str]:
    text = []
    for label, source in (("base", found.base), ("new", found.new)):
        count = source.run_count
        runs = f"{count} run{'' if count == 1 else 's'}"
        created = _created(source)
        facts = [runs, *([f"last {created}" if count > 1 else created] if created else [])]
        text.append(f"{label}: {source.label} ({', '.join(facts)})")
    return text


def _reasons(found: Comparison) -> list[str]:
    """Return why, for each line whose verdict needs a reason."""
    return [
        f"{line.decision.verdict} {_called(found, line)}: {line.decision.rule}"
        for line in found.lines
        if line.decision.verdict in _EXPLAINED
    ]


def _called(found: Comparison, line: Line) -> str:
    others = sum(other.name == line.name for other in found.lines)
    return line.name if others == 1 else f"{line.name} ({line.machine})"


def _notes(found: Comparison) -> list[str]:
    """Return the warnings, each once with whom it concerns, and what was not compared."""
    concerned: dict[str, list[str]] = {}
    for line in found.lines:
        for warning in line.decision.warnings:
            concerned.setdefault(warning, []).append(_called(found, line))
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
        text += ["", *_grid(found, MAX_NAME_COLUMNS).plain()]
    for block in (_reasons(found), [f"note: {note}" for note in _notes(found)], [_summary(found)]):
        text += ["", *block] if block else []
    return "\n".join(_lines(text))


def _lines(text: Iterable[str]) -> list[str]:
    return [shown_text(line) for line in text]


def _markdown(found: Comparison) -> str:
    text = markdown_list(_headline(found))[1:]
    if found.lines:
        text += ["", *_grid(found, None).markdown()]
    for block in (_reasons(found), _notes(found), [_summary(found)]):
        text += markdown_list(block)
    return "\n".join(text)
