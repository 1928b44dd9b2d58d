"""The rule of a verdict on stored runs; `_results.verdict` asks it, and nothing else knows it.

docs/verdicts.md says what it is and why, `_results.levels` has its noise floor, and
benchmarks/verdict_power.py its figures.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from gpuprof._common import quantiles
from gpuprof._common.units import percent, percent_change
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.eligible import in_words, took_longer
from gpuprof._results.levels import MEDIAN, MOST_TOGETHER, Baseline, Runs, choose
from gpuprof._results.statistics import CONFIDENCE, exp, median, student_quantile

MIN_FOR_TREND = 8
KEPT_OF_TREND = 5
_TREND_CHANCE = 0.001


def decide(base: Runs, new: Runs, threshold: float | None, p_limit: float, name: str) -> Decision:
    """Decide on comparable runs with enough samples; both sides have one at least.

    `name` is what the baseline is saved as.
    """
    base, trend = recent(base)
    chosen = choose(base, new, threshold)
    decision = _Change(chosen, new).decide(p_limit)
    said = [trend, chosen.about_left_out(name), *decision.warnings]
    return replace(decision, warnings=tuple(filter(None, said)))


def may_be_slow(base: Runs, new: Runs, threshold: float | None) -> bool:
    """Return whether these runs, and more like them, would be SLOW."""
    change = _Change(choose(recent(base)[0], new, threshold), new)
    return change.nearest > math.log1p(change.base.floor(MOST_TOGETHER)[0])


def recent(runs: Runs) -> tuple[Runs, str]:
    """Return the last runs of a baseline that trends, with a sentence; else all runs."""
    count = len(runs)
    if count < MIN_FOR_TREND:
        return runs, ""
    slope, rest = statistics.beside_line([math.log(run.median_ms) for run in runs])
    squares = (count**3 - count) / 12  # of the places, from their middle
    error = math.sqrt(math.fsum(each * each for each in rest) / (count - 2) / squares)
    if abs(slope) <= student_quantile(count - 2, 1.0 - _TREND_CHANCE / 2) * error:
        return runs, ""
    said = (
        f"the baseline trends: each of its {count} runs takes {percent_change(math.exp(slope))} "
        f"time than the one before, on average; the last {KEPT_OF_TREND} are compared with"
    )
    return runs[-KEPT_OF_TREND:], said


def vetoed(ratio: float, floor: float, p_value: float, limit: float) -> str:
    return (
        f"takes {percent_change(ratio)} time, more than the noise floor of {percent(floor)}, "
        f"but the samples overlap: Mann-Whitney p is {p_value:.2g}, not below {limit:.2g}"
    )


def repeated(changes: Sequence[float]) -> str:
    """Say what repeated measurements took that do not agree."""
    each = ", ".join(percent_change(exp(change)) for change in changes)
    return f"measured {len(changes)} times, it takes {each} time: not all above the noise floor of"


class _Change:
    """The change from a baseline to new runs, at the baseline's level."""

    def __init__(self, base: Baseline, new: Runs) -> None:
        self.base, self.new, self.level = base, new, base.level
        self.logs = [self.level.log(run) - base.middle for run in new]
        self.change = median(self.logs)
        self.sign = math.copysign(1.0, self.change)
        self.nearest = self._nearest(self.logs)

    def _nearest(self, changes: list[float]) -> float:
        """Return what has to be beyond the floor: the change that is the least one of a few."""
        if len(changes) > MOST_TOGETHER:
            return median(changes)
        return min(changes, key=lambda each: self.sign * each)

    def decide(self, p_limit: float) -> Decision:
        """Apply the rule."""
        base, new, change, sign = self.base, self.new, self.change, self.sign
        floor, why = base.floor(len(new), faster=change < 0)
        limit, why = math.log1p(floor), f"{percent(floor)} ({why})"
        ratio, interval = exp(change), self._interval()
        p_value = None
        if not self.level.of_cpu:
            p_value = statistics.mann_whitney(self._samples(base.kept), self._samples(new))
        taken = f"takes {percent_change(ratio)} time"
        taken = taken if self.level is MEDIAN else f"its {self.level.name} {taken}"
        beyond = f"{taken}, more than the noise floor of {why}, but"
        in_cycles = self._change_in_cycles() if sign * self.nearest > limit else None
        by_itself = self._without_the_machine()
        below, above = self._reach(new)
        nearest_end = change - below if change > 0 else change + above
        verdict = Verdict.AMBIGUOUS
        if sign * self.nearest <= limit and self._is_within(interval):
            verdict = Verdict.SAME
            rule = f"{taken}: no more than {percent(base.least)} ({base.named})"
        elif sign * self.nearest <= limit:
            several = max(sign * log for log in self.logs) > limit and len(new) > 1
            found = repeated(self.logs) if several else f"{taken}: within the noise floor of"
            rule = f"{found} {why}{_open(interval)}"
        elif p_value is not None and p_value >= p_limit:
            rule = vetoed(ratio, floor, p_value, p_limit)
        elif in_cycles is not None and abs(in_cycles) < limit / 2:
            old, now = (
                median([median(run.clock_mhz) for run in runs]) for runs in (base.kept, new)
            )
            rule = (
                f"clock: {taken} but {percent_change(exp(in_cycles))} cycles, for the SM clock was "
                f"{now:,.0f} MHz in place of {old:,.0f} MHz"
            )
        elif sign * by_itself <= limit:
            rule = (
                f"the machine: {taken}, but {percent_change(exp(by_itself))} without what "
                f"the machine did: {in_words(base.kept, new)}"
            )
        elif len(new) == 1 and sign * nearest_end < limit / 2:
            rule = (
                f"{beyond} the samples of the new run wander: the interval of its "
                f"{self.level.name} begins at {percent_change(exp(nearest_end))}"
            )
        elif base.is_rare_level(base.middle + math.fsum(self.logs) / len(new), len(new)):
            rule = f"{beyond} the run of the baseline that is left out took as long"
        else:
            verdict = Verdict.SLOW if change > 0 else Verdict.FAST
            rule = f"{taken}: more than the noise floor of {why}"
        noisy = f"the baseline is noisy: only changes above {percent(floor)} can be told"
        warnings = (noisy,) if floor > 2 * base.least else ()
        levels, runs = (exp(base.middle), exp(base.middle + change)), len(base.kept)
        return Decision(verdict, *levels, ratio, interval, floor, p_value, runs, rule, warnings)

    def _is_within(self, interval: tuple[float, float] | None) -> bool:
        """Return whether the interval of the ratio lies within the threshold."""
        most = 1.0 + self.base.least
        return interval is not None and 1.0 / most <= interval[0] and interval[1] <= most

    def _without_the_machine(self) -> float:
        """Return the nearest change of the new runs that the machine left alone.

        Of runs that it slowed more than any of the baseline, that is taken off. Preemption does not
        reach the lower levels, so there it is the reference loop alone.
        """
        base, of_loop = self.base.kept, self.level is not MEDIAN
        # Each Python has its own speed of the loop.
        pythons = {run.machine.get("python") for run in (*base, *self.new)}
        known = [took_longer(run, of_loop=of_loop) for run in base]
        before = [each for each in known if each is not None]
        if base[-1].clock != "cpu" or len(pythons) > 1 or len(before) < len(base):
            return self.nearest
        most = max(self.sign * each for each in before)
        usual, left = [], []
        for log, run in zip(self.logs, self.new, strict=True):
            added = took_longer(run, of_loop=of_loop)
            if added is None or self.sign * added <= most:
                usual.append(log)
            else:
                left.append(log - added + median(before))
        return self._nearest(usual or left)

    def _samples(self, runs: Runs) -> list[float]:
        """Return all samples in which a change of this level must show: all, or the lower half."""
        if self.level is MEDIAN:
            return [sample for run in runs for sample in run.samples_ms]
        return [ms for run in runs for ms in sorted(run.samples_ms)[: (run.count + 1) // 2]]

    def _interval(self) -> tuple[float, float] | None:
        """Return the 95 % interval of the ratio: by how runs differ, and never less than in them.

        It stays among the ratios of single samples, each known to a tick. Of a single baseline run
        it is that of the samples alone, which does not know of drift. None where the base may be 0.
        """
        base = self.base.kept
        base_below, base_above = self._reach(base)
        new_below, new_above = self._reach(self.new)
        if math.isinf(base_below):
            return None
        between, count = 0.0, len(base)
        if count > 1:
            between = self.base.spread * math.sqrt(1 / count + 1 / len(self.new))
            between *= student_quantile(count - 1, 0.5 + CONFIDENCE / 2)
        low = exp(self.change - max(new_below + base_above, between))
        high = exp(self.change + max(new_above + base_below, between))
        if self.level.of_cpu:
            return low, high
        (least, most), (new_least, new_most) = _extremes(base), _extremes(self.new)
        return max(low, new_least / most), min(high, new_most / least if least > 0.0 else math.inf)

    def _reach(self, runs: Runs) -> tuple[float, float]:
        """Return how far the levels of the runs may lie below and above themselves."""
        below, above = [], []
        for run in runs:
            (low, high), middle = self.level.interval_ms(run), self.level.log(run)
            below.append(middle - math.log(low) if low > 0.0 else math.inf)
            above.append(math.log(high) - middle)
        return max(below), max(above)

    def _change_in_cycles(self) -> float | None:
        """Return the change of the levels in clock cycles; None if a clock was not recorded."""
        levels = []
        for runs in (self.base.kept, self.new):
            if not all(run.clock_mhz and min(run.clock_mhz) > 0 for run in runs):
                return None
            logs = []
            for run in runs:
                pairs = zip(run.samples_ms, run.clock_mhz, strict=True)
                cycles = quantiles.quantile([ms * mhz for ms, mhz in pairs], self.level.quantile)
                logs.append(math.log(max(cycles, math.ulp(0.0))))
            levels.append(median(logs))
        return levels[1] - levels[0]


def _open(interval: tuple[float, float] | None) -> str:
    """Say how large a change could still hide."""
    if interval is None or not math.isfinite(interval[1]):
        return ""
    low, high = percent_change(interval[0]), percent_change(interval[1])
    return f"; {low} to {high} time is possible"


def _extremes(runs: Runs) -> tuple[float, float]:
    least = min(run.min_ms - run.tick_ms for run in runs)
    return max(least, 0.0), max(run.max_ms + run.tick_ms for run in runs)
