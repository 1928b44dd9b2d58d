"""When scopes were open on the host, thread by thread, and which one was innermost."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import NamedTuple

NO_SCOPE = -1


class Span(NamedTuple):
    """One entry of a scope: from when to when, in nanoseconds, and on which thread."""

    names: tuple[str, ...]
    begin_ns: int
    end_ns: int
    thread_id: int


class Spans:
    """The scopes that were open in a block; of those of asyncio tasks, the last entered counts."""

    def __init__(self, spans: Iterable[Span]) -> None:
        # Of those that begin together the longest is the outermost, as is the shortest path.
        self.all = sorted(
            (each for each in spans if each.end_ns > each.begin_ns),
            key=lambda each: (each.begin_ns, -each.end_ns, len(each.names)),
        )
        self._of_thread: dict[int, list[int]] = {}
        for number, each in enumerate(self.all):
            self._of_thread.setdefault(each.thread_id, []).append(number)

    def innermost(self, thread_id: int, times: Sequence[int]) -> list[int]:
        """Return the number of the innermost scope of a thread at each of the sorted times."""
        numbers = self._of_thread.get(thread_id)
        if not numbers:
            return [NO_SCOPE] * len(times)
        spans, stack, found, at = self.all, [], [], 0
        for moment in times:
            while at < len(numbers) and spans[numbers[at]].begin_ns <= moment:
                stack.append(numbers[at])
                at += 1
            while stack and spans[stack[-1]].end_ns < moment:
                stack.pop()
            found.append(stack[-1] if stack else NO_SCOPE)
        return found

    def chains(self) -> list[tuple[int, ...]]:
        """Return the spans at each depth of a span's path: those around it, and last itself.

        It also stands for those that are not known, which are of this one alone then.
        """
        found: list[tuple[int, ...]] = []
        latest: dict[tuple[int, tuple[str, ...]], int] = {}
        for number, each in enumerate(self.all):
            outer = latest.get((each.thread_id, each.names[:-1]), NO_SCOPE)
            if outer != NO_SCOPE and self.all[outer].end_ns >= each.end_ns:
                found.append((*found[outer], number))
            else:
                found.append((number,) * len(each.names))
            latest[each.thread_id, each.names] = number
        return found

    def only_thread(self, times: Sequence[int]) -> list[int]:
        """Return for each of the sorted times the only thread with an open scope, else 0."""
        if not times:
            return []
        begins = [(each.begin_ns, 1, each.thread_id) for each in self.all]
        ends = [(each.end_ns, -1, each.thread_id) for each in self.all]
        moments, states = [], []
        num_open: dict[int, int] = {}
        for moment, change, thread in sorted(begins + ends):
            num_open[thread] = num_open.get(thread, 0) + change
            if not num_open[thread]:
                del num_open[thread]
            moments.append(moment)
            states.append(next(iter(num_open)) if len(num_open) == 1 else 0)
        return [states[at - 1] if (at := bisect_right(moments, t)) else 0 for t in times]


def python_threads() -> set[int]:
    """Return the system ids of the threads that Python started."""
    return {
        thread.native_id
        for thread in threading.enumerate()
        if thread.native_id is not None and not isinstance(thread, threading._DummyThread)
    }
