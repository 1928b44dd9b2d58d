"""What the methods of traces accept."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping

from gpuprof import _core

_MAX_TID = 2**28 - 1  # from there on they are the GPU's tracks


def checked_path(path: object) -> str:
    try:
        text = os.fspath(path)  # type: ignore[call-overload]
    except TypeError:
        message = f"path: expected a str or os.PathLike, got {type(path).__name__}"
        raise TypeError(message) from None
    if not isinstance(text, str):
        message = f"path: expected a str, got {type(text).__name__}; decode it with os.fsdecode"
        raise TypeError(message)
    return text


def checked_text(what: str, text: object) -> str:
    if not isinstance(text, str):
        message = f"{what}: expected a str, got {type(text).__name__}"
        raise TypeError(message)
    if not text:
        message = f"{what}: expected a non-empty str, got ''"
        raise ValueError(message)
    return text


def checked_category(cat: object) -> str | None:
    return None if cat is None or cat == "" else checked_text("cat", cat)


def checked_number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"{what}: expected a number, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 1e12:  # also not NaN
        message = f"{what}: expected a number from 0 to 1e12, got {value!r}"
        raise ValueError(message)
    return float(value)


def checked_time(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"{what}: expected nanoseconds as an int, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 2**62:
        message = f"{what}: expected nanoseconds from 0 to 2**62 - 1, got {value!r}"
        raise ValueError(message)
    return value


def moment(at_ns: int | None) -> int:
    return _core._host_now() if at_ns is None else checked_time("at_ns", at_ns)


def checked_tid(tid: object) -> int:
    if tid is None:
        return 0
    if isinstance(tid, bool) or not isinstance(tid, int):
        message = f"tid: expected an int or None, got {tid!r}"
        raise TypeError(message)
    if not 0 <= tid <= _MAX_TID:
        message = (
            f"tid: expected 0 to 2**28 - 1, got {tid}; the kernel's number of a thread is "
            "threading.get_native_id(), not get_ident()"
        )
        raise ValueError(message)
    return tid


def checked_args(args: object) -> dict[str, object] | None:
    if args is None or isinstance(args, dict):
        return args
    if isinstance(args, Mapping):
        return dict(args)
    message = f"args: expected a mapping or None, got {type(args).__name__}"
    raise TypeError(message)


def series(values: object) -> dict[str, object]:
    """Return the finite values of a counter by the names of its series."""
    if not isinstance(values, Mapping):
        values = {"value": values}
    if not values:
        message = "values: expected at least one series, got an empty mapping"
        raise ValueError(message)
    numbers = {str(name): _checked_value(value) for name, value in values.items()}
    return {name: number for name, number in numbers.items() if math.isfinite(number)}


def _checked_value(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        message = f"values: expected numbers, got {value!r}"
        raise TypeError(message)
    if abs(value) <= 2**53:
        return value
    try:
        return float(value)  # which is how viewers read it
    except OverflowError:
        return math.inf
