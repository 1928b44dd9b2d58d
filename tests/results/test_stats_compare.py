"""Verdicts on saved statistics: medians of summaries, with a floor that is wide on purpose."""

from __future__ import annotations

import dataclasses
import math

import pytest

from gpuprof._results.decision import Decision, Verdict
from gpuprof._results.stats_compare import judge_stats
from gpuprof._timing.stats import Row, Stats, Summary


def summary(p50: float, *, p90: float | None = None, count: int = 1000) -> Summary:
    p90 = p50 * 1.01 if p90 is None else p90
    return Summary(count, p50 * count, p50, p50, p50, p90, p90, p90, p50)


def row(
    path: str, p50: float, *, p90: float | None = None, count: int = 1000, clock: str = "cuda"
) -> Row:
    times = summary(p50, p90=p90, count=count)
    return Row(path, clock, times if clock == "cuda" else None, times)


def decide(old: Row, new: Row, threshold: float | None = None) -> Decision:
    (decision,) = judge_stats(Stats([old]), Stats([new]), threshold=threshold).values()
    return decision


@pytest.mark.parametrize(
    ("ratio", "verdict"),
    [
        (1.15, Verdict.SLOW),
        (1.07, Verdict.AMBIGUOUS),
        (1.04, Verdict.SAME),
        (1.0, Verdict.SAME),
        (0.97, Verdict.SAME),
        (0.93, Verdict.AMBIGUOUS),
        (0.85, Verdict.FAST),
    ],
)
def test_the_medians_decide_beyond_ten_percent(ratio: float, verdict: Verdict) -> None:
    found = decide(row("a", 1.0), row("a", ratio))
    assert found.verdict is verdict
    assert found.ratio == pytest.approx(ratio)
    assert (found.base_ms, found.new_ms) == (1.0, ratio)
    assert found.floor == pytest.approx(0.10)
    assert found.interval is not None
    assert found.interval[0] < ratio < found.interval[1]


def test_another_threshold_can_be_asked_for() -> None:
    assert decide(row("a", 1.0), row("a", 1.07), 0.05).verdict is Verdict.SLOW
    assert decide(row("a", 1.0), row("a", 1.15), 0.5).verdict is Verdict.SAME


def test_host_time_has_a_floor_of_twenty_percent() -> None:
    old, new = (row("a", ms, clock="cpu") for ms in (1.0, 1.15))
    found = decide(old, new, 0.05)
    assert found.floor == pytest.approx(0.20)
    assert found.verdict is Verdict.AMBIGUOUS


def test_a_smaller_threshold_on_the_host_clock_is_said_not_to_hold() -> None:
    old, new = (row("a", ms, clock="cpu") for ms in (1.0, 1.15))
    (warning,) = decide(old, new, threshold=0.05).warnings
    assert warning.startswith("the threshold of 5.0 % is not kept to on the CPU clock, where 20.0 ")
    assert not decide(row("a", 1.0), row("a", 1.15), threshold=0.05).warnings
    with pytest.raises(ValueError, match=r"^threshold is 5; .*: for 5 % write 0\.05"):
        judge_stats(Stats([old]), Stats([new]), threshold=5)


def test_what_the_clock_cannot_resolve_is_no_change() -> None:
    found = decide(row("a", 0.004), row("a", 0.005))
    assert found.floor == pytest.approx(0.5)
    assert found.verdict is not Verdict.SLOW


def test_a_wide_spread_of_few_samples_raises_the_floor() -> None:
    noisy = decide(row("a", 1.0, p90=1.6, count=40), row("a", 1.15, p90=1.8, count=40))
    steady = decide(row("a", 1.0, p90=1.6, count=40_000), row("a", 1.15, p90=1.8, count=40_000))
    assert noisy.floor is not None
    assert noisy.floor > 0.15
    assert noisy.verdict is not Verdict.SLOW
    assert steady.verdict is Verdict.SLOW


def test_more_rows_need_more_certainty() -> None:
    old, new = (row("a", ms, p90=1.3 * ms, count=1000) for ms in (1.0, 1.15))
    others = [row(f"b{place}", 1.0) for place in range(50)]
    alone = decide(old, new, 0.0)
    among = judge_stats(Stats([old, *others]), Stats([new, *others]), threshold=0.0)[("a",), "cuda"]
    assert alone.floor is not None
    assert among.floor is not None
    assert among.floor > 1.3 * alone.floor


def test_a_median_that_moved_alone_is_another_mix_of_calls() -> None:
    found = decide(row("a", 1.0, p90=1.5, count=10_000), row("a", 1.3, p90=1.5, count=10_000))
    assert found.verdict is Verdict.AMBIGUOUS
    assert "mix of calls" in found.rule


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        (row("a", 1.0, count=29), row("a", 2.0), "the baseline has 29 samples"),
        (row("a", 1.0), row("a", 2.0, count=3), "the new side has 3 samples"),
        (row("a", 0.0), row("a", 2.0), "no usable median"),
        (row("a", -1.0), row("a", 2.0), "no usable median"),
        (row("a", 1.0), row("a", math.nan), "no usable median"),
        (row("a", 1.0), row("a", math.inf), "no usable median"),
        (row("a", 1.0), row("a", 2.0, p90=1.5), "no usable median"),
    ],
)
def test_without_enough_samples_or_sense_there_is_no_verdict(old: Row, new: Row, text: str) -> None:
    found = decide(old, new)
    assert found.verdict is Verdict.NODATA
    assert text in found.rule


def test_another_clock_is_not_compared() -> None:
    found = decide(row("a", 1.0), row("a", 9.0, clock="cpu"))
    assert found.verdict is Verdict.INCOMPARABLE
    assert "cuda" in found.rule
    assert "cpu" in found.rule


def test_each_clock_is_compared_with_its_own() -> None:
    found = judge_stats(
        Stats([row("a", 1.0), row("a", 1.0, clock="cpu")]),
        Stats([row("a", 2.0), row("a", 1.0, clock="cpu")]),
    )
    assert {clock: decision.verdict for (_, clock), decision in found.items()} == {
        "cuda": Verdict.SLOW,
        "cpu": Verdict.SAME,
    }


def test_paths_that_read_the_same_are_compared_each_with_its_own() -> None:
    def side(flat: float, nested: float) -> Stats:
        named = dataclasses.replace(row("a/b", flat), names=("a/b",))
        return Stats([named, row("a/b", nested)])

    found = judge_stats(side(1.0, 1.0), side(2.0, 1.0))
    assert {names: decision.verdict for (names, _), decision in found.items()} == {
        ("a/b",): Verdict.SLOW,
        ("a", "b"): Verdict.SAME,
    }
    only_flat = Stats([dataclasses.replace(row("a/b", 1.0), names=("a/b",))])
    assert judge_stats(only_flat, Stats([row("a/b", 9.0)])) == {}


def test_paths_of_one_side_are_left_out() -> None:
    assert judge_stats(Stats([row("a", 1.0)]), Stats([row("b", 1.0)])) == {}


def test_lost_samples_are_told() -> None:
    times = summary(1.0)
    found = decide(Row("a", "cuda", times, times, dropped=3, failed=1), row("a", 1.0))
    assert found.warnings == ("4 samples of the base side were dropped or failed",)
