"""Whether code became slower than in stored runs: docs/verdicts.md has the rule.

The unit is the run, not the sample. A new process finds other clocks, addresses and temperatures,
so samples of one run agree with each other far better than with those of the next run. So the noise
is taken from how the runs of the baseline differ among themselves.

The spread is the plain standard deviation together with the range, not the median absolute
deviation (MAD). MAD ignores outliers, but a slow run of unchanged code is what the floor must
remember: in simulation, 3 scaled MADs in place of it call 9 in 1,000 unchanged functions SLOW
instead of 7 at 2 % drift, and 18 of 100 instead of 6 or 7 where one run in five is 10 % slower for
no reason. `benchmarks/benchmark_verdicts.py` computes the rule's own figures.

NumPy and SciPy are imported by `judge` when it is called.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from gpuprof._common.checks import whole
from gpuprof._common.units import percent, percent_change
from gpuprof._results import noise_floor
from gpuprof._results.count_verdicts import (
    judge_instructions,
    judge_launches,
    judge_memory,
    with_instructions,
)
from gpuprof._results.decision import Decision, Verdict, check_threshold
from gpuprof._results.eligible import changes, difference, usable_runs, why_unusable
from gpuprof._results.level import LOWER, main_state
from gpuprof._results.level_rule import judge_level, vetoed
from gpuprof._results.noise_floor import P_LIMIT
from gpuprof._results.paired_verdict import corrected, judge_paired
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import holm

__all__ = ["Decision", "Verdict", "confirm", "holm", "judge", "judge_all", "judge_paired"]


def judge(
    base: Sequence[BenchResult],
    new: Sequence[BenchResult],
    *,
    threshold: float | None = None,
    comparisons: int = 1,
) -> Decision:
    """Decide whether the new runs of a benchmark are slower than those of a baseline.

    Both have one result for each run, oldest first. `threshold` is the smallest change to report,
    as a fraction; None is 0.05 with 5 or more baseline runs, else 0.10. The test on the samples is
    corrected for the number of `comparisons` made together (Bonferroni).
    """
    if threshold is not None:
        check_threshold(threshold)
    whole("comparisons", comparisons)
    if not base or not new:
        side = "no baseline run has" if not base else "no new run has"
        return Decision(Verdict.NODATA, rule=f"{side} a result of this benchmark")
    warnings: list[str] = []
    alike = comparable(base, new[-1])
    odd = next((run for run in new if difference(run, new[-1]) is not None), None)
    if odd is not None:
        rule = f"the new runs cannot be taken together: {difference(odd, new[-1])}"
        return Decision(Verdict.INCOMPARABLE, rule=rule)
    if not alike:
        return Decision(Verdict.INCOMPARABLE, rule=difference(base[-1], new[-1]) or "")
    if len(alike) < len(base):
        reason = next(filter(None, (difference(run, new[-1]) for run in base)))
        left_out = f"{len(base) - len(alike)} of {len(base)} baseline runs"
        warnings.append(f"{left_out} left out: {reason}")
    old = usable_runs("baseline run", alike, warnings)
    now = usable_runs("new run", new, warnings)
    for side, runs, usable in (("baseline run", alike, old), ("new run", new, now)):
        if not usable:
            return Decision(Verdict.NODATA, rule=why_unusable(side, runs))
    warnings += changes(old, now)
    return _decide(old, now, threshold, P_LIMIT / comparisons, warnings)


def comparable(base: Sequence[BenchResult], new: BenchResult) -> list[BenchResult]:
    """Return the baseline's results that were measured as `new` was, on a machine of its kind."""
    return [run for run in base if difference(run, new) is None]


def compared_runs(base: Sequence[BenchResult], new: BenchResult) -> list[BenchResult]:
    """Return the results of the baseline that `judge` compares with: the last five of a trend."""
    alike = comparable(base, new)
    return noise_floor.recent(usable_runs("baseline run", alike, []))[0] or alike


