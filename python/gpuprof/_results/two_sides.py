"""A comparison of two sides, name by name: what `gpuprof compare` and `gpuprof ab` found.

`gpuprof compare` has saved runs on its sides, `gpuprof ab` two commands. It can be stored as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuprof._common.records import Record
from gpuprof._common.text import output_text, plain_data, plural
from gpuprof._results.count_verdicts import notes_of
from gpuprof._results.decision import Decision, Verdict

if TYPE_CHECKING:
    from typing_extensions import Self

FORMAT = "gpuprof-run-comparison"
VERSION = 1
MOST_NAMES = 20
_NOT_COMPARED = (Verdict.NODATA, Verdict.INCOMPARABLE)
_EXPLAINED = (Verdict.SLOW, Verdict.AMBIGUOUS, *_NOT_COMPARED)


@dataclass(frozen=True)
class Side(Record):
    """One side: what it is, how many runs it has, and when the last was made."""

    what: str
    runs: int
    created: str | None = None

    def __str__(self) -> str:
        facts = plural(self.runs, "run")
        if self.created:
            facts += f", last {self.created}" if self.runs > 1 else f", {self.created}"
        return f"{self.what} ({facts})"


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
    def launches(self) -> list[Decision]:
        """What is said of the launches, of the lines where they were counted."""
        found = [line.decision.launches for line in self.lines]
        return [each for each in found if each is not None]

    def headline(self) -> list[str]:
        sides = zip(self.names, (self.base, self.new), strict=True)
        return [*(f"{label}: {side}" for label, side in sides), *self.facts]

    def reasons(self) -> list[str]:
        """Return why, for each line whose verdict needs a reason."""
        reasons = []
        for line in self.lines:
            decision, name = line.decision, self._called(line)
            if decision.verdict in _EXPLAINED:
                reasons.append(f"{decision.verdict} {name}: {decision.rule}")
            reasons += [f"{each.verdict} {name}: {each.rule}" for each in decision.grown]
        return reasons

    def remarks(self) -> list[str]:
        """Return each warning once with the benchmarks it is about, and what was not compared."""
        concerned: dict[str, list[str]] = {}
        for line in self.lines:
            for note in notes_of(line.decision):
                concerned.setdefault(note, []).append(self._called(line))
        remarks = []
        for warning, names in concerned.items():
            everybody = len(names) == len(self.lines)
            remarks.append(warning if everybody else f"{_some(names)}: {warning}")
        for side, only in zip(self.names, (self.only_base, self.only_new), strict=True):
            if only:
                remarks.append(f"only in {side}: {_some(only)}")
        return [*remarks, *self.notes]

    def _called(self, line: Line) -> str:
        others = sum(other.name == line.name for other in self.lines)
        return line.name if others == 1 else f"{line.name} ({line.machine})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON. `names` and `facts` are not in it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "unit": "ms",
            "base": self.base.to_dict(),
            "new": self.new.to_dict(),
            "verdicts": {verdict.value: self.verdicts[verdict] for verdict in Verdict},
            "only_in_base": [output_text(name) for name in self.only_base],
            "only_in_new": [output_text(name) for name in self.only_new],
            "notes": [output_text(note) for note in self.notes],
            "rows": [
                {"name": output_text(line.name), "machine": output_text(line.machine)}
                | plain_data(line.decision.to_dict())
                for line in self.lines
            ],
            **plain_data(self.data),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Build one from what `to_dict` returned, without `names`, `facts` and `data`.

        KeyError, TypeError or ValueError for anything else.
        """
        if (data["format"], data["version"]) != (FORMAT, VERSION):
            message = f"it is of version {data['version']!r}; this gpuprof reads {VERSION}"
            raise ValueError(message)
        lines = []
        for row in data["rows"]:
            facts = dict(row)
            name, machine = str(facts.pop("name")), str(facts.pop("machine"))
            lines.append(Line(name, machine, Decision.from_dict(facts)))
        return cls(
            Side.from_dict(data["base"]),
            Side.from_dict(data["new"]),
            lines,
            [str(name) for name in data["only_in_base"]],
            [str(name) for name in data["only_in_new"]],
            notes=[str(note) for note in data["notes"]],
        )


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join([*names[:MOST_NAMES], *([f"and {rest:,} more"] if rest > 0 else [])])
