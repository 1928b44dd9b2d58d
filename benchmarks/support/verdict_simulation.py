"""Verdicts on simulated runs, whose true change is known.

A run is 50 samples around its own level: a standard deviation of 0.5 %, and one sample in twenty
late by up to 20 % and more (exponential, 10 % on average). Levels differ from run to run: by a
normal drift, or by a state of the machine in which one run in five is 10 % slower. A measurement
that is repeated in the same process shares the level of the first, which is the worst case. Of two
functions in turns, both follow the drift, which wanders from turn to turn as far within the process
as it goes from run to run.

What decides is the package's own code, on its own results.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import Verdict, confirm, judge, judge_paired

SAMPLES = 50
WITHIN = 0.005
TAIL_SHARE = 0.05
TAIL_MEAN = 0.10
BASE_RUNS = 5
ROUNDS = 30

Levels = Callable[[int], Any]


@dataclass(frozen=True)
class Machine:
    """How the levels of runs differ, as logarithms, and the samples within a run, as factors."""

    name: str
    levels: Levels
    within: Callable[[], Any] | None = None
    base_runs: int = BASE_RUNS


class Simulation:
    """One stream of random numbers, so that the figures are the same on each machine."""

    def __init__(self, seed: int) -> None:
        self._random = numpy.random.default_rng(seed)

    def drifting(self, sigma: float) -> Machine:
        """Return a machine whose runs drift by that standard deviation."""
        name = f"drift {100 * sigma:g} %"
        return Machine(name, lambda count: self._random.normal(0.0, sigma, count))

    def bimodal(self, share: float, slower: float) -> Machine:
        """Return a machine in which a share of the runs is slower by chance."""
        name = f"{share:.0%} of runs {slower:.0%} slower".replace("%", " %")
        step = math.log1p(slower)
        return Machine(name, lambda count: step * (self._random.random(count) < share))

    def noisy(self) -> list[Machine]:
        """Return machines with several kinds of noise, in addition to a drift of 0.5 %."""
        random = self._random

        def drift(count: int) -> Any:
            return random.normal(0.0, 0.005, count)

        def heavy(count: int) -> Any:
            return 0.01 * random.standard_t(3, count)

        def trend(count: int) -> Any:
            return math.log(1.01) * numpy.arange(count) + drift(count)

        def alike() -> Any:
            fresh = random.normal(0.0, 0.02 * math.sqrt(1 - 0.9**2), 4 * SAMPLES)
            values = [0.0]
            for each in fresh:
                values.append(0.9 * values[-1] + each)
            return 1.0 + numpy.array(values[-SAMPLES:])

        def step() -> Any:
            at = random.integers(SAMPLES) if random.random() < 0.3 else SAMPLES
            return self._samples((SAMPLES,)) * (1.0 + 0.1 * (numpy.arange(SAMPLES) >= at))

        def ramp() -> Any:
            slope = random.uniform(-0.08, 0.08)
            return self._samples((SAMPLES,)) * numpy.linspace(1.0, 1.0 + slope, SAMPLES)

        def paused() -> Any:
            begin = random.integers(SAMPLES)
            within = (numpy.arange(SAMPLES) - begin) % SAMPLES < SAMPLES // 4
            return self._samples((SAMPLES,)) * (1.0 + random.exponential(1.0) * within)

        def tails() -> Any:
            return 1.0 + 0.01 * numpy.abs(random.standard_cauchy(SAMPLES))

        def mixture() -> Any:
            share = random.beta(2.0, 5.0)
            return self._samples((SAMPLES,)) * (1.0 + 0.15 * (random.random(SAMPLES) < share))

        return [
            Machine("samples alike (AR(1) 0.9)", drift, alike),
            Machine("offsets by process, heavy tails", heavy),
            Machine("a step of 10 % in 3 of 10 runs", drift, step),
            Machine("ramps of up to 8 %", drift, ramp),
            Machine("pauses of a quarter of a run", drift, paused),
            Machine("heavy tails (Cauchy)", drift, tails),
            Machine("two modes 15 % apart", drift, mixture),
            Machine("trend of 1 % a run, 20 runs", trend, base_runs=20),
        ]

    def outside_share(self, memory: float, count: int, trials: int) -> float:
        """Return how often the interval of a run of AR(1) samples does not hold their median."""
        outside = 0
        for _ in range(trials):
            fresh = self._random.normal(0.0, 0.02 * math.sqrt(1 - memory**2), count)
            values = [self._random.normal(0.0, 0.02)]
            for each in fresh[1:]:
                values.append(memory * values[-1] + each)
            low, high = _result(1.0 + numpy.array(values)).interval_ms
            outside += not low <= 1.0 <= high
        return outside / trials

    def slow_share(
        self, machine: Machine, ratio: float, trials: int, *, clock: str = "cuda"
    ) -> float:
        """Return the share called SLOW, of new runs that take `ratio` times as long as the old."""
        slow = 0
        within = machine.within or (lambda: self._samples((SAMPLES,)))
        for _ in range(trials):
            *levels, level = numpy.exp(machine.levels(machine.base_runs + 1))
            base = [_result(each * within(), clock) for each in levels]
            first = _result(ratio * level * within(), clock)
            found = judge(base, [first])
            if found.verdict is Verdict.SLOW:
                again = _result(ratio * level * within(), clock)
                found = confirm(base, first, again)
            slow += found.verdict is Verdict.SLOW
        return slow / trials

    def slow_share_in_turns(self, sigma: float, ratio: float, trials: int) -> float:
        """Return the share called SLOW, of two functions that are measured alternately."""
        slow = 0
        for _ in range(trials):
            steps = self._random.normal(0.0, sigma / math.sqrt(2 * ROUNDS), 2 * ROUNDS)
            wander = numpy.exp(numpy.cumsum(steps)).reshape(ROUNDS, 2)
            times = wander * self._samples((ROUNDS, 2))
            # Alternately a b, b a, so that drift favours neither.
            times[1::2] = times[1::2, ::-1]
            found = judge_paired(times[:, 0].tolist(), (ratio * times[:, 1]).tolist())
            slow += found.verdict is Verdict.SLOW
        return slow / trials

    def _samples(self, shape: tuple[int, ...]) -> Any:
        late = self._random.random(shape) < TAIL_SHARE
        tail = late * self._random.exponential(TAIL_MEAN, shape)
        return self._random.normal(1.0, WITHIN, shape) + tail


def _result(samples: Any, clock: str = "cuda") -> BenchResult:
    mode, l2 = ("cpu", "n/a") if clock == "cpu" else ("graph", "hot")
    return BenchResult("made up", mode, "auto", clock, l2, tuple(samples.tolist()))
