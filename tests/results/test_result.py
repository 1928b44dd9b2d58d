"""What a measurement is as plain data, and how it is shown."""

from __future__ import annotations

import json
import math
from dataclasses import fields
from enum import Enum
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuprof import BenchResult
from gpuprof._results.result import bins_of
from gpuprof.results import Launches
from tests.support.benchmark_results import bench

HOSTILE = "a\x1b[31m\n\u202e|`<b>&\"'$x$\0\ud800"


def result(*samples: float, **changes: Any) -> BenchResult:
    samples = samples or (0.021, 0.02, 0.022, 0.021, 0.023, 0.021, 0.020)
    return bench(changes.pop("name", "add"), samples, **changes)


FULL = result(
    host_ms=0.003,
    tick_ms=32e-6,
    calls_per_sample=20,
    gate="gated",
    clock_mhz=(1980.0,) * 6 + (1965.0,),
    throttle_reasons=("power cap",),
    nbytes=10_000_000,
    flops=10**8,
    memory={"peak_bytes": 3 << 20, "change_bytes": 4096},
    energy={"joules": 0.5, "watts": 9.0, "resolution": 0.1, "step_joules": 2.0, "block_s": 1.0},
    peaks={
        "bytes_per_s": 4e12,
        "flops_per_s": 8e12,
        "dtype": "tf32",
    },
    launches=Launches({"gemm": 2}, 1, source="graph", versions={"torch": "2.11.0"}),
    warnings=("the clocks are not locked",),
    params={"n": 1024},
    extra_info={"note": "first"},
    machine={"gpu": "NVIDIA H100"},
    created="2026-01-02T03:04:05+00:00",
    duration_s=0.25,
)


# Figures


def test_the_figures_are_those_of_the_samples() -> None:
    found = result(4.0, 1.0, 2.0, 3.0, 5.0)
    assert (found.count, found.median_ms, found.min_ms, found.max_ms) == (5, 3.0, 1.0, 5.0)
    assert (found.mean_ms, found.stddev_ms) == (3.0, pytest.approx(math.sqrt(2.5)))
    assert (found.q1_ms, found.q3_ms, found.iqr_ms, found.mad_ms) == (2.0, 4.0, 2.0, 1.0)
    assert (found.p10_ms, found.p90_ms) == pytest.approx((1.4, 4.6))
    assert found.interval_ms == (1.0, 5.0)
    assert found.rel_precision == pytest.approx(2 / 3)
    assert found.samples_ms == (4.0, 1.0, 2.0, 3.0, 5.0)


def test_the_interval_is_never_narrower_than_the_tick() -> None:
    found = result(*[1.0] * 100, tick_ms=0.25)
    assert found.interval_ms == (0.75, 1.25)
    assert found.rel_precision == 0.25


def test_rates_follow_from_what_the_caller_said() -> None:
    found = result(2.0, nbytes=4_000_000, flops=6_000_000_000)
    assert found.gbytes_per_s == pytest.approx(2.0)
    assert found.tflops_per_s == pytest.approx(3.0)
    assert result(2.0).gbytes_per_s is None
    assert result(2.0).tflops_per_s is None


def test_a_median_of_0_has_no_rate_and_no_precision() -> None:
    found = result(-1.0, 0.0, 1.0, nbytes=1)
    assert found.gbytes_per_s is None
    assert found.rel_precision == math.inf


def test_shares_are_of_the_peaks_that_are_known() -> None:
    rates = {"nbytes": 4_000_000, "flops": 6_000_000_000}
    found = result(2.0, **rates, peaks={"bytes_per_s": 8e9, "flops_per_s": 6e12})
    assert (found.bytes_share, found.flops_share) == pytest.approx((0.25, 0.5))
    found = result(2.0, **rates, peaks={"flops_per_s": 6e12})
    assert (found.bytes_share, found.flops_share) == (None, pytest.approx(0.5))
    assert result(2.0, peaks={"bytes_per_s": 8e9}).bytes_share is None
    assert result(2.0, **rates).flops_share is None


# Plain data


def test_a_host_time_that_was_not_taken_is_none_in_plain_data() -> None:
    data = result().to_dict()
    assert data["host_ms"] is None
    assert math.isnan(BenchResult.from_dict(data).host_ms)


class Colour(int, Enum):
    RED = 3