def confirm(
    base: Sequence[BenchResult],
    first: BenchResult,
    again: BenchResult,
    *,
    threshold: float | None = None,
    comparisons: int = 1,
) -> Decision:
    """Decide after a benchmark that was SLOW, or FAST, has been measured again.

    It stays so if the second measurement is by itself, with the figures of both together;
    otherwise it is AMBIGUOUS. That catches what disturbs one measurement, but no state that lasts
    as long as the process.
    """
    decide = partial(judge, base, threshold=threshold, comparisons=comparisons)
    once, second = decide([first]), decide([again])
    if second.verdict is Verdict.SLOW or second.verdict is once.verdict is Verdict.FAST:
        return decide([first, again])
    if once.ratio is None or second.ratio is None:
        return second
    rule = (
        f"measured once, it took {percent_change(once.ratio)} time, measured again "
        f"{percent_change(second.ratio)}, where the noise floor is {percent(second.floor or 0.0)}"
    )
    return replace(second, verdict=Verdict.AMBIGUOUS, rule=rule)


def judge_all(
    pairs: Mapping[str, tuple[Sequence[BenchResult], Sequence[BenchResult]]],
    *,
    threshold: float | None = None,
    memory_threshold: float | None = None,
) -> dict[str, Decision]:
    """Decide on many benchmarks together, each with its runs of the baseline and its new runs.

    Each decision has one on the memory, on the launches and on the CPU's instructions.

    The test on the samples is corrected for their number by Holm's method, which loses less than
    Bonferroni's but needs all of them at once.
    """

    def vetoed_by(found: Decision, p_value: float, comparisons: int) -> str:
        rule = vetoed(found.ratio or 1.0, found.floor or 0.0, p_value, P_LIMIT)
        return f"{rule}, corrected for {comparisons} comparisons"

    decisions = {name: judge(*pair, threshold=threshold) for name, pair in pairs.items()}
    return {
        name: beside_time(decision, *pairs[name], memory_threshold=memory_threshold)
        for name, decision in corrected(decisions, vetoed_by).items()
    }


def beside_time(
    decision: Decision,
    base: Sequence[BenchResult],
    new: Sequence[BenchResult],
    *,
    memory_threshold: float | None = None,
) -> Decision:
    """Add the decisions on the memory, the launches and the instructions."""
    decision = replace(
        decision,
        memory=judge_memory(base, new, threshold=memory_threshold),
        launches=judge_launches(base, new),
    )
    return with_instructions(decision, judge_instructions(base, new))


def _decide(
    base: list[BenchResult],
    new: list[BenchResult],
    threshold: float | None,
    p_limit: float,
    warnings: list[str],
) -> Decision:
    base, trend = noise_floor.recent(base)
    warnings += [trend] if trend else []
    decision = judge_level(base, new, threshold, p_limit)
    floor, least = decision.floor or 0.0, noise_floor.least_floor(base, threshold)[0]
    if decision.verdict not in {Verdict.SLOW, Verdict.FAST} and floor > least:
        lower = _judge_lower_decile(base, new, threshold, p_limit)
        if lower is not None and (lower.floor or 0.0) < floor:
            decision = lower
    return replace(decision, warnings=(*warnings, *decision.warnings))


def _judge_lower_decile(
    base: list[BenchResult], new: list[BenchResult], threshold: float | None, p_limit: float
) -> Decision | None:
    """Apply the rule to the lower decile, of baselines large enough to know how it varies."""
    if len(base) < noise_floor.ENOUGH_RUNS or min(run.p10_ms for run in (*base, *new)) <= 0.0:
        return None
    gap = math.log1p(noise_floor.least_floor(base, threshold, LOWER)[0])
    main = main_state(base, gap)
    if len(main) < noise_floor.ENOUGH_RUNS:
        return None
    found = judge_level(main, new, threshold, p_limit, quantile=LOWER, all_of_base=base)
    return None if found.verdict is Verdict.SAME else found
