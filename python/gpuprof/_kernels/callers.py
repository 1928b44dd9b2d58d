"""Which line of Python launched what: lines as `sys.monitoring` tells of them, joined by time.

Functions of libraries are looked at once and have no events from then on, so the line is the
innermost one of the program's own code, and only that code pays.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from collections.abc import Collection
from types import CodeType
from typing import Any

import gpuprof._core as _core
from gpuprof._common.places import NO_FRAME, is_of_library, short
from gpuprof._kernels.records import Columns
from gpuprof.errors import InvalidStateError

_NAME = "gpuprof callers"
# Its own, that of a profiler; then those that nobody has a claim to.
_TOOLS = (2, 4, 3, 5, 1, 0)
_monitoring: Any = getattr(sys, "monitoring", None)  # from Python 3.12 on


def callers_supported() -> bool:
    """Whether this Python tells of single lines."""
    return _monitoring is not None


class Callers:
    """The callers of launches, by the number of each; without any it knows of none."""

    def __init__(self) -> None:
        self.numbers = array("q")
        self.texts: list[str] = []
        self.notes: list[str] = []

    def of(self, launch: int) -> str:
        """Return the line of a launch as text; ``""`` where callers were not asked for."""
        if not self.texts:
            return ""
        return self.texts[self.numbers[launch] if launch >= 0 else 0]


class CallerNotes:
    """Notes lines from `start` to `stop`, in all threads; then finds the callers of launches."""

    def __init__(self) -> None:
        self._tool: int | None = None
        self._codes: list[CodeType] = []
        self._lines = b""
        self._full_since = 0

    def start(self, limit: int) -> None:
        """Begin; InvalidStateError if all tools of `sys.monitoring` are taken."""
        tool = next((each for each in _TOOLS if _monitoring.get_tool(each) is None), None)
        if tool is None:
            message = "kernels(callers=True): all tool ids of sys.monitoring are taken"
            raise InvalidStateError(message)
        _monitoring.use_tool_id(tool, _NAME)
        self._tool = tool
        _core._callers_start(self._choose, _monitoring.DISABLE, limit)
        self._register(
            tool, _core._callers_on_start, _core._callers_on_line, _core._callers_on_return
        )
        _monitoring.restart_events()  # those that an earlier collection switched off
        _monitoring.set_events(tool, _monitoring.events.PY_START)

    def stop(self) -> None:
        """Note no more. Idempotent."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        _monitoring.set_events(tool, 0)
        self._lines, self._codes, self._full_since = _core._callers_stop()
        for code in self._codes:
            _monitoring.set_local_events(tool, code, 0)
        self._register(tool, None, None, None)
        _monitoring.free_tool_id(tool)

    @staticmethod
    def _register(tool: int, start: Any, line: Any, leave: Any) -> None:
        events = _monitoring.events
        for event, call in (
            *((events.PY_START, start), (events.PY_RESUME, start), (events.LINE, line)),
            *((events.PY_RETURN, leave), (events.PY_YIELD, leave)),
        ):
            _monitoring.register_callback(tool, event, call)

    def _choose(self, code: CodeType) -> bool:
        """Say whether a code is followed, which has its own events then."""
        tool = self._tool
        if tool is None or is_of_library(code.co_filename):
            return False
        events = _monitoring.events
        local = events.PY_RESUME | events.LINE | events.PY_RETURN | events.PY_YIELD
        _monitoring.set_local_events(tool, code, events.PY_START | local)
        return True

    def find(self, launches: Columns, python_threads: Collection[int]) -> Callers:
        """Return the callers of all launches.

        Those of threads that Python did not start, as autograd's, are the lines of the only thread
        that has any: it waits for them.
        """
        found = Callers()
        threads: dict[int, tuple[array[int], array[int]]] = {}  # since when, and where
        for since, place, thread_id in struct.iter_unpack("qQI4x", self._lines):
            moments, places = threads.setdefault(thread_id, (array("q"), array("Q")))
            moments.append(since)
            places.append(place)
        numbers = {0: 0}
        only = next(iter(threads.values())) if len(threads) == 1 else None
        for thread_id, moment in zip(launches.thread_id, launches.begin_ns, strict=True):
            of = threads.get(thread_id, None if thread_id in python_threads else only)
            last = bisect_right(of[0], moment) - 1 if of is not None else -1
            place = of[1][last] if of is not None and last >= 0 else 0
            found.numbers.append(numbers.setdefault(place, len(numbers)))
        found.texts = [*map(self._text, numbers)]
        if self._full_since:
            late = sum(moment >= self._full_since for moment in launches.begin_ns)
            found.notes.append(f"{late:,} calls came when there was no more room for callers")
        self._lines, self._codes = b"", []
        return found

    def _text(self, place: int) -> str:
        if not place:
            return NO_FRAME
        code, line = self._codes[(place >> 32) - 1], place & 0xFFFFFFFF
        return f"{short(code.co_filename)}:{line} in {code.co_name}"
