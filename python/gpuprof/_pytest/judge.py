"""Decides whether a test fails for what it measured, and writes the text of the failure.

A test fails for a verdict that ``--gpu-benchmark-fail-on`` names, or for a median above the
marker's ``max_ms``. Before a failure that may be chance, the test is measured again, up to twice,
in processes of its own. It fails only if all measurements agree.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from gpuprof._common import machine
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import duration, percent, ratio_text
from gpuprof._display.table import Table
from gpuprof._pytest.settings import Settings
from gpuprof._results import verdict
from gpuprof._results.count_verdicts import beside_time, judge_launches
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult, cells
from gpuprof._results.result_files import Run
from gpuprof._results.texts import how, peak_text
from gpuprof._results.two_sides import advice

# What measuring again can change.
_BY_CHANCE = frozenset({Verdict.SLOW, Verdict.AMBIGUOUS})
_COLUMNS = ("median", "95 % interval", "min", "memory", "samples")
_WIDTH = 96
_INDENT = 15


class Judgement(NamedTuple):
    """`failure` is the text to fail with; `again` asks for another measurement."""

    decision: Decision | None
    failure: str | None = None
    again: bool = False


@dataclass(frozen=True)
class Judge:
    """Judges one test. Without a baseline to compare with, only `max_ms` counts."""

    key: str
    settings: Settings
    comparisons: int
    threshold: float | None = None
    memory_threshold: float | None = None
    max_ms: float | None = None

    def decide(self, results: Sequence[BenchResult], *, same_process: bool = False) -> Judgement:
        """Decide on all measurements so far; more in the `same_process` would not help."""
        decision = self._judge(results, same_process=same_process)
        again = self._may_be_slow(decision, results)
        if len(results) == 1:
            again = again or self._may_be_chance(decision, results)
        else:
            again = again and len(results) <= self.settings.reruns and not same_process
        return Judgement(decision, None if again else self._failure(decision, results), again)

    def decide_launches(self, result: BenchResult) -> Judgement:
        """Decide on the launches alone; their verdict is the decision's."""
        if self.settings.compare is None:
            return Judgement(None)
        base = self._base(result)
        found = judge_launches(base, [result]) if base else None
        if found is None:
            decision = self._new()
        else:
            decision = Decision(found.verdict, rule=found.rule, runs=found.runs, launches=found)
        return Judgement(decision, self._failure(decision, [result]))

    def _new(self) -> Decision:
        rule = f"a new benchmark: the baseline {self.settings.compare!r} does not have it yet"
        return Decision(Verdict.NODATA, rule=rule)

    def _fails(self, decision: Decision) -> bool:
        return decision.verdict.value in self.settings.fail_on

    def _may_be_chance(self, decision: Decision | None, results: Sequence[BenchResult]) -> bool:
        """Return whether measuring once more may decide whether the test fails."""
        if any(each.kind != "launches" for each in self._beside(decision)):
            return True
        if self._is_above(results[0]):
            return True
        return decision is not None and self._fails(decision) and decision.verdict in _BY_CHANCE

    def _may_be_slow(self, decision: Decision | None, results: Sequence[BenchResult]) -> bool:
        """Return whether the test would fail for being SLOW if more measurements were as these."""
        if decision is None or decision.verdict not in _BY_CHANCE:
            return False
        if Verdict.SLOW.value not in self.settings.fail_on:
            return False
        return verdict.may_be_slow(self._base(results[-1]), results, threshold=self.threshold)

    def _beside(self, decision: Decision | None) -> list[Decision]:
        """Return what a test fails for besides its time by this decision."""
        if decision is None:
            return []
        found = [each for each in decision.grown if self._fails(each)]
        launches, not_compared = decision.launches, Verdict.INCOMPARABLE
        if launches and launches.verdict is not_compared and decision.verdict is not not_compared:
            found += [launches] if self._fails(launches) else []
        return found

    def _judge(self, new: Sequence[BenchResult], *, same_process: bool) -> Decision | None:
        if self.settings.compare is None:
            return None
        base = self._base(new[-1])
        if not base:
            return self._new()
        decide = partial(
            verdict.confirm,
            base,
            threshold=self.threshold,
            comparisons=self.comparisons,
            baseline=self.settings.compare,
        )
        decision = decide(new, same_process=same_process)
        if self._fails(decision) and decision.verdict is not Verdict.SLOW and len(new) > 1:
            last = decide(new[-1:])
            decision = decision if self._fails(last) else last
        return beside_time(
            decision, base, new, memory_threshold=self.memory_threshold, repeated=True
        )

    def _base(self, new: BenchResult) -> list[BenchResult]:
        """Return the stored results of this machine, else of another to say what differs."""
        return [run.results[self.key] for run in self._runs(new)]

    def _runs(self, new: BenchResult) -> list[Run]:
        here = machine.key(new.machine)
        stored = self.settings.baseline
        for key in sorted(stored, key=lambda key: key != here):
            if having := [run for run in stored[key] if self.key in run.results]:
                return having
        return []

    def _is_above(self, result: BenchResult) -> bool:
        return self.max_ms is not None and result.median_ms > self.max_ms

    def _failure(self, decision: Decision | None, results: Sequence[BenchResult]) -> str | None:
        of_launches = _is_of_launches(decision)
        parts = []
        if decision and decision.verdict is not Verdict.LAUNCHES and self._fails(decision):
            reason = decision.rule
            if decision.ratio is not None:
                reason = (
                    f"{decision.ratio:.2f} times the time of baseline {self.settings.compare!r}: "
                    f"{duration(decision.new)}, was {duration(decision.base)}"
                )
            parts.append(f"{decision.verdict}: {reason}")
        name = self.key.rpartition("::")[2]
        parts += [f"{each.verdict}: {name}: {each.rule}" for each in self._beside(decision)]
        if all(self._is_above(result) for result in results):
            taken = duration(min(result.median_ms for result in results))
            parts.append(f"TOO SLOW: {taken}, and max_ms allows {duration(self.max_ms)}")
        if not parts:
            return None
        grid = [] if of_launches else ["", *self._grid(decision, results)]
        return "\n".join([*parts, *grid, "", *self._facts(decision, results)])

    def _grid(self, decision: Decision | None, results: Sequence[BenchResult]) -> list[str]:
        lines = []
        if decision and decision.base is not None:
            name = f"baseline {self.settings.compare!r}"
            peak = peak_text(decision.memory.base) if decision.memory else ""
            lines.append(
                [name, duration(decision.base), "", "", peak, plural(decision.runs, "run")]
            )
        for place, result in enumerate(results):
            label = "measured again" if place else "now"
            shown = cells(result)
            lines.append([label, *(shown[column] for column in _COLUMNS)])
        table = Table(["", *_COLUMNS], lines, frozenset({""})).without_empty()
        return [f"  {line}" for line in table.plain()]

    def _facts(self, decision: Decision | None, results: Sequence[BenchResult]) -> list[str]:
        last = results[-1]
        facts = []
        warnings = [text for result in results for text in result.warnings]
        if decision:
            if decision.ratio is not None:
                text = ratio_text(decision.ratio)
                if decision.interval:
                    text += f", 95 % interval {ratio_text(*decision.interval)}"
                facts.append(("ratio", text))
            if decision.floor is not None:
                facts.append(("noise floor", percent(decision.floor)))
            run = next(reversed(self._runs(last)), None)
            commit = run.commit if run else None
            if not _is_of_launches(decision):
                facts.append(("decided by", decision.rule))
                next_step = advice(decision, self.key, str(self.settings.compare), commit)
                facts += [("try", next_step)] if next_step else []
            facts += [(each.kind, each.rule) for each in decision.beside if each.base is not None]
            warnings = [*decision.warnings, *warnings]
            if run:
                of_commit = f", commit {commit[:12]}" if commit else ""
                facts.append(("last saved", f"{run.created}{of_commit}"))
        facts.append(("measured", f"{how(last)}, on {place(last)}"))
        notes = [*dict.fromkeys(warnings)]
        if len(notes) > 1 and not self.settings.verbose:
            notes[1:] = [f"{len(notes) - 1} more with -v"]
        facts += [("note", text) for text in notes]
        return [line for heading, text in facts for line in _fact(heading, text)]


def _is_of_launches(decision: Decision | None) -> bool:
    """Return whether the launches alone were judged, and not the time."""
    launches = decision and decision.launches
    return bool(launches and decision and decision.rule == launches.rule)


def _fact(heading: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(shown_text(text), _WIDTH - _INDENT, break_on_hyphens=False) or [""]
    head, *more = wrapped
    return [f"  {heading:<{_INDENT - 2}}{head}", *(" " * _INDENT + line for line in more)]


def place(result: BenchResult) -> str:
    known = result.machine
    return shown_text(str(known.get("gpu") or known.get("cpu") or "an unknown machine"))
