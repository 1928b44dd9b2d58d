"""Whether a call takes more than it did, besides time: of memory, of launches.

These hardly vary, so there are thresholds in place of tests of significance: docs/verdicts.md has
the rule for memory, docs/launches.md that for launches.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuprof._common.units import byte_size, percent
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.result import BenchResult

MEMORY_THRESHOLD = 0.05
LEAST_GROWTH = 1 << 20  # bytes; allocators round, and small arrays come and go
# What chooses kernels, by the name in `Launches.versions`, and its name for people.
CHOOSERS = {
    "gpu": "GPU",
    "cc": "compute capability",
    "torch": "torch",
    "cupy": "CuPy",
    "triton": "Triton",
    "cublas": "cuBLAS",
    "cudnn": "cuDNN",
    "source": "counts from",
}
_Runs = Sequence[BenchResult]


@dataclass(frozen=True)
class _Kind:
    """What is counted, and how the counts of comparable runs are judged."""

    name: str
    subject: str
    value: Callable[[BenchResult], int | None]
    same: Mapping[str, str]  # what must be the same on both sides, with its name for people
    judge: Callable[[_Runs, _Runs], Decision]
    facts: Callable[[BenchResult], Mapping[str, Any]] = lambda run: run.machine
    varies: Callable[[_Runs], str] = lambda _: ""  # how calls of the same program differ
    ignores_unknown: bool = False  # what one side does not know need not be the same

    def decide(self, base: _Runs, new: _Runs) -> Decision | None:
        """Compare the counts; None where neither side was counted."""
        known = [run for run in base if self.value(run) is not None]
        counted = [run for run in new if self.value(run) is not None]
        if not counted and not known:
            return None
        decision = Decision(Verdict.NODATA, kind=self.name)
        if not counted:
            why = "the new run has none"
        elif not known:
            it = "it" if self.name == "memory" else "them"
            why = f"no baseline run has {it}; save new runs"
        else:
            alike = [run for run in known if not self._unlike(run, counted[-1])]
            steady = [run for run in alike if not self.varies([run])]
            why = self.varies(counted)
            if steady and not why:
                return replace(self.judge(steady, counted), kind=self.name, runs=len(steady))
            if not why and not alike:
                decision = replace(decision, verdict=Verdict.INCOMPARABLE)
                why = self._unlike(known[-1], counted[-1])
            why = why or f"in the baseline, {self.varies(alike[-1:])}"
        now = self.middle(counted) if counted else None
        return replace(decision, new=now, rule=f"{self.subject} not compared: {why}")

    def middle(self, runs: _Runs) -> int:
        return round(statistics.median([self.value(run) or 0 for run in runs]))

    def _unlike(self, base: BenchResult, new: BenchResult) -> str:
        """Explain why two counts cannot be compared; empty if they can."""
        for key, name in self.same.items():
            before, now = self.facts(base).get(key), self.facts(new).get(key)
            if before != now and ((before and now) or not self.ignores_unknown):
                return f"the baseline has {name} {before or '?'}, now it is {now or '?'}"
        return ""


def judge_memory(base: _Runs, new: _Runs, *, threshold: float | None = None) -> Decision | None:
    """Decide whether the peak of the memory grew from the baseline's runs to the new ones.

    The medians of the peaks are compared. It grew if the difference is more than `threshold`, a
    fraction (None is 0.05), and than 1 MiB, and if no baseline run had as much.
    """
    threshold = MEMORY_THRESHOLD if threshold is None else threshold

    def compare(base: _Runs, new: _Runs) -> Decision:
        most = max(run.peak_bytes or 0 for run in base)
        before, now = kind.middle(base), kind.middle(new)
        growth = now - before
        share = growth / before if before else math.inf
        text = f"peak memory {byte_size(before, precise=True)} -> {byte_size(now, precise=True)}"
        if before and growth:
            text += f", {'+' if growth > 0 else '-'}{percent(abs(share), 2)}"
        verdict = Verdict.SAME
        if growth <= LEAST_GROWTH:
            text += "" if growth <= 0 else f", not more than {byte_size(LEAST_GROWTH)}"
        elif share <= threshold:
            text += f", not more than {percent(threshold, 2)}"
        elif now <= most:
            text += f", but a baseline run had {byte_size(most, precise=True)}"
        else:
            verdict = Verdict.MEMORY
            text += f", more than {percent(threshold, 2) if before else byte_size(LEAST_GROWTH)}"
        return Decision(verdict, before, now, floor=threshold, rule=text)

    kind = _Kind("memory", "peak memory was", lambda run: run.peak_bytes, {"gpu": "GPU"}, compare)
    return kind.decide(base, new)


def beside_time(
    decision: Decision,
    base: _Runs,
    new: _Runs,
    *,
    memory_threshold: float | None = None,
    repeated: bool = False,
) -> Decision:
    """Add the decisions on the memory and the launches to one on the time.

    Where the new runs are a measurement that was `repeated`, the smallest peak counts: what comes
    on top of that is chance.
    """
    least = new
    if repeated:
        least = [min(reversed(new), key=lambda run: run.memory.get("peak_bytes", math.inf))]
    return replace(
        decision,
        memory=judge_memory(base, least, threshold=memory_threshold),
        launches=judge_launches(base, new),
    )


def notes_of(decision: Decision) -> list[str]:
    """Return the warnings, and what to say of memory and launches that is no reason to fail."""
    found, memory, launches = [*decision.warnings], decision.memory, decision.launches
    if memory and decision.base is not None and memory.verdict is Verdict.NODATA:
        found += [memory.rule] if memory.new is not None else []
    if launches and not launches.grew and decision.verdict is not Verdict.INCOMPARABLE:
        found += [launches.rule] if launches.changes or launches.base is None else []
    return found


def _more_launches(base: _Runs, new: _Runs) -> Decision:
    """Decide by the run that launches as much, by name; without one, by the last."""
    known = [run.launches for run in base if run.launches]
    last, now = known[-1], new[-1].launches
    assert now
    changes = "" if any(each.same(now) for each in known) else last.diff(now)
    if not changes:
        verdict, rule = Verdict.SAME, f"launches {now}, as before"
    elif now.total < last.total:  # whatever they are
        verdict, rule = Verdict.SAME, f"launches less: {changes}"
    else:
        how = "more" if now.total > last.total else "other work"
        verdict, rule = Verdict.LAUNCHES, f"launches {how}: {changes}"
    return Decision(verdict, last.total, now.total, rule=rule, changes=changes)


def _choosers(run: BenchResult) -> dict[str, str]:
    found = run.launches
    return {} if found is None else {**found.versions, "source": found.source}


def _varies(runs: _Runs) -> str:
    found = [run.launches for run in runs if run.launches]
    differences = (found[-1].varies, *(each.diff(found[-1]) for each in found))
    how = next(filter(None, differences), "")
    return f"calls differ in what they launch: {how}" if how else ""


_LAUNCHES = _Kind(
    "launches",
    "launches were",
    lambda run: None if run.launches is None else run.launches.total,
    CHOOSERS,
    _more_launches,
    facts=_choosers,
    varies=_varies,
    ignores_unknown=True,
)
judge_launches = _LAUNCHES.decide
