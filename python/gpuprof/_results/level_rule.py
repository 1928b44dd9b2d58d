"""The rule of a verdict on stored runs, applied to one level of a run: its median or lower decile.

`_results.verdict` says what the rule is, and which level decides.

Two kinds of noise look like slower code in a single run: the machine changed its state during or
before the run, and the state may be one that the baseline knows. So the order of the new run's
samples counts (the runs test, and the means of blocks where samples are alike), and so does where
the samples of the baseline are: a new level at which two of its runs spent 3 in 10 of their samples
is no news, unless they were as often half-way to it, as those of one broad distribution are.
"""

from __future__ import annotations

import math

from gpuprof._common import quantiles
from gpuprof._common.units import percent, percent_change
from gpuprof._results import noise_floor, statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.level import (
    MEDIAN,
    VISIT,
    half_of,
    interval_ms,
    is_a_state,
    level_log,
    share_near,
)
from gpuprof._results.noise_floor import Floor, exp, floor_of, least_floor
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import CONFIDENCE, mann_whitney, student_quantile

_BLOCKS = 5
_STRETCH = 0.05  # of a run's samples
_BY_CHANCE = 0.001


def judge_level(
    base: list[BenchResult],
    new: list[BenchResult],
    threshold: float | None,
    p_limit: float,
    *,
    quantile: float = MEDIAN,
    all_of_base: list[BenchResult] | None = None,
) -> Decision:
    """Apply the rule to this quantile of the runs.

    `all_of_base` has the runs in other states, too, which no new run differs from.
    """
    base_logs = [level_log(run, quantile) for run in base]
    middle = statistics.median(base_logs)
    least, named, refused = least_floor(base, threshold, quantile)
    change = statistics.median([level_log(run, quantile) for run in new]) - middle
    seen = floor_of(base, new, base_logs, change, least=(least, named), quantile=quantile)
    quiet = _without_the_machine(base, new, (least, named), quantile)
    # What the machine did may have spread the runs of the baseline, too.
    used = min(seen, *quiet, key=lambda each: each.floor) if quiet else seen
    floor, limit, why = used.floor, used.limit, f"{percent(used.floor)} ({used.why})"
    p_value = mann_whitney(
        _samples(base, used.share, quantile), _samples(new, used.share, quantile)
    )
    ratio, sign = exp(change), math.copysign(1.0, change)
    in_cycles = _change_in_cycles(base, new, quantile) if abs(change) > limit else None
    nearest = _nearest_end(new, change, quantile) - middle
    name = "" if quantile == MEDIAN else "its lower decile "
    taken = f"{name}takes {percent_change(ratio)} time"
    beyond = f"{taken}, more than the noise floor of {why}, but"
    verdict = Verdict.AMBIGUOUS
    if abs(change) < limit / 2 or change == 0.0:
        verdict = Verdict.SAME
        rule = f"{taken}: less than half the noise floor of {why}"
    elif abs(change) <= limit:
        rule = f"{taken}: between half and all of the noise floor of {why}"
    elif p_value >= p_limit:
        rule = vetoed(ratio, floor, p_value, p_limit)
    elif in_cycles is not None and abs(in_cycles) < limit / 2:
        rule = (
            f"clock: {taken} but {percent_change(exp(in_cycles))} cycles, for the SM clock was "
            f"{_clock(new):,.0f} MHz in place of {_clock(base):,.0f} MHz"
        )
    elif quiet and sign * quiet[-1].change <= limit:
        rule = (
            f"the machine: {taken}, but "
            f"{percent_change(exp(quiet[-1].change))} without what the machine did: "
            f"{noise_floor.in_words(base, new)}"
        )
    elif sign * nearest < limit / 2 and any(run.independent_samples < run.count / 2 for run in new):
        rule = (
            f"{beyond} the samples of the new run wander: the interval of its "
            f"{'median' if quantile == MEDIAN else 'lower decile'} begins at "
            f"{percent_change(exp(nearest))}"
        )
    elif any(_changed_within(run, middle, change, limit) for run in new):
        rule = (
            f"{beyond} the new run changed while it was measured: a stretch of its samples agrees "
            "with the baseline"
        )
    elif is_a_state(all_of_base or base, middle, change, limit):
        rule = (
            f"{beyond} that is a state that runs of the baseline were in, too, for "
            f"{percent(VISIT)} of their samples or more"
        )
    else:
        verdict = Verdict.SLOW if change > 0 else Verdict.FAST
        rule = f"{taken}: more than the noise floor of {why}"
    warnings = [refused] if refused else []
    if floor > 2 * least:
        warnings.append(f"the baseline is noisy: only changes above {percent(floor)} can be told")
    interval = _interval(base, new, base_logs, change, quantile)
    return Decision(
        verdict,
        exp(middle),
        exp(middle + change),
        ratio,
        interval,
        floor,
        p_value,
        len(base),
        rule,
        tuple(warnings),
    )


def vetoed(ratio: float, floor: float, p_value: float, limit: float) -> str:
    return (
        f"takes {percent_change(ratio)} time, more than the noise floor of {percent(floor)}, "
        f"but the samples overlap: Mann-Whitney p is {p_value:.2g}, not below {limit:.2g}"
    )


def _changed_within(run: BenchResult, middle: float, change: float, limit: float) -> bool:
    """Return whether samples at the baseline's level lie together, with few on the way from it."""
    low, high = exp(middle - limit / 2), exp(middle + limit / 2)
    there = [low <= sample <= high for sample in run.samples_ms]
    share = sum(there) / run.count
    on_the_way = share_near(run, middle + change / 2, abs(change) / 4)
    clear = share >= _STRETCH and share > 2 * on_the_way
    return clear and statistics.runs_test(there) < _BY_CHANCE


