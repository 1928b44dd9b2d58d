"""What a comparison says: ratios, verdicts, and the forms in which they are shown."""

from __future__ import annotations

import pytest

from gpuprof import CompareResult, Verdict
from tests.support.benchmark_results import bench, wavering

HOSTILE = "b\x1b[31m\n\u202e|`<b>"


def test_the_ratio_is_that_within_the_rounds_and_free_of_what_drifts() -> None:
    slow = [1.05 * ms for ms in wavering(1.0)]
    row = CompareResult.of([bench("a", wavering(1.0)), bench("b", slow)])["b"]
    assert row.ratio == pytest.approx(1.05)
    assert row.interval == pytest.approx((1.05, 1.05))
    assert row.verdict is Verdict.SLOW


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Verdict.SAME), (1.03, Verdict.SLOW), (0.9, Verdict.FAST), (1.004, Verdict.SAME)],
)
def test_the_verdict_is_against_the_first_function(factor: float, verdict: Verdict) -> None:
    new = [factor * ms for ms in wavering(1.0)]
    found = CompareResult.of([bench("a", wavering(1.0)), bench("b", new)], threshold=0.01)
    assert found["b"].verdict is verdict
    assert (found["a"].ratio, found["a"].verdict, found.base) == (1.0, None, "a")


def test_an_interval_is_never_narrower_than_the_tick() -> None:
    base, new = (bench(name, [1.0] * 40, tick_ms=0.1) for name in "ab")
    interval = CompareResult.of([base, new])["b"].interval
    assert interval is not None
    assert interval[0] <= 0.9
    assert interval[1] >= 1.1


def test_several_ratios_hold_together_at_95_percent() -> None:
    results = [bench(name, wavering(1.0)) for name in "abcd"]
    assert CompareResult.of(results[:2]).confidence == pytest.approx(0.95)
    assert CompareResult.of(results).confidence == pytest.approx(1 - 0.05 / 3)
    assert "hold at 95 % together" in str(CompareResult.of(results))


def test_too_few_rounds_have_a_ratio_and_no_verdict() -> None:
    row = CompareResult.of([bench("a", [1.0] * 5), bench("b", [2.0] * 5)])["b"]
    assert (row.ratio, row.interval, row.verdict) == (2.0, None, Verdict.NODATA)


def test_a_time_that_is_not_above_0_gives_no_verdict() -> None:
    row = CompareResult.of([bench("a", [0.0] * 40), bench("b", [1.0] * 40)])["b"]
    assert row.verdict is Verdict.NODATA
    assert row.to_dict()["ratio"] is None


@pytest.mark.parametrize(
    "change",
    [{"mode": "batched"}, {"clock": "cpu", "mode": "cpu", "l2": "n/a"}, {"l2": "flushed"}],
)
def test_what_was_measured_differently_is_incomparable(change: dict[str, str]) -> None:
    found = CompareResult.of([bench("a", wavering(1.0)), bench("b", wavering(1.0), **change)])
    assert found["b"].verdict is Verdict.INCOMPARABLE
    what = next(iter(change))  # of several the first one is told
    assert f"b: {what} is {bench('a', [1.0]).to_dict()[what]!r} for 'a'" in str(found)


def test_it_is_a_mapping_in_the_order_given() -> None:
    found = CompareResult.of([bench(name, wavering(1.0)) for name in ("b", "a", "c")])
    assert [*found] == ["b", "a", "c"]
    assert (len(found), "a" in found, "x" in found) == (3, True, False)
    with pytest.raises(KeyError, match="no function 'x'; there are 'b', 'a', 'c'"):
        found["x"]


def test_a_row_is_shown_as_its_median_its_ratio_and_the_verdict() -> None:
    assert repr(COMPARED["old"]) == str(COMPARED["old"].result).splitlines()[0]
    shown = repr(COMPARED["new"])
    assert shown.startswith(f"{str(COMPARED['new'].result).splitlines()[0]}; 1.050 (")
    assert shown.endswith(str(COMPARED["new"].decision))


COMPARED = CompareResult.of(
    [
        bench("old", wavering(1.0), warnings=("the clocks are not locked", "only old")),
        bench("new", [1.05 * ms for ms in wavering(1.0)], warnings=("the clocks are not locked",)),
    ],
    warnings=["measured in batched mode"],
)


def test_a_warning_of_several_is_said_once_and_that_of_one_with_its_name() -> None:
    text = str(COMPARED)
    assert text.count("clocks are not locked") == 1
    assert "warning: old: only old" in text


def test_a_warning_that_many_have_names_the_first_of_them() -> None:
    results = [bench("base", wavering(1.0))]
    results += [bench(f"f{place}", wavering(1.0), warnings=("odd",)) for place in range(24)]
    assert "f18, f19, and 4 more: odd" in str(CompareResult.of(results))


def test_no_form_has_control_characters_or_markup_of_names() -> None:
    hostile = CompareResult.of([bench(HOSTILE, wavering(1.0)), bench("b", wavering(1.0))])
    for text in (str(hostile), hostile.to_markdown(), hostile._repr_html_()):
        assert not {"\x1b", "\u202e"} & set(text)
    assert "<b>" not in hostile.to_markdown() + hostile._repr_html_()
