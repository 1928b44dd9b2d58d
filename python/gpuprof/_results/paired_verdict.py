"""Whether one of two is slower that ran in turns, pair by pair.

A pair gives the logarithm of a ratio; drift of the machine affects both of a pair. `judge_paired`
has rounds of two functions in one process, and the sign test's interval of the median ratio.

`judge_processes_all` has whole processes of two commands, by the rule of docs/ab.md. A process is
one value (T. Kalibera, R. Jones: Rigorous benchmarking in reasonable time, ISMM 2013). The ratio
and its interval are the trimmed mean of the logarithms with a Student t interval from their
winsorised variance (K. Yuen: The two-sample trimmed t for unequal population variances, Biometrika
61, 1974, for one sample), whose p value has no lower limit that depends on the number of pairs, as
those of rank tests have. With fewer than 8 pairs, commands that have two speeds by chance can look
equally slower in all pairs that are left after trimming. Each of several looks has a stricter level
(S. Pocock: Group sequential methods in the design and analysis of clinical trials, Biometrika 64,
1977). `tests/results/test_paired_verdict.py` has the rates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from gpuprof._common.text import plural
from gpuprof._common.units import percent, percent_change, ratio_text
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.statistics import CONFIDENCE, P_LIMIT, TICKS, exp

Key = TypeVar("Key")
MIN_PAIRS = 8
DEFAULT_PAIRS = 12
THRESHOLD = 0.02
MOST_PAIRS = 512  # that are looked at as they come
_TRIMMED = 0.2  # of the pairs, at each end
# Of each look at 8 to 512 pairs of normal times, so that all 13 looks have 95 % and 1 %: simulated.
_CONFIDENCE_OF_LOOK, _P_LIMIT_OF_LOOK = 0.9945, 0.0009


# Of the logarithm of the ratio: its middle, its interval, the p value, and a text of what it is.
_Estimate = tuple[float, float, float, float, str]


def judge_paired(
    base_ms: Sequence[float],
    new_ms: Sequence[float],
    *,
    threshold: float = 0.01,
    confidence: float = CONFIDENCE,
    tick: float = 0.0,
) -> Decision:
    """Decide between two functions that were measured in turns, a pair of times for each round.

    `confidence` is that of the ratio's interval, and `tick` the smallest step of a time.
    """

    def estimate(logs: list[float], base: float, new: float) -> _Estimate:
        step = math.log1p(tick / base) + math.log1p(tick / new)
        independent = statistics.independent_count(logs)
        low, high = statistics.median_interval(logs, confidence, step, independent=independent)
        as_few = f", as few as {independent:.0f} independent ones,"
        of = (
            f"{len(logs)} rounds{as_few if independent < len(logs) else ''} the {confidence:.0%} "
            f"interval of the ratio, {exp(low):.4f} to {exp(high):.4f}"
        )
        return statistics.median(logs), low, high, statistics.sign_test(logs), of

    least = statistics.MIN_FOR_INTERVAL
    few = f"{len(base_ms)} rounds; an interval of the ratio needs {least}"
    return _judge(base_ms, new_ms, estimate, least, few, threshold=threshold, tick=tick)


def _judge_processes(
    base_ms: Sequence[float],
    new_ms: Sequence[float],
    threshold: float,
    tick: float,
    confidence: float,
) -> Decision:
    """Decide by a time of each process; the p value is not corrected for other names."""

    def estimate(logs: list[float], _base: float, _new: float) -> _Estimate:
        middle, error, freedom = _trimmed(logs)
        half = statistics.student_quantile(freedom, 0.5 + confidence / 2) * error
        # No pair of one run of each has a ratio outside of these.
        low = max(middle - half, math.log(min(new_ms)) - math.log(max(base_ms)))
        high = min(middle + half, math.log(max(new_ms)) - math.log(min(base_ms)))
        p_value = float(middle == 0.0)
        if error > 0.0:
            p_value = statistics.student_p(middle / error, freedom)
        of = (
            f"{len(logs)} pairs of runs the {CONFIDENCE:.0%} interval of the ratio, "
            f"{ratio_text(exp(low), exp(high))}"
        )
        return middle, low, high, p_value, of

    few = f"{plural(len(base_ms), 'pair')} of runs; a verdict needs {MIN_PAIRS}"
    return _judge(base_ms, new_ms, estimate, MIN_PAIRS, few, threshold=threshold, tick=tick)


def _judge(
    base_ms: Sequence[float],
    new_ms: Sequence[float],
    estimate: Callable[[list[float], float, float], _Estimate],
    least: int,
    few: str,
    *,
    threshold: float,
    tick: float,
) -> Decision:
    """Decide by the interval of the ratio; `few` is what to say of fewer than `least` pairs."""
    count = len(base_ms)
    if not all(value > 0.0 and math.isfinite(value) for value in (*base_ms, *new_ms)):
        rule = "a time is not above 0: the work is too short for the clock"
        return Decision(Verdict.NODATA, runs=count, rule=rule)
    if not count:
        return Decision(Verdict.NODATA, rule=few)
    base, new = statistics.median(base_ms), statistics.median(new_ms)
    logs = [math.log(b) - math.log(a) for a, b in zip(base_ms, new_ms, strict=True)]
    if count < least:
        ratio = exp(statistics.median(logs))
        return Decision(Verdict.NODATA, base, new, ratio, runs=count, rule=few)
    middle, low, high, p_value, of = estimate(logs, base, new)
    floor = max(threshold, TICKS * tick / min(base, new))
    limit = math.log1p(floor)
    if low > limit:
        verdict, how = Verdict.SLOW, "all above"
    elif high < -limit:
        verdict, how = Verdict.FAST, "all below"
    elif -limit <= low and high <= limit:
        verdict, how = Verdict.SAME, "all within"
    else:
        verdict, how = Verdict.AMBIGUOUS, "partly within"
    ratio, interval = exp(middle), (exp(low), exp(high))
    rule = f"takes {percent_change(ratio)} time; over {of}, is {how} 1 ± {percent(floor)}"
    return Decision(verdict, base, new, ratio, interval, floor, p_value, count, rule)


def judge_processes_all(
    pairs: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    *,
    threshold: float | None = None,
    ticks: Mapping[str, float] | None = None,
    is_look: bool = False,
) -> dict[str, Decision]:
    """Decide on the names of two commands together, correcting for their number (Holm).

    `threshold` is the smallest change to report, as a fraction (None is 0.02), and `ticks` has the
    smallest steps of the times. `is_look` is for one of the answers after which more pairs may
    follow; see `looks`.
    """
    ticks, threshold = ticks or {}, THRESHOLD if threshold is None else threshold
    confidence, limit = CONFIDENCE, P_LIMIT
    if is_look:
        confidence, limit = _CONFIDENCE_OF_LOOK, _P_LIMIT_OF_LOOK
    found = {
        name: _judge_processes(*times, threshold, ticks.get(name, 0.0), confidence)
        for name, times in pairs.items()
    }

    def not_significant(decision: Decision, p_value: float, comparisons: int) -> str:
        together = f", corrected for {comparisons} names" if comparisons > 1 else ""
        why = f"p is {p_value:.2g}{together}, not below {limit:g}: more runs would tell"
        return f"{decision.rule}, but {why}"

    return corrected(found, not_significant, limit)


def looks() -> Iterator[int]:
    """Yield the numbers of pairs after which it is looked whether all is clear."""
    size = MIN_PAIRS
    while size < MOST_PAIRS:
        yield from (size, size * 3 // 2)
        size *= 2
    yield MOST_PAIRS


def corrected(
    decisions: Mapping[Key, Decision],
    why: Callable[[Decision, float, int], str],
    limit: float = P_LIMIT,
) -> dict[Key, Decision]:
    """Return the decisions, AMBIGUOUS in place of SLOW or FAST where p is not below the limit.

    The p values are corrected for their number by Holm's method, which loses less than Bonferroni's
    but needs all of them at once. `why` takes a decision, its corrected p value, and their number.
    """
    found = dict(decisions)
    tested = [name for name, decision in found.items() if decision.p_value is not None]
    p_values = statistics.holm([found[name].p_value or 0.0 for name in tested])
    for name, p_value in zip(tested, p_values, strict=True):
        decision = found[name]
        if decision.verdict in {Verdict.SLOW, Verdict.FAST} and p_value >= limit:
            rule = why(decision, p_value, len(tested))
            found[name] = replace(decision, verdict=Verdict.AMBIGUOUS, rule=rule)
    return found


def _trimmed(values: Sequence[float]) -> tuple[float, float, int]:
    """Return the trimmed mean, its standard error, and the degrees of freedom of that."""
    count, cut = len(values), int(_TRIMMED * len(values))
    ordered = sorted(values)
    kept = ordered[cut : count - cut]
    winsorised = [kept[0]] * cut + kept + [kept[-1]] * cut
    share = len(kept) / count
    error = statistics.stddev(winsorised) / (share * math.sqrt(count))
    return math.fsum(kept) / len(kept), error, len(kept) - 1
