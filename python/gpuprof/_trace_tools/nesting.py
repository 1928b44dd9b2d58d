"""Which slices of a track lie inside which, and when a track was busy, in bounded memory.

Times are nanoseconds: integers, or floats that are off by far less than one (then times that differ
by less than `slack` are the same). What could not be kept is said, not guessed.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from itertools import accumulate, compress, islice
from operator import sub
from typing import Any

from gpuprof._trace_tools.values import MOST_NS

# Begin, negative duration, and the owner's number: in this order, outer slices come first.
Slice = tuple[float, float, int]
Interval = tuple[float, float]
Place = tuple[Any, Any]  # pid and tid

MOST_SLICES = 200_000
MOST_TRACKS = 20_000
TOGETHER = 16_384  # slices that are placed at once
MOST_INTERVALS = 8192
NEVER = -MOST_NS - 1  # before all times
FLOAT_SLACK = 0.5
# Instead of numbers:
TOP = -1  # nothing is around a slice
LOOSE = -2  # several slices that were merged
EVER: Slice = (0, -math.inf, TOP)  # has no end, and is at the bottom of each stack


def enclosing(
    rows: Iterable[Slice],
    slack: float,
    stack: list[Slice],
    crossing: Callable[[Slice, Slice], None] | None = None,
) -> list[Slice]:
    """Return the slice directly around each of sorted ones, of those on the stack at its bottom.

    Of two that cross, the first holds nothing that comes after; `crossing` is told of both. A slice
    without length lies inside one that ends there.
    """
    found: list[Slice] = []
    ends = list(map(_end, stack))
    for row in rows:
        begin, negative, _ = row
        end = begin - negative
        if negative:
            while ends[-1] <= begin + slack:
                ends.pop()
                stack.pop()
            while ends[-1] < end - slack:
                ends.pop()
                before = stack.pop()
                if crossing:
                    crossing(before, row)
        else:  # what ends where this is may be around it
            while ends[-1] < begin - slack:
                ends.pop()
                stack.pop()
        found.append(stack[-1])
        stack.append(row)
        ends.append(end)
    return found


def _end(row: Slice) -> float:
    return row[0] - row[1]


class Track:
    """The slices of one track. The owner adds to `new`, and reads `begin` and `end` of them all."""

    def __init__(self) -> None:
        self.new: list[Slice] = []
        self.kept: list[Slice] = []  # those that were placed
        self.around: list[int] = []  # for each the number of what is around it
        self.ends: list[float] = []  # for each the last end up to there
        self.open = [EVER]  # what is around the last one that came, and that
        self.covered: dict[Slice, float] = {}  # how much of a loose one is not empty
        self.begin: float = -NEVER
        self.end: float = NEVER

    def widen(self, begin: float, end: float) -> None:
        """Extend the track's own span by another."""
        self.begin, self.end = min(self.begin, begin), max(self.end, end)

    def reopen_from(self, begin: float) -> tuple[list[Slice], list[Slice], list[int]]:
        """Remove what begins at or after `begin`, to place it anew.

        Return what reaches past `begin`, which stays, what was removed, and what was around it.
        Nothing is removed if all open slices stay open.
        """
        place = bisect_left(self.kept, (begin,))
        if place == len(self.kept):
            return [], [], []
        first = bisect_right(self.ends, begin)
        reach = [row for row in self.kept[first:place] if row[0] - row[1] > begin]
        self.open = [EVER, *reach]
        back, around = self.kept[place:], self.around[place:]
        del self.kept[place:], self.around[place:], self.ends[place:]
        return reach, back, around

    def drop_older_half(self) -> None:
        """Forget the older half, open or not."""
        half = len(self.kept) // 2
        del self.kept[:half], self.around[:half], self.ends[:half]
        oldest = self.kept[0] if self.kept else EVER
        self.open[1:] = [row for row in self.open[1:] if self.kept and row >= oldest]

    def drop_nested(self) -> int:
        """Forget nested slices whose time is over, but for the newest quarter.

        Answer how many are left of those that are older.
        """
        newest = self.kept[-1][0] if self.kept else NEVER
        count = len(self.kept) - len(self.kept) // 4
        stays = list(map(TOP.__eq__, islice(self.around, count)))
        for place in range(bisect_right(self.ends, newest), count):
            row = self.kept[place]
            stays[place] = stays[place] or row[0] - row[1] > newest
        self.kept[:count] = compress(self.kept, stays)
        self.around[:count] = compress(self.around, stays)
        self.ends[:count] = compress(self.ends, stays)
        return sum(stays)

    def merge_neighbours(self, group: int, count: int) -> None:
        """Make one of each group of neighbours that do not overlap, of the first `count`.

        What is around the newest is most likely still to come, and may begin between any two.
        """
        loose: list[Slice] = []
        outer: list[int] = []
        ends: list[float] = []
        covered: dict[Slice, float] = {}
        last: float = NEVER
        size, time = group, 0.0  # of the group that is being made
        for row, around, end in zip(self.kept[:count], self.around, self.ends, strict=False):
            begin, negative, number = row
            own = self.covered[row] if number == LOOSE else -negative
            if size < group and around == TOP and last <= begin:
                size, time = size + 1, time + own
                covered.pop(loose[-1], None)
                begin = loose[-1][0]
                loose[-1] = (begin, begin - end, LOOSE)
                covered[loose[-1]] = time
                ends[-1] = end
            else:
                size, time = 1 if around == TOP else group, own
                loose.append(row)
                outer.append(around)
                ends.append(end)
                if number == LOOSE:
                    covered[row] = own
            last = end
        self.kept[:count], self.around[:count], self.ends[:count] = loose, outer, ends
        self.covered = covered


