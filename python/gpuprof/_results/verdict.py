"""Whether code became slower: the rule, in one place.

The unit is the run, not the sample. A new process finds other clocks, addresses and temperatures,
so samples of one run agree with each other far better than with those of the next run. Once runs
drift by 0.5 to 2 %, a significance test on the samples of two runs calls 35 to 50 of 100 unchanged
functions slower. So the noise is taken from how the runs of the baseline differ among themselves.

`judge` decides on stored runs, with medians of runs, and with their logarithms so that up and down
weigh the same:

1. A run counts if it has 30 samples or more. Results of another GPU, clock, mode or L2 state are
   not compared.
2. The change is the new runs' median over the baseline's. The noise floor is the largest of

   - the threshold: 5 %, or 10 % with fewer than 5 baseline runs, or what the caller asks for. On
     the CPU clock it is at least 20 %, unless 5 or more runs carry the caller's threshold: their
     spread leaves 99 of 100 further runs within it;
   - 3 standard deviations of the baseline runs; on the CPU clock as many as 99 of 100 further runs
     stay below, which are more with few runs;
   - the distance from the baseline's median to its slowest run (its fastest, for a speed-up);
   - two ticks of the clock.

3. SLOW (FAST) is a change beyond the floor where the Mann-Whitney test on the samples also has p
   below 0.01, divided by the number of comparisons. SAME is a change of less than half the floor.
   AMBIGUOUS lies between. A caller that fails a build on SLOW measures again first and calls
   `confirm`.
4. AMBIGUOUS is also a change that has another explanation: the SM clock was recorded, and in clock
   cycles the change is less than half the floor; on the CPU clock, the change is within the floor
   once what the machine did (`_results.noise_floor`) is taken off, also off the baseline's spread
   where that makes it smaller; or the samples of the new run drift so far that their median may be
   within half the floor.
5. If the medians of 8 or more baseline runs rise or fall steadily, the last 5 are the baseline: the
   spread of a trend would hide nearly any change.

The spread is the plain standard deviation together with the range, not the median absolute
deviation (MAD). MAD ignores outliers, but a slow run of unchanged code is what the floor must
remember. In simulation, with five baseline runs against one new run, the rule calls less than 1 in
1,000 unchanged functions SLOW at up to 1 % drift between runs and 7 in 1,000 at 2 %, and misses a
slow-down of 12 % in none of 2,000 and in 4 of 100. With 3 scaled MADs these are 9 in 1,000 and 5 of
100 at 2 %; and where one run in five is 10 % slower for no reason, 18 of 100 unchanged functions
instead of 6 or 7. A t quantile in place of the 3 keeps false SLOW below 1 % at any drift, but
misses 12 % at 2 % drift in 16 of 100. `benchmarks/benchmark_verdicts.py` computes the rule's own
figures.

`judge_paired` decides on two functions measured in turns in one process, where drift affects both:
the whole sign-test interval of the median ratio must lie beyond the threshold.

NumPy and SciPy are imported by `judge` when it is called; the rest needs neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpuprof._common.checks import whole
from gpuprof._common.units import percent, percent_change
from gpuprof._results import noise_floor, statistics
from gpuprof._results.decision import Decision, Verdict, check_threshold
from gpuprof._results.instruction_verdict import judge_instructions, with_instructions
from gpuprof._results.launch_verdict import judge_launches
from gpuprof._results.memory_verdict import judge_memory
from gpuprof._results.noise_floor import P_LIMIT, TICKS, Floor, exp, floor_of, least_floor
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import holm, mann_whitney, sign_test, student_quantile

__all__ = ["Decision", "Verdict", "confirm", "holm", "judge", "judge_all", "judge_paired"]

MIN_SAMPLES = 30
MIN_ROUNDS = statistics.MIN_FOR_INTERVAL
CONFIDENCE = 0.95


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
        left_out = _of(len(base) - len(alike), len(base), "baseline run")
        warnings.append(f"{left_out} left out: {reason}")
    old = _usable("baseline run", alike, warnings)
    now = _usable("new run", new, warnings)
    for side, runs, usable in (("baseline run", alike, old), ("new run", new, now)):
        if not usable:
            return Decision(Verdict.NODATA, rule=_why_unusable(side, runs))
    warnings += _changes(old, now)
    return _decide(old, now, threshold, P_LIMIT / comparisons, warnings)


def comparable(base: Sequence[BenchResult], new: BenchResult) -> list[BenchResult]:
    """Return the baseline's results that were measured as `new` was, on a machine of its kind."""
    return [run for run in base if difference(run, new) is None]


