"""A comparison of two sides, name by name: what `gpuprof compare` and `gpuprof ab` found.

`gpuprof compare` has saved runs on its sides, `gpuprof ab` two commands. It can be stored as JSON.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpuprof._common import checks
from gpuprof._common.records import Record, head
from gpuprof._common.text import output_text, plain_data, plural
from gpuprof._common.units import NOTHING, duration, percent, ratio_text
from gpuprof._results.count_verdicts import notes_of
from gpuprof._results.decision import Decision, Verdict, verdicts_of
from gpuprof._results.stored_rule import ENOUGH_RUNS
from gpuprof._results.texts import peak_text, said_once, some

_TELLING_RUNS = 2 * ENOUGH_RUNS  # of more runs the spread is known
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

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": output_text(self.name),
            "machine": output_text(self.machine),
            **self.decision.to_dict(),
        }

    @classmethod
    def _read(cls, where: str, data: object) -> Line:
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
    baseline: str | None = None  # what the base is saved as
    facts: tuple[str, ...] = ()  # below the two sides
    data: Mapping[str, Any] = field(default_factory=dict)  # more members for the JSON

    _HEAD = head("gpuprof-run-comparison", unit="ms")
    _MEMBERS = (*_HEAD, "base", "new", "verdicts", "only_in_base", "only_in_new", "notes", "rows")
    _NEWER = frozenset({"names", "baseline", "facts", "data"})  # which no file has

    @property
    def verdicts(self) -> Counter[Verdict]:
        return Counter(verdict for line in self.rows for verdict in verdicts_of(line.decision))

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

    def lines(self) -> list[dict[str, tuple[str, float | None]]]:
        """Return the cells of each row by column: the text, and the number that sorts it."""
        several = len({line.machine for line in self.rows}) > 1
        found = []
        for line in self.rows:
            decision, memory = line.decision, line.decision.memory
            base, new = self.names
            peaks = (memory.base, memory.new) if memory else (None, None)
            floor = NOTHING if decision.floor is None else percent(decision.floor)
            cells: dict[str, tuple[str, float | None]] = {
                "benchmark": (line.name, None),
                "machine": (line.machine if several else "", None),
                base: (duration(decision.base), decision.base),
                new: (duration(decision.new), decision.new),
                "ratio": (ratio_text(decision.ratio), decision.ratio),
                "95 % interval": (ratio_text(*(decision.interval or [None])), None),
                "floor": (floor, decision.floor),
                f"{base} memory": (peak_text(peaks[0]), peaks[0]),
                f"{new} memory": (peak_text(peaks[1]), peaks[1]),
                "verdict": (", ".join(map(str, verdicts_of(decision))), None),
            }
            found.append(cells)
        return found

    def headline(self) -> list[str]:
        sides = zip(self.names, (self.base, self.new), strict=True)
        return [*(f"{label}: {side}" for label, side in sides), *self.facts]

    def reasons(self) -> list[str]:
        """Return why, for each line whose verdict needs a reason."""
        return reasons_of(self._decisions(), _EXPLAINED, self.baseline)

    def remarks(self) -> list[str]:
        """Return each warning once with the benchmarks it is about, and what was not compared."""
        remarks = remarks_of(self._decisions())
        for side, only in zip(self.names, (self.only_in_base, self.only_in_new), strict=True):
            if only:
                remarks.append(f"only in {side}: {some(only)}")
        return [*remarks, *self.notes]

    def _decisions(self) -> list[tuple[str, Decision]]:
        names = Counter(line.name for line in self.rows)
        return [
            (line.name if names[line.name] == 1 else f"{line.name} ({line.machine})", line.decision)
            for line in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data, for JSON. `names`, `baseline` and `facts` are not in it."""
        counts = {verdict.value: self.verdicts[verdict] for verdict in Verdict}
        more: dict[str, Any] = plain_data(self.data)
        return super().to_dict() | {"verdicts": counts} | more

    @classmethod
    def _read(cls, where: str, data: object) -> Comparison:
        """Build one without `names`, `baseline`, `facts` and `data`."""
        found = checks.mapping(where, data)
        return super()._read(where, {name: found[name] for name in cls._MEMBERS if name in found})


def reasons_of(
    decisions: Sequence[tuple[str, Decision]],
    explained: Collection[Verdict],
    baseline: str | None = None,
) -> list[str]:
    """Return why, for the names whose verdict is to be explained, and what there is more of.

    With the name of the `baseline` each first one has what to type next.
    """
    reasons: dict[tuple[str, str], tuple[list[str], str]] = {}
    for name, decision in decisions:
        told = [decision] if decision.verdict in explained else []
        for each in (*told, *decision.grown):
            next_ = advice(each, name, baseline) if baseline and each is decision else ""
            names, _ = reasons.setdefault((str(each.verdict), each.rule), ([], next_))
            names.append(name)
    return [
        f"{verdict} {some(names)}: {rule}" + (f"; {next_}" if next_ else "")
        for (verdict, rule), (names, next_) in reasons.items()
    ]


def remarks_of(decisions: Sequence[tuple[str, Decision]]) -> list[str]:
    """Return each warning once, with the names that it is about where these are not all."""
    return said_once([(name, notes_of(decision)) for name, decision in decisions])


def advice(decision: Decision, test: str, baseline: str, commit: str | None = None) -> str:
    """Return a sentence with a command that may settle a verdict; no text where it is settled.

    `test` is the pytest node that was measured, and `commit` that of the baseline's last run.
    """
    verdict, node = decision.verdict, shlex.quote(test)
    save = f"`pytest {node} --gpu-benchmark-save={baseline}`"
    if verdict in {Verdict.NODATA, Verdict.INCOMPARABLE}:
        return f"{save}, five times, makes a baseline for it"
    if verdict is Verdict.FAST:
        return f"{save}, five times, lets the baseline follow"
    if verdict is Verdict.AMBIGUOUS and decision.runs < _TELLING_RUNS:
        return f"{save}, some times more, tells the baseline's noise from a change"
    if verdict not in {Verdict.SLOW, Verdict.AMBIGUOUS}:
        return ""
    measure = f"pytest {test} --gpu-benchmark-json={{out}}"
    old, new = (shlex.quote(each) for each in (f"cd OLD && {measure}", measure))
    made = f"`git worktree add OLD {commit[:12]}`, then " if commit else ""
    return f"{made}`gpuprof ab {old} {new}` runs both versions in turns"