def test_what_json_cannot_hold_becomes_its_text() -> None:
    loop: list[Any] = []
    loop.append(loop)
    given_ = {"e": Colour.RED, "t": int, "s": (1, {2}), "nan": math.nan, "b": True, "d": {1: None}}
    data = result(params=given_, extra_info={"loop": loop}).to_dict()
    assert data["params"] == {
        "e": 3,
        "t": "<class 'int'>",
        "s": [1, [2]],
        "nan": None,
        "b": True,
        "d": {"1": None},
    }
    json.dumps(data, allow_nan=False)


def test_the_integers_and_floats_of_numpy_stay_numbers() -> None:
    numpy = pytest.importorskip("numpy")
    data = result(params={"n": numpy.int64(3), "x": numpy.float32(0.5)}).to_dict()
    assert data["params"] == {"n": 3, "x": 0.5}
    assert type(data["params"]["n"]) is int


LAUNCHES = Launches({"k": 2}, 1)
BAD: dict[str, list[Any]] = {
    "name": [None, 3],
    "mode": ["fast", None, ["graph"]],
    "requested_mode": ["cpu", 1],
    "clock": ["sundial", {}],
    "l2": ["warm"],
    "samples_ms": [[], None, "12", [None], [math.nan], [math.inf], [True], [1e300], {"0": 1.0}],
    "host_ms": ["1", True, []],
    "tick_ms": [-1.0, None, math.nan, math.inf],
    "calls_per_sample": [0, 1.5, True, None],
    "gate": ["open"],
    "clock_mhz": [[1.0], "x", [None] * 7, 3],
    "throttle_reasons": ["power", [1]],
    "noise": [None, {"waited": -0.1}, {"waited": "much"}, {1: 0.5}],
    "nbytes": [-1, 1.5, 2**63, True],
    "flops": [-1, "1"],
    "memory": [None, [], {"peak_bytes": 1}, {"peak_bytes": -1, "change_bytes": 0}, {"x": 1}],
    "energy": [None, {"joules": 1.0}, {**FULL.energy, "watts": -1.0}, {"x": 1.0}],
    "peaks": [None, {"bytes_per_s": 0}, {"flops_per_s": "1"}, {"dtype": 3}, {"cores": 1.0}],
    "launches": [3, {"kernels": {"k": 0}}, {**LAUNCHES.to_dict(), "copies": -1}, {"x": 1}],
    "warnings": ["text", [None]],
    "ranks": [None, "text", [1.0], [{}]],
    "params": [None, [], "x"],
    "extra_info": [3],
    "machine": [[1]],
    "created": [None, 5],
    "duration_s": [-1, None, "x"],
}


def test_every_field_has_a_value_that_is_refused() -> None:
    assert set(BAD) == {each.name for each in fields(BenchResult)}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD.items() for value in values]
)
def test_a_wrong_value_is_an_error_that_names_the_field(name: str, value: Any) -> None:
    data = {**result().to_dict(), name: value}
    with pytest.raises(ValueError, match=rf"^BenchResult\.{name}\b"):
        BenchResult.from_dict(data)


NEWER = {"noise", "memory", "energy", "peaks", "launches", "ranks"}


@pytest.mark.parametrize("name", sorted(NEWER))
def test_an_older_result_without_a_newer_field_can_be_read(name: str) -> None:
    data = result().to_dict()
    del data[name]
    assert not getattr(BenchResult.from_dict(data), name)


@pytest.mark.parametrize(
    "name", [each.name for each in fields(BenchResult) if each.name not in NEWER]
)
def test_a_missing_field_is_an_error_that_names_it(name: str) -> None:
    data = result().to_dict()
    del data[name]
    with pytest.raises(ValueError, match=f"^BenchResult: '{name}' is missing$"):
        BenchResult.from_dict(data)


def test_an_unknown_field_is_an_error_that_names_it() -> None:
    with pytest.raises(ValueError, match="'median' is unknown"):
        BenchResult.from_dict({**result().to_dict(), "median": 1.0})


@pytest.mark.parametrize(
    "changes", [{"format": "x"}, {"version": 2}, {"version": True}, {"unit": "s"}]
)
def test_another_format_is_an_error_that_says_what_was_expected(changes: dict[str, Any]) -> None:
    with pytest.raises(
        ValueError, match=r"expected .*'gpuprof-result', 'version': 1, 'unit': 'ms'"
    ):
        BenchResult.from_dict({**result().to_dict(), **changes})


