"""Numbers with their units, as tables and messages show them."""

from __future__ import annotations

import math

NOTHING = "-"


_TIME_UNITS = ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s"))


def _three_digits(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"


def duration(ms: float | None) -> str:
    """Write milliseconds with three digits and the unit that suits them."""
    if ms is None or not math.isfinite(ms):
        return NOTHING
    sign, size = "-" if ms < 0 else "", abs(ms)
    for scale, unit in _TIME_UNITS[:-1]:
        digits = f"{size / scale:.0f}" if unit == "ns" else _three_digits(size / scale)
        if float(digits) < 1000:
            return f"{sign}{digits} {unit}" if float(digits) else "0 ns"
    seconds = size / 1e3
    return f"{sign}{_three_digits(seconds) if seconds < 999.5 else f'{seconds:,.0f}'} s"


def byte_size(size: int) -> str:
    """Write a number of bytes with a binary unit."""
    value, units = float(abs(size)), ["B", "KiB", "MiB", "GiB", "TiB"]
    while value >= 1023.5 and len(units) > 1:
        value /= 1024
        units.pop(0)
    digits = f"{value:.0f}" if units[0] == "B" or value >= 99.95 else f"{value:.1f}"
    return f"{'-' if size < 0 else ''}{digits} {units[0]}"


_UNITS = ((1e-6, "ns"), (1e-3, "µs"), (1.0, "ms"), (1e3, "s"))


_PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def unit_of(ms: float) -> tuple[float, str]:
    """Return the milliseconds of a unit that suits `ms`, and the unit's name."""
    size = abs(ms)
    return next((each for each in _UNITS if size < 999.5 * each[0]), _UNITS[-1])


def decimals(step: float) -> int:
    """How many decimals show a step of that size with two digits."""
    return max(0, min(6, 1 - math.floor(math.log10(step)))) if step > 0 else 2


def interval_text(low: float, high: float) -> str:
    """Write an interval in one unit, with the digits that tell its ends apart."""
    scale, unit = unit_of(max(abs(low), abs(high)))
    places = decimals((high - low) / scale)
    return f"{low / scale:.{places}f} to {high / scale:.{places}f} {unit}"


def rate(per_second: float | None, unit: str) -> str:
    """Write an amount a second with three digits and a decimal prefix."""
    if per_second is None:
        return ""
    scale, prefix = next((each for each in _PREFIXES if per_second >= 0.9995 * each[0]), (1.0, ""))
    value = per_second / scale
    digits = (
        f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:,.0f}"
    )
    return f"{digits} {prefix}{unit}/s"


def percent(fraction: float) -> str:
    """Write a fraction as a percentage with two digits, or three from 100 on."""
    value = 100 * fraction
    if not math.isfinite(value):
        return "-"
    return f"{value:.2g} %" if abs(value) < 99.5 else f"{value:,.0f} %"