class Nesting:
    """Finds the slice directly around each one, for slices that come in any order.

    Exact as long as at most `most` are kept. Past that, nested slices whose time is over are
    forgotten, and neighbours at the top of a track are merged if that is not enough. `approximate`
    is True once a slice came too late to be placed. So traces in the order of begins or of ends are
    exact at any length. A slice without length lies inside one that ends there. `inside`, if given,
    sums up by number what is directly inside of a slice.
    """

    def __init__(
        self,
        crossing: Callable[[Slice, Slice], None],
        inside: list[float] | None = None,
        most: int = MOST_SLICES,
    ) -> None:
        self.tracks: dict[Place, Track] = {}
        self.waiting = 0  # slices, since the last time that they were placed
        self.approximate = False
        self.slack: float = FLOAT_SLACK  # 0 once all times are whole
        self._inside, self._crossing = inside, crossing
        self._most = most

    def track(self, place: Place) -> Track | None:
        """Return the track of a pid and a tid; None if there is no room for another one."""
        found = self.tracks.get(place)
        if found is None and len(self.tracks) < MOST_TRACKS:
            found = self.tracks[place] = Track()
        return found

    @property
    def is_due(self) -> bool:
        """Whether enough is waiting to be placed."""
        return self.waiting > min(TOGETHER, self._most // 4)

    def place_new(self) -> None:
        """Place what has come."""
        self.waiting = 0
        tracks = self.tracks.values()
        for track in tracks:
            if track.new:
                self._nest(track)
        if self._kept() <= self._most:
            return
        older = [track.drop_nested() for track in tracks]
        if self._kept() > self._most * 3 // 4:
            group = self._kept() // (self._most // 16 + 1) + 1
            for track, count in zip(tracks, older, strict=True):
                track.merge_neighbours(group, count)
        if self._kept() > self._most * 3 // 4:  # so many are open at once
            self.approximate = True
            for track in tracks:
                track.drop_older_half()

    def bare_points(self) -> list[int]:
        """Return the numbers of the slices without length that nothing is around."""
        return [
            row[2]
            for track in self.tracks.values()
            for row, number in zip(track.kept, track.around, strict=True)
            if number == TOP and not row[1]
        ]

    def _kept(self) -> int:
        return sum(len(track.kept) for track in self.tracks.values())

    def _nest(self, track: Track) -> None:
        """Note what is around each new slice, and sum up what is inside of each."""
        rows = sorted(track.new)
        track.new.clear()
        reach, back, was_around = track.reopen_from(rows[0][0])
        placed = dict.fromkeys(map(id, reach), TOP)  # by identity the number of what was around
        placed.update(zip(map(id, back), was_around, strict=True))
        if back:
            rows = sorted(back + rows)

        def cross(before: Slice, row: Slice) -> None:
            if LOOSE in (before[2], row[2]):
                self.approximate = True
            elif id(before) not in placed or id(row) not in placed:
                self._crossing(before, row)

        inside, add_around = self._inside, track.around.append
        for row, outer in zip(rows, enclosing(rows, self.slack, track.open, cross), strict=True):
            number = outer[2]
            if placed and id(row) in placed:
                before = placed[id(row)]
                if number == TOP or id(outer) in placed:
                    number = before
                elif number != before and inside is not None:
                    time = track.covered[row] if row[2] == LOOSE else -row[1]
                    if number >= 0:
                        inside[number] += time
                    if before >= 0:  # what came now is in between
                        inside[before] -= time
            elif number == LOOSE:
                self.approximate = True
            elif number >= 0 and inside is not None:
                inside[number] -= row[1]
            add_around(number)
        last = track.ends[-1] if track.ends else NEVER
        track.ends += islice(accumulate(map(_end, rows), max, initial=last), 1, None)
        track.kept += rows
        track.widen(rows[0][0], track.ends[-1])


class Coverage:
    """The union of many intervals, and the gaps between them.

    Past `most` intervals, the smallest gaps are closed for good and only their length is
    remembered, so that the largest stay exact; an interval that comes later inside a closed gap
    adds nothing.
    """

    def __init__(self, most: int = MOST_INTERVALS) -> None:
        self._most = most
        self._begins: list[float] = []
        self._ends: list[float] = []
        self._closed: float = 0  # of gaps that were closed
        self._closed_count = 0

    def __bool__(self) -> bool:
        return bool(self._begins)

    def add(self, rows: list[Slice], slack: float = 0) -> None:
        """Unite with slices in the order of their begins."""
        if not rows:
            return
        begins, ends = self._begins, self._ends
        if ends and ends[-1] > rows[0][0]:
            united = zip(begins, ends, strict=True)
            rows = sorted([*((begin, begin - end, TOP) for begin, end in united), *rows])
            begins.clear()
            ends.clear()
        at, until = (begins.pop(), ends.pop()) if ends else (rows[0][0], rows[0][0])
        for begin, negative, _ in rows:
            if begin > until + slack:
                begins.append(at)
                ends.append(until)
                at, until = begin, begin - negative
            elif begin - negative > until:
                until = begin - negative
        begins.append(at)
        ends.append(until)
        if len(begins) > 4 * self._most:
            self._close_smallest(self._most // 2)

    @property
    def extent(self) -> Interval:
        """From the begin of the first to the end of the last."""
        return (self._begins[0], self._ends[-1]) if self._begins else (0, 0)

    @property
    def busy(self) -> float:
        """How long there was one."""
        busy: float = sum(map(sub, self._ends, self._begins))
        return busy - self._closed

    @property
    def gap_count(self) -> int:
        """How many gaps there are."""
        return self._closed_count + max(len(self._begins) - 1, 0)

    def _gaps(self) -> list[float]:
        return list(map(sub, islice(self._begins, 1, None), self._ends))

    def largest_gaps(self, most: int) -> list[Interval]:
        """Return begin and end of the longest ones, the longest first."""
        gaps = [round(gap) for gap in self._gaps()]
        largest = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[:most]
        return [(self._ends[place], self._begins[place + 1]) for place in largest]

    def _close_smallest(self, left: int) -> None:
        gaps = self._gaps()
        places = sorted(range(len(gaps)), key=gaps.__getitem__, reverse=True)[:left]
        places.sort()
        self._closed += sum(gaps) - sum(gaps[place] for place in places)
        self._closed_count += len(gaps) - len(places)
        self._begins = [self._begins[0], *(self._begins[place + 1] for place in places)]
        self._ends = [*(self._ends[place] for place in places), self._ends[-1]]