# Shown


def test_without_peaks_and_memory_nothing_is_said_of_them() -> None:
    text = str(result(nbytes=10))
    assert "peak" not in text
    assert "memory" not in text
    # A peak without a rate says nothing of the function.
    assert "peak" not in str(result(nbytes=10, peaks={"flops_per_s": 6e12}))
    assert "memory" not in result().to_markdown()
    assert "| memory |" in FULL.to_markdown()
    assert "59.5 % of peak" in FULL._repr_html_()


def test_memory_that_a_call_frees_is_said() -> None:
    found = str(result(memory={"peak_bytes": 0, "change_bytes": -2048}))
    assert "peak 0 B above the level before a call; 2.00 KiB less are allocated after it" in found


def test_a_result_that_was_measured_otherwise_than_asked_for_says_so() -> None:
    assert "batched mode (graph was asked for)" in str(
        result(mode="batched", requested_mode="graph")
    )
    assert "asked for" not in str(result(requested_mode="graph"))
    assert "no GPU time was measured" in str(result(mode="cpu", clock="cpu", l2="n/a"))


def test_no_form_repeats_control_characters_or_markup() -> None:
    hostile = result(
        name=HOSTILE,
        params={"p": HOSTILE},
        extra_info={HOSTILE: HOSTILE},
        warnings=(HOSTILE,),
        throttle_reasons=(HOSTILE,),
    )
    html = hostile._repr_html_()
    for text in (str(hostile), hostile.to_markdown(), html):
        assert not {"\x1b", "\u202e", "\0", "\ud800"} & set(text)
        text.encode()
    assert "<b>&" not in html
    assert "<b>" not in hostile.to_markdown()
    assert hostile.to_markdown().count("\n") == 5
    assert len(hostile.to_markdown().splitlines()[0].split("|")) == len(
        hostile.to_markdown().splitlines()[2].split("|")
    )


# Histogram


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.integers(-5, 400), min_size=1, max_size=80),
    st.sampled_from([0.0, 1e-12, 0.5, 1.0, 7.0]),
    st.integers(1, 40),
)
def test_every_sample_is_in_one_bin_and_no_bin_is_narrower_than_a_tick(
    samples: list[int], tick: float, most: int
) -> None:
    found = result(*map(float, samples), tick_ms=tick)
    filled = bins_of(found, most)
    assert sum(each.count for each in filled) == found.count
    assert len(filled) <= most
    assert filled[0].low <= found.min_ms
    assert filled[-1].high >= found.max_ms
    for left, right in pairwise(filled):
        assert left.high == pytest.approx(right.low)
    inner = [each for each in filled if not each.tail]
    if tick >= 0.5:
        assert all(each.high - each.low >= 0.99 * tick for each in inner)
    for each in inner:
        inside = sum(each.low - 1e-9 <= sample <= each.high + 1e-9 for sample in samples)
        assert each.count <= inside


def test_a_straggler_does_not_squeeze_the_others_into_one_bin() -> None:
    found = result(*[1.0 + place / 100 for place in range(50)], 500.0)
    *inner, last = bins_of(found, 12)
    assert (last.tail, last.count) == (True, 1)
    assert len(inner) == 11
    assert "above 1.490, to 500.000 ms" in found.histogram()


def test_the_histogram_as_text_has_a_line_for_each_bin() -> None:
    found = result(*[1.0] * 8, *[2.0] * 4, 3.0, tick_ms=1.0)
    assert found.histogram() == "\n".join(
        [
            f"0.5 to 1.5 ms |{'#' * 40} 8",
            f"1.5 to 2.5 ms |{'#' * 20} 4",
            f"2.5 to 3.5 ms |{'#' * 5} 1",
        ]
    )
    assert result(2.0, 2.0).histogram() == f"2.00 to 2.00 ms |{'#' * 40} 2"


@pytest.mark.parametrize("most", [0, -1, 1.5, True, 10**6])
def test_a_number_of_bins_that_makes_no_sense_is_an_error(most: Any) -> None:
    with pytest.raises((TypeError, ValueError), match="expected a whole number from 1 to 1000"):
        result().histogram(most)
