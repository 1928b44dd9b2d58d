"""Whether code became slower than in stored runs: docs/verdicts.md has the rule.

The rule itself is in `_results.stored_rule`; what is here serves any rule.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpuprof._common.units import percent
from gpuprof._results import stored_rule
from gpuprof._results.count_verdicts import beside_time
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.eligible import MIN_SAMPLES, changes, difference, usable_runs, why_unusable
from gpuprof._results.paired_verdict import Key, corrected
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import P_LIMIT


def judge(
    base: Sequence[BenchResult],
    new: Sequence[BenchResult],
    *,
    threshold: float | None = None,
    comparisons: int = 1,
    baseline: str = "NAME",
) -> Decision:
    """Decide whether the new runs of a benchmark are slower than those of a baseline.

    Both have one result for each run, oldest first. `threshold` is the smallest change to report,
    as a fraction; None is 0.05 with 5 or more baseline runs, else 0.10. The test on the samples is
    corrected for the number of `comparisons` made together (Bonferroni). The baseline is saved as
    `baseline`, for what the decision advises.
    """
    if not base or not new:
        side = "no baseline run has" if not base else "no new run has"
        return Decision(Verdict.NODATA, rule=f"{side} a result of this benchmark")
    warnings: list[str] = []
    odd, reasons = (
        [why for run in runs if (why := difference(run, new[-1]))] for runs in (new, base)
    )
    if odd:
        rule = f"the new runs cannot be taken together: {odd[0]}"
        return Decision(Verdict.INCOMPARABLE, rule=rule)
    if len(reasons) == len(base):
        return Decision(Verdict.INCOMPARABLE, rule=reasons[-1])
    if reasons:
        warnings.append(f"{len(reasons)} of {len(base)} baseline runs left out: {reasons[0]}")
    alike = comparable(base, new[-1])
    old, now = usable_runs(alike), usable_runs(new)
    for side, runs, usable in (("baseline run", alike, old), ("new run", new, now)):
        if not usable:
            return Decision(Verdict.NODATA, rule=why_unusable(side, runs))
        if len(usable) < len(runs):
            left_out = f"{len(runs) - len(usable)} of {len(runs)} {side}s left out"
            warnings.append(f"{left_out}: fewer than {MIN_SAMPLES} samples, or not above 0")
    found = stored_rule.decide(old, now, threshold, P_LIMIT / comparisons, baseline)
    return replace(found, warnings=(*warnings, *changes(old, now), *found.warnings))


def comparable(base: Sequence[BenchResult], new: BenchResult) -> list[BenchResult]:
    """Return the baseline's results that were measured as `new` was, on a machine of its kind."""
    return [run for run in base if difference(run, new) is None]


def confirm(
    base: Sequence[BenchResult],
    new: Sequence[BenchResult],
    *,
    threshold: float | None = None,
    comparisons: int = 1,
    baseline: str = "NAME",
    same_process: bool = False,
) -> Decision:
    """Decide after a benchmark has been measured once, or again because it may be slower.

    The measurements are each of its own process, which says most. Those of the `same_process` share
    what disturbs it, so each of them has to be SLOW, or FAST, by itself.
    """
    decide = partial(judge, base, threshold=threshold, comparisons=comparisons, baseline=baseline)
    decision = decide(new)
    if same_process:
        alone = [decide([run]) for run in new]
        decision = min(alone, key=lambda each: abs(math.log(each.ratio or 1.0)))
        if len({each.verdict for each in alone}) > 1:
            changes = [math.log(each.ratio or 1.0) for each in alone]
            rule = f"{stored_rule.repeated(changes)} {percent(decision.floor or 0.0)}"
            decision = replace(decision, verdict=Verdict.AMBIGUOUS, rule=rule)
    return decision


def may_be_slow(
    base: Sequence[BenchResult], new: Sequence[BenchResult], *, threshold: float | None = None
) -> bool:
    """Return whether the new runs would be SLOW if a few more were like them."""
    old, now = usable_runs(comparable(base, new[-1])), usable_runs(new)
    return bool(old and now) and stored_rule.may_be_slow(old, now, threshold)


def judge_all(
    pairs: Mapping[Key, tuple[Sequence[BenchResult], Sequence[BenchResult]]],
    *,
    threshold: float | None = None,
    memory_threshold: float | None = None,
    baseline: str = "NAME",
) -> dict[Key, Decision]:
    """Decide on many benchmarks together, each with its runs of the baseline and its new runs.

    The test on the samples is corrected for their number, and memory and launches are decided on.
    """

    def vetoed_by(found: Decision, p_value: float, comparisons: int) -> str:
        rule = stored_rule.vetoed(found.ratio or 1.0, found.floor or 0.0, p_value, P_LIMIT)
        return f"{rule}, corrected for {comparisons} comparisons"

    decisions = {
        name: judge(*pair, threshold=threshold, baseline=baseline) for name, pair in pairs.items()
    }
    return {
        name: beside_time(decision, *pairs[name], memory_threshold=memory_threshold)
        for name, decision in corrected(decisions, vetoed_by).items()
    }
