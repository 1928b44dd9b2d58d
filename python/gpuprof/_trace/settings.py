"""What `gpuprof.trace` accepts for windows and for flight recorders."""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import gpuprof._core as _core

KEEP_BYTES = 64 << 20
MAX_DUMPS = 10
_LEAST_BYTES = 64 << 10
_MOST_BYTES = 1 << 40
_MOST_SECONDS = 366 * 86400
_LENGTH = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*(ms|s|min|h)\s*")
_SECONDS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}


class Schedule(NamedTuple):
    """Steps of a cycle, and how many cycles there are; 0 is for ever."""

    wait: int
    warm: int
    active: int
    repeat: int

    def phase(self, step: int) -> str:
        """Return what a step is, counted from 0."""
        cycle = self.wait + self.warm + self.active
        if self.repeat and step >= self.repeat * cycle:
            return "done"
        place = step % cycle
        if place < self.wait:
            return "wait"
        return "warm" if place < self.wait + self.warm else "active"

    def begins_cycle(self, step: int) -> bool:
        """Whether a step is the first one of its cycle."""
        return step % (self.wait + self.warm + self.active) == 0


def checked_schedule(schedule: object) -> Schedule:
    expected = "(wait, warm, active, repeat), each a whole number"
    if not isinstance(schedule, (tuple, list)):
        message = f"schedule: expected {expected}, got {schedule!r}"
        raise TypeError(message)
    if len(schedule) != len(Schedule._fields):
        message = f"schedule: expected {expected}, got {len(schedule)} of them: {schedule!r}"
        raise ValueError(message)
    for name, value in zip(Schedule._fields, schedule, strict=True):
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            message = f"schedule: expected {expected}, got {value!r} for {name}"
            raise TypeError(message)
        least = 1 if name == "active" else 0
        if value < least:
            message = f"schedule: expected at least {least} for {name}, got {value}"
            raise ValueError(message)
    return Schedule(*map(int, schedule))


def checked_length(keep_last: object) -> int:
    """Return a length of time as nanoseconds; None is 0, which stands for any."""
    expected = 'a number of seconds, or a text such as "30s", "500ms" or "2min"'
    if keep_last is None:
        return 0
    if isinstance(keep_last, str):
        found = _LENGTH.fullmatch(keep_last)
        if found is None:
            message = f"keep_last: expected {expected}, got {keep_last!r}"
            raise ValueError(message)
        seconds = float(found[1]) * _SECONDS[found[2]]
    elif isinstance(keep_last, bool) or not isinstance(keep_last, numbers.Real):
        message = f"keep_last: expected {expected}, got {keep_last!r}"
        raise TypeError(message)
    else:
        seconds = _finite(keep_last)
    if not 1e-3 <= seconds <= _MOST_SECONDS:  # also not NaN
        message = f"keep_last: expected from 1 ms to a year, got {keep_last!r}"
        raise ValueError(message)
    return round(seconds * 1e9)


def _finite(number: numbers.Real) -> float:
    try:
        return float(number)
    except OverflowError:  # an int of more than 308 digits
        return math.inf


def checked_bytes(keep_bytes: object) -> int:
    """Return how many bytes a ring may have; None is `KEEP_BYTES`."""
    if keep_bytes is None:
        return KEEP_BYTES
    if isinstance(keep_bytes, bool) or not isinstance(keep_bytes, numbers.Integral):
        message = f"keep_bytes: expected a number of bytes as an int, got {keep_bytes!r}"
        raise TypeError(message)
    if not _LEAST_BYTES <= int(keep_bytes) <= _MOST_BYTES:
        message = (
            f"keep_bytes: expected from {_LEAST_BYTES} to {_MOST_BYTES} bytes, got {keep_bytes}"
        )
        raise ValueError(message)
    return int(keep_bytes)


def checked_max_dumps(max_dumps: object) -> int:
    """Return how many files there may be; None is `MAX_DUMPS`."""
    if max_dumps is None:
        return MAX_DUMPS
    if isinstance(max_dumps, bool) or not isinstance(max_dumps, numbers.Integral):
        message = f"max_dumps: expected a whole number, got {max_dumps!r}"
        raise TypeError(message)
    if not 1 <= int(max_dumps) < 2**31:
        message = f"max_dumps: expected at least 1, got {max_dumps}"
        raise ValueError(message)
    return int(max_dumps)


def checked_signals(dump_on: object) -> tuple[int, ...]:
    """Return the numbers of the signals that ask for a dump; None is none."""
    if dump_on is None:
        return ()
    given = tuple(dump_on) if isinstance(dump_on, Iterable) else (dump_on,)
    for each in given:
        if isinstance(each, bool) or not isinstance(each, int):
            message = f"dump_on: expected signals, such as signal.SIGUSR1, got {each!r}"
            raise TypeError(message)
        if not -(2**31) <= each < 2**31 or not _core._trace_can_watch_signal(int(each)):
            message = (
                f"dump_on: expected signals that a program may go on after, such as "
                f"signal.SIGUSR1, got {each!r}"
            )
            raise ValueError(message)
    return tuple(sorted({int(each) for each in given}))


def checked_limits(when: object) -> dict[str, float]:
    """Return milliseconds by the path or the name of a scope; None is none."""
    if when is None:
        return {}
    expected = 'milliseconds by the path or the name of a scope, such as {"step": 25.0}'
    if not isinstance(when, Mapping):
        message = f"when: expected {expected}, got {when!r}"
        raise TypeError(message)
    limits = {}
    for scope, ms in when.items():
        if not isinstance(scope, str) or isinstance(ms, bool) or not isinstance(ms, numbers.Real):
            message = f"when: expected {expected}, got {ms!r} for {scope!r}"
            raise TypeError(message)
        if not scope or not 0 <= _finite(ms) < math.inf:  # also not NaN
            message = f"when: expected {expected}, got {ms!r} for {scope!r}"
            raise ValueError(message)
        limits[scope] = float(ms)
    return limits
