"""Functions measured in turns: order, one mode for all, ratios, verdicts, how they are shown."""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count, groupby
from typing import Any

import pytest

from gpuprof import BenchResult, CompareResult, Verdict, compare
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import bench


def noop() -> None:
    pass


class FakeMeasurer:
    """Stands in for what prepares a function: says when it is asked, and has the times given."""

    def __init__(self) -> None:
        self.times: dict[str, Callable[[int], float]] = {}
        self.modes: dict[str, list[str]] = {}  # the first is what auto takes
        self.falls: dict[tuple[str, str], str] = {}  # what a mode asked for ends in
        self.calls: dict[str, int] = {}  # in a sample, if it is left to the function
        self.most_calls: dict[str, int] = {}
        self.warm_calls: dict[str, int] = {}  # that the warm-up chooses in their place
        self.cpu_times: dict[str, Callable[[int], float]] = {}
        self.waited: dict[str, float] = {}  # the share of a sample
        self.noise: dict[str, float] = {"sleeps_per_s": 0.0}
        self.log: list[tuple[str, str]] = []
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.open = 0

    def prepare(
        self, fn: Any, args: Any = (), kwargs: Any = None, *, name: str, **options: Any
    ) -> FakeHarness:
        assert fn is noop
        assert options.pop("rel_precision") > 1
        assert options.pop("shared").is_alone
        self.asked.append((name, {"args": args, "kwargs": kwargs, **options}))
        modes = self.modes.get(name, ["graph", "batched", "isolated"])
        wanted = options.get("mode", "auto")
        self.open += 1
        self.log.append(("open", name))
        mode = self.falls.get((name, wanted), wanted if wanted in modes else modes[0])
        calls = options.get("calls", self.calls.get(name, 1))
        return FakeHarness(self, name, mode, min(calls, self.most_calls.get(name, calls)))


class FakeHarness:
    def __init__(self, measurer: FakeMeasurer, name: str, mode: str, calls: int) -> None:
        self.measurer, self.name, self.mode, self.calls = measurer, name, mode, calls
        self.clock = "cpu" if mode == "cpu" else "cuda"
        self.taken = count()
        self.cpu_ms = 0.0
        self.sampler = self

    def waited(self) -> float:
        return self.measurer.waited.get(self.name, 0.0)

    def warm_up(self) -> None:
        if "calls" not in self.measurer.asked[-1][1]:
            self.calls = self.measurer.warm_calls.get(self.name, self.calls)
        self.measurer.log.append(("warm", self.name))

    def sample(self) -> float:
        self.measurer.log.append(("sample", self.name))
        number = next(self.taken)
        self.cpu_ms = self.measurer.cpu_times.get(self.name, lambda _: 0.5)(number)
        return self.measurer.times.get(self.name, lambda _: 1.0)(number)

    def result(self, samples: Sequence[float]) -> BenchResult:
        facts: dict[str, Any] = {"mode": self.mode, "clock": self.clock}
        facts |= {"calls_per_sample": self.calls, "noise": self.measurer.noise}
        return bench("ready", samples, requested_mode="batched", **facts)

    def close(self) -> None:
        self.measurer.open -= 1
        self.measurer.log.append(("close", self.name))


@pytest.fixture
def measurer(monkeypatch: pytest.MonkeyPatch) -> FakeMeasurer:
    fake = FakeMeasurer()
    monkeypatch.setattr("gpuprof._benchmark.compare.prepare", fake.prepare)
    return fake


# Measuring


def taken(log: list[tuple[str, str]]) -> list[str]:
    """Return whose sample was taken, in order."""
    return [name for what, name in log if what == "sample"]


def test_each_round_has_a_sample_of_each_function_after_one_or_two_that_are_left_out(
    measurer: FakeMeasurer,
) -> None:
    compare({"a": noop, "b": noop}, rounds=8, seed=1)
    names = taken(measurer.log)
    lengths = [len([*group]) for _, group in groupby(names)]
    assert names.count("a") == names.count("b") == 8 + 4 * 1 + 4 * 2
    # Two turns of one function may follow each other.
    assert set(lengths) <= {2, 3, 4, 5, 6}


