"""Verdicts under noise: what they find and leave alone, and what the machine did meanwhile."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from gpuprof import BenchResult, Verdict
from gpuprof._results.stored_rule import LOWER
from gpuprof._results.verdict import confirm, judge, may_be_slow
from gpuprof.results import Decision
from tests.results.test_verdict import run

SAMPLES = 50
Noise = Callable[[random.Random], list[float]]


def of(samples: Sequence[float]) -> BenchResult:
    return run(samples_ms=tuple(samples))


def two_modes(chance: random.Random, share: float | None = None) -> list[float]:
    """Return a run of which a tenth of the samples is 30 % slower, on average over runs."""
    if share is None:
        share = chance.betavariate(0.05, 0.45)
    return [
        chance.gauss(1.0, 0.005) * (1.3 if chance.random() < share else 1.0) for _ in range(SAMPLES)
    ]


def alike(chance: random.Random, count: int = 1000) -> list[float]:
    value, found = chance.gauss(0.0, 0.03), []
    for _ in range(count):
        value = 0.99 * value + chance.gauss(0.0, 0.03 * math.sqrt(1 - 0.99**2))
        found.append(1.0 + value)
    return found


def stepping(chance: random.Random) -> list[float]:
    at = chance.randrange(SAMPLES) if chance.random() < 0.3 else SAMPLES
    return [chance.gauss(1.0, 0.005) * (1.08 if n >= at else 1.0) for n in range(SAMPLES)]


def offset(chance: random.Random) -> list[float]:
    level = math.exp(chance.gauss(0.0, 0.01))
    return [level * chance.gauss(1.0, 0.005) for _ in range(SAMPLES)]


def slow_share(noise: Noise, ratio: float, runs: int, trials: int) -> float:
    """Return the share of new runs that are SLOW, or of a `ratio` below 1 FAST."""
    chance = random.Random(11)
    looked_for, found = Verdict.SLOW if ratio >= 1.0 else Verdict.FAST, 0
    for _ in range(trials):
        base = [of(noise(chance)) for _ in range(runs)]
        new = [of([ratio * each for each in noise(chance)]) for _ in range(3)]
        count = 1
        while count < 3 and may_be_slow(base, new[:count]):
            count += 1
        found += confirm(base, new[:count]).verdict is looked_for
    return found / trials


def test_10_percent_are_found_where_a_tenth_of_the_samples_is_in_a_second_mode() -> None:
    assert slow_share(two_modes, 1.1, 20, 10) >= 0.8
    assert slow_share(two_modes, 1.1, 5, 20) >= 0.8
    assert slow_share(two_modes, 1.0, 5, 30) == 0.0


def test_10_percent_are_found_in_enough_samples_that_are_alike() -> None:
    assert slow_share(alike, 1.1, 5, 6) >= 0.8
    assert slow_share(alike, 1.0, 5, 4) == 0.0


@pytest.mark.parametrize("noise", [stepping, offset])
def test_steps_and_offsets_by_process_are_no_change(noise: Noise) -> None:
    assert slow_share(noise, 1.0, 5, 40) == 0.0


def moded(*shares: float) -> list[BenchResult]:
    chance = random.Random(3)
    return [of(two_modes(chance, share)) for share in shares]


JUMPING = moded(0.0, 0.7, 0.1, 0.6, 0.0, 0.8, 0.2)


def slower(result: BenchResult, ratio: float) -> BenchResult:
    return of([ratio * each for each in result.samples_ms])


def judged(base: list[BenchResult], share: float, ratio: float) -> Decision:
    return judge(base, [slower(moded(share)[0], ratio)])


def test_the_lower_decile_decides_where_the_medians_jump_between_modes() -> None:
    found = judged(JUMPING, 0.1, 1.1)
    assert found.verdict is Verdict.SLOW
    assert found.rule.startswith("its lower decile takes 9.7 % more time")
    assert found.floor == 0.05
    assert (found.base, found.new) == pytest.approx((0.995, 1.095), rel=0.01)
    assert found.interval is not None
    assert found.interval[0] < 1.1 < found.interval[1]
    faster = judged(JUMPING, 0.1, 0.9)
    assert faster.verdict is Verdict.FAST
    assert "lower decile" in faster.rule


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7])
def test_no_share_of_the_second_mode_is_a_change(share: float) -> None:
    assert judged(JUMPING, share, 1.0).verdict in {Verdict.SAME, Verdict.AMBIGUOUS}


def test_of_fewer_than_five_runs_the_medians_alone_decide() -> None:
    assert judged(JUMPING[:4], 0.1, 1.1).verdict is Verdict.AMBIGUOUS


def test_a_lower_decile_of_zero_is_not_compared() -> None:
    base = [of([0.0] * 8 + [1.0] * 42), *JUMPING]
    found = judged(base, 0.1, 1.1)
    assert found.verdict is Verdict.AMBIGUOUS
    assert "lower decile" not in found.rule


def test_a_broad_distribution_hides_no_change() -> None:
    broad = [run(spread=0.04) for _ in range(5)]
    assert judge(broad, [run(1.07, spread=0.04)]).verdict is Verdict.SLOW


def test_the_interval_of_the_lower_decile_holds_it_in_95_of_100_runs() -> None:
    chance = random.Random(1)
    true = math.exp(-1.2815515655 * 0.1)
    held = 0
    for _ in range(300):
        low, high = LOWER.interval_ms(of([math.exp(chance.gauss(0.0, 0.1)) for _ in range(60)]))
        held += low <= true <= high
    assert 0.93 <= held / 300 <= 1.0


# On the CPU's clock: its floor, what the machine did, and baselines that trend


QUIET = {"waited": 0.0, "off_cpu": 0.0, "stolen": 0.0, "switches_per_s": 0.0, "loop_ms": 0.04}


def on_cpu(
    *medians: float, noise: dict[str, float] | None = None, **facts: Any
) -> list[BenchResult]:
    """Return runs on the CPU's clock, of a machine that did nothing else, or what `noise` says."""
    found = {} if noise is None else {**QUIET, **noise}
    return [
        run(median, clock="cpu", mode="cpu", l2="n/a", noise=found, **facts) for median in medians
    ]


