"""The rule of a verdict on stored runs; `_results.verdict` asks it, and nothing else knows it.

docs/verdicts.md says what it is and why: which of a run's levels is compared, how far unchanged
code strays from it, and what that decides. benchmarks/verdict_power.py has its figures. Levels are
logarithms of milliseconds a call, so that factors add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

from gpuprof._common import quantiles
from gpuprof._common.text import plural
from gpuprof._common.units import percent, percent_change
from gpuprof._results import statistics
from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.eligible import gives_up_the_cpu, in_words, took_longer
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import CONFIDENCE, P_LIMIT, TICKS, exp, median, student_quantile

MIN_FOR_TREND = 8
KEPT_OF_TREND = 5
_TREND_CHANCE = 0.001
ENOUGH_RUNS = 5
MOST_TOGETHER = 3
_THRESHOLD, _THRESHOLD_FEW_RUNS, _CPU_FEW_RUNS = 0.05, 0.10, 0.20
# That many standard deviations, as a + b / (runs - 1), are exceeded by each of 2 or of 3 new runs
# in 3 of 100 cases: fits to simulated normal runs, within 4 % from 3 baseline runs on.
_BEYOND_ALL = {2: (0.94, 2.4), 3: (0.49, 1.9)}
_CHANCE_OF_ALL = 0.03
_OF_SAMPLES = 1.5  # samples of a process are more alike than they show
_RARE = 3.0  # times as large a spread with a run as without it
_LEAST_SPREAD = 0.002
_NEAR = 1.5  # spreads from the level of the run that is left out

Runs = Sequence[BenchResult]


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


class Level:
    """One level of a run: a quantile of its samples, or of their CPU time."""

    def __init__(self, name: str, quantile: float, *, of_cpu: bool = False) -> None:
        self.name, self.quantile, self.of_cpu = name, quantile, of_cpu

    def is_known(self, runs: Runs) -> bool:
        if self.of_cpu:
            return all(
                run.noise.get("cpu_ms", 0.0) > 0.0 and not gives_up_the_cpu(run) for run in runs
            )
        return min(self.ms(run) for run in runs) > 0.0

    def ms(self, run: BenchResult) -> float:
        if self.of_cpu:
            return run.noise["cpu_ms"]
        return run.median_ms if self.quantile == MEDIAN.quantile else run.p10_ms

    def log(self, run: BenchResult) -> float:
        return math.log(self.ms(run))

    def interval_ms(self, run: BenchResult) -> tuple[float, float]:
        """Return the 95 % interval, as wide as the run's samples are alike."""
        if self is MEDIAN:
            return run.interval_ms
        if self.of_cpu:  # of which a run has one figure: its error is in how runs differ
            return self.ms(run), self.ms(run)
        return statistics.median_interval(
            run.samples_ms, tick=run.tick_ms, independent=run.independent_samples, q=self.quantile
        )


MEDIAN = Level("median", 0.5)
LOWER = Level("lower decile", 0.1)
CPU = Level("CPU time", 0.1, of_cpu=True)


