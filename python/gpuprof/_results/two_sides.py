"""A comparison of two sides, name by name: what `gpuprof compare` and `gpuprof ab` found.

`gpuprof compare` has saved runs on its sides, `gpuprof ab` two commands. It can be stored as JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuprof._common import checks
from gpuprof._common.records import Record, head
from gpuprof._common.text import output_text, plain_data, plural
from gpuprof._results.count_verdicts import notes_of
from gpuprof._results.decision import Decision, Verdict

if TYPE_CHECKING:
    from typing_extensions import Self

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
class Line(Record):
    """One benchmark, and the key of its machine. Its plain form has the decision's members."""

    name: str
    machine: str
    decision: Decision

    @property
    def verdicts(self) -> list[Verdict]:
        """The verdict on the time, and those on what there is more of."""
        return [self.decision.verdict, *(each.verdict for each in self.decision.grown)]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": output_text(self.name),
            "machine": output_text(self.machine),
            **self.decision.to_dict(),
        }

    @classmethod
    def _read(cls, where: str, data: object) -> Self:
        rest = checks.mapping(where, data)
        own: dict[str, Any] = {"decision": rest}
        own |= {name: rest.pop(name) for name in ("name", "machine") if name in rest}
        return super()._read(where, own)


@dataclass(frozen=True)
class Comparison(Record):
    """Both sides, a row for each name that both have, and the names that one side lacks."""

    base: Side
    new: Side
    rows: tuple[Line, ...]
    only_in_base: tuple[str, ...]
    only_in_new: tuple[str, ...]
    notes: tuple[str, ...] = ()
    names: tuple[str, str] = ("base", "new")
    facts: tuple[str, ...] = ()  # below the two sides
    data: Mapping[str, Any] = field(default_factory=dict)  # more members for the JSON

    _HEAD = head("gpuprof-run-comparison", unit="ms")
    _MEMBERS = (*_HEAD, "base", "new", "verdicts", "only_in_base", "only_in_new", "notes", "rows")
    _NEWER = frozenset({"names", "facts", "data"})  # which no file has

    @property
    def verdicts(self) -> Counter[Verdict]:
        """How often there is each verdict."""
        return Counter(verdict for line in self.rows for verdict in line.verdicts)

    @property
    def compared(self) -> bool:
        """Whether any line was compared: its time, or what it launches."""
        verdicts = [line.decision.verdict for line in self.rows]
        verdicts += [each.verdict for each in self.launches]
        return any(verdict not in _NOT_COMPARED for verdict in verdicts)

    @property
    def launches(self) -> list[Decision]:
        """What is said of the launches, of the lines where they were counted."""
        found = [line.decision.launches for line in self.rows]
        return [each for each in found if each is not None]

    def headline(self) -> list[str]:
        sides = zip(self.names, (self.base, self.new), strict=True)
        return [*(f"{label}: {side}" for label, side in sides), *self.facts]

    def reasons(self) -> list[str]:
        """Return why, for each line whose verdict needs a reason."""
        reasons = []
        for line in self.rows:
            decision, name = line.decision, self._called(line)
            if decision.verdict in _EXPLAINED:
                reasons.append(f"{decision.verdict} {name}: {decision.rule}")
            reasons += [f"{each.verdict} {name}: {each.rule}" for each in decision.grown]
        return reasons

    def remarks(self) -> list[str]:
        """Return each warning once with the benchmarks it is about, and what was not compared."""
        concerned: dict[str, list[str]] = {}
        for line in self.rows:
            for note in notes_of(line.decision):
                concerned.setdefault(note, []).append(self._called(line))
        remarks = []
        for warning, names in concerned.items():
            everybody = len(names) == len(self.rows)
            remarks.append(warning if everybody else f"{_some(names)}: {warning}")
        for side, only in zip(self.names, (self.only_in_base, self.only_in_new), strict=True):
            if only:
                remarks.append(f"only in {side}: {_some(only)}")
        return [*remarks, *self.notes]

    def _called(self, line: Line) -> str:
        others = sum(other.name == line.name for other in self.rows)
        return line.name if others == 1 else f"{line.name} ({line.machine})"

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON. `names` and `facts` are not in it."""
        counts = {verdict.value: self.verdicts[verdict] for verdict in Verdict}
        more: dict[str, Any] = plain_data(self.data)
        return super().to_dict() | {"verdicts": counts} | more

    @classmethod
    def _read(cls, where: str, data: object) -> Self:
        """Build one without `names`, `facts` and `data`."""
        found = checks.mapping(where, data)
        return super()._read(where, {name: found[name] for name in cls._MEMBERS if name in found})


def _some(names: Sequence[str]) -> str:
    rest = len(names) - MOST_NAMES
    return ", ".join([*names[:MOST_NAMES], *([f"and {rest:,} more"] if rest > 0 else [])])