def test_the_sample_of_a_turn_is_its_last(measurer: FakeMeasurer) -> None:
    measurer.times["b"] = lambda number: float(number + 1)
    found = compare({"a": noop, "b": noop}, rounds=8, seed=1)
    places = [int(ms) for ms in found["b"].result.samples_ms]
    steps = [now - before for before, now in zip([0, *places[:-1]], places, strict=True)]
    assert sorted(steps) == [2] * 4 + [3] * 4


def test_the_order_is_drawn_by_chance_and_its_seed_is_in_the_result(measurer: FakeMeasurer) -> None:
    def measured(**seed: int) -> tuple[list[str], CompareResult]:
        measurer.log.clear()
        found = compare({"a": noop, "b": noop}, rounds=40, **seed)
        return taken(measurer.log), found

    names, found = measured()
    assert isinstance(found.seed, int)
    assert found.to_dict()["seed"] == found.seed
    assert measured(seed=found.seed)[0] == names
    assert len({tuple(measured(seed=seed)[0]) for seed in range(5)}) == 5


def test_a_call_that_is_slow_each_time_after_a_number_of_calls_meets_both_sides_alike(
    measurer: FakeMeasurer,
) -> None:
    calls = count()
    for name in "ab":
        measurer.times[name] = lambda _: 1.3 if next(calls) % 4 == 3 else 1.0
    found = compare({"a": noop, "b": noop}, rounds=400, seed=1)
    slow = [sum(ms > 1.1 for ms in row.result.samples_ms) for row in found.values()]
    assert min(slow) > 70  # of the 100 that chance gives each; one side had 200, or none
    assert found["b"].verdict is Verdict.SAME


