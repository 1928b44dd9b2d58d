"""What the methods of traces accept.

`complete` and `push` are what `_core` calls for those of a `TraceWriter` where the arguments are
not of the usual types, or the trace is not open.
"""

from __future__ import annotations

import math
import numbers
import os
import warnings
from collections.abc import Mapping
from typing import Protocol

import gpuprof._core as _core
from gpuprof._common.checks import level_outside


class OpenWriter(Protocol):
    """What `complete` and `push` ask of a `TraceWriter`."""

    def _current(self) -> int: ...


_BUFFER_VARIABLE = "GPUPROF_TRACE_BUFFER_MIB"
_BUFFER_MIB = 32
_MAX_BUFFER_MIB = 65536
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


def _plain(value: object) -> object:
    """Return a number of another type, such as a scalar of NumPy's, as an int or a float."""
    if isinstance(value, numbers.Integral):
        return int(value)
    return float(value) if isinstance(value, numbers.Real) else value


def checked_number(what: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value := _plain(value), (int, float)):
        message = f"{what}: expected a number, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 1e12:  # also not NaN
        message = f"{what}: expected a number from 0 to 1e12, got {value!r}"
        raise ValueError(message)
    return float(value)


def checked_time(what: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value := _plain(value), int):
        message = f"{what}: expected nanoseconds as an int, got {value!r}"
        raise TypeError(message)
    if not 0 <= value < 2**62:
        message = f"{what}: expected nanoseconds from 0 to 2**62 - 1, got {value!r}"
        raise ValueError(message)
    return value


def checked_buffer(buffer_mib: object) -> int:
    """Return the MiB that may wait to be written; None is what the environment says, or 32."""
    if buffer_mib is None:
        return _buffer_of_environment()
    expected = f"a whole number of MiB from 1 to {_MAX_BUFFER_MIB}"
    if isinstance(buffer_mib, bool) or not isinstance(buffer_mib, int):
        message = f"buffer_mib: expected {expected}, got {buffer_mib!r}"
        raise TypeError(message)
    if not 1 <= buffer_mib <= _MAX_BUFFER_MIB:
        message = f"buffer_mib: expected {expected}, got {buffer_mib}"
        raise ValueError(message)
    return buffer_mib


def _buffer_of_environment() -> int:
    text = os.environ.get(_BUFFER_VARIABLE, "").strip()
    if not text:
        return _BUFFER_MIB
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MAX_BUFFER_MIB:
        return int(text[:9])
    warnings.warn(
        f"gpuprof: {_BUFFER_VARIABLE} was ignored: expected a whole number of MiB from 1 to "
        f"{_MAX_BUFFER_MIB}, got {text!r}",
        RuntimeWarning,
        stacklevel=level_outside(),
    )
    return _BUFFER_MIB


def moment(at_ns: int | None) -> int:
    return _core._host_now() if at_ns is None else checked_time("at_ns", at_ns)


def checked_tid(tid: object) -> int:
    if tid is None:
        return 0
    if isinstance(tid, bool) or not isinstance(tid := _plain(tid), int):
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
    if isinstance(value, bool) or not isinstance(value := _plain(value), (int, float)):
        message = f"values: expected numbers, got {value!r}"
        raise TypeError(message)
    if abs(value) <= 2**53:
        return value
    try:
        return float(value)  # which is how viewers read it
    except OverflowError:
        return math.inf


def complete(
    writer: OpenWriter,
    name: str,
    begin_ns: int,
    dur_ns: int,
    *,
    cat: str | None = None,
    tid: int | None = None,
    args: Mapping[str, object] | None = None,
) -> None:
    """Write a slice as `TraceWriter.complete` does."""
    begin = checked_time("begin_ns", begin_ns)
    end = begin + checked_time("dur_ns", dur_ns)
    event = (checked_text("name", name), checked_category(cat), begin, end, checked_tid(tid))
    if number := writer._current():
        _core._trace_slice(number, *event, checked_args(args))


def push(writer: OpenWriter, name: str, cat: str, dur_ms: float, tid: int | None = None) -> None:
    """Write a slice as `TraceWriter.push` does."""
    event = pushed(name, cat, dur_ms, tid)
    if number := writer._current():
        _core._trace_slice(number, *event, None)


def pushed(
    name: object, cat: object, dur_ms: object, tid: object
) -> tuple[str, str | None, int, int, int]:
    """Return the slice that ends now: name, category, begin, end, track."""
    duration = round(checked_number("dur_ms", dur_ms) * 1e6)
    end = _core._host_now()
    return checked_text("name", name), checked_category(cat), end - duration, end, checked_tid(tid)
