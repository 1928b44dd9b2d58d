"""What verdicts find, and what they leave alone, under noise of several makes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

import pytest

from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.level import LOWER, interval_ms, main_state
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import runs_test
from gpuprof._results.verdict import confirm, judge
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
    """Return the share of new runs that are SLOW, or of a `ratio` below 1 FAST, when confirmed."""
    chance = random.Random(11)
    looked_for, found = Verdict.SLOW if ratio >= 1.0 else Verdict.FAST, 0
    for _ in range(trials):
        base = [of(noise(chance)) for _ in range(runs)]
        first, again = (of([ratio * each for each in noise(chance)]) for _ in range(2))
        decision = judge(base, [first])
        if decision.verdict is looked_for:
            decision = confirm(base, first, again)
        found += decision.verdict is looked_for
    return found / trials


def test_10_percent_are_found_where_a_tenth_of_the_samples_is_in_a_second_mode() -> None:
    assert slow_share(two_modes, 1.1, 20, 10) >= 0.8
    assert slow_share(two_modes, 1.1, 5, 20) >= 0.8
    assert slow_share(two_modes, 1.0, 5, 30) == 0.0
    assert slow_share(two_modes, 1 / 1.1, 20, 10) >= 0.6


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


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.7, 1.0])
def test_no_share_of_the_second_mode_is_a_change(share: float) -> None:
    assert judged(JUMPING, share, 1.0).verdict in {Verdict.SAME, Verdict.AMBIGUOUS}


def test_of_fewer_than_five_runs_the_medians_alone_decide() -> None:
    assert judged(JUMPING[:4], 0.1, 1.1).verdict is Verdict.SAME


def test_a_lower_decile_of_zero_is_not_compared() -> None:
    base = [of([0.0] * 8 + [1.0] * 42), *JUMPING]
    assert judged(base, 0.1, 1.1).verdict is Verdict.SAME


def test_a_state_of_the_baseline_is_no_change_even_for_a_whole_run() -> None:
    mostly_fast = moded(*[0.4] * 5)
    found = judged(mostly_fast, 1.0, 1.0)
    assert found.verdict is Verdict.AMBIGUOUS
    assert "a state that runs of the baseline were in" in found.rule
    # What is beyond that state is a change, and so is what lies between the two.
    assert judged(mostly_fast, 1.0, 1.25).verdict is Verdict.SLOW
    assert judged(mostly_fast, 0.3, 1.12).verdict is Verdict.SLOW


def test_a_broad_distribution_has_no_states() -> None:
    broad = [run(spread=0.04) for _ in range(5)]
    assert judge(broad, [run(1.07, spread=0.04)]).verdict is Verdict.SLOW


def test_a_run_that_changed_while_it_was_measured_is_ambiguous() -> None:
    base = moded(*[0.0] * 5)
    steady = moded(0.0)[0].samples_ms
    samples = [each * (1.0 if place < 5 else 1.1) for place, each in enumerate(steady)]
    found = judge(base, [of(samples)])
    assert found.verdict is Verdict.AMBIGUOUS
    assert "changed while it was measured" in found.rule
    # The same samples in random order are a mode, not a change.
    mixed = random.Random(5).sample(samples, len(samples))
    assert judge(base, [of(mixed)]).verdict is Verdict.SLOW


def test_a_speed_up_is_confirmed_as_a_slow_down_is() -> None:
    base = moded(*[0.0] * 5)
    fast, same = slower(moded(0.0)[0], 0.85), moded(0.0)[0]
    assert confirm(base, fast, fast).verdict is Verdict.FAST
    assert confirm(base, fast, same).verdict is Verdict.AMBIGUOUS
    assert confirm(base, slower(same, 1.2), fast).verdict is Verdict.AMBIGUOUS


def test_runs_in_a_rarer_state_are_told_from_an_outlier() -> None:
    runs = moded(*[0.0] * 8, 1.0, 1.0)
    assert main_state(runs, 0.05) == runs[:8]
    assert main_state(runs[:9], 0.05) == runs[:9]  # one run may be an outlier
    # Another run that was there for a part of its samples makes it a state.
    assert main_state([*runs[:9], *moded(0.4)], 0.05) == [*runs[:8], *moded(0.4)]
    assert main_state(runs[4:], 0.05) == runs[4:8]
    assert main_state(runs[6:], 0.05) == runs[6:]  # half and half: none is the main one
    assert main_state(runs, 0.5) == runs


def test_the_interval_of_the_lower_decile_holds_it_in_95_of_100_runs() -> None:
    chance = random.Random(1)
    true = math.exp(-1.2815515655 * 0.1)
    held = 0
    for _ in range(300):
        low, high = interval_ms(of([math.exp(chance.gauss(0.0, 0.1)) for _ in range(60)]), LOWER)
        held += low <= true <= high
    assert 0.93 <= held / 300 <= 1.0


def test_the_runs_test_gives_the_chances_of_counting() -> None:
    # Of the 6 orders of two and two, 2 have two runs, 2 have three, and 2 have four.
    assert runs_test([True, True, False, False]) == pytest.approx(2 / 6)
    assert runs_test([True, False, False, True]) == pytest.approx(4 / 6)
    assert runs_test([True, False, True, False]) == pytest.approx(1.0)
    assert runs_test([True] * 5) == runs_test([]) == 1.0