@pytest.mark.parametrize("functions", range(2, 6))
def test_every_function_is_measured_as_often_at_each_place_of_a_round(
    measurer: FakeMeasurer, functions: int
) -> None:
    names = [str(number) for number in range(functions)]
    compare(dict.fromkeys(names, noop), rounds=2 * functions, seed=1)
    turns: list[tuple[str, int]] = []  # with how many samples each; two may follow each other
    for name, group in groupby(taken(measurer.log)):
        length = len([*group])
        lengths = [length] if length <= 3 else [length // 2, length - length // 2]
        turns += [(name, each) for each in lengths]
    assert len(turns) == 2 * functions * functions
    places = Counter((name, number % functions) for number, (name, _) in enumerate(turns))
    assert len(places) == functions * functions
    assert set(places.values()) == {2}
    assert Counter(turns) == {(name, samples): functions for name in names for samples in (2, 3)}


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


def preempted(measurer: FakeMeasurer) -> None:
    """Let b take a tenth more CPU time than a, and both wait for a CPU by chance."""
    chance = random.Random(1)
    measurer.modes = {name: ["cpu"] for name in "ab"}
    measurer.waited = {"a": 0.4, "b": 0.5}
    measurer.cpu_times = {"a": lambda _: 10.0, "b": lambda _: 11.0}
    measurer.times = {
        "a": lambda _: 10.0 + 30.0 * chance.random(),
        "b": lambda _: 11.0 + 30.0 * chance.random(),
    }


def test_where_the_thread_waits_for_a_cpu_the_cpu_times_are_compared(
    measurer: FakeMeasurer,
) -> None:
    preempted(measurer)
    found = compare({"a": noop, "b": noop}, seed=1)
    assert (found["b"].verdict, found.rounds) == (Verdict.SLOW, 30)
    assert found["b"].ratio == pytest.approx(1.1)
    assert found.warnings == (
        "CPU times are compared, because the thread waited for a CPU for 50.0 % of a sample in the "
        "warm-up",
    )
    assert min(found["b"].result.samples_ms) > 11.0


@pytest.mark.parametrize(
    ("noise", "cpu_ms", "said"),
    [
        ({"sleeps_per_s": 1e9}, 11.0, "because 'a' also sleeps"),
        ({"sleeps_per_s": 0.0}, 0.0, "CPU times are too short to be told"),
    ],
)
def test_cpu_times_are_not_compared_where_they_do_not_tell(
    measurer: FakeMeasurer, noise: dict[str, float], cpu_ms: float, said: str
) -> None:
    preempted(measurer)
    measurer.noise, measurer.cpu_times["b"] = noise, lambda _: cpu_ms
    found = compare({"a": noop, "b": noop}, rounds=30, seed=1)
    assert found["b"].verdict is Verdict.AMBIGUOUS
    assert said in found.warnings[-1]


def test_a_large_difference_needs_to_be_known_less_exactly(measurer: FakeMeasurer) -> None:
    measurer.times["b"] = lambda number: 9.0 + 0.3 * (number % 7 - 3) / 3
    assert compare({"a": noop, "b": noop}).rounds == 30


def test_no_round_begins_after_the_time_is_up_and_that_is_said(
    measurer: FakeMeasurer, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = count()
    monkeypatch.setattr("gpuprof._benchmark.compare.monotonic", lambda: float(next(seconds)))
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


@pytest.mark.parametrize(
    ("calls", "most", "found"),
    [
        ({"a": 300, "b": 512}, {}, [512, 512]),
        ({"a": 512, "b": 300}, {}, [512, 512]),
        ({"a": 300, "b": 512}, {"a": 400}, [400, 400]),
        ({"a": 10, "b": 330}, {}, [10, 330]),  # it would take too long
    ],
)
def test_samples_of_all_functions_have_as_many_calls(
    measurer: FakeMeasurer, calls: dict[str, int], most: dict[str, int], found: list[int]
) -> None:
    measurer.calls, measurer.most_calls = calls, most
    results = compare({"a": noop, "b": noop}, rounds=1).results
    assert [result.calls_per_sample for result in results] == found
    assert measurer.open == 0


def test_a_function_that_cannot_have_as_many_calls_does_not_keep_it_from_ending(
    measurer: FakeMeasurer,
) -> None:
    measurer.calls = {"a": 4, "b": 8}
    measurer.most_calls = {"a": 2, "b": 8}
    results = compare({"a": noop, "b": noop}, rounds=1).results
    assert [result.calls_per_sample for result in results] == [2, 2]


def test_calls_that_the_warm_up_chose_again_are_those_of_all_functions(
    measurer: FakeMeasurer,
) -> None:
    measurer.calls = {"a": 1, "b": 2048}
    measurer.warm_calls = {"a": 1024}
    results = compare({"a": noop, "b": noop}, rounds=1).results
    assert [result.calls_per_sample for result in results] == [2048, 2048]


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
        ([noop, noop], TypeError, "functions: expected a mapping of names .* got a list"),
        (noop, TypeError, "functions: expected a mapping of names .* got a function"),
        ({"a": noop, "b": 3.0}, TypeError, r"functions\['b'\]: expected a callable, got 3.0"),
        ({"a": noop, 1: noop}, TypeError, "a name of functions: expected a non-empty str, got 1"),
        ({"a": noop}, ValueError, "functions: expected two or more, got 1"),
        (
            {"": noop, "b": noop},
            ValueError,
            "a name of functions: expected a non-empty str, got ''",
        ),
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
        ("seed", -1),
        ("seed", 1.5),
        ("rounds", 0),
        ("rounds", 2.5),
        ("rounds", True),
        ("threshold", 0),
        ("threshold", 5),
        ("threshold", "1%"),
        ("max_time_s", float("inf")),
        ("max_time_s", 10**400),
        ("max_time_s", None),
    ],
)
def test_an_option_that_makes_no_sense_is_an_error_that_names_it(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=f"^{name}: expected "):
        compare({"a": noop, "b": noop}, **{name: value})


@pytest.mark.parametrize("name", ["name", "params", "min_samples", "rel_precision"])
def test_an_option_that_has_no_meaning_for_rounds_is_an_error(name: str) -> None:
    with pytest.raises(TypeError, match=f"^{name} has no meaning here: the mapping has the names"):
        compare({"a": noop, "b": noop}, **{name: 1})


# Real functions


def test_functions_without_a_gpu_are_compared_on_the_cpus_clock() -> None:
    found = compare({"one": sorted, "again": sorted}, (list(range(50)),), rounds=6, warmup_s=0.001)
    assert [(result.clock, result.count) for result in found.results] == [("cpu", 6)] * 2
    assert "no GPU time was measured; 6 rounds in turns" in str(found)


def test_one_short_function_is_never_slower_than_itself() -> None:
    found = compare({"one": noop, "again": noop}, rounds=6, warmup_s=0.001)
    calls = {result.calls_per_sample for result in found.results}
    assert len(calls) == 1
    assert calls.pop() >= 32


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
