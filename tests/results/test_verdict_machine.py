"""Verdicts on the CPU's clock: its floor, what the machine did, and baselines that trend."""

from __future__ import annotations

import random
from typing import Any

import pytest

from gpuprof._results.decision import Verdict
from gpuprof._results.result import BenchResult
from gpuprof._results.verdict import judge
from tests.results.test_verdict import run

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


def test_on_the_cpu_clock_the_floor_is_a_fifth() -> None:
    base = on_cpu(*STEADY)
    found = judge(base, on_cpu(1.15))
    assert (found.verdict, found.floor) == (Verdict.AMBIGUOUS, 0.20)
    assert "the least on the CPU clock" in found.rule
    assert judge(base, on_cpu(1.25)).verdict is Verdict.SLOW
    assert judge(base, on_cpu(1.25), threshold=0.6).verdict is Verdict.SAME


def test_a_smaller_threshold_is_kept_to_where_the_runs_carry_it() -> None:
    found = judge(on_cpu(*STEADY), on_cpu(1.07), threshold=0.05)
    assert (found.verdict, found.floor) == (Verdict.SLOW, 0.05)
    assert not found.warnings


@pytest.mark.parametrize(
    ("medians", "why"),
    [
        (STEADY[:4], "there are 4 baseline runs, and it takes 5"),
        (UNSTEADY, "another run of unchanged code may differ by 11"),
    ],
)
def test_a_smaller_threshold_that_the_runs_cannot_carry_is_said(
    medians: tuple[float, ...], why: str
) -> None:
    found = judge(on_cpu(*medians), on_cpu(1.08), threshold=0.05)
    assert (found.verdict, found.floor) == (Verdict.SAME, 0.20)
    (warning,) = found.warnings
    said = "the threshold of 5.0 % is not kept to on the CPU clock, where 20.0 % is the least: "
    assert warning.startswith(said + why)


def test_few_runs_that_differ_have_a_floor_that_holds_another_run() -> None:
    assert judge(on_cpu(0.97, 1.0, 1.03), on_cpu(1.24)).verdict is Verdict.AMBIGUOUS
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


def test_runs_that_differ_only_by_what_the_machine_did_raise_no_floor() -> None:
    shares = (0.3, 0.55, 0.4, 0.6, 0.5)
    base = [
        each
        for share in shares
        for each in on_cpu(1.0 / (1.0 - share), noise={"waited": share, "off_cpu": share})
    ]
    same = on_cpu(2.5, noise={"waited": 0.6, "off_cpu": 0.6})
    assert judge(base, same).verdict is not Verdict.SLOW
    slower = judge(base, on_cpu(5.0, noise={"waited": 0.6, "off_cpu": 0.6}))
    assert slower.verdict is Verdict.SLOW
    assert slower.floor == 0.20


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


def test_code_that_suffers_half_as_much_as_the_loop_raises_no_floor() -> None:
    loops = (0.04, 0.08, 0.04, 0.08, 0.04)
    base = [
        each for loop in loops for each in on_cpu((loop / 0.04) ** 0.5, noise={"loop_ms": loop})
    ]
    slower = judge(base, on_cpu(2.0, noise={"loop_ms": 0.04}))
    assert (slower.verdict, slower.floor) == (Verdict.SLOW, 0.20)
    same = judge(base, on_cpu(2.0**0.5, noise={"loop_ms": 0.08}))
    assert same.verdict is Verdict.AMBIGUOUS
