"""Verdicts on made-up runs, whose true change is known.

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

from gpuprof._benchmark_result import BenchResult
from gpuprof._verdict import Verdict, confirm, judge, judge_paired

SAMPLES = 50
WITHIN = 0.005
TAIL_SHARE = 0.05
TAIL_MEAN = 0.10
BASE_RUNS = 5
ROUNDS = 30

Levels = Callable[[int], Any]


@dataclass(frozen=True)
class Machine:
    """How the levels of runs differ, as logarithms."""

    name: str
    levels: Levels


class Simulation:
    """One stream of random numbers, so that the figures are the same on each machine."""

    def __init__(self, seed: int) -> None:
        self._random = numpy.random.default_rng(seed)

    def drifting(self, sigma: float) -> Machine:
        """Return a machine whose runs drift by that standard deviation."""
        name = f"drift {100 * sigma:g} %"
        return Machine(name, lambda count: self._random.normal(0.0, sigma, count))

    def bimodal(self, share: float, slower: float) -> Machine:
        """Return a machine in which a share of the runs is slower for no reason."""
        name = f"{share:.0%} of runs {slower:.0%} slower".replace("%", " %")
        step = math.log1p(slower)
        return Machine(name, lambda count: step * (self._random.random(count) < share))

    def slow_share(self, machine: Machine, ratio: float, trials: int) -> float:
        """Return the share called SLOW, of new runs that take `ratio` times as long as five old."""
        slow = 0
        for _ in range(trials):
            *levels, level = machine.levels(BASE_RUNS + 1)
            base = [self._run(each) for each in levels]
            first = self._run(level + math.log(ratio))
            found = judge(base, [first])
            if found.verdict is Verdict.SLOW:
                again = self._run(level + math.log(ratio))
                found = confirm(base, first, again)
            slow += found.verdict is Verdict.SLOW
        return slow / trials

    def slow_share_in_turns(self, sigma: float, ratio: float, trials: int) -> float:
        """Return the share called SLOW, of two functions that are measured in turns."""
        slow = 0
        for _ in range(trials):
            steps = self._random.normal(0.0, sigma / math.sqrt(2 * ROUNDS), 2 * ROUNDS)
            wander = numpy.exp(numpy.cumsum(steps)).reshape(ROUNDS, 2)
            times = wander * self._samples((ROUNDS, 2))
            # In turns a b, b a: what wanders must not favour one of them.
            times[1::2] = times[1::2, ::-1]
            found = judge_paired(times[:, 0].tolist(), (ratio * times[:, 1]).tolist())
            slow += found.verdict is Verdict.SLOW
        return slow / trials

    def _run(self, level: float) -> BenchResult:
        samples = math.exp(level) * self._samples((SAMPLES,))
        return BenchResult("made up", "graph", "auto", "cuda", "hot", tuple(samples.tolist()))

    def _samples(self, shape: tuple[int, ...]) -> Any:
        late = self._random.random(shape) < TAIL_SHARE
        tail = late * self._random.exponential(TAIL_MEAN, shape)
        return self._random.normal(1.0, WITHIN, shape) + tail
