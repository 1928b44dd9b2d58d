"""Which line of Python launched what: lines as `sys.monitoring` tells of them, joined by time.

Functions of libraries are looked at once and have no events from then on, so the line is the
innermost one of the program's own code, and only that code pays.
"""

from __future__ import annotations

import struct
import threading
from array import array
from bisect import bisect_right
from collections.abc import Collection
from functools import cache
from types import CodeType

import gpuprof._core as _core
from gpuprof._common.monitoring import free_tool, monitoring, running, take_tool
from gpuprof._common.places import NO_FRAME, is_of_library, short
from gpuprof._kernels.collector import Columns

_NAME = "gpuprof callers"
_CALLS = {
    "PY_START": _core._callers_on_start,
    "PY_RESUME": _core._callers_on_start,
    "LINE": _core._callers_on_line,
    "PY_RETURN": _core._callers_on_return,
    "PY_YIELD": _core._callers_on_return,
}


class CallerNotes:
    """Notes lines from `start` to `stop`, in all threads; then finds the callers of launches."""

    def __init__(self) -> None:
        self._tool: int | None = None
        self._codes: list[CodeType] = []
        self._lines = b""
        self._full_since = 0
        self.notes: list[str] = []

    def start(self, limit: int) -> None:
        """Begin; InvalidStateError if all tools of `sys.monitoring` are taken."""
        self._tool = take_tool(_NAME, "kernels(callers=True)", _CALLS)
        _core._callers_start(self._choose, monitoring.DISABLE, limit)
        events = monitoring.events
        monitoring.set_events(self._tool, events.PY_START | events.PY_RESUME)
        for thread, code, line in running():
            _core._callers_follow(code, line if thread == threading.get_ident() else 0)

    def stop(self) -> None:
        """Note no more. Idempotent."""
        tool, self._tool = self._tool, None
        if tool is None:
            return
        self._lines, self._codes, self._full_since = _core._callers_stop()
        free_tool(tool, self._codes, _CALLS)

    def _choose(self, code: CodeType) -> bool:
        """Say whether a code is followed, which has its own events then."""
        tool = self._tool
        if tool is None or is_of_library(code.co_filename):
            return False
        events = monitoring.events
        monitoring.set_local_events(tool, code, sum(getattr(events, name) for name in _CALLS))
        return True

    def find(self, launches: Columns, python_threads: Collection[int]) -> list[str]:
        """Return the callers of all launches as text, and last that of work without a launch.

        Those of threads that Python did not start, as autograd's, are the lines of the only thread
        that has any: it waits for them.
        """
        threads: dict[int, tuple[array[int], array[int]]] = {}  # since when, and where
        for since, place, thread_id in struct.iter_unpack("qQI4x", self._lines):
            moments, places = threads.setdefault(thread_id, (array("q"), array("Q")))
            moments.append(since)
            places.append(place)
        found, text = [], cache(self._text)
        only = next(iter(threads.values())) if len(threads) == 1 else None
        for thread_id, moment in zip(launches.thread_id, launches.begin_ns, strict=True):
            of = threads.get(thread_id, None if thread_id in python_threads else only)
            last = bisect_right(of[0], moment) - 1 if of is not None else -1
            found.append(text(of[1][last] if of is not None and last >= 0 else 0))
        if self._full_since:
            late = sum(moment >= self._full_since for moment in launches.begin_ns)
            self.notes.append(f"{late:,} calls came when there was no more room for callers")
        self._lines, self._codes = b"", []
        found.append(NO_FRAME)
        return found

    def _text(self, place: int) -> str:
        if not place:
            return NO_FRAME
        code, line = self._codes[(place >> 32) - 1], place & 0xFFFFFFFF
        return f"{short(code.co_filename)}:{line} in {code.co_name}"
