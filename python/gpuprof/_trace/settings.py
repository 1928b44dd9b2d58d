"""What `trace_windows` and `flight_recorder` accept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import gpuprof._core as _core
from gpuprof._common import checks

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
