"""What the methods of traces accept.

`span` is what `_core` calls for `TraceWriter.span` where the arguments are not of the usual
types, or the trace is not open.
"""

from __future__ import annotations

import math
import numbers
import os
from collections.abc import Mapping
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks

_BUFFER_VARIABLE = "GPUPROF_TRACE_BUFFER_MIB"
_BUFFER_MIB = 32
_MAX_BUFFER_MIB = 65536
_MAX_TID = 2**28 - 1  # from there on they are the GPU's tracks
_MOST_NS = 2**62 - 1


def _checked_category(cat: object) -> str | None:
    return None if cat is None or cat == "" else checks.text("cat", cat)


def checked_buffer(buffer_mib: object) -> int:
    """Return the MiB that may wait to be written; None is what the environment says, or 32."""
    if buffer_mib is not None:
        return checks.whole("buffer_mib", buffer_mib, 1, _MAX_BUFFER_MIB, unit="MiB")
    text = os.environ.get(_BUFFER_VARIABLE, "").strip()
    if not text:
        return _BUFFER_MIB
    if text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MAX_BUFFER_MIB:
        return int(text[:9])
    checks.warn_outside(
        f"gpuprof: {_BUFFER_VARIABLE} was ignored: expected a whole number of MiB from 1 to "
        f"{_MAX_BUFFER_MIB}, got {text!r}"
    )
    return _BUFFER_MIB


def checked_moment(
    name: object, cat: object, tid: object, at_ns: object
) -> tuple[str, str | None, int, int, int]:
    at = _core._host_now() if at_ns is None else _nanoseconds("at_ns", at_ns)
    text = checks.text("name", name, empty=False)
    return text, _checked_category(cat), at, at, _checked_tid(tid)


def _nanoseconds(name: str, value: object) -> int:
    return checks.whole(name, value, 0, _MOST_NS, unit="nanoseconds")


def _checked_tid(tid: object) -> int:
    if tid is None:
        return 0
    number = checks.whole("tid", tid, 0)
    if number > _MAX_TID:
        expected = "at most 2**28 - 1: threading.get_native_id() of a thread, not its get_ident()"
        raise checks.value_error(tid, "tid", expected)
    return number


def checked_args(args: object) -> dict[str, object] | None:
    if args is None or isinstance(args, dict):
        return args
    if isinstance(args, Mapping):
        return dict(args)
    raise checks.type_error(args, "args", "a mapping or None")


def series(values: object) -> dict[str, object]:
    """Return the finite values of a counter by the names of its series."""
    if not isinstance(values, Mapping):
        values = {"value": values}
    if not values:
        raise checks.value_error(values, "values", "at least one series")
    found = {str(name): _value(value) for name, value in values.items()}
    return {name: number for name, number in found.items() if math.isfinite(number)}


def _value(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise checks.type_error(value, "values", "numbers")
    if isinstance(value, numbers.Integral) and abs(whole := int(value)) <= 2**53:
        return whole
    try:
        return float(value)  # which is how viewers read it
    except OverflowError:
        return math.inf


def span(
    writer: Any,
    name: str,
    duration_ms: float,
    *,
    begin_ns: int | None = None,
    cat: str | None = None,
    tid: int | None = None,
    args: Mapping[str, object] | None = None,
) -> None:
    event = checked_span(name, duration_ms, begin_ns, cat, tid)
    members = checked_args(args)
    if number := writer._current():
        _core._trace_event("slice", number, *event, members)


def checked_span(
    name: object, duration_ms: object, begin_ns: object, cat: object, tid: object
) -> tuple[str, str | None, int, int, int]:
    duration = round(checks.number("duration_ms", duration_ms, 0, 1e12) * 1e6)
    now = _core._host_now()
    begin = now - duration if begin_ns is None else _nanoseconds("begin_ns", begin_ns)
    text = checks.text("name", name, empty=False)
    return text, _checked_category(cat), begin, begin + duration, _checked_tid(tid)