STEADY = (1.0, 1.002, 0.998, 1.001, 0.999)
UNSTEADY = (1.0, 1.03, 0.97, 1.02, 0.98)


def test_on_the_cpu_clock_five_runs_know_their_noise_and_fewer_have_a_floor_of_a_fifth() -> None:
    found = judge(on_cpu(*STEADY), on_cpu(1.07))
    assert (found.verdict, found.floor) == (Verdict.SLOW, 0.05)
    few = judge(on_cpu(*STEADY[:4]), on_cpu(1.15), threshold=0.05)
    assert (few.verdict, few.floor) == (Verdict.SAME, 0.20)
    assert "the least on the CPU clock with fewer than 5 runs" in few.rule
    assert judge(on_cpu(*STEADY[:4]), on_cpu(1.25)).verdict is Verdict.SLOW
    assert judge(on_cpu(*STEADY), on_cpu(1.25), threshold=0.6).verdict is Verdict.SAME


def test_the_floor_of_noisy_runs_has_no_step() -> None:
    """Runs that differ by 5.1 % have nearly the same floor as those that differ by 5 %."""
    a, b = (
        judge(on_cpu(*[1 + s * x for x in (0, 1, -1, 0.7, -0.7)]), on_cpu(1.0))
        for s in (0.05, 0.051)
    )
    assert a.floor is not None
    assert a.floor < (b.floor or 0.0) < 1.05 * a.floor


def test_cpu_time_decides_where_a_neighbour_takes_the_cpu() -> None:
    busy = {"waited": 0.6, "off_cpu": 0.6}
    base = [
        each
        for median in (2.0, 3.1, 1.6, 2.5, 4.0)
        for each in on_cpu(median, noise={**busy, "cpu_ms": 1.0}, spread=0.1)
    ]
    found = judge(base, on_cpu(2.4, noise={**busy, "cpu_ms": 1.12}, spread=0.1))
    assert found.verdict is Verdict.SLOW
    assert found.rule.startswith("its CPU time takes 12.0 % more time")
    assert (found.base, found.new) == pytest.approx((1.0, 1.12))
    # CPU time says nothing of a function that sleeps.
    sleeps = {"off_cpu": 0.9, "cpu_ms": 1.12, "sleeps_per_s": 400.0}
    asleep = on_cpu(2.4, noise=sleeps, duration_s=0.12)
    assert "CPU time" not in judge(base, asleep).rule


def test_few_runs_that_differ_have_a_floor_that_holds_another_run() -> None:
    assert judge(on_cpu(0.97, 1.0, 1.03), on_cpu(1.24)).verdict is Verdict.AMBIGUOUS
    assert judge(on_cpu(0.97, 1.0, 1.03), on_cpu(1.24, 1.24, 1.24)).verdict is Verdict.SLOW
    assert judge(on_cpu(0.97, 1.0, 1.03), on_cpu(2.0)).verdict is Verdict.SLOW


