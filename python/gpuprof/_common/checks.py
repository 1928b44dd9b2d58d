"""What each field of a result may hold. A value that is none of it is a ``ValueError``.

The texts name the field, because values come from files as well as from callers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

MODES = ("graph", "batched", "isolated", "synchronized", "cpu")
REQUESTED_MODES = ("auto", "graph", "batched", "isolated")
CLOCKS = ("cuda", "host", "cpu")
L2_STATES = ("hot", "rotated", "flushed", "n/a")
GATES = ("gated", "ungated", "n/a")

_MOST = 1e12  # of milliseconds: 30 years


def shortened(value: object) -> str:
    """Write a value for the text of an error: values come from files, and may be long."""
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:97]}..."


def _wrong(name: str, value: object, expected: str) -> ValueError:
    return ValueError(f"{name} is {shortened(value)}; expected {expected}")


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(name, value, "text")
    return value


def _one_of(*known: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in known:
            raise _wrong(name, value, f"one of {', '.join(map(repr, known))}")
        return value

    return check


def _number(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _wrong(name, value, "a number")
    try:
        return float(value)
    except OverflowError:
        raise _wrong(name, value, "a finite number") from None


def _finite(name: str, value: Any) -> float:
    number = _number(name, value)
    if not -_MOST <= number <= _MOST:
        raise _wrong(name, value, f"a number from {-_MOST:.0e} to {_MOST:.0e}")
    return number


def _not_negative(name: str, value: Any) -> float:
    number = _number(name, value)
    if not 0 <= number <= _MOST:
        raise _wrong(name, value, f"a number from 0 to {_MOST:.0e}")
    return number


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise _wrong(name, value, "a whole number of at least 1")
    return value


def _amount(name: str, value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise _wrong(name, value, "None or a whole number from 0 below 2**63")
    return value


def _sequence(name: str, value: Any) -> Sequence[Any]:
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise _wrong(name, value, "a list")
    return value


def _samples(name: str, value: Any) -> tuple[float, ...]:
    samples = tuple(
        _finite(f"{name}[{place}]", item) for place, item in enumerate(_sequence(name, value))
    )
    if not samples:
        raise _wrong(name, value, "at least one sample")
    return samples


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    return tuple(
        _not_negative(f"{name}[{place}]", item) for place, item in enumerate(_sequence(name, value))
    )


def _texts(name: str, value: Any) -> tuple[str, ...]:
    return tuple(
        _text(f"{name}[{place}]", item) for place, item in enumerate(_sequence(name, value))
    )


def _mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        raise _wrong(name, value, "a mapping of text to values")
    return dict(value)


def _noise(name: str, value: Any) -> dict[str, float]:
    return {
        key: _not_negative(f"{name}[{key!r}]", item) for key, item in _mapping(name, value).items()
    }


# A NaN is a time that was not taken. Slopes of two noisy times may be below 0: samples are not
# bounded.
CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "name": _text,
    "mode": _one_of(*MODES),
    "requested_mode": _one_of(*REQUESTED_MODES),
    "clock": _one_of(*CLOCKS),
    "l2": _one_of(*L2_STATES),
    "samples_ms": _samples,
    "host_ms": _number,
    "tick_ms": _not_negative,
    "calls_per_sample": _count,
    "gate": _one_of(*GATES),
    "clock_mhz": _numbers,
    "throttle_reasons": _texts,
    "noise": _noise,
    "nbytes": _amount,
    "flops": _amount,
    "warnings": _texts,
    "params": _mapping,
    "extra_info": _mapping,
    "machine": _mapping,
    "created": _text,
    "duration_s": _not_negative,
}
