"""What looks at the GPU found, and how records of all its work correct that."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gpuprof._common.places import NOWHERE, Place

MAX_WAITING = 1_000_000  # places that wait for records: of one thread nearly three hours

Span = tuple[int, int]


class Looks:
    """For how long the GPU was idle at each place; bounded by the lines that a program has.

    While records are collected, looks are kept one by one until these come. One thread may add
    while another one corrects.
    """

    def __init__(self) -> None:
        self._idle_ns: Counter[Place] = Counter()
        self._numbers: dict[Place, int] = {}
        # Four numbers for each look: when, for how long, where, and whether it is known to be idle.
        self._waiting = array("q")
        self.full_since_ns = 0  # from when on there was no room for looks that wait; 0: there is
        self.is_corrected = False

    def add(self, at_ns: int, ns: int, places: Sequence[Place], is_idle: bool, waits: bool) -> None:
        """Add a look, its time to equal parts; `waits` for records, where there is room."""
        if waits and not self.full_since_ns and len(self._waiting) >= 4 * MAX_WAITING:
            self.full_since_ns = at_ns - ns
        if waits and not self.full_since_ns:
            for place in places:
                number = self._numbers.setdefault(place, len(self._numbers))
                self._waiting.extend((at_ns, ns // len(places), number, is_idle))  # all at once
        elif is_idle:
            for place in places:
                self._idle_ns[place] += ns // len(places)

    def found(self) -> tuple[Mapping[Place, int], int]:
        """Return the idle time of each place, and for how long no record has told yet."""
        idle, not_known = Counter(self._idle_ns), 0
        for _, ns, place, is_idle in self._each(self._waiting):
            if is_idle:
                idle[place] += ns
            else:
                not_known += ns
        return idle, not_known

    def correct(self, busy: Sequence[Span], end_ns: int) -> None:
        """Judge the looks that wait by when the GPU worked: spans that do not touch, in order.

        So what was idle until `end_ns` is known exactly, from the begin of the first span on, and
        goes to the places of the looks in that time. Before and after it, looks tell what they can.
        """
        waiting, self._waiting, self.full_since_ns = self._waiting, array("q"), 0
        begins = [begin for begin, _ in busy]
        inside: Counter[Place] = Counter()
        for at, ns, place, is_idle in self._each(waiting):
            last = bisect_right(begins, at) - 1
            if last < 0 or at > end_ns:
                self._idle_ns[place] += is_idle * ns
            elif busy[last][1] <= at:
                inside[place] += ns
        idle = end_ns - begins[0] - sum(end - begin for begin, end in busy)
        looked = sum(inside.values())
        for place, ns in (inside or {NOWHERE: 1}).items():
            self._idle_ns[place] += idle * ns // (looked or 1)
        self.is_corrected = True

    def _each(self, waiting: array[int]) -> Iterator[tuple[int, int, Place, int]]:
        places = [*self._numbers]
        for first in range(0, len(waiting), 4):
            at, ns, number, is_idle = waiting[first : first + 4]
            yield at, ns, places[number], is_idle


def merged(spans: Iterable[Span], begin_ns: int, end_ns: int) -> list[Span]:
    """Return what of spans, in the order of their begins, is within two times, without overlap."""
    found: list[Span] = []
    for span in spans:
        begin, end = max(span[0], begin_ns), min(span[1], end_ns)
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif begin < end:
            found.append((begin, end))
    return found
