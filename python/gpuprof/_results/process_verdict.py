"""Whether one command is slower than another, from whole processes that ran in turns.

The process is the unit. Results of one process share its addresses, clocks and caches, so however
many samples it takes, they count as one value (T. Kalibera, R. Jones: Rigorous benchmarking in
reasonable time, ISMM 2013). The n-th process of each command make a pair, and a pair gives the
logarithm of a ratio; drift of the machine affects both of a pair. In blocks of four, ABBA or BAAB
by a coin, a steady drift has opposite signs in the two pairs of a block.

The ratio and its interval are the trimmed mean of these logarithms with a Student t interval from
their winsorised variance (K. Yuen: The two-sample trimmed t for unequal population variances,
Biometrika 61, 1974, for one sample; a fifth is trimmed at each end). A few disturbed processes do
not widen it, and its p value has no lower limit that depends on the number of pairs, as those of
rank tests have: with 12 pairs, the signed-rank test corrected for 50 names could never be
significant.

SLOW (FAST): the whole 95 % interval lies beyond the threshold, and the p value is below 0.01 after
Holm's correction for the number of names. SAME: the whole interval lies within the threshold.
AMBIGUOUS: the rest. Fewer than 8 pairs are NODATA: with 6, commands that have two speeds by chance
can look equally slower in all pairs that are left after trimming.

12 pairs are the default: they find 5 % at a standard deviation of 2 % between processes, and 10 %
at 4 %, in 4 of 5 comparisons; 10 % at 2 % always. `tests/results/test_process_verdict.py` has the
rates.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuprof._common.text import plural
from gpuprof._common.units import percent, percent_change, ratio_text
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict, check_threshold, verdict_of_interval
from gpuprof._results.noise_floor import P_LIMIT, TICKS

MIN_PAIRS = 8
DEFAULT_PAIRS = 12
THRESHOLD = 0.02
CONFIDENCE = 0.95
_TRIMMED = 0.2  # of the pairs, at each end


def judge_processes(
    base_ms: Sequence[float],
    new_ms: Sequence[float],
    *,
    threshold: float | None = None,
    tick: float = 0.0,
) -> Decision:
    """Decide between two commands, of which each process gave one time, pair by pair.

    `threshold` is the smallest change to report, as a fraction (None is 0.02), and `tick` the
    smallest step of a time. The p value is not corrected for other names: `judge_processes_all`
    does that.
    """
    threshold = THRESHOLD if threshold is None else threshold
    check_threshold(threshold)
    count = len(base_ms)
    if count != len(new_ms):
        message = f"base_ms has {count} values and new_ms {len(new_ms)}; expected a pair a run"
        raise ValueError(message)
    if not count:
        return Decision(Verdict.NODATA, rule="no pair of runs has it")
    if not all(value > 0.0 and math.isfinite(value) for value in (*base_ms, *new_ms)):
        rule = "a time is not above 0: the work is too short for the clock"
        return Decision(Verdict.NODATA, runs=count, rule=rule)
    base, new = statistics.median(base_ms), statistics.median(new_ms)
    logs = [math.log(b) - math.log(a) for a, b in zip(base_ms, new_ms, strict=True)]
    if count < MIN_PAIRS:
        ratio = math.exp(statistics.median(logs))
        rule = f"{plural(count, 'pair')} of runs; a verdict needs {MIN_PAIRS}"
        return Decision(Verdict.NODATA, base, new, ratio, runs=count, rule=rule)
    middle, error, freedom = _trimmed(logs)
    half = statistics.student_quantile(freedom, 0.5 + CONFIDENCE / 2) * error
    # No pair of one run of each has a ratio outside of these.
    low = max(middle - half, math.log(min(new_ms)) - math.log(max(base_ms)))
    high = min(middle + half, math.log(max(new_ms)) - math.log(min(base_ms)))
    floor = max(threshold, TICKS * tick / min(base, new))
    limit = math.log1p(floor)
    verdict, how = verdict_of_interval(low, high, limit)
    ratio, interval = math.exp(middle), (math.exp(low), math.exp(high))
    rule = (
        f"takes {percent_change(ratio)} time; over {count} pairs of runs the {CONFIDENCE:.0%} "
        f"interval of the ratio, {ratio_text(*interval)}, is {how} "
        f"1 ± {percent(floor)}"
    )
    p_value = statistics.student_p(middle / error, freedom) if error > 0.0 else float(middle == 0.0)
    decision = Decision(verdict, base, new, ratio, interval, floor, p_value, count, rule)
    return _significant(decision, p_value, 1)


def judge_processes_all(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    threshold: float | None = None,
    ticks: Mapping[str, float] | None = None,
) -> dict[str, Decision]:
    """Decide on the names of two commands together, correcting for their number (Holm)."""
    ticks = ticks or {}
    found = {
        name: judge_processes(*times, threshold=threshold, tick=ticks.get(name, 0.0))
        for name, times in pairs.items()
    }
    tested = [name for name, decision in found.items() if decision.p_value is not None]
    corrected = statistics.holm([found[name].p_value or 0.0 for name in tested])
    for name, p_value in zip(tested, corrected, strict=True):
        found[name] = _significant(found[name], p_value, len(tested))
    return found


def _significant(decision: Decision, p_value: float, comparisons: int) -> Decision:
    """Return the decision, AMBIGUOUS in place of SLOW or FAST where `p_value` is too large."""
    if decision.verdict not in {Verdict.SLOW, Verdict.FAST} or p_value < P_LIMIT:
        return decision
    together = f", corrected for {comparisons} names" if comparisons > 1 else ""
    rule = f"{decision.rule}, but p is {p_value:.2g}{together}, not below {P_LIMIT:g}"
    return replace(decision, verdict=Verdict.AMBIGUOUS, rule=f"{rule}: more runs would tell")


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its standard error, and the degrees of freedom of that."""
    count, cut = len(values), int(_TRIMMED * len(values))
    ordered = sorted(values)
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    share = len(kept) / count
    error = statistics.stddev(winsorised) / (share * math.sqrt(count))
    return math.fsum(kept) / len(kept), error, len(kept) - 1