def _without_the_machine(
    base: list[BenchResult], new: list[BenchResult], least: tuple[float, str], quantile: float
) -> list[Floor]:
    """Return floors and changes of what is left without shares of what the machine added."""
    found: list[Floor] = []
    if base[-1].clock != "cpu" or not noise_floor.are_alike([*base, *new]):
        return found
    for share in noise_floor.SHARES:
        old = noise_floor.levels(base, share, quantile)
        now = noise_floor.levels(new, share, quantile)
        if old is None or now is None:
            return []
        change = statistics.median(now) - statistics.median(old)
        floor = floor_of(base, new, old, change, least=least, share=share, quantile=quantile)
        found.append(floor)
    return found


def _interval(
    base: list[BenchResult],
    new: list[BenchResult],
    base_logs: list[float],
    change: float,
    quantile: float,
) -> tuple[float, float] | None:
    """Return the 95 % interval of the ratio: by how runs differ, and never less than in the runs.

    It stays among the ratios of single samples, each known to a tick. Of a single baseline run it
    is that of the samples alone, which does not know of drift. None where the base may be 0.
    """
    base_below, base_above = _reach(base, quantile)
    new_below, new_above = _reach(new, quantile)
    if math.isinf(base_below):
        return None
    between = 0.0
    if len(base) > 1:
        student = student_quantile(len(base) - 1, 0.5 + CONFIDENCE / 2)
        # Two new runs are a measurement and its repetition in one process: they count as one.
        new_runs = len(new) if len(new) > 2 else 1
        between = statistics.stddev(base_logs) * math.sqrt(1 / len(base) + 1 / new_runs) * student
    low = exp(change - max(new_below + base_above, between))
    high = exp(change + max(new_above + base_below, between))
    least, most = _extremes(base)
    new_least, new_most = _extremes(new)
    return max(low, new_least / most), min(high, new_most / least if least > 0.0 else math.inf)


def _reach(runs: list[BenchResult], quantile: float) -> tuple[float, float]:
    """Return how far the levels of the runs may lie below and above themselves, as logarithms."""
    below, above = [], []
    for run in runs:
        (low, high), middle = interval_ms(run, quantile), level_log(run, quantile)
        below.append(middle - math.log(low) if low > 0.0 else math.inf)
        above.append(math.log(high) - middle)
    return max(below), max(above)


def _extremes(runs: list[BenchResult]) -> tuple[float, float]:
    least = min(run.min_ms - run.tick_ms for run in runs)
    return max(least, 0.0), max(run.max_ms + run.tick_ms for run in runs)


def _samples(runs: list[BenchResult], share: float, quantile: float) -> list[float]:
    """Return all samples, each run's without a share of what the machine added."""
    found: list[float] = []
    for run in runs:
        factor = exp(-share * (noise_floor.took_longer(run) or 0.0)) if share else 1.0
        found += [factor * sample for sample in half_of(run.samples_ms, quantile)]
    return found


def _nearest_end(runs: list[BenchResult], change: float, quantile: float) -> float:
    """Return the end of the runs' intervals that is the nearer one to the baseline.

    Of a few independent samples the order statistics are the smallest and the largest one, which
    says little; the interval of blocks is narrower then.
    """
    sign = math.copysign(1.0, change)
    ends = []
    for run in runs:
        end = interval_ms(run, quantile)[0 if change > 0 else 1]
        by_order = math.log(end) if end > 0.0 else -math.inf
        ends.append(sign * max(sign * by_order, sign * _end_of_blocks(run, sign, quantile)))
    return statistics.median(ends)


def _end_of_blocks(run: BenchResult, sign: float, quantile: float) -> float:
    """Return the end of the 95 % interval from the levels of consecutive blocks of a run.

    These are the batch means of simulations (A. M. Law, "Simulation Modeling and Analysis", section
    9.5), with quantiles in place of means.
    """
    size = run.count // _BLOCKS
    blocks = [run.samples_ms[size * place : size * (place + 1)] for place in range(_BLOCKS)]
    values = [quantiles.quantile(block, quantile) for block in blocks]
    if min(values) <= 0.0:
        return -sign * math.inf
    logs = [math.log(value) for value in values]
    error = statistics.stddev(logs) / math.sqrt(_BLOCKS)
    reach = student_quantile(_BLOCKS - 1, 0.5 + CONFIDENCE / 2) * error
    return math.fsum(logs) / _BLOCKS - sign * reach


def _change_in_cycles(
    base: list[BenchResult], new: list[BenchResult], quantile: float
) -> float | None:
    """Return the change of the levels in clock cycles; None if a clock was not recorded."""
    levels = []
    for runs in (base, new):
        if not all(run.clock_mhz and min(run.clock_mhz) > 0 for run in runs):
            return None
        levels.append(statistics.median([math.log(_cycles(run, quantile)) for run in runs]))
    return levels[1] - levels[0]


def _cycles(run: BenchResult, quantile: float) -> float:
    pairs = zip(run.samples_ms, run.clock_mhz, strict=True)
    return max(quantiles.quantile([ms * mhz for ms, mhz in pairs], quantile), math.ulp(0.0))


def _clock(runs: list[BenchResult]) -> float:
    return statistics.median([statistics.median(run.clock_mhz) for run in runs])
