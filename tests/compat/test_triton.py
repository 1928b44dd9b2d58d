"""`gpuprof.compat.do_bench` on the CPU clock: what it calls, and the shape of what it returns."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from gpuprof.compat import do_bench, do_bench_cudagraph
from gpuprof.compat.triton import _summary

BENCHES = [do_bench, do_bench_cudagraph]
QUICK: dict[Any, dict[str, Any]] = {
    do_bench: {"warmup": 1, "rep": 5},
    do_bench_cudagraph: {"rep": 5},
}


def work() -> int:
    return sum(range(2_000))


@pytest.mark.parametrize("bench", BENCHES)
@pytest.mark.parametrize("return_mode", ["mean", "median", "min", "max"])
def test_one_number_is_returned(bench: Callable[..., Any], return_mode: str) -> None:
    time = bench(work, return_mode=return_mode, **QUICK[bench])
    assert isinstance(time, float)
    assert time > 0


@pytest.mark.parametrize("bench", BENCHES)
def test_all_samples_or_quantiles_are_returned(bench: Callable[..., Any]) -> None:
    times = bench(work, return_mode="all", **QUICK[bench])
    assert len(times) > 1
    assert all(isinstance(time, float) for time in times)
    low, middle, high = bench(work, quantiles=[0.1, 0.5, 0.9], **QUICK[bench])
    assert low <= middle <= high
    assert isinstance(bench(work, quantiles=[0.5], **QUICK[bench]), float)


# What Triton's own statistics give of these samples.
SAMPLES = (4.0, 1.0, 3.0, 2.0)


@pytest.mark.parametrize(
    ("quantiles", "return_mode", "expected"),
    [
        (None, "mean", 2.5),
        (None, "median", 2.5),
        (None, "min", 1.0),
        (None, "max", 4.0),
        (None, "all", [4.0, 1.0, 3.0, 2.0]),
        ([0.5], "mean", 2.5),
        ([0.0, 0.2, 1.0], "max", [1.0, 1.6, 4.0]),
        ([], "mean", []),
    ],
)
def test_samples_are_summed_up_as_in_triton(
    quantiles: list[float] | None, return_mode: str, expected: Any
) -> None:
    assert _summary(SAMPLES, quantiles, return_mode) == pytest.approx(expected)


@pytest.mark.parametrize("bench", BENCHES)
def test_gradients_are_none_in_every_measured_call(bench: Callable[..., Any]) -> None:
    tensors = [SimpleNamespace(grad=1), SimpleNamespace(grad=2)]
    seen: list[object] = []

    def step() -> None:
        seen.append(tensors[0].grad)
        tensors[0].grad = 5
        tensors[1].grad = 6

    bench(step, grad_to_none=tensors, **QUICK[bench])
    # The last calls are the measured ones.
    assert seen[-1] is None


WRONG: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"return_mode": "fastest"}, ValueError, "return_mode: expected one of 'min', 'max', 'mean'"),
    ({"rep": "100"}, TypeError, "rep: expected a number from 0 to 8.64e.07, got '100'"),
    ({"rep": -1}, ValueError, "rep: expected a number from 0 to"),
    ({"rep": float("nan")}, ValueError, "rep: expected a number from 0 to"),
    ({"quantiles": [50]}, ValueError, "quantiles: expected a number from 0 to 1, got 50"),
    ({"quantiles": 0.5}, TypeError, "quantiles: expected a list of numbers from 0 to 1, got"),
    ({"quantiles": "0.5"}, TypeError, "quantiles: expected a list of numbers from 0 to 1, got"),
]


@pytest.mark.parametrize("bench", BENCHES)
@pytest.mark.parametrize(("given", "error", "message"), WRONG, ids=str)
def test_a_wrong_argument_is_an_error_before_anything_runs(
    bench: Callable[..., Any], given: dict[str, Any], error: type[Exception], message: str
) -> None:
    def never() -> None:
        raise AssertionError("it ran")

    with pytest.raises(error, match=message):
        bench(never, **given)


@pytest.mark.parametrize("bench", BENCHES)
def test_what_the_function_raises_comes_out(bench: Callable[..., Any]) -> None:
    def broken() -> None:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        bench(broken)


@pytest.mark.parametrize("bench", BENCHES)
def test_no_time_is_one_sample_at_least(bench: Callable[..., Any]) -> None:
    assert bench(work, **{**QUICK[bench], "rep": 0}, return_mode="all")
