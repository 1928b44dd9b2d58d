"""Functions measured in turns: order, one mode for all, ratios, verdicts, how they are shown."""

from __future__ import annotations

import json
import pickle
import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, groupby
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprof import _benchmark_compare
from gpuprof._benchmark_compare import compare, order
from gpuprof._benchmark_comparison import CompareResult
from gpuprof._benchmark_result import BenchResult
from gpuprof._decision import Verdict
from tests.fake_driver.control import FakeCuda

HOSTILE = "b\x1b[31m\n\u202e|`<b>"


def noop() -> None:
    pass


def bench(name: str, samples: Sequence[float], **changes: Any) -> BenchResult:
    values = {
        "mode": "graph",
        "requested_mode": "auto",
        "clock": "cuda",
        "l2": "hot",
        "duration_s": 0.5,
    }
    return BenchResult(name=name, samples_ms=tuple(samples), **{**values, **changes})


def wavering(ms: float, rounds: int = 40) -> list[float]:
    """Samples that drift by a tenth over the rounds, as all functions of a round do."""
    return [ms * (1 + place / (10 * rounds)) * (1 + (place % 3) * 1e-4) for place in range(rounds)]


class FakeMeasurer:
    """Stands in for what prepares a function: says when it is asked, and has the times given."""

    def __init__(self) -> None:
        self.times: dict[str, Callable[[int], float]] = {}
        self.modes: dict[str, list[str]] = {}  # the first is what auto takes
        self.falls: dict[tuple[str, str], str] = {}  # what a mode asked for ends in
        self.log: list[tuple[str, str]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.open = 0

    def prepare(
        self, fn: Any, args: Any = (), kwargs: Any = None, *, name: str, **options: Any
    ) -> FakePrepared:
        assert fn is noop
        assert options.pop("rel_precision") > 1
        self.asked.append((name, {"args": args, "kwargs": kwargs, **options}))
        modes = self.modes.get(name, ["graph", "batched", "isolated"])
        wanted = options.get("mode", "auto")
        self.open += 1
        self.log.append(("open", name))
        mode = self.falls.get((name, wanted), wanted if wanted in modes else modes[0])
        return FakePrepared(self, name, mode)


class FakePrepared:
    def __init__(self, measurer: FakeMeasurer, name: str, mode: str) -> None:
        self.measurer, self.name, self.mode = measurer, name, mode
        self.clock = "cpu" if mode == "cpu" else "cuda"
        self.taken = count()

    def warm_up(self) -> None:
        self.measurer.log.append(("warm", self.name))

    def sample(self) -> float:
        self.measurer.log.append(("sample", self.name))
        return self.measurer.times.get(self.name, lambda _: 1.0)(next(self.taken))

    def result(self, samples: Sequence[float]) -> BenchResult:
        return bench("ready", samples, mode=self.mode, clock=self.clock, requested_mode="batched")

    def close(self) -> None:
        self.measurer.open -= 1
        self.measurer.log.append(("close", self.name))


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> FakeMeasurer:
    fake = FakeMeasurer()
    monkeypatch.setitem(sys.modules, "gpuprof._benchmark", SimpleNamespace(prepare=fake.prepare))
    return fake


# Measuring


def turns(log: list[tuple[str, str]]) -> list[tuple[str, int]]:
    """Return who was sampled in turn, and how many times each."""
    names = [name for what, name in log if what == "sample"]
    return [(name, len([*group])) for name, group in groupby(names)]


def test_two_functions_are_measured_in_the_order_abba(measurer: FakeMeasurer) -> None:
    compare({"a": noop, "b": noop}, rounds=4)
    # Where a turn is the same function's as the one before it, the two are one group.
    assert turns(measurer.log) == [
        ("a", 2),
        ("b", 2 + 3),
        ("a", 3),
        ("b", 2),
        ("a", 2 + 3),
        ("b", 3),
    ]


def test_the_sample_of_a_turn_is_its_last_and_has_each_order_of_the_slope_in_turns(
    measurer: FakeMeasurer,
) -> None:
    measurer.times["b"] = lambda number: float(number + 1)
    found = compare({"a": noop, "b": noop}, rounds=8)
    taken = [int(ms) - 1 for ms in found["b"].result.samples_ms]
    assert taken == [1, 4, 6, 9, 11, 14, 16, 19]
    assert sum(number % 2 for number in taken) == 4


@pytest.mark.parametrize("functions", range(2, 6))
def test_every_function_is_measured_as_often_at_each_place_of_a_round(functions: int) -> None:
    names = [str(number) for number in range(functions)]
    places: Counter[tuple[str, int]] = Counter()
    for number in range(2 * functions):
        turn = order(names, number)
        assert sorted(turn) == names
        places.update((name, place) for place, name in enumerate(turn))
    assert set(places.values()) == {2}


def test_all_are_warm_before_the_first_sample_and_closed_at_the_end(
    measurer: FakeMeasurer,
) -> None:
    compare({"a": noop, "b": noop, "c": noop}, rounds=2)
    assert measurer.log[3:6] == [("warm", "a"), ("warm", "b"), ("warm", "c")]
    assert measurer.open == 0


def test_an_exception_of_a_function_passes_and_leaves_nothing_open(measurer: FakeMeasurer) -> None:
    def fail(_: int) -> float:
        raise LookupError("the body failed")

    measurer.times["b"] = fail
    with pytest.raises(LookupError, match="the body failed") as caught:
        compare({"a": noop, "b": noop})
    assert measurer.open == 0
    if sys.version_info >= (3, 11):  # where an exception can have notes
        assert caught.value.__notes__ == ["gpuprof.compare was measuring 'b'"]


def test_arguments_and_options_reach_each_function(measurer: FakeMeasurer) -> None:
    compare({"a": noop, "b": noop}, (1,), {"k": 2}, rounds=1, cold_l2=True)
    expected = {"args": (1,), "kwargs": {"k": 2}, "cold_l2": True}
    assert measurer.asked == [("a", expected), ("b", expected)]


def test_equal_times_take_the_fewest_rounds(measurer: FakeMeasurer) -> None:
    found = compare({"a": noop, "b": noop})
    assert found.rounds == 30


def test_noisy_times_take_more_rounds_until_the_ratio_is_known(measurer: FakeMeasurer) -> None:
    measurer.times["b"] = lambda number: 1.0 + 0.03 * (number % 7 - 3) / 3
    found = compare({"a": noop, "b": noop})
    assert 30 < found.rounds < 1000
    interval = found["b"].interval
    assert interval is not None
    assert interval[1] - interval[0] <= 0.0101


def test_the_rounds_asked_for_are_measured(measurer: FakeMeasurer) -> None:
    found = compare({"a": noop, "b": noop}, rounds=7)
    assert found.rounds == 7
    assert not found.warnings


def test_a_large_difference_needs_to_be_known_less_exactly(measurer: FakeMeasurer) -> None:
    measurer.times["b"] = lambda number: 9.0 + 0.3 * (number % 7 - 3) / 3
    assert compare({"a": noop, "b": noop}).rounds == 30


def test_no_round_begins_after_the_time_is_up_and_that_is_said(
    measurer: FakeMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count()
    monkeypatch.setattr(_benchmark_compare, "monotonic", lambda: float(next(seconds)))
    found = compare({"a": noop, "b": noop}, max_time_s=20)
    assert found.rounds == 10  # of a second for each function
    assert found["a"].result.duration_s == 10.0
    assert found.warnings == ("10 of 30 rounds were measured in the 20 s of max_time_s",)


def test_the_random_state_is_put_back(
    measurer: FakeMeasurer,
) -> None:
    measurer.times["a"] = lambda _: 1.0 + random.random() * 1e-6
    before = random.getstate()
    compare({"a": noop, "b": noop})
    assert random.getstate() == before


# One mode for all


def test_where_all_take_one_mode_nothing_is_said(measurer: FakeMeasurer) -> None:
    found = compare({"a": noop, "b": noop}, rounds=1)
    assert [result.mode for result in found.results] == ["graph", "graph"]
    assert not found.warnings
    assert len(measurer.asked) == 2


def test_all_are_measured_in_the_mode_that_all_can_do(measurer: FakeMeasurer) -> None:
    measurer.modes["b"] = ["batched", "isolated"]
    found = compare({"a": noop, "b": noop, "c": noop}, rounds=1)
    assert [result.mode for result in found.results] == ["batched"] * 3
    assert found.warnings == (
        "all are measured in batched mode because of 'b'; 'a' alone would be in graph mode",
    )
    modes = [options.get("mode") for _, options in measurer.asked]
    assert modes == [None] * 3 + ["batched", None, "batched"]
    assert measurer.open == 0


def test_a_mode_further_down_is_found_step_by_step(measurer: FakeMeasurer) -> None:
    measurer.modes = {"a": ["graph", "isolated"], "b": ["batched", "isolated"]}
    measurer.falls = {("a", "batched"): "isolated"}
    found = compare({"a": noop, "b": noop}, rounds=1)
    assert [result.mode for result in found.results] == ["isolated", "isolated"]
    assert len(found.warnings) == 2


def test_functions_are_closed_in_the_reverse_order_before_they_are_prepared_again(
    measurer: FakeMeasurer,
) -> None:
    measurer.modes["b"] = ["batched"]
    compare({"a": noop, "b": noop}, rounds=1)
    opening = [entry for entry in measurer.log if entry[0] in {"open", "close"}]
    once = [("open", "a"), ("open", "b"), ("close", "b"), ("close", "a")]
    assert opening == once * 2


def test_a_function_without_gpu_work_is_incomparable_with_one_on_the_gpus_clock(
    measurer: FakeMeasurer,
) -> None:
    measurer.modes["b"] = ["cpu"]
    found = compare({"a": noop, "b": noop})
    assert found["b"].verdict is Verdict.INCOMPARABLE
    assert "clock is 'cuda' for 'a' and 'cpu' for 'b'" in str(found)


def test_the_mode_asked_for_stays_in_the_results(measurer: FakeMeasurer) -> None:
    assert compare({"a": noop, "b": noop}, rounds=1)["a"].result.requested_mode == "auto"
    found = compare({"a": noop, "b": noop}, rounds=1, mode="graph")
    assert found["a"].result.requested_mode == "graph"


# Wrong calls


@pytest.mark.parametrize(
    ("functions", "error", "text"),
    [
        ([noop, noop], TypeError, "functions is a list; expected a mapping of names to functions"),
        (noop, TypeError, "functions is a function; expected a mapping"),
        ({"a": noop, "b": 3.0}, TypeError, "'b' is a float; pass the function itself"),
        ({"a": noop, 1: noop}, TypeError, "a name is 1; expected text"),
        ({"a": noop}, ValueError, "functions has 1; expected two or more"),
        ({"": noop, "b": noop}, ValueError, "a name is empty"),
    ],
)
def test_what_is_no_mapping_of_functions_is_an_error_that_says_so(
    functions: Any, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        compare(functions)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rounds", 0),
        ("rounds", 2.5),
        ("rounds", True),
        ("threshold", 0),
        ("threshold", "1%"),
        ("max_time_s", float("inf")),
        ("max_time_s", None),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"^{name} is .*; expected "):
        compare({"a": noop, "b": noop}, **{name: value})


@pytest.mark.parametrize("name", ["name", "params", "min_samples", "rel_precision"])
def test_an_option_that_has_no_meaning_for_rounds_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} has no meaning here: the mapping has the names"):
        compare({"a": noop, "b": noop}, **{name: 1})


# What it says


def test_the_ratio_is_that_within_the_rounds_and_free_of_what_drifts() -> None:
    slow = [1.05 * ms for ms in wavering(1.0)]
    row = CompareResult([bench("a", wavering(1.0)), bench("b", slow)])["b"]
    assert row.ratio == pytest.approx(1.05)
    assert row.interval == pytest.approx((1.05, 1.05))
    assert row.verdict is Verdict.SLOW


@pytest.mark.parametrize(
    ("factor", "verdict"),
    [(1.0, Verdict.SAME), (1.03, Verdict.SLOW), (0.9, Verdict.FAST), (1.004, Verdict.SAME)],
)
def test_the_verdict_is_against_the_first_function(factor: float, verdict: Verdict) -> None:
    new = [factor * ms for ms in wavering(1.0)]
    found = CompareResult([bench("a", wavering(1.0)), bench("b", new)], threshold=0.01)
    assert found["b"].verdict is verdict
    assert (found["a"].ratio, found["a"].verdict, found.base) == (1.0, None, "a")


def test_an_interval_is_never_narrower_than_the_tick() -> None:
    base, new = (bench(name, [1.0] * 40, tick_ms=0.1) for name in "ab")
    interval = CompareResult([base, new])["b"].interval
    assert interval is not None
    assert interval[0] <= 0.9
    assert interval[1] >= 1.1


def test_several_ratios_hold_together_at_95_percent() -> None:
    results = [bench(name, wavering(1.0)) for name in "abcd"]
    assert CompareResult(results[:2]).confidence == pytest.approx(0.95)
    assert CompareResult(results).confidence == pytest.approx(1 - 0.05 / 3)
    assert "hold at 95 % together" in str(CompareResult(results))


def test_too_few_rounds_have_a_ratio_and_no_verdict() -> None:
    row = CompareResult([bench("a", [1.0] * 5), bench("b", [2.0] * 5)])["b"]
    assert (row.ratio, row.interval, row.verdict) == (2.0, None, Verdict.NODATA)


def test_a_time_that_is_not_above_0_gives_no_verdict() -> None:
    row = CompareResult([bench("a", [0.0] * 40), bench("b", [1.0] * 40)])["b"]
    assert row.verdict is Verdict.NODATA
    assert row.to_dict()["ratio"] is None


@pytest.mark.parametrize(
    "change",
    [{"mode": "batched"}, {"clock": "cpu", "mode": "cpu", "l2": "n/a"}, {"l2": "flushed"}],
)
def test_what_was_measured_differently_is_incomparable(change: dict[str, str]) -> None:
    found = CompareResult([bench("a", wavering(1.0)), bench("b", wavering(1.0), **change)])
    assert found["b"].verdict is Verdict.INCOMPARABLE
    what = next(iter(change))  # of several the first one is told
    assert f"b: {what} is {bench('a', [1.0]).to_dict()[what]!r} for 'a'" in str(found)


def test_it_is_a_mapping_in_the_order_given() -> None:
    found = CompareResult([bench(name, wavering(1.0)) for name in ("b", "a", "c")])
    assert [*found] == ["b", "a", "c"]
    assert (len(found), "a" in found, "x" in found) == (3, True, False)
    with pytest.raises(KeyError, match="no function 'x'; there are 'b', 'a', 'c'"):
        found["x"]


def test_a_row_is_shown_as_its_median_its_ratio_and_the_verdict() -> None:
    assert repr(COMPARED["old"]) == str(COMPARED["old"].result).splitlines()[0]
    shown = repr(COMPARED["new"])
    assert shown.startswith(f"{str(COMPARED['new'].result).splitlines()[0]}; 1.050 (")
    assert shown.endswith(str(COMPARED["new"].decision))


COMPARED = CompareResult(
    [
        bench("old", wavering(1.0), warnings=("the clocks are not locked", "only old")),
        bench("new", [1.05 * ms for ms in wavering(1.0)], warnings=("the clocks are not locked",)),
    ],
    warnings=["measured in batched mode"],
)


def test_the_text_has_a_line_a_function_the_rule_and_each_warning_once() -> None:
    lines = str(COMPARED).splitlines()
    assert lines[0].split() == [
        "name",
        "median",
        "95",
        "%",
        "interval",
        "min",
        "ratio",
        "to",
        "old",
        "verdict",
    ]
    assert lines[2].startswith("old   1.05 ms")
    assert lines[3].endswith("1.050 (1.050 to 1.050)  SLOW")
    text = "\n".join(lines[4:])
    assert "graph mode, CUDA event times, L2 hot; 40 rounds in turns, 1.00 s in all" in text
    assert "new: takes 5.0 % more time" in text
    assert text.count("clocks are not locked") == 1
    assert "warning: old: only old" in text
    assert "warning: measured in batched mode" in text


def test_markdown_and_html_show_the_same_and_no_markup_of_names() -> None:
    assert COMPARED.to_markdown().splitlines()[3].endswith("| 1.050 (1.050 to 1.050) | SLOW |")
    assert "<td" in COMPARED._repr_html_()
    assert "SLOW" in COMPARED._repr_html_()
    hostile = CompareResult([bench(HOSTILE, wavering(1.0)), bench("b", wavering(1.0))])
    for text in (str(hostile), hostile.to_markdown(), hostile._repr_html_()):
        assert not {"\x1b", "\u202e"} & set(text)
    assert "<b>" not in hostile.to_markdown() + hostile._repr_html_()


def test_the_json_holds_every_row_with_its_samples() -> None:
    data = json.loads(COMPARED.to_json(), parse_constant=pytest.fail)
    assert (data["format"], data["version"], data["rounds"]) == ("gpuprof-comparison", 1, 40)
    assert [row["result"]["name"] for row in data["rows"]] == ["old", "new"]
    assert data["rows"][1]["decision"]["verdict"] == "slow"
    samples = BenchResult.from_dict(data["rows"][1]["result"]).samples_ms
    assert samples == COMPARED["new"].result.samples_ms


def test_it_comes_back_from_a_pickle() -> None:
    again = pickle.loads(pickle.dumps(COMPARED))
    assert (again.to_dict(), str(again)) == (COMPARED.to_dict(), str(COMPARED))


def test_the_plot_has_a_bar_for_each_function() -> None:
    pytest.importorskip("matplotlib")
    figure = COMPARED.plot()
    figure.draw_without_rendering()
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["old", "new (x 1.050)"]
    assert len(axes.patches) == 2


def test_functions_without_a_gpu_are_compared_on_the_cpus_clock() -> None:
    found = compare({"one": sorted, "again": sorted}, (list(range(50)),), rounds=6, warmup_s=0.001)
    assert [(result.clock, result.count) for result in found.results] == [("cpu", 6)] * 2
    assert "no GPU time was measured; 6 rounds in turns" in str(found)


def test_an_unknown_option_is_an_error() -> None:
    with pytest.raises(TypeError, match="wamup_s"):
        compare({"a": noop, "b": noop}, wamup_s=1)


# On a GPU that keeps its own time


def test_functions_on_a_gpu_are_compared_by_their_time_there(fake: FakeCuda, stream: int) -> None:
    found = compare(
        {
            "old": lambda: fake.work(stream, 5_000),
            "new": lambda: fake.work(stream, 5_150),
        },
        stream=stream,
        rounds=6,
        warmup_s=0.0,
    )
    assert [(result.mode, result.clock) for result in found.results] == [("graph", "cuda")] * 2
    assert found["old"].result.median_ms == pytest.approx(0.005, rel=1e-3)
    assert found["new"].ratio == pytest.approx(1.03, rel=5e-3)
    assert not found.warnings


def test_where_one_cannot_be_captured_both_are_batched_and_its_own_warning_says_why(
    fake: FakeCuda, stream: int
) -> None:
    def uncapturable() -> None:
        if fake.capture_status(stream):
            raise RuntimeError("not in a capture")
        fake.work(stream, 5_150)

    found = compare(
        {"old": lambda: fake.work(stream, 5_000), "new": uncapturable},
        stream=stream,
        rounds=6,
        warmup_s=0.0,
    )
    assert [result.mode for result in found.results] == ["batched", "batched"]
    assert found["new"].ratio == pytest.approx(1.03, rel=5e-3)
    assert "because of 'new'; 'old' alone would be in graph mode" in found.warnings[0]
    assert any("not in a capture" in text for text in found["new"].result.warnings)
