"""Decides whether a test fails for what it measured, and writes the text of the failure.

A test fails for a verdict that ``--gpu-benchmark-fail-on`` names, or for a median above the
marker's ``max_ms``. Before a failure that may be chance, the test is measured a second time, and
fails only if both measurements agree.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpuprof._common import machine
from gpuprof._common.text import shown_text
from gpuprof._common.units import duration, percent, ratio_text
from gpuprof._display.table import Table
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import cells
from gpuprof._results.texts import how, peak_text

if TYPE_CHECKING:
    from gpuprof._pytest.settings import Settings
    from gpuprof._results.baselines import Run
    from gpuprof._results.result import BenchResult

# What measuring again can change.
_BY_CHANCE = frozenset({Verdict.SLOW, Verdict.AMBIGUOUS})
_COLUMNS = ("median", "95 % interval", "min", "memory", "samples")
_WIDTH = 96
_INDENT = 15


@dataclass(frozen=True)
class Judgement:
    """`failure` is the text to fail with; `again` asks for a second measurement."""

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

    def decide(self, result: BenchResult) -> Judgement:
        """Decide on the first measurement."""
        decision = self._judge([result])
        regressed = self._regressions(decision, [result])
        chance = any(each.kind != "launches" for each in self._beside(decision))
        if regressed or chance or self._may_be_chance(decision, result):
            return Judgement(decision, again=True)
        return Judgement(decision, self._failure(decision, [result]))

    def decide_again(
        self, before: Decision | None, first: BenchResult, again: BenchResult
    ) -> Judgement:
        """Decide on both measurements; `before` is the decision on the first."""
        both = [first, again]
        decision = before
        if before and before.verdict is Verdict.SLOW:
            from gpuprof._results.verdict import confirm

            time = confirm(
                self._base(again),
                first,
                again,
                threshold=self.threshold,
                comparisons=self.comparisons,
            )
            decision = self._with_the_rest(time, both)
        elif before:
            alone = self._judge([again])
            assert alone is not None
            new = [first]
            if not self._fails(alone):
                new = [again]
            elif self._may_be_chance(before, first):
                new = both
            decision = self._with_the_rest(self._of_time(new), both)
        return Judgement(decision, self._failure(decision, both))

    def decide_launches(self, result: BenchResult) -> Judgement:
        """Decide on the launches alone; their verdict is the decision's."""
        if self.settings.compare is None:
            return Judgement(None)
        from gpuprof._results.count_verdicts import judge_launches

        base = self._base(result)
        found = judge_launches(base, [result]) if base else None
        decision = self._new()
        if found is not None:
            decision = Decision(found.verdict, rule=found.rule, runs=found.runs, launches=found)
        return Judgement(decision, self._failure(decision, [result]))

    def _new(self) -> Decision:
        rule = f"a new benchmark: the baseline {self.settings.compare!r} does not have it yet"
        return Decision(Verdict.NODATA, rule=rule)

    def _fails(self, decision: Decision) -> bool:
        """Return whether a test fails for its time by this decision."""
        return decision.verdict.value in self.settings.fail_on

    def _may_be_chance(self, decision: Decision | None, result: BenchResult) -> bool:
        """Return whether the test would fail for its time, but may not if measured again."""
        if self._is_above(result):
            return True
        return decision is not None and self._fails(decision) and decision.verdict in _BY_CHANCE

    def _beside(self, decision: Decision | None) -> list[Decision]:
        """Return what a test fails for besides its time by this decision."""
        if decision is None:
            return []
        found = [each for each in decision.grown if each.verdict.value in self.settings.fail_on]
        launches, not_compared = decision.launches, Verdict.INCOMPARABLE
        if decision.verdict is not not_compared and not_compared.value in self.settings.fail_on:
            found += [launches] if launches and launches.verdict is not_compared else []
        return found

    def _regressions(self, decision: Decision | None, results: Sequence[BenchResult]) -> list[str]:
        """Return what the expressions say that fail for all the results."""
        if decision is None or not self.settings.fail_expressions:
            return []
        from gpuprof._results.verdict import compared_runs

        # Those that the verdict rests on: times of other GPUs or modes say nothing about the code.
        base, name = compared_runs(self._base(results[-1]), results[-1]), str(self.settings.compare)
        if not base or decision.verdict is Verdict.INCOMPARABLE:
            return []
        found = [each.failure(base, results, name) for each in self.settings.fail_expressions]
        return [text for text in found if text is not None]

    def _judge(self, new: Sequence[BenchResult]) -> Decision | None:
        if self.settings.compare is None:
            return None
        if not self._base(new[-1]):
            return self._new()
        return self._with_the_rest(self._of_time(new), new)

    def _of_time(self, new: Sequence[BenchResult]) -> Decision:
        from gpuprof._results.verdict import judge

        base = self._base(new[-1])
        return judge(base, new, threshold=self.threshold, comparisons=self.comparisons)

    def _with_the_rest(self, decision: Decision, new: Sequence[BenchResult]) -> Decision:
        """Add what is said of the memory, the launches and the CPU's instructions.

        Of two measurements the one with the smaller peak counts, and the one with fewer
        instructions: what comes on top of that is chance.
        """
        from gpuprof._results import count_verdicts

        base = self._base(new[-1])
        measured = [result for result in new if result.peak_bytes is not None]
        least = min(measured, key=lambda result: result.peak_bytes or 0, default=new[-1])
        decision = replace(
            decision,
            memory=count_verdicts.judge_memory(base, [least], threshold=self.memory_threshold),
            launches=count_verdicts.judge_launches(base, new),
        )
        fewest = count_verdicts.fewest(new)
        return count_verdicts.with_instructions(
            decision,
            count_verdicts.judge_instructions(base, [fewest]),
            decides=self.settings.cpu_metric == "instructions" and fewest.clock == "cpu",
            missing=count_verdicts.missing_reason(fewest),
        )

    def _base(self, new: BenchResult) -> list[BenchResult]:
        """Return the stored results of this machine, else of another to say what differs."""
        return [run.results[self.key] for run in self._runs(new)]

    def _runs(self, new: BenchResult) -> list[Run]:
        stored = self.settings.baseline
        here = machine.key(new.machine)
        others = (runs for key, runs in stored.items() if key != here)
        for runs in (stored.get(here, []), *others):
            having = [run for run in runs if self.key in run.results]
            if having:
                return having
        return []

    def _is_above(self, result: BenchResult) -> bool:
        return self.max_ms is not None and result.median_ms > self.max_ms

    def _failure(self, decision: Decision | None, results: list[BenchResult]) -> str | None:
        of_launches = _is_of_launches(decision)
        parts = [] if of_launches else self._regressions(decision, results)
        if decision and decision.verdict is not Verdict.LAUNCHES and self._fails(decision):
            parts.append(self._of_verdict(decision))
        name = self.key.rpartition("::")[2]
        parts += [f"{each.verdict}: {name}: {each.rule}" for each in self._beside(decision)]
        if all(self._is_above(result) for result in results):
            taken = duration(min(result.median_ms for result in results))
            parts.append(f"TOO SLOW: {taken}, and max_ms allows {duration(self.max_ms)}")
        if not parts:
            return None
        grid = [] if of_launches else ["", *self._grid(decision, results)]
        return "\n".join([*parts, *grid, "", *self._facts(decision, results)])

    def _of_verdict(self, decision: Decision) -> str:
        if decision.ratio is None:
            return f"{decision.verdict}: {decision.rule}"
        return (
            f"{decision.verdict}: {decision.ratio:.2f} times the time of baseline "
            f"{self.settings.compare!r}: {duration(decision.new)}, was "
            f"{duration(decision.base)}"
        )

    def _grid(self, decision: Decision | None, results: list[BenchResult]) -> list[str]:
        lines = []
        if decision and decision.base is not None:
            name = f"baseline {self.settings.compare!r}"
            runs = f"{decision.runs} run{'s' * (decision.runs != 1)}"
            peak = peak_text(decision.memory.base) if decision.memory else ""
            lines.append([name, duration(decision.base), "", "", peak, runs])
        for label, result in zip(("now", "measured again"), results, strict=False):
            shown = cells(result)
            lines.append([label, *(shown[column] for column in _COLUMNS)])
        table = Table(["", *_COLUMNS], lines, frozenset({""})).without_empty()
        return [f"  {line}" for line in table.plain()]

    def _facts(self, decision: Decision | None, results: list[BenchResult]) -> list[str]:
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
            if not _is_of_launches(decision):
                facts.append(("decided by", decision.rule))
            memory, launches, instructions = (
                decision.memory,
                decision.launches,
                decision.instructions,
            )
            if memory and memory.base is not None:
                facts.append(("memory", memory.rule))
            if launches and launches.base is not None:
                facts.append(("launches", launches.rule))
            if instructions and instructions.ratio is not None:
                facts.append(("instructions", instructions.rule))
            warnings += decision.warnings
            runs = self._runs(last)
            if runs:
                commit = f", commit {runs[-1].commit[:12]}" if runs[-1].commit else ""
                facts.append(("last saved", f"{runs[-1].created}{commit}"))
        facts.append(("measured", f"{how(last)}, on {place(last)}"))
        facts += [("note", text) for text in dict.fromkeys(warnings)]
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
    """Name the device that was measured."""
    known = result.machine
    return shown_text(str(known.get("gpu") or known.get("cpu") or "an unknown machine"))
