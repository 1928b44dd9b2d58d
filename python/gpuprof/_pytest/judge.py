"""Decides whether a test fails for its time or memory, and writes the text of the failure.

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
from gpuprof._common.units import duration, percent
from gpuprof._display.table import Table
from gpuprof._results.decision import Decision, MemoryDecision, Verdict
from gpuprof._results.result import cells, how
from gpuprof._results.texts import peak_text

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
    threshold: float | None
    memory_threshold: float | None
    max_ms: float | None
    comparisons: int

    def decide(self, result: BenchResult) -> Judgement:
        """Decide on the first measurement."""
        decision = self._judge([result])
        regressed = self._regressions(decision, [result])
        if regressed or self._may_be_chance(decision, result) or self._takes_more(decision):
            return Judgement(decision, again=True)
        return Judgement(decision, self._failure(decision, [result]))

    def decide_again(self, first: BenchResult, again: BenchResult) -> Judgement:
        """Decide on both measurements."""
        decision = self._judge([first])
        if decision and decision.verdict is Verdict.SLOW:
            from gpuprof._results.verdict import confirm

            decision = confirm(
                self._base(again),
                first,
                again,
                threshold=self.threshold,
                comparisons=self.comparisons,
            )
        elif decision:
            alone = self._judge([again])
            assert alone is not None
            if not self._fails(alone):
                decision = alone
            elif self._may_be_chance(decision, first):
                decision = self._judge([first, again])
        if decision:
            decision = replace(decision, memory=self._memory([first, again]))
        return Judgement(decision, self._failure(decision, [first, again]))

    def _fails(self, decision: Decision) -> bool:
        """Return whether a test fails for its time by this decision."""
        return decision.verdict.value in self.settings.fail_on

    def _may_be_chance(self, decision: Decision | None, result: BenchResult) -> bool:
        """Return whether the test would fail for its time, but may not if measured again."""
        if self._is_above(result):
            return True
        return decision is not None and self._fails(decision) and decision.verdict in _BY_CHANCE

    def _takes_more(self, decision: Decision | None) -> bool:
        """Return whether a test fails for its memory by this decision."""
        memory = decision and decision.memory
        return bool(memory and memory.grew and memory.verdict.value in self.settings.fail_on)

    def _regressions(self, decision: Decision | None, results: Sequence[BenchResult]) -> list[str]:
        """Return what the expressions say that fail for all the results."""
        if decision is None or not self.settings.fail_expressions:
            return []
        from gpuprof._results.verdict import comparable

        # Times of other GPUs or in other modes say nothing about the code.
        base, name = comparable(self._base(results[-1]), results[-1]), str(self.settings.compare)
        if not base or decision.verdict is Verdict.INCOMPARABLE:
            return []
        found = [each.failure(base, results, name) for each in self.settings.fail_expressions]
        return [text for text in found if text is not None]

    def _judge(self, new: Sequence[BenchResult]) -> Decision | None:
        if self.settings.compare is None:
            return None
        from gpuprof._results.verdict import judge

        base = self._base(new[-1])
        if not base:
            rule = f"a new benchmark: the baseline {self.settings.compare!r} does not have it yet"
            return Decision(Verdict.NODATA, rule=rule)
        decision = judge(base, new, threshold=self.threshold, comparisons=self.comparisons)
        return replace(decision, memory=self._memory(new))

    def _memory(self, new: Sequence[BenchResult]) -> MemoryDecision | None:
        """Judge the smallest of the peaks: what is allocated beside one of them is chance."""
        from gpuprof._results.memory_verdict import judge_memory

        base = self._base(new[-1])
        measured = [result for result in new if result.peak_bytes is not None]
        least = min(measured, key=lambda result: result.peak_bytes or 0, default=new[-1])
        return judge_memory(base, [least], threshold=self.memory_threshold) if base else None

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
        parts = self._regressions(decision, results)
        if decision and self._fails(decision):
            parts.append(self._of_verdict(decision))
        if decision and decision.memory and self._takes_more(decision):
            name = self.key.rpartition("::")[2]
            parts.append(f"{decision.memory.verdict}: {name}: {decision.memory.rule}")
        if all(self._is_above(result) for result in results):
            taken = duration(min(result.median_ms for result in results))
            parts.append(f"TOO SLOW: {taken}, and max_ms allows {duration(self.max_ms)}")
        if not parts:
            return None
        return "\n".join(
            [*parts, "", *self._grid(decision, results), "", *self._facts(decision, results)]
        )

    def _of_verdict(self, decision: Decision) -> str:
        if decision.ratio is None:
            return f"{decision.verdict}: {decision.rule}"
        return (
            f"{decision.verdict}: {decision.ratio:.2f} times the time of baseline "
            f"{self.settings.compare!r}: {duration(decision.new_ms)}, was "
            f"{duration(decision.base_ms)}"
        )

    def _grid(self, decision: Decision | None, results: list[BenchResult]) -> list[str]:
        lines = []
        if decision and decision.base_ms is not None:
            name = f"baseline {self.settings.compare!r}"
            runs = f"{decision.runs} run{'s' * (decision.runs != 1)}"
            peak = peak_text(decision.memory.base_bytes) if decision.memory else ""
            lines.append([name, duration(decision.base_ms), "", "", peak, runs])
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
                text = f"{decision.ratio:.3f}"
                if decision.interval:
                    low, high = decision.interval
                    text += f", 95 % interval {low:.3f} to {high:.3f}"
                facts.append(("ratio", text))
            if decision.floor is not None:
                facts.append(("noise floor", percent(decision.floor)))
            facts.append(("decided by", decision.rule))
            if decision.memory and decision.memory.base_bytes is not None:
                facts.append(("memory", decision.memory.rule))
            warnings += decision.warnings
            runs = self._runs(last)
            if runs:
                commit = f", commit {runs[-1].commit[:12]}" if runs[-1].commit else ""
                facts.append(("last saved", f"{runs[-1].created}{commit}"))
        facts.append(("measured", f"{how(last)}, on {place(last)}"))
        facts += [("note", text) for text in dict.fromkeys(warnings)]
        return [line for heading, text in facts for line in _fact(heading, text)]


def _fact(heading: str, text: str) -> list[str]:
    wrapped = textwrap.wrap(shown_text(text), _WIDTH - _INDENT, break_on_hyphens=False) or [""]
    head, *more = wrapped
    return [f"  {heading:<{_INDENT - 2}}{head}", *(" " * _INDENT + line for line in more)]


def place(result: BenchResult) -> str:
    """Name the device that was measured."""
    known = result.machine
    return shown_text(str(known.get("gpu") or known.get("cpu") or "an unknown machine"))
