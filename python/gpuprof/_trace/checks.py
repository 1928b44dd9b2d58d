"""What traces accept: at their making, and in their methods.

`span` is what `_core` calls for `TraceWriter.span` where the arguments are not of the usual
types, or the trace is not open.
"""

from __future__ import annotations

import math
import numbers
import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._common import checks

_BUFFER_VARIABLE = "GPUPROF_TRACE_BUFFER_MIB"
_BUFFER_MIB = 32
_MAX_BUFFER_MIB = 65536
_MAX_TID = 2**28 - 1  # from there on they are the GPU's tracks
_MOST_NS = 2**62 - 1
_MOST_SECONDS = 366 * 86400
_LENGTH = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|h)\s*")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


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


class Schedule(NamedTuple):
    """Steps of a cycle, and how many cycles there are; 0 is for ever."""

    wait: int
    warm: int
    active: int
    repeat: int

    def phase(self, step: int) -> str:
        cycle = self.wait + self.warm + self.active
        if self.repeat and step >= self.repeat * cycle:
            return "done"
        place = step % cycle
        if place < self.wait:
            return "wait"
        return "warm" if place < self.wait + self.warm else "active"

    def begins_cycle(self, step: int) -> bool:
        return step % (self.wait + self.warm + self.active) == 0


def checked_schedule(schedule: object) -> Schedule:
    expected = "(wait, warm, active, repeat), each a whole number"
    if not isinstance(schedule, (tuple, list)):
        raise checks.type_error(schedule, "schedule", expected)
    if len(schedule) != len(Schedule._fields):
        raise checks.value_error(schedule, "schedule", expected)
    counts = []
    for name, value in zip(Schedule._fields, schedule, strict=True):
        unit = "cycles" if name == "repeat" else f"{name} steps"
        counts.append(checks.whole("schedule", value, int(name == "active"), unit=unit))
    return Schedule(*counts)


def checked_length(keep_last: object) -> int:
    """Return a length of time as nanoseconds; None is 0, which stands for any."""
    if keep_last is None:
        return 0
    if isinstance(keep_last, str):
        found = _LENGTH.fullmatch(keep_last)
        if found is None:
            expected = 'a number of seconds, or a text such as "30s", "500ms" or "2min"'
            raise checks.value_error(keep_last, "keep_last", expected)
        keep_last = float(found[1]) * _SECONDS[found[2]]
    seconds = checks.number("keep_last", keep_last, 1e-3, _MOST_SECONDS, unit="seconds")
    return round(seconds * 1e9)


def checked_signals(dump_on: object) -> tuple[int, ...]:
    """Return the numbers of the signals that ask for a dump; None is none."""
    if dump_on is None:
        return ()
    found = set()
    for each in dump_on if isinstance(dump_on, Iterable) else (dump_on,):
        number = checks.whole("dump_on", each, 1, 2**31 - 1)
        if not _core._trace_can_watch_signal(number):
            expected = "signals that a program may go on after, such as signal.SIGUSR1"
            raise checks.value_error(number, "dump_on", expected)
        found.add(number)
    return tuple(sorted(found))


def checked_limits(when: object) -> dict[str, float]:
    """Return milliseconds by the path or the name of a scope; None is none."""
    if when is None:
        return {}
    if not isinstance(when, Mapping):
        expected = 'milliseconds by the path or the name of a scope, such as {"step": 25.0}'
        raise checks.type_error(when, "when", expected)
    return {
        checks.text("when", scope, empty=False): checks.number("when", ms, 0, unit="milliseconds")
        for scope, ms in when.items()
    }