class Baseline:
    """The runs of a baseline at one level.

    `threshold` is the least noise floor, as a fraction; None is 5 %, of fewer than five runs 10 %.

    Attributes
    ----------
    kept : list of BenchResult
        All but the `left_out` one: a run so far from all others that it triples their spread.
    middle : float
        The median of the kept runs' levels.
    least, named
        The noise floor of a baseline without noise, and what it is called.
    """

    def __init__(self, runs: Runs, level: Level, threshold: float | None) -> None:
        self.runs, self.level = runs, level
        self.least, self.named = self._least(threshold)
        self.left_out = self._rare_run()
        self.kept = [run for run in runs if run is not self.left_out]
        self.in_runs = plural(len(self.kept), "baseline run")
        self.logs = [level.log(run) for run in self.kept]
        self.middle, self.spread = median(self.logs), statistics.stddev(self.logs)

    def _least(self, threshold: float | None) -> tuple[float, str]:
        few = len(self.runs) < ENOUGH_RUNS
        least, named = threshold, "the threshold"
        if least is None:
            least = _THRESHOLD_FEW_RUNS if few else _THRESHOLD
            named = f"the threshold with {plural(len(self.runs), 'baseline run')}"
        if few and self.runs[-1].mode == "cpu" and least < _CPU_FEW_RUNS:
            return _CPU_FEW_RUNS, f"the least on the CPU clock with fewer than {ENOUGH_RUNS} runs"
        return least, named

    def _rare_run(self) -> BenchResult | None:
        """Return a run that the floor would be blind for if it counted: one far from all others."""
        if len(self.runs) < ENOUGH_RUNS:
            return None
        logs = {id(run): self.level.log(run) for run in self.runs}
        middle = median(list(logs.values()))
        far = max(self.runs, key=lambda run: abs(logs[id(run)] - middle))
        rest = [log for run, log in logs.items() if run != id(far)]
        without = max(statistics.stddev(rest), _LEAST_SPREAD)
        is_rare = statistics.stddev(list(logs.values())) >= _RARE * without
        is_far = abs(logs[id(far)] - middle) > math.log1p(self.least) / 2
        return far if is_rare and is_far else None

    def floor(self, new_runs: int = 1, *, faster: bool = False) -> tuple[float, str]:
        """Return how far unchanged code strays, as a fraction, and what decided that.

        Each of `new_runs` has to lie beyond it for a change, if they are up to `MOST_TOGETHER`;
        of more, their median.
        """
        which, reach = "slowest", max(self.logs) - self.middle
        if faster:
            which, reach = "fastest", self.middle - min(self.logs)
        sigmas, of_error = self._sigmas(new_runs)
        ticks = TICKS * max(run.tick_ms / run.median_ms for run in self.kept)
        terms = [
            (self.least, self.named),
            (
                exp(sigmas * self.spread) - 1.0,
                f"{sigmas:.2g} standard deviations of {self.in_runs}",
            ),
            (exp(reach) - 1.0, f"the {which} of {self.in_runs}"),
            (exp(of_error * self._error()) - 1.0, "what the samples of a run leave open"),
            (ticks, f"{TICKS:g} ticks of the clock"),
        ]
        floor, why = max(terms, key=lambda term: term[0])
        return min(floor, exp(math.inf)), why

    def _sigmas(self, new_runs: int) -> tuple[float, float]:
        """Return the standard deviations between runs, and those of a run's own error."""
        count = len(self.kept)
        if new_runs in _BEYOND_ALL:
            base, more = _BEYOND_ALL[new_runs]
            chance = _CHANCE_OF_ALL ** (1 / new_runs)
            sigmas = base + more / max(count - 1, 1)
        else:
            chance, sigmas = P_LIMIT, 0.0
            if count > 1:
                # The median of the baseline has pi / 2 times the variance of a mean.
                sigmas = student_quantile(count - 1, 1.0 - chance)
                sigmas *= math.sqrt(1.0 + math.pi / 2 / count)
        return sigmas, _OF_SAMPLES * NormalDist().inv_cdf(1.0 - chance)

    def _error(self) -> float:
        """Return the standard error of a run's level by its own samples."""
        errors = []
        for run in self.kept:
            low, high = self.level.interval_ms(run)
            errors.append(math.log(high / low) / (2 * 1.96) if low > 0.0 else math.inf)
        return median(errors)

    def is_rare_level(self, log: float, count: int) -> bool:
        """Return whether the mean level of `count` runs is where the left-out run is."""
        if self.left_out is None:
            return False
        reach = _NEAR * self.spread * math.sqrt(1.0 + 1.0 / count)
        reach = max(reach, math.log1p(self.least) / 2)
        return abs(log - self.level.log(self.left_out)) < reach

    def about_left_out(self, name: str) -> str:
        """Return a sentence on the run that is left out; no text without one."""
        if self.left_out is None:
            return ""
        ratio = exp(self.level.log(self.left_out) - self.middle)
        return (
            f"a run of the baseline is left out, which takes {percent_change(ratio)} time than the "
            f"others: `gpuprof drop {name} {self.left_out.created or 'RUN'}` removes it"
        )


def choose(base: Runs, new: Runs, threshold: float | None) -> Baseline:
    """Return the baseline at the level with the smallest noise floor among the stored runs.

    Of two that are as good it is the one that leaves no run out, and then the median.
    """
    levels = [MEDIAN]
    if len(base) >= ENOUGH_RUNS:  # of fewer it is not known how much each level varies
        more = (LOWER, CPU) if base[-1].clock == "cpu" else (LOWER,)
        levels += [level for level in more if level.is_known((*base, *new))]
    found = [Baseline(base, level, threshold) for level in levels]
    return min(found, key=lambda each: (each.floor(MOST_TOGETHER)[0], each.left_out is not None))


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
        verdict, most = Verdict.AMBIGUOUS, 1.0 + base.least
        is_within = interval and 1.0 / most <= interval[0] and interval[1] <= most
        if sign * self.nearest <= limit and is_within:
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