def confirm(
    base: Sequence[BenchResult],
    first: BenchResult,
    again: BenchResult,
    *,
    threshold: float | None = None,
    comparisons: int = 1,
) -> Decision:
    """Decide after a benchmark that was SLOW has been measured again.

    It stays SLOW if the second measurement is SLOW by itself, with the figures of both together;
    otherwise it is AMBIGUOUS. That catches what disturbs one measurement, but no state that lasts
    as long as the process.
    """
    options = {"threshold": threshold, "comparisons": comparisons}
    second = judge(base, [again], **options)  # type: ignore[arg-type]
    if second.verdict is Verdict.SLOW:
        return judge(base, [first, again], **options)  # type: ignore[arg-type]
    once = judge(base, [first], **options)  # type: ignore[arg-type]
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
    decisions = {name: judge(*pair, threshold=threshold) for name, pair in pairs.items()}
    tested = [name for name, decision in decisions.items() if decision.p_value is not None]
    corrected = holm([decisions[name].p_value or 0.0 for name in tested])
    for name, p_value in zip(tested, corrected, strict=True):
        found = decisions[name]
        if found.verdict in {Verdict.SLOW, Verdict.FAST} and p_value >= P_LIMIT:
            rule = _vetoed(found.ratio or 1.0, found.floor or 0.0, p_value, P_LIMIT)
            rule += f", corrected for {len(tested)} comparisons"
            decisions[name] = replace(found, verdict=Verdict.AMBIGUOUS, rule=rule)
    return {
        name: beside_time(decision, *pairs[name], memory_threshold=memory_threshold)
        for name, decision in decisions.items()
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
    check_threshold(threshold)
    if len(base_ms) != len(new_ms):
        message = (
            f"base_ms has {len(base_ms)} values and new_ms {len(new_ms)}; expected a pair a round"
        )
        raise ValueError(message)
    count = len(base_ms)
    if count < MIN_ROUNDS:
        rule = f"{count} rounds; an interval of the ratio needs {MIN_ROUNDS}"
        return Decision(Verdict.NODATA, runs=count, rule=rule)
    if not all(value > 0.0 and math.isfinite(value) for value in (*base_ms, *new_ms)):
        rule = "a time is not above 0: the work is too short for the clock"
        return Decision(Verdict.NODATA, runs=count, rule=rule)
    base, new = statistics.median(base_ms), statistics.median(new_ms)
    logs = [math.log(b) - math.log(a) for a, b in zip(base_ms, new_ms, strict=True)]
    step = math.log1p(tick / base) + math.log1p(tick / new)
    independent = statistics.independent_count(logs)
    low, high = statistics.median_interval(logs, confidence, step, independent=independent)
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
    ratio, interval = exp(statistics.median(logs)), (exp(low), exp(high))
    as_few = f", as few as {independent:.0f} independent ones," if independent < count else ""
    rule = (
        f"takes {percent_change(ratio)} time; over {count} rounds{as_few} the "
        f"{confidence:.0%} interval of the ratio, {interval[0]:.4f} to {interval[1]:.4f}, "
        f"is {how} 1 ± {percent(floor)}"
    )
    return Decision(verdict, base, new, ratio, interval, floor, sign_test(logs), count, rule)


def _decide(
    base: list[BenchResult],
    new: list[BenchResult],
    threshold: float | None,
    p_limit: float,
    warnings: list[str],
) -> Decision:
    base, trend = noise_floor.recent(base)
    warnings += [trend] if trend else []
    base_logs = [math.log(run.median_ms) for run in base]
    middle = statistics.median(base_logs)
    least, named, refused = least_floor(base, threshold)
    warnings += [refused] if refused else []
    change = statistics.median([math.log(run.median_ms) for run in new]) - middle
    seen = floor_of(base, new, base_logs, change, least=(least, named))
    quiet = _without_the_machine(base, new, (least, named))
    # What the machine did may have spread the runs of the baseline, too.
    used = min(seen, *quiet, key=lambda each: each.floor) if quiet else seen
    floor, limit, why = used.floor, used.limit, f"{percent(used.floor)} ({used.why})"
    p_value = mann_whitney(_samples(base, used.share), _samples(new, used.share))
    ratio = exp(change)
    in_cycles = _change_in_cycles(base, new) if abs(change) > limit else None
    nearest = _nearest(new, change) - middle
    if abs(change) < limit / 2 or change == 0.0:
        verdict = Verdict.SAME
        rule = f"takes {percent_change(ratio)} time: less than half the noise floor of {why}"
    elif abs(change) <= limit:
        verdict = Verdict.AMBIGUOUS
        rule = (
            f"takes {percent_change(ratio)} time: between half and all of the noise floor of {why}"
        )
    elif p_value >= p_limit:
        verdict, rule = Verdict.AMBIGUOUS, _vetoed(ratio, floor, p_value, p_limit)
    elif in_cycles is not None and abs(in_cycles) < limit / 2:
        verdict = Verdict.AMBIGUOUS
        rule = (
            f"clock: takes {percent_change(ratio)} time but "
            f"{percent_change(exp(in_cycles))} cycles, for the SM clock was "
            f"{_clock(new):,.0f} MHz in place of {_clock(base):,.0f} MHz"
        )
    elif quiet and math.copysign(1.0, change) * quiet[-1].change <= limit:
        verdict = Verdict.AMBIGUOUS
        rule = (
            f"the machine: takes {percent_change(ratio)} time, but "
            f"{percent_change(exp(quiet[-1].change))} without what the machine did: "
            f"{noise_floor.in_words(base, new)}"
        )
    elif _wander(new) and math.copysign(1.0, change) * nearest < limit / 2:
        verdict = Verdict.AMBIGUOUS
        rule = (
            f"takes {percent_change(ratio)} time, more than the noise floor of {why}, but the "
            f"samples of the new run wander: the interval of its median begins at "
            f"{percent_change(exp(nearest))}"
        )
    else:
        verdict = Verdict.SLOW if change > 0 else Verdict.FAST
        rule = f"takes {percent_change(ratio)} time: more than the noise floor of {why}"
    if floor > 2 * least:
        warnings.append(f"the baseline is noisy: only changes above {percent(floor)} can be told")
    return Decision(
        verdict,
        math.exp(middle),
        math.exp(middle + change),
        ratio,
        _interval(base, new, base_logs, change),
        floor,
        p_value,
        len(base),
        rule,
        tuple(warnings),
    )


def _without_the_machine(
    base: list[BenchResult], new: list[BenchResult], least: tuple[float, str]
) -> list[Floor]:
    """Return floors and changes of what is left without shares of what the machine added."""
    found: list[Floor] = []
    if base[-1].clock != "cpu" or not noise_floor.are_alike([*base, *new]):
        return found
    for share in noise_floor.SHARES:
        old, now = noise_floor.levels(base, share), noise_floor.levels(new, share)
        if old is None or now is None:
            return []
        change = statistics.median(now) - statistics.median(old)
        found.append(floor_of(base, new, old, change, least=least, share=share))
    return found


def _interval(
    base: list[BenchResult], new: list[BenchResult], base_logs: list[float], change: float
) -> tuple[float, float]:
    """Return the 95 % interval of the ratio: by how runs differ, and never less than in the runs.

    Of a single baseline run it is that of the samples alone, which does not know of drift.
    """
    within = max(_half_width(run) for run in base) + max(_half_width(run) for run in new)
    between = 0.0
    if len(base) > 1:
        quantile = student_quantile(len(base) - 1, 0.5 + CONFIDENCE / 2)
        # Two new runs are a measurement and its repetition in one process: they count as one.
        new_runs = len(new) if len(new) > 2 else 1
        between = statistics.stddev(base_logs) * math.sqrt(1 / len(base) + 1 / new_runs) * quantile
    half = max(within, between)
    return exp(change - half), exp(change + half)


def _samples(runs: list[BenchResult], share: float) -> list[float]:
    """Return all samples, each run's without a share of what the machine added."""
    found: list[float] = []
    for run in runs:
        factor = exp(-share * (noise_floor.took_longer(run) or 0.0)) if share else 1.0
        found += [factor * sample for sample in run.samples_ms]
    return found


def _half_width(run: BenchResult) -> float:
    low, high = run.interval_ms
    return max(run.median_ms - low, high - run.median_ms) / run.median_ms


def _nearest(runs: list[BenchResult], change: float) -> float:
    """Return the end of the runs' intervals that is the nearer one to the baseline."""
    ends = [run.interval_ms[0 if change > 0 else 1] for run in runs]
    return statistics.median([math.log(end) if end > 0.0 else -math.inf for end in ends])


def _wander(runs: list[BenchResult]) -> bool:
    return any(run.independent_samples < run.count / 2 for run in runs)


def _change_in_cycles(base: list[BenchResult], new: list[BenchResult]) -> float | None:
    """Return the change of the medians in clock cycles; None if a clock was not recorded."""
    medians = []
    for runs in (base, new):
        if not all(run.clock_mhz and min(run.clock_mhz) > 0 for run in runs):
            return None
        medians.append(statistics.median([math.log(_median_cycles(run)) for run in runs]))
    return medians[1] - medians[0]


def _median_cycles(run: BenchResult) -> float:
    pairs = zip(run.samples_ms, run.clock_mhz, strict=True)
    return max(statistics.median([ms * mhz for ms, mhz in pairs]), math.ulp(0.0))


def _clock(runs: list[BenchResult]) -> float:
    return statistics.median([statistics.median(run.clock_mhz) for run in runs])


def difference(base: BenchResult, new: BenchResult) -> str | None:
    """Return why two results are not comparable, or None."""
    facts = [("gpu", "GPU"), ("sms", "number of SMs")]
    if new.clock == "cpu":  # which GPU is beside it does not matter
        facts = [("cpu", "CPU")]
    pairs = [(what, base.machine.get(key), new.machine.get(key)) for key, what in facts]
    pairs += [
        ("clock", base.clock, new.clock),
        ("mode", base.mode, new.mode),
        ("L2 state", base.l2, new.l2),
    ]
    for what, old, now in pairs:
        if old != now:
            return f"the baseline has another {what}: {old or 'none'}, not {now or 'none'}"
    return None


def _changes(base: list[BenchResult], new: list[BenchResult]) -> list[str]:
    """Return warnings of what else changed since the last baseline run."""
    old, now = base[-1], new[-1]
    found = []
    for key in ("driver", "torch", "cupy"):
        before, after = old.machine.get(key), now.machine.get(key)
        if before != after:
            found.append(
                f"{key} changed: {before or 'none'} in the baseline, now {after or 'none'}"
            )
    if old.gate != now.gate:
        found.append(f"the baseline was measured {old.gate}, the new run {now.gate}")
    reasons = sorted(set(now.throttle_reasons) - set(old.throttle_reasons))
    if reasons:
        found.append(f"the GPU lowered its clocks in the new run: {', '.join(reasons)}")
    if len(base) == 1:
        found.append("one baseline run tells nothing of drift between runs; save 5 or more")
    return found


def _usable(side: str, runs: Sequence[BenchResult], warnings: list[str]) -> list[BenchResult]:
    usable = [run for run in runs if run.count >= MIN_SAMPLES and run.median_ms > 0.0]
    if len(usable) < len(runs):
        left_out = _of(len(runs) - len(usable), len(runs), side)
        warnings.append(f"{left_out} left out: fewer than {MIN_SAMPLES} samples, or not above 0")
    return usable


def _why_unusable(side: str, runs: Sequence[BenchResult]) -> str:
    most = max(run.count for run in runs)
    if most < MIN_SAMPLES:
        return f"the {side} has {most} samples; a verdict needs {MIN_SAMPLES}"
    return f"the {side} has a median that is not above 0: the work is too short for the clock"


def _vetoed(ratio: float, floor: float, p_value: float, limit: float) -> str:
    return (
        f"takes {percent_change(ratio)} time, more than the noise floor of {percent(floor)}, "
        f"but the samples overlap: Mann-Whitney p is {p_value:.2g}, not below {limit:.2g}"
    )


def _of(count: int, total: int, noun: str) -> str:
    return f"{count} of {total} {noun}s"