@pytest.mark.parametrize(
    ("noise", "said"),
    [
        (
            {"waited": 0.55, "off_cpu": 0.5, "switches_per_s": 300.0},
            "the thread waited for a CPU for 50.0 % of a sample, before for 0.0 %, "
            "300 involuntary context switches a second",
        ),
        (
            {"stolen": 0.4},
            "the host of this virtual machine took the CPU for 40.0 % of a sample, before for 0.0",
        ),
        ({"loop_ms": 0.06}, "a loop that is always the same took 50.0 % more time"),
    ],
)
def test_what_the_machine_did_is_no_slow_down(noise: dict[str, float], said: str) -> None:
    found = judge(on_cpu(*STEADY, noise={}), on_cpu(1.5, noise=noise))
    assert found.verdict is Verdict.AMBIGUOUS
    assert found.rule.startswith("the machine: takes 50.0 % more time, but ")
    assert said in found.rule


@pytest.mark.parametrize(
    "noise",
    [
        {"waited": 0.5, "switches_per_s": 300.0},  # but the samples are so short that few are hit
        {"off_cpu": 0.9},  # it sleeps longer
        {"loop_ms": 0.042},
        {"stolen": 0.1},
    ],
)
def test_noise_that_does_not_explain_a_slow_down_leaves_it_one(noise: dict[str, float]) -> None:
    assert judge(on_cpu(*STEADY, noise={}), on_cpu(1.5, noise=noise)).verdict is Verdict.SLOW


def test_a_speed_up_is_none_where_the_machine_was_slow_before() -> None:
    found = judge(on_cpu(*STEADY, noise={"loop_ms": 0.06}), on_cpu(0.7, noise={}))
    assert found.verdict is Verdict.AMBIGUOUS
    assert "a loop that is always the same took 33.3 % less time" in found.rule


def test_loops_of_another_python_are_not_compared() -> None:
    machine = {"cpu": "Some CPU", "python": "3.12"}
    new = on_cpu(1.5, noise={"loop_ms": 0.06}, machine={**machine, "python": "3.11"})
    assert judge(on_cpu(*STEADY, noise={}, machine=machine), new).verdict is Verdict.SLOW


def waiting(share: float, cpu_ms: float) -> dict[str, float]:
    return {"waited": share, "off_cpu": share, "cpu_ms": cpu_ms}


def test_runs_that_differ_only_by_what_the_machine_did_raise_no_floor() -> None:
    shares = (0.3, 0.55, 0.4, 0.6, 0.5)
    base = [
        each for share in shares for each in on_cpu(1.0 / (1.0 - share), noise=waiting(share, 1.0))
    ]
    assert judge(base, on_cpu(2.5, noise=waiting(0.6, 1.0))).verdict is Verdict.SAME
    slower = judge(base, on_cpu(5.0, noise=waiting(0.6, 2.0)))
    assert (slower.verdict, slower.floor) == (Verdict.SLOW, 0.05)


def test_a_new_run_that_wanders_does_not_fail_for_it() -> None:
    steps = [1.0] * 24 + [1.6] * 26
    found = judge(on_cpu(*STEADY), on_cpu(1.6, samples_ms=tuple(steps)))
    assert found.verdict is Verdict.AMBIGUOUS
    said = "the samples of the new run wander: the interval of its median begins at 0.0 % more"
    assert found.rule.endswith(said)
    mixed = tuple(random.Random(1).sample([1.5] * 24 + [1.6] * 26, 50))
    assert judge(on_cpu(*STEADY), on_cpu(1.6, samples_ms=mixed)).verdict is Verdict.SLOW


@pytest.mark.parametrize("clock", ["cuda", "cpu"])
def test_of_a_baseline_that_trends_the_last_runs_count(clock: str) -> None:
    chance = random.Random(1)
    medians = [1.01**place * (1 + chance.gauss(0.0, 0.003)) for place in range(20)]
    make = on_cpu if clock == "cpu" else lambda *medians: [run(median) for median in medians]
    found = judge(make(*medians), make(1.3 * 1.01**20))
    assert (found.verdict, found.runs) == (Verdict.SLOW, 5)
    (warning,) = [text for text in found.warnings if "trends" in text]
    assert warning.startswith("the baseline trends: each of its 20 runs takes 1.0 % more time than")
    assert warning.endswith("the last 5 are compared with")
    assert judge(make(*medians), make(1.01**20)).verdict is not Verdict.SLOW


def test_runs_without_a_trend_all_count() -> None:
    chance = random.Random(1)
    for _ in range(50):
        medians = [1 + chance.gauss(0.0, 0.01) for _ in range(20)]
        assert judge([run(median) for median in medians], [run(1.0)]).runs == 20


@pytest.mark.parametrize("median", [2.0, 0.5, 0.3])
@pytest.mark.parametrize("count", [19, 20, 40])
def test_equal_runs_have_no_trend(median: float, count: int) -> None:
    assert judge([run(median)] * count, [run(median)]).runs == count
