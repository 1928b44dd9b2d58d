"""Verdicts: what is called slower, what is not, and what the sentence says."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof import BenchResult, Verdict, compare, history
from gpuprof._results.paired_verdict import judge_paired
from gpuprof._results.statistics import holm, mann_whitney, sign_test
from gpuprof._results.verdict import confirm, judge, judge_all, may_be_slow
from gpuprof.results import Decision

H200 = {"gpu": "NVIDIA H200", "sms": 132, "cpu": "Some CPU", "driver": "580.1", "torch": "2.9"}


def run(
    median: float = 1.0, *, count: int = 50, spread: float = 0.005, **facts: Any
) -> BenchResult:
    """Return samples at the quantiles of a normal distribution with exactly this median."""
    steps = [(2 * place + 1) / (2 * count) for place in range(count)]
    samples = [median * (1 + spread * _normal(step)) for step in steps]
    random.Random(count).shuffle(samples)
    fields = {"mode": "graph", "clock": "cuda", "l2": "hot", "machine": H200} | facts
    fields.setdefault("samples_ms", tuple(samples))
    return BenchResult(name="x", requested_mode="auto", **fields)


def _normal(step: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf(step)


def runs(*medians: float, **facts: Any) -> list[BenchResult]:
    return [run(median, **facts) for median in medians]


QUIET = runs(1.0, 1.002, 0.998, 1.001, 0.999)


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.12, Verdict.SLOW),
        (1.06, Verdict.SLOW),
        (1.048, Verdict.AMBIGUOUS),
        (1.04, Verdict.SAME),
        (1.0, Verdict.SAME),
        (0.98, Verdict.SAME),
        (0.96, Verdict.SAME),
        (0.953, Verdict.AMBIGUOUS),
        (0.94, Verdict.FAST),
    ],
)
def test_a_change_is_judged_by_the_threshold_where_the_runs_agree(
    ratio: float, verdict: Verdict
) -> None:
    found = judge(QUIET, runs(ratio))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(ratio)
    assert found.floor == 0.05
    assert (found.base, found.new) == pytest.approx((1.0, ratio))
    assert found.interval is not None
    assert found.interval[0] < ratio < found.interval[1]
    assert found.runs == 5


def test_few_baseline_runs_double_the_threshold_and_one_is_warned_of() -> None:
    found = judge(runs(1.0, 1.0, 1.0, 1.0), runs(1.08))
    assert (found.verdict, found.floor) == (Verdict.SAME, 0.10)
    assert found.warnings == ()
    alone = judge(runs(1.0), runs(1.15))
    assert alone.verdict is Verdict.SLOW
    assert "save 5 or more" in alone.warnings[0]


def test_the_callers_threshold_replaces_both() -> None:
    assert judge(QUIET, runs(1.03), threshold=0.02).verdict is Verdict.SLOW
    assert judge(QUIET[:4], runs(1.03), threshold=0.02).verdict is Verdict.SLOW
    assert judge(QUIET, runs(1.12), threshold=0.3).verdict is Verdict.SAME


def test_no_samples_show_that_nothing_at_all_changed() -> None:
    assert judge(runs(1.0), runs(1.0), threshold=0.0).verdict is Verdict.AMBIGUOUS
    exact = [run(samples_ms=(1.0,) * 30)]
    assert judge(exact, exact, threshold=0.0).verdict is Verdict.SAME


def test_runs_that_differ_raise_the_floor() -> None:
    noisy = runs(1.0, 1.05, 0.96, 1.04, 0.97)
    found = judge(noisy, runs(1.12))
    assert found.verdict is Verdict.AMBIGUOUS
    assert found.floor == pytest.approx(0.188, abs=0.005)
    assert "4.3 standard deviations of 5 baseline runs" in found.rule
    assert found.rule.endswith("; 4.2 % more to 19.4 % more time is possible")
    assert "noisy" in found.warnings[0]


def test_one_slow_run_of_the_baseline_hides_no_change_but_one_to_its_own_level() -> None:
    created = "2026-11-26T09:00:00+00:00"
    base = [*runs(*[1.0] * 19), run(1.5, created=created)]
    found = judge(base, runs(1.12), baseline="main")
    assert (found.verdict, found.floor, found.runs) == (Verdict.SLOW, 0.05, 19)
    assert found.warnings == (
        "a run of the baseline is left out, which takes 50.0 % more time than the others: "
        f"`gpuprof drop main {created}` removes it",
    )
    again = judge(base, runs(1.49))
    assert again.verdict is Verdict.AMBIGUOUS
    assert "the run of the baseline that is left out took as long" in again.rule
    assert judge(base, runs(1.6)).verdict is Verdict.SLOW
    # Two such runs are no accident.
    twice = judge([*base, run(1.5)], runs(1.3))
    assert twice.verdict is Verdict.AMBIGUOUS
    assert "the slowest of 21 baseline runs" in twice.rule


def test_each_of_a_few_new_runs_has_to_be_slower() -> None:
    noisy = runs(1.0, 1.03, 0.98, 1.02, 0.97)
    assert judge(noisy, runs(1.08)).verdict is Verdict.AMBIGUOUS
    three = judge(noisy, runs(1.08, 1.07, 1.09))
    assert three.verdict is Verdict.SLOW
    assert three.floor == 0.05
    assert (judge(noisy, runs(1.08)).floor or 0.0) > 0.1
    assert judge(noisy, runs(1.08, 1.01, 1.09)).verdict is Verdict.AMBIGUOUS
    assert may_be_slow(noisy, runs(1.08))
    assert not may_be_slow(noisy, runs(1.08, 1.01))


@pytest.mark.parametrize("ratio", [0.93, 1.0, 1.07])
def test_same_means_that_the_interval_is_within_the_threshold(ratio: float) -> None:
    # With so wide a floor a change of more than the threshold may hide.
    found = judge(runs(1.0, 1.9, 0.6, 1.5, 0.8), runs(ratio))
    assert found.verdict is Verdict.AMBIGUOUS
    assert "is possible" in found.rule


def test_the_floor_is_two_ticks_where_the_clock_is_coarse() -> None:
    coarse = runs(1.0, 1.0, 1.0, 1.0, 1.0, tick_ms=0.1)
    found = judge(coarse, runs(1.15, tick_ms=0.1))
    assert (found.verdict, found.floor) == (Verdict.AMBIGUOUS, pytest.approx(0.2))
    assert "2 ticks" in found.rule
    assert judge(coarse, runs(1.25, tick_ms=0.1)).verdict is Verdict.SLOW


def test_samples_that_overlap_veto_a_change_of_the_medians() -> None:
    wild = runs(1.0, 1.0, 1.0, 1.0, 1.0, spread=0.6, count=30)
    found = judge(wild, runs(1.08, spread=0.6, count=30))
    assert found.verdict is Verdict.AMBIGUOUS
    assert found.p_value is not None
    assert found.p_value > 0.01
    assert "Mann-Whitney" in found.rule


def test_the_veto_is_stricter_with_more_comparisons() -> None:
    base, new = runs(1.0, 1.0, 1.0, 1.0, 1.0, spread=0.1), runs(1.09, spread=0.1)
    alone = judge(base, new)
    assert alone.verdict is Verdict.SLOW
    assert alone.p_value is not None
    assert 1e-8 < alone.p_value < 0.01
    assert judge(base, new, comparisons=1_000_000).verdict is Verdict.AMBIGUOUS


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"machine": H200 | {"gpu": "NVIDIA A100"}}, "another GPU: NVIDIA H200, not NVIDIA A100"),
        ({"machine": H200 | {"sms": 16}}, "another number of SMs: 132, not 16"),
        ({"mode": "batched"}, "another mode: graph, not batched"),
        ({"l2": "rotated"}, "another L2 state: hot, not rotated"),
        ({"clock": "host"}, "another clock: cuda, not host"),
    ],
)
def test_what_was_measured_otherwise_is_incomparable(change: dict[str, Any], says: str) -> None:
    found = judge(QUIET, runs(2.0, **change))
    assert found.verdict is Verdict.INCOMPARABLE
    assert says in found.rule
    assert found.ratio is None


def test_on_the_cpu_clock_the_cpu_decides_and_the_gpu_beside_it_does_not() -> None:
    facts = {"clock": "cpu", "mode": "cpu", "l2": "n/a"}
    base = runs(1.0, **facts)
    beside = runs(1.0, machine=H200 | {"gpu": None}, **facts)
    other = runs(1.0, machine=H200 | {"cpu": "Another CPU"}, **facts)
    assert judge(base, beside).verdict is Verdict.SAME
    assert judge(base, other).verdict is Verdict.INCOMPARABLE


def test_baseline_runs_that_do_not_fit_are_left_out_and_said() -> None:
    base = [*runs(3.0, 3.0, mode="batched"), *runs(1.0, 1.0, 1.0)]
    found = judge(base, runs(1.0))
    assert (found.verdict, found.runs) == (Verdict.SAME, 3)
    assert "2 of 5 baseline runs left out: the baseline has another mode" in found.warnings[0]


def test_new_runs_of_several_kinds_cannot_be_taken_together() -> None:
    found = judge(QUIET, [run(1.0, mode="batched"), run(1.0)])
    assert found.verdict is Verdict.INCOMPARABLE
    assert "taken together" in found.rule


def test_too_few_samples_are_no_data() -> None:
    assert judge([], runs(1.0)).verdict is Verdict.NODATA
    assert judge(QUIET, []).verdict is Verdict.NODATA
    short = judge(QUIET, runs(2.0, count=29))
    assert short.verdict is Verdict.NODATA
    assert short.rule == "the new run has 29 samples; a verdict needs 30"
    assert judge(runs(1.0, count=10), runs(2.0)).verdict is Verdict.NODATA
    mixed = judge([run(9.0, count=3), *QUIET], runs(1.0))
    assert (mixed.verdict, mixed.runs) == (Verdict.SAME, 5)
    assert "fewer than 30 samples" in mixed.warnings[0]


def test_a_median_that_is_not_above_zero_is_no_data() -> None:
    found = judge(QUIET, [run(samples_ms=(0.0,) * 40)])
    assert found.verdict is Verdict.NODATA
    assert "not above 0" in found.rule


def test_a_change_that_vanishes_in_clock_cycles_is_the_clock() -> None:
    base = runs(1.0, 1.0, 1.0, 1.0, 1.0, clock_mhz=(1980.0,) * 50)
    found = judge(base, runs(1.2, clock_mhz=(1650.0,) * 50))
    assert found.verdict is Verdict.AMBIGUOUS
    assert found.rule.startswith("clock: takes 20.0 % more time but 0.0 % ")
    assert "1,650 MHz in place of 1,980 MHz" in found.rule
    assert judge(base, runs(1.2, clock_mhz=(1980.0,) * 50)).verdict is Verdict.SLOW
    assert judge(base, runs(1.2)).verdict is Verdict.SLOW, "no clock was recorded"
    assert judge(base, runs(1.2, clock_mhz=(0.0,) * 50)).verdict is Verdict.SLOW


def test_another_python_numpy_or_gpuprof_is_warned_of() -> None:
    before = {"python": "3.11.9", "numpy": "2.1.0", "gpuprof": "0.1.0"}
    after = {"python": "3.12.1", "numpy": "2.2.0", "gpuprof": "0.2.0"}
    found = judge(runs(*[1.0] * 5, machine=H200 | before), runs(1.0, machine=H200 | after))
    assert found.warnings == (
        "numpy changed: 2.1.0 in the baseline, now 2.2.0",
        "python changed: 3.11.9 in the baseline, now 3.12.1",
        "gpuprof changed: 0.1.0 in the baseline, now 0.2.0",
    )
    # A baseline that is older than the field says nothing of it.
    assert judge(QUIET, runs(1.0, machine=H200 | after)).warnings == ()


@pytest.mark.parametrize("place", [0, 4, 5])
def test_samples_of_far_fewer_calls_in_any_run_are_warned_of(place: int) -> None:
    calls = [2048, 1024, 1024, 2048, 1024, 1024]
    measured = [run(calls_per_sample=each) for each in calls]
    assert judge(measured[:5], measured[5:]).warnings == ()
    measured[place] = run(calls_per_sample=1)
    (warning,) = judge(measured[:5], measured[5:]).warnings
    assert warning.startswith("samples have 1 to 2,048 calls in these runs")


def test_what_else_changed_is_warned_of() -> None:
    found = judge(
        QUIET,
        runs(
            1.0,
            machine=H200 | {"driver": "590.2", "torch": None},
            gate="gated",
            throttle_reasons=("power cap",),
        ),
    )
    assert found.verdict is Verdict.SAME
    assert found.warnings == (
        "driver changed: 580.1 in the baseline, now 590.2",
        "torch changed: 2.9 in the baseline, now none",
        "the baseline was measured n/a, the new run gated",
        "the GPU lowered its clocks in the new run: power cap",
    )


@pytest.mark.parametrize(
    ("threshold", "example"),
    [
        *((each, "") for each in (-0.1, math.nan, math.inf, True, "5%")),
        *((each, rf" \({each / 100:g} for {each:g} %\)") for each in (5, 1.5, 100.0)),
    ],
)
def test_a_threshold_that_is_no_fraction_is_refused(threshold: Any, example: str) -> None:
    said = rf"^threshold: expected a fraction .*, such as 0\.05 for 5 %{example}, got "
    with pytest.raises((TypeError, ValueError), match=said):
        history(threshold=threshold)
    with pytest.raises((TypeError, ValueError), match=said):
        compare({"a": int, "b": int}, threshold=threshold)


def test_the_interval_is_the_students_one_of_the_runs() -> None:
    # The samples spread further, and are so many that a run's own interval is narrower.
    found = judge(runs(1.0, 1.01, 0.99, spread=0.05, count=400), runs(1.0, spread=0.05, count=400))
    spread = 0.01  # of the logarithms, nearly
    half = 4.3027 * spread * math.sqrt(1 / 3 + 1)
    assert found.interval == pytest.approx((math.exp(-half), math.exp(half)), rel=1e-4)


SAMPLES = st.lists(st.floats(1e-3, 1e3), min_size=30, max_size=40)


@settings(deadline=None, derandomize=True, max_examples=60)
@given(st.lists(SAMPLES, min_size=1, max_size=6), st.lists(SAMPLES, min_size=1, max_size=3))
def test_an_interval_holds_the_ratio_and_is_among_those_of_single_samples(
    old: list[list[float]], now: list[list[float]]
) -> None:
    base, new = ([run(samples_ms=tuple(each)) for each in side] for side in (old, now))
    least, most = min(map(min, now)) / max(map(max, old)), max(map(max, now)) / min(map(min, old))
    for found in (judge(base, new), judge_paired(old[0][:30], now[0][:30])):
        assert found.interval is not None
        assert found.ratio is not None
        low, high = found.interval
        assert least * (1 - 1e-9) <= low <= found.ratio * (1 + 1e-9)
        assert found.ratio * (1 - 1e-9) <= high <= most * (1 + 1e-9)


def test_an_interval_takes_the_long_side_of_each_run_the_other_way_round() -> None:
    # The median is exactly 1; a few samples are ten times as long, and none is much shorter.
    skewed = (*[1.0] * 16, *[10.0] * 14)
    plain = run(samples_ms=(1.0,) * 30)
    assert judge([run(samples_ms=skewed)], [plain]).interval == pytest.approx((0.1, 1.0))
    assert judge([plain], [run(samples_ms=skewed)]).interval == pytest.approx((1.0, 10.0))


def test_a_baseline_that_may_take_no_time_gives_no_interval() -> None:
    base = run(samples_ms=(*[0.0] * 14, *[1.0] * 16))
    found = judge([base], runs(1.0))
    assert (found.ratio, found.interval) == (1.0, None)


def test_times_at_the_ends_of_what_a_float_holds_are_judged() -> None:
    tiny = [run(samples_ms=(value,) * 30) for value in (1e-300, 1e12, 1e-300)]
    found = judge(tiny, [run(samples_ms=(1e12,) * 30, tick_ms=1e12)])
    assert found.verdict in set(Verdict)
    json.dumps(found.to_dict(), allow_nan=False)


@pytest.mark.parametrize("same_process", [False, True])
def test_a_second_measurement_must_be_slow_too(same_process: bool) -> None:
    decide = partial(confirm, QUIET, same_process=same_process)
    assert decide(runs(1.12, 1.10)).verdict is Verdict.SLOW
    withdrawn = decide(runs(1.12, 1.01))
    assert withdrawn.verdict is Verdict.AMBIGUOUS
    assert withdrawn.rule.startswith(
        "measured 2 times, it takes 12.0 % more, 1.0 % more time: not all above the noise floor of "
        "5.0 %"
    )
    assert decide(runs(1.12)) == judge(QUIET, runs(1.12))


def test_measurements_of_one_process_have_to_be_slow_each_by_itself() -> None:
    noisy, new = runs(1.0, 1.03, 0.98, 1.02, 0.97), runs(1.08, 1.08, 1.08)
    assert confirm(noisy, new).verdict is Verdict.SLOW
    assert confirm(noisy, new, same_process=True).verdict is Verdict.AMBIGUOUS


def test_many_are_judged_together_with_holms_correction() -> None:
    base, new = runs(1.0, 1.0, 1.0, 1.0, 1.0, spread=0.06), runs(1.055, spread=0.06, count=30)
    assert judge_all({"x": (base, new)})["x"].verdict is Verdict.SLOW
    others = {f"other {place}": (QUIET, runs(1.0)) for place in range(1000)}
    found = judge_all({"x": (base, new), "clear": (QUIET, runs(1.2)), "new": ([], new)} | others)
    assert found["x"].verdict is Verdict.AMBIGUOUS
    assert "corrected for 1002 comparisons" in found["x"].rule
    assert found["clear"].verdict is Verdict.SLOW
    assert found["new"].verdict is Verdict.NODATA


def _rounds(ratio: float, count: int = 30) -> tuple[list[float], list[float]]:
    noise = random.Random(7)
    drift = [1 + 0.05 * math.sin(place) for place in range(count)]
    base = [each * noise.gauss(1, 0.003) for each in drift]
    new = [ratio * each * noise.gauss(1, 0.003) for each in drift]
    return base, new


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.05, Verdict.SLOW),
        (1.01, Verdict.AMBIGUOUS),
        (1.0, Verdict.SAME),
        (0.99, Verdict.AMBIGUOUS),
        (0.95, Verdict.FAST),
    ],
)
def test_rounds_are_judged_by_the_interval_of_their_ratios(ratio: float, verdict: Verdict) -> None:
    found = judge_paired(*_rounds(ratio))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(ratio, abs=0.003)
    assert found.interval is not None
    assert found.interval[0] < found.ratio < found.interval[1]
    assert found.runs == 30


def test_rounds_know_the_tick_of_the_clock() -> None:
    base, new = _rounds(1.05)
    found = judge_paired(base, new, tick=0.04)
    assert (found.verdict, found.floor) == (Verdict.AMBIGUOUS, pytest.approx(0.08, rel=0.1))
    assert judge_paired([1.0] * 30, [1.05] * 30).interval == pytest.approx((1.05, 1.05))
    low, high = judge_paired([1.0] * 30, [1.0] * 30, tick=0.01).interval or (1, 1)
    assert (low, high) == pytest.approx((0.98, 1.02), abs=1e-3)


def test_too_few_rounds_or_times_of_zero_are_no_data() -> None:
    assert judge_paired([1.0] * 5, [2.0] * 5).verdict is Verdict.NODATA
    assert judge_paired([1.0] * 6, [2.0] * 6).verdict is Verdict.SLOW
    assert judge_paired([0.0, *[1.0] * 9], [1.0] * 10).verdict is Verdict.NODATA


def test_a_lower_confidence_narrows_the_interval_of_rounds() -> None:
    wide, narrow = (judge_paired(*_rounds(1.0), confidence=each) for each in (0.99, 0.5))
    assert wide.interval is not None
    assert narrow.interval is not None
    assert wide.interval[0] < narrow.interval[0] < narrow.interval[1] < wide.interval[1]


def test_a_decision_comes_back_from_its_plain_form() -> None:
    for found in (judge(QUIET, runs(1.2)), judge([], []), judge_paired(*_rounds(1.05))):
        data = json.loads(json.dumps(found.to_dict(), allow_nan=False))
        assert Decision.from_dict(data) == found
    assert data["verdict"] == "slow"


@pytest.mark.parametrize(
    "change", [{"verdict": "lukewarm"}, {"extra": 1}, {"rule": None, "runs": None, "more": 2}]
)
def test_a_decision_from_something_else_is_refused(change: dict[str, Any]) -> None:
    data = judge(QUIET, runs(1.2)).to_dict() | change
    with pytest.raises(ValueError, match=r"lukewarm|extra|more"):
        Decision.from_dict(data)


def test_a_decision_is_shown_with_its_rule_and_its_notes() -> None:
    assert str(judge(runs(1.0), runs(1.2))).splitlines() == [
        "SLOW: takes 20.0 % more time: more than the noise floor of 10.0 % (the threshold with 1 "
        "baseline run)",
        "note: one baseline run tells nothing of drift between runs; save 5 or more",
    ]


def test_the_mann_whitney_test_is_that_of_scipy() -> None:
    from scipy import stats

    noise = random.Random(3)

    def draw(count: int, shift: float, digits: int) -> list[float]:
        return [round(noise.gauss(shift, 1.0), digits) for _ in range(count)]

    cases: list[tuple[Sequence[float], Sequence[float]]] = [
        (draw(40, 0.0, 9), draw(30, 0.4, 9)),
        (draw(250, 0.0, 1), draw(50, 0.3, 1)),  # many ties
        (draw(100, 0.0, 0), draw(100, 0.0, 0)),
        (draw(30, 0.0, 9), draw(30, 9.0, 9)),
    ]
    for base, new in cases:
        expected = stats.mannwhitneyu(base, new, method="asymptotic").pvalue
        assert mann_whitney(base, new) == pytest.approx(expected)
        assert mann_whitney(new, base) == pytest.approx(expected)
    assert mann_whitney([1.0] * 30, [1.0] * 40) == 1.0


def test_the_sign_test_and_holms_method_give_the_textbooks_figures() -> None:
    assert sign_test([0.1] * 10) == pytest.approx(2 / 1024)
    assert sign_test([0.1] * 8 + [-0.1] * 2) == pytest.approx(2 * 56 / 1024)
    assert sign_test([0.0] * 10) == 1.0
    assert sign_test([1.0] * 1500 + [-1.0] * 1500) == 1.0
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([]) == []
    assert holm([0.9, 0.8]) == [1.0, 1.0]


def test_rounds_that_are_alike_count_as_fewer() -> None:
    # The ratio wanders slowly about 1.02: as many independent rounds would be SLOW.
    wander = [0.02 * math.sin(place / 20) for place in range(120)]
    mixed = random.Random(1).sample(wander, len(wander))
    found = judge_paired([1.0] * 120, [1.02 + each for each in wander])
    assert found.verdict is Verdict.AMBIGUOUS
    assert "over 120 rounds, as few as " in found.rule
    assert judge_paired([1.0] * 120, [1.02 + each for each in mixed]).verdict is not found.verdict
