"""What of the runs of a baseline is compared, and how far unchanged code strays from it.

docs/verdicts.md says which of a run's levels that is, and why. Levels are logarithms of
milliseconds a call, so that factors add up.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

from gpuprof._common.text import plural
from gpuprof._common.units import percent_change
from gpuprof._results import statistics
from gpuprof._results.eligible import gives_up_the_cpu
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import P_LIMIT, TICKS, exp, median, student_quantile

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


class Level:
    """One level of a run: a quantile of its samples, or of their CPU time."""

    def __init__(self, name: str, quantile: float, *, of_cpu: bool = False) -> None:
        self.name, self.quantile, self.of_cpu = name, quantile, of_cpu

    def is_known(self, runs: Runs) -> bool:
        """Return whether all the runs have it."""
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
        """Return the 95 % interval, as wide as the run's samples are alike.

        Of CPU time a run has one figure, and its error is in how runs differ.
        """
        if self is MEDIAN:
            return run.interval_ms
        if self.of_cpu:
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
        """Return a sentence on the run that is left out; no text without one.

        `name` is what the baseline is saved as.
        """
        if self.left_out is None:
            return ""
        ratio = exp(self.level.log(self.left_out) - self.middle)
        return (
            f"a run of the baseline is left out, which takes {percent_change(ratio)} time than the "
            f"others: `gpuprof drop {name} {self.left_out.created or 'RUN'}` removes it"
        )


def choose(base: Runs, new: Runs, threshold: float | None) -> Baseline:
    """Return the baseline at the level with the smallest noise floor among the stored runs.

    Of two that are as good it is the one that leaves no run out, and then the median, which it also
    is with too few runs to know how much each varies.
    """
    levels = [MEDIAN]
    if len(base) >= ENOUGH_RUNS:
        more = (LOWER, CPU) if base[-1].clock == "cpu" else (LOWER,)
        levels += [level for level in more if level.is_known((*base, *new))]
    found = [Baseline(base, level, threshold) for level in levels]
    return min(found, key=lambda each: (each.floor(MOST_TOGETHER)[0], each.left_out is not None))
