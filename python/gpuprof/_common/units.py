"""Numbers with their units, as tables and messages show them."""

from __future__ import annotations

import math

NOTHING = "-"

_TIME_UNITS = ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s"))
_SMALL = ((1e-6, "µ"), (1e-3, "m"), (1.0, ""))
_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def duration(ms: float | None) -> str:
    """Write milliseconds with three digits and the unit that suits them."""
    if ms is None or not math.isfinite(ms):
        return NOTHING
    scale, unit = unit_of(ms)
    value = abs(ms) / scale
    digits = f"{value:.0f}" if unit == "ns" else _three_digits(value)
    return f"{'-' if ms < 0 else ''}{digits} {unit}" if digits != "0" else "0 ns"


def byte_size(size: int, *, precise: bool = False) -> str:
    """Write a number of bytes with a binary unit; `precise` is with three digits."""
    value, units = float(abs(size)), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = f"{value:.0f}" if units[0] == "B" or value >= 99.95 else f"{value:.1f}"
    if precise and units[0] != "B":
        digits = _three_digits(value)
    return f"{'-' if size < 0 else ''}{digits} {units[0]}"


def rate(per_second: float | None, unit: str) -> str:
    """Write an amount per second with three digits and a decimal prefix; None as no text."""
    if per_second is None:
        return ""
    scale, prefix = next((each for each in _PREFIXES if per_second >= 0.9995 * each[0]), (1.0, ""))
    return f"{_three_digits(per_second / scale)} {prefix}{unit}/s"


def joules(amount: float | None) -> str:
    """Write an energy with three digits and the prefix that suits it; None as no text."""
    if amount is None:
        return ""
    scale, prefix = next((each for each in _SMALL if amount < 999.5 * each[0]), (1e3, "k"))
    return f"{_three_digits(amount / scale)} {prefix}J"


def one_in(visits: float) -> str:
    """Write for how many visits each measured one stands."""
    return f"1 in {visits:,.0f}" if visits >= 10 else f"1 in {visits:.1f}"


def percent(fraction: float, digits: int | None = None) -> str:
    """Write a fraction as a percentage, with one decimal or so many digits below 100 %."""
    value = 100 * fraction
    if not math.isfinite(value):
        return NOTHING
    if abs(value) >= (100 if digits is None else 99.5):
        return f"{value:,.0f} %"
    return f"{value:.1f} %" if digits is None else f"{value:.{digits}g} %"


def percent_change(ratio: float) -> str:
    """Write a ratio of times as a change: 1.1 is ``10.0 % more``."""
    return f"{percent(abs(ratio - 1.0))} {'more' if ratio >= 1.0 else 'less'}"


def percent_sign(ratio: float) -> str:
    """Write a ratio of times as a change with its sign: 1.1 is ``+10.0 %``."""
    return f"{'+' if ratio >= 1.0 else '-'}{percent(abs(ratio - 1.0))}"


def ratio_text(*ratios: float | None) -> str:
    """Write a ratio, or the two ends of its interval; None is nothing."""
    texts = (
        NOTHING if ratio is None else f"{ratio:.3f}" if 0.1 <= ratio < 100 else f"{ratio:.3g}"
        for ratio in ratios
    )
    return " to ".join(texts)


def unit_of(ms: float) -> tuple[float, str]:
    """Return the unit that suits `ms`: its length in milliseconds, and its name."""
    size = abs(ms)
    return next((each for each in _TIME_UNITS if size < 999.5 * each[0]), _TIME_UNITS[-1])


def decimals(step: float) -> int:
    """Return how many decimals show a step of that size with two digits."""
    return max(0, min(6, 1 - math.floor(math.log10(step)))) if step > 0 else 2


def interval_text(low: float, high: float) -> str:
    """Write an interval of milliseconds with the digits that tell its ends apart."""
    scale, unit = unit_of(max(abs(low), abs(high)))
    places = decimals((high - low) / scale)
    if 0.0 < low < scale * 10.0 ** (1 - places):  # which would lose its digits in that unit
        return f"{duration(low)} to {duration(high)}"
    return f"{low / scale:.{places}f} to {high / scale:.{places}f} {unit}"


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
