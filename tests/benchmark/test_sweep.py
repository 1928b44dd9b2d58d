"""A benchmark for each point of a grid: failures, tables, JSON and plots."""

from __future__ import annotations

import gc
import sys
import weakref
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprof import BenchResult, sweep
from gpuprof.results import SweepPoint
from tests.support.benchmark_results import bench


class Body:
    """What `make` returns: its time is known."""

    def __init__(self, ms: float) -> None:
        self.ms = ms

    def __call__(self) -> None:
        pass


def by_size(n: int, dtype: str = "f4") -> Body:
    if n > 100:
        raise MemoryError(f"{n} is too many")
    return Body(n * (2.0 if dtype == "f8" else 1.0))


@pytest.fixture(autouse=True)
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Stand in for the measuring; return what each benchmark was asked for."""
    calls: list[dict[str, Any]] = []

    def benchmark(
        fn: Body,
        *,
        name: str | None = None,
        params: Any = None,
        progress: Any = None,
        mode: str = "auto",
        nbytes: int | None = None,
        flops: int | None = None,
    ) -> BenchResult:
        calls.append({"name": name, "mode": mode, "nbytes": nbytes, "flops": flops})
        warnings = ("the clocks are not locked",)
        return bench(name or "", [fn.ms] * 8, params=params, nbytes=nbytes, warnings=warnings)

    monkeypatch.setitem(sys.modules, "gpuprof._benchmark.api", SimpleNamespace(benchmark=benchmark))
    return calls


def test_there_is_a_point_for_each_combination_and_the_last_axis_changes_fastest() -> None:
    found = sweep(by_size, {"n": [1, 2], "dtype": ("f4", "f8")})
    assert [point.params for point in found] == [
        {"n": 1, "dtype": "f4"},
        {"n": 1, "dtype": "f8"},
        {"n": 2, "dtype": "f4"},
        {"n": 2, "dtype": "f8"},
    ]
    assert [result.median_ms for result in found.results] == [1.0, 2.0, 2.0, 4.0]
    assert found[3].result is not None
    assert found[3].result.name == "by_size[n=2, dtype=f8]"
    assert found[3].result.params == {"n": 2, "dtype": "f8"}
    assert found.axes == {"n": (1, 2), "dtype": ("f4", "f8")}
    assert (len(found), len(found[1:]), found.failed) == (4, 3, [])


def test_a_point_that_fails_is_kept_with_its_error_and_the_sweep_goes_on() -> None:
    found = sweep(by_size, {"n": [1, 1000, 3]})
    assert [point.result is None for point in found] == [False, True, False]
    assert found.failed == [SweepPoint({"n": 1000}, error="MemoryError: 1000 is too many")]
    assert "MemoryError: 1000 is too many" in found.table()
    assert "1 of 3 points failed" in found.table()


def test_what_a_failed_point_had_allocated_is_free_for_the_next() -> None:
    seen: list[weakref.ref[Any]] = []

    def make(n: int) -> Any:
        assert all(each() is None for each in seen)
        body = Body(n)
        seen.append(weakref.ref(body))
        if n == 1:
            raise RuntimeError(body)
        return body

    gc.disable()
    try:
        found = sweep(make, {"n": [0, 1, 2]})
    finally:
        gc.enable()
    assert [point.error is None for point in found] == [True, False, True]


def test_an_interrupt_ends_the_sweep() -> None:
    def make(n: int) -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(make, {"n": [1, 2]})


def test_a_point_without_a_function_says_what_is_expected() -> None:
    found = sweep(lambda n: n, {"n": [1]})
    assert found[0].error == "TypeError: make returned a int; expected the function to time"


def test_options_reach_each_benchmark_and_amounts_may_depend_on_the_point(
    asked: list[dict[str, Any]],
) -> None:
    sweep(by_size, {"n": [1, 2]}, name="add", nbytes=lambda n: 8 * n, flops=5, mode="batched")
    assert [(call["name"], call["nbytes"], call["flops"]) for call in asked] == [
        ("add[n=1]", 8, 5),
        ("add[n=2]", 16, 5),
    ]
    assert all(call["mode"] == "batched" for call in asked)


def test_any_iterable_is_an_axis() -> None:
    found = sweep(by_size, {"n": (2**p for p in range(3))})
    assert [point.params["n"] for point in found] == [1, 2, 4]


@pytest.mark.parametrize(
    ("make", "axes", "error", "text"),
    [
        (Body(1.0), {"x": [1]}, TypeError, "make cannot be called with x"),
        (by_size, {"m": [1]}, TypeError, "make cannot be called with m: "),
        (3, {"n": [1]}, TypeError, "make: expected a callable, got 3"),
        (by_size, [1, 2], TypeError, "axes: expected a mapping, as in"),
        (by_size, {}, ValueError, "axes: expected at least one, as in"),
        (by_size, {"n": []}, ValueError, r"axes\['n'\]: expected a value or more"),
        (by_size, {"n": "abc"}, TypeError, r"axes\['n'\]: expected a list .*, got 'abc'"),
        (by_size, {"n": 3}, TypeError, r"axes\['n'\]: expected a list of its values, got 3"),
        (by_size, {1: [1]}, TypeError, "a name of axes: expected a str, got 1"),
    ],
)
def test_a_wrong_call_is_an_error_before_anything_is_measured(
    make: Any, axes: Any, error: type[Exception], text: str, asked: list[dict[str, Any]]
) -> None:
    with pytest.raises(error, match=text):
        sweep(make, axes)
    assert not asked


# Shown


def test_the_table_has_a_line_for_each_point_and_a_warning_of_all_is_said_once() -> None:
    lines = sweep(by_size, {"n": [1, 1000], "dtype": ["f4"]}).table().splitlines()
    assert lines[0].split()[:4] == ["n", "dtype", "median", "95"]
    assert lines[2].split()[:4] == ["1", "f4", "1.00", "ms"]
    assert lines[3].split() == ["1000", "f4", "MemoryError:", "1000", "is", "too", "many"]
    assert lines[4:] == ["1 of 2 points failed", "warning: the clocks are not locked"]


def test_a_pivot_has_the_first_axis_in_lines_and_the_second_in_columns() -> None:
    found = sweep(by_size, {"n": [1, 1000], "dtype": ["f4", "f8"]})
    assert found.table(pivot=True).splitlines()[:4] == [
        "n \\ dtype       f4       f8",
        "---------------------------",
        "        1  1.00 ms  2.00 ms",
        "     1000   failed   failed",
    ]
    assert "n=1000, dtype=f4: MemoryError: 1000 is too many" in found.table(pivot=True)
    assert "| 1 | 1.00 ms | 2.00 ms |" in found.to_markdown(pivot=True)


def test_a_pivot_of_another_number_of_axes_is_an_error() -> None:
    with pytest.raises(ValueError, match="a pivot needs two axes; this sweep has 1"):
        sweep(by_size, {"n": [1]}).table(pivot=True)


def test_a_sweep_of_which_every_point_failed_is_shown_too() -> None:
    found = sweep(by_size, {"n": [1000, 2000]})
    assert found.results == []
    assert "2 of 2 points failed" in str(found)
    assert "MemoryError" in found._repr_html_()


def test_an_axis_may_be_called_as_a_column_is() -> None:
    def make(median: int, error: object) -> Body:
        return Body(median)

    found = sweep(make, {"median": [3], "error": [None]})
    assert found.table().splitlines()[2].split()[:3] == ["3", "None", "3.00"]


@pytest.mark.parametrize("option", ["mod", "params", "min_sample"])
def test_an_option_that_benchmark_does_not_have_is_an_error_at_once(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        sweep(by_size, {"n": [1]}, **{option: 1})


def test_a_value_that_benchmark_refuses_is_an_error_at_once() -> None:
    with pytest.raises(ValueError, match="mode: expected one of"):
        sweep(by_size, {"n": [1]}, mode="fast")


def test_a_point_is_shown_as_its_result_or_its_error() -> None:
    first, second = sweep(by_size, {"n": [1, 200]})
    assert repr(first) == repr(first.result)
    assert repr(second) == "n=200: MemoryError: 200 is too many"
