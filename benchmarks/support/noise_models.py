"""Noise of runs, made up: many processes at once, as one array a model.

Each model fills an array with a row for each process and a column for each sample, as factors of
the code's own time. A process goes on where it was when it is measured again: a state or a step
that came during the first measurement lasts into the second. The models are of another make than
those of `verdict_simulation`, on which the rule's constants were chosen.

All but the models of offsets have processes that differ by 0.5 %, normally distributed, and white
noise of 0.5 %.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy

Fill = Callable[[Any, int, int], Any]

DRIFT = 0.005
WHITE = 0.005
GAP = 0.3  # between two modes


@dataclass(frozen=True)
class Model:
    """A name, and what fills an array of processes and samples from random numbers."""

    name: str
    fill: Fill
    must_find: bool = False  # a slow-down of 10 %, in 80 of 100 cases


def _quiet(random: Any, processes: int, samples: int) -> Any:
    offsets = numpy.exp(random.normal(0.0, DRIFT, (processes, 1)))
    return offsets * random.normal(1.0, WHITE, (processes, samples))


def correlated(memory: float, sigma: float) -> Fill:
    """Return samples that follow each other, AR(1): `sigma` is their standard deviation."""

    def fill(random: Any, processes: int, samples: int) -> Any:
        fresh = random.normal(0.0, sigma * (1.0 - memory**2) ** 0.5, (processes, samples))
        value = random.normal(0.0, sigma, processes)
        values = numpy.empty((processes, samples))
        for place in range(samples):
            value = values[:, place] = memory * value + fresh[:, place]
        return numpy.exp(random.normal(0.0, DRIFT, (processes, 1))) * (1.0 + values)

    return fill


def in_stretches(share: float, length: float, gap: float = GAP) -> Fill:
    """Return two modes, of which the second has that share of the time, in stretches of samples."""

    def fill(random: Any, processes: int, samples: int) -> Any:
        leave, enter = 1.0 / length, share / (1.0 - share) / length
        chance = random.random((processes, samples))
        second = numpy.empty((processes, samples), dtype=bool)
        state = random.random(processes) < share
        for place in range(samples):
            state = second[:, place] = numpy.where(
                state, chance[:, place] >= leave, chance[:, place] < enter
            )
        return _quiet(random, processes, samples) * (1.0 + gap * second)

    return fill


def in_shares(a: float, b: float, gap: float = GAP) -> Fill:
    """Return two modes, the second with a share that differs by measurement: Beta(a, b)."""

    def fill(random: Any, processes: int, samples: int) -> Any:
        shares = random.beta(a, b, (processes, 2)).repeat(samples // 2, axis=1)
        second = random.random((processes, samples)) < shares
        return _quiet(random, processes, samples) * (1.0 + gap * second)

    return fill


def mixed(share: float, gap: float = GAP) -> Fill:
    """Return two modes, each sample in the second by chance."""

    def fill(random: Any, processes: int, samples: int) -> Any:
        second = random.random((processes, samples)) < share
        return _quiet(random, processes, samples) * (1.0 + gap * second)

    return fill


def _offsets(random: Any, processes: int, samples: int) -> Any:
    return _quiet(random, processes, samples) * numpy.exp(random.laplace(0.0, 0.01, (processes, 1)))


def _places(random: Any, processes: int, samples: int) -> Any:
    slower = random.random((processes, 1)) < 0.3
    return _quiet(random, processes, samples) * (1.0 + 0.03 * slower)


def stepping(size: float) -> Fill:
    """Return runs of which 3 in 10 have a step at some sample, which then stays."""

    def fill(random: Any, processes: int, samples: int) -> Any:
        at = random.integers(0, samples, (processes, 1))
        steps = random.random((processes, 1)) < 0.3
        after = steps & (numpy.arange(samples) >= at)
        return _quiet(random, processes, samples) * (1.0 + size * after)

    return fill


def _settling(random: Any, processes: int, samples: int) -> Any:
    size = random.uniform(-0.1, 0.1, (processes, 1))
    length = random.uniform(0.05, 0.5, (processes, 1)) * samples
    ramp = size * numpy.exp(-numpy.arange(samples) / length)
    return _quiet(random, processes, samples) * (1.0 + ramp)


def _paused(random: Any, processes: int, samples: int) -> Any:
    begins = random.random((processes, samples)) < 0.02
    long = random.exponential(1.0, (processes, samples)) * begins
    added = sum(numpy.roll(long, by, axis=1) for by in range(10))
    return _quiet(random, processes, samples) * (1.0 + added)


def _heavy(random: Any, processes: int, samples: int) -> Any:
    tail = 0.01 * random.pareto(1.1, (processes, samples))
    return _quiet(random, processes, samples) * (1.0 + tail)


def _skewed(random: Any, processes: int, samples: int) -> Any:
    tail = 0.05 * random.lognormal(0.0, 1.0, (processes, samples))
    return _quiet(random, processes, samples) * (1.0 + tail)


def _too_short(random: Any, processes: int, samples: int) -> Any:
    short = random.random((processes, samples)) < 0.01
    return _quiet(random, processes, samples) * (1.0 - 0.3 * short)


def _periodic(random: Any, processes: int, samples: int) -> Any:
    phase = random.uniform(0.0, 2.0 * numpy.pi, (processes, 1))
    period = random.uniform(30.0, 120.0, (processes, 1))
    wave = numpy.sin(phase + 2.0 * numpy.pi * numpy.arange(samples) / period)
    return _quiet(random, processes, samples) * (1.0 + 0.04 * wave)


BIMODAL = Model("10 % of samples in a second mode, by measurement", in_shares(0.05, 0.45), True)
ALIKE = Model("samples alike (AR(1) 0.99)", correlated(0.99, 0.03))
LONG = Model("10 % of samples in a second mode, in stretches of 100", in_stretches(0.1, 100))
STEADY_MODES = Model("10 % of samples in a second mode, each by chance", mixed(0.1), True)
# Not the code's time changes, but how often it takes the slower way.
SHIFTED = tuple(Model(f"{share:.0%}".replace("%", " %"), mixed(share)) for share in (0.2, 0.4, 0.8))
MODELS = (
    BIMODAL,
    Model("10 % of samples in a second mode, in stretches of 25", in_stretches(0.1, 25)),
    LONG,
    Model("40 % of samples in a second mode, in stretches of 25", in_stretches(0.4, 25)),
    STEADY_MODES,
    Model("45 % of samples in a second mode, each by chance", mixed(0.45)),
    Model("10 % of samples in a faster mode, in stretches of 25", in_stretches(0.1, 25, -0.2)),
    ALIKE,
    Model("samples alike (AR(1) 0.9)", correlated(0.9, 0.03)),
    Model("offsets by process (Laplace, 1.4 %)", _offsets),
    Model("offsets by process: 3 in 10 are 3 % slower", _places),
    Model("a step of 8 % up in 3 of 10 runs, which stays", stepping(0.08)),
    Model("a step of 8 % down in 3 of 10 runs, which stays", stepping(-0.08)),
    Model("ramps that settle, of up to 10 %", _settling),
    Model("pauses of 10 samples", _paused),
    Model("heavy tails (Pareto 1.1)", _heavy),
    Model("skewed samples (log-normal)", _skewed),
    Model("one sample in 100 too short", _too_short),
    Model("periodic load of 4 %", _periodic),
)
