"""Numbers with their units."""

from __future__ import annotations

import math

import pytest

from gpuprof._common.units import (
    byte_size,
    duration,
    interval_text,
    percent,
    percent_change,
    rate,
    ratio_text,
)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0, "0 ns"),
        (0.000032, "32 ns"),
        (0.0009996, "1.00 µs"),
        (0.0012799, "1.28 µs"),
        (0.0999499, "99.9 µs"),
        (0.9996, "1.00 ms"),
        (1.5712, "1.57 ms"),
        (157.1, "157 ms"),
        (999.7, "1.00 s"),
        (1_234_567.0, "1,235 s"),
        (-0.5, "-500 µs"),
        (float("nan"), "-"),
        (float("inf"), "-"),
        (None, "-"),
    ],
)
def test_a_duration_has_three_digits_and_its_own_unit(ms: float | None, text: str) -> None:
    assert duration(ms) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (-3 * 2**20, "-3.0 MiB"), (2**47, "128 TiB")],
)
def test_a_byte_size_has_a_binary_unit(size: int, text: str) -> None:
    assert byte_size(size) == text


@pytest.mark.parametrize(
    ("low", "high", "text"),
    [
        (0.02, 0.023, "20.0 to 23.0 µs"),
        (0.021376, 0.02144, "21.376 to 21.440 µs"),
        (0.0000005, 0.000001, "0.50 to 1.00 ns"),
        (1.0, 1.0, "1.00 to 1.00 ms"),
        (999.0, 1500.0, "1.00 to 1.50 s"),
        (0.257, 68.0, "257 µs to 68.0 ms"),
        (4.0, 68.0, "4.00 ms to 68.0 ms"),
        (0.0, 68.0, "0 to 68 ms"),
    ],
)
def test_an_interval_has_the_digits_that_tell_its_ends_apart(
    low: float, high: float, text: str
) -> None:
    assert interval_text(low, high) == text


@pytest.mark.parametrize(
    ("ratios", "text"),
    [
        ((1.05,), "1.050"),
        ((0.98, 1.0), "0.980 to 1.000"),
        ((0.00123, 1234.0), "0.00123 to 1.23e+03"),
        ((None,), "-"),
        ((), ""),
    ],
)
def test_a_ratio_has_digits_however_small_it_is(
    ratios: tuple[float | None, ...], text: str
) -> None:
    assert ratio_text(*ratios) == text


@pytest.mark.parametrize(
    ("per_second", "text"),
    [
        (None, ""),
        (0.0, "0.00 B/s"),
        (1234.0, "1.23 kB/s"),
        (999_400_000.0, "999 MB/s"),
        (999_600_000.0, "1.00 GB/s"),
        (2e12, "2.00 TB/s"),
        (1e16, "10,000 TB/s"),
    ],
)
def test_a_rate_has_a_decimal_prefix(per_second: float | None, text: str) -> None:
    assert rate(per_second, "B") == text


def test_a_percentage_has_one_decimal_or_so_many_digits() -> None:
    shares = (0.00123, 0.05, 0.9996, 2.5, math.inf)
    assert [percent(each) for each in shares] == ["0.1 %", "5.0 %", "100.0 %", "250 %", "-"]
    assert [percent(each, 2) for each in shares] == ["0.12 %", "5 %", "100 %", "250 %", "-"]


def test_a_ratio_of_times_is_a_change() -> None:
    assert percent_change(1.1) == "10.0 % more"
    assert percent_change(0.75) == "25.0 % less"
