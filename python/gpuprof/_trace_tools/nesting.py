"""Which slices of a track lie inside which, and when a track was busy, in bounded memory.

Times are nanoseconds: integers, or floats that are off by far less than one (then times that differ
by less than `slack` are the same). What could not be kept is said, not guessed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from heapq import nlargest
from typing import Any

from gpuprof._trace_tools.scan import FLOAT_SLACK, MOST_NS

# Begin, negative duration, and the owner's number: in this order, outer slices come first.
Slice = tuple[float, float, int]
Interval = tuple[float, float]
Place = tuple[Any, Any]  # pid and tid

MOST_SLICES = 50_000
MOST_TRACKS = 20_000
MOST_GAPS = 5
NEVER = -MOST_NS - 1  # before all times
# Instead of numbers:
TOP = -1  # nothing is around a slice
LOOSE = -2  # several slices that were merged
EVER: Slice = (0, -math.inf, TOP)  # has no end, and is at the bottom of each stack


def enclosing(
    rows: Iterable[Slice],
    slack: float,
    crossing: Callable[[Slice, Slice], None] | None = None,
) -> list[Slice]:
    """Return the slice directly around each of sorted ones, `EVER` where there is none.

    Of two that cross, the first holds nothing that comes after; `crossing` is told of both. A slice
    without length lies inside one that ends there.
    """
    found: list[Slice] = []
    stack, ends = [EVER], [math.inf]
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


def end_of(row: Slice) -> float:
    return row[0] - row[1]


class Track:
    """The slices of one track. The owner adds to `new`, and reads `begin` and `end` of them all."""

    def __init__(self) -> None:
        self.new: list[Slice] = []
        # Placed ones that may hold, or lie in, what is still to come; with what is around each.
        self.kept: list[tuple[Slice, int]] = []
        self.apart: list[Slice] = []  # placed ones that have ended before all that is being placed
        self.covered: dict[int, float] = {}  # by identity, how much of a loose one is not empty
        self.begin: float = -NEVER
        self.end: float = NEVER
        self.last: float = NEVER  # the latest begin that was placed

    def widen(self) -> None:
        self.begin = min(self.begin, min(self.new)[0])
        self.end = max(self.end, *(begin - negative for begin, negative, _ in self.new))

    def time_of(self, row: Slice) -> float:
        return self.covered[id(row)] if row[2] == LOOSE else -row[1]

    def take_apart(self, begin: float) -> None:
        """Put aside the kept slices that have ended before `begin`, but for points."""
        ended = [(row, outer) for row, outer in self.kept if row[1] and end_of(row) < begin]
        self.apart = [row for row, outer in ended if outer == TOP]
        self.kept = [each for each in self.kept if not each[0][1] or end_of(each[0]) >= begin]

    def keep(self, rows: list[Slice], around: list[int], most: int) -> None:
        """Keep what is open, and what nothing is around: of that the older ones merged."""
        self.last = last = max(self.last, rows[-1][0])
        closed = self.apart + [
            row
            for row, outer in zip(rows, around, strict=True)
            if outer == TOP and row[1] and row[0] - row[1] <= last
        ]
        closed.sort()
        # What is around the newest is most likely still to come.
        older = closed[: -(most // 2)] if len(closed) > 2 * most else []
        kept = closed[len(older) :]
        covered = {id(row): self.covered[id(row)] for row in kept if row[2] == LOOSE}
        size = 2 * len(older) // most + 1
        for at in range(0, len(older), size):
            group = older[at : at + size]
            begin = group[0][0]
            merged = (begin, begin - max(map(end_of, group)), LOOSE)
            covered[id(merged)] = sum(map(self.time_of, group))
            kept.append(merged)
        self.covered = covered
        self.kept = [(row, TOP) for row in kept]
        self.kept += [
            (row, outer)
            for row, outer in zip(rows, around, strict=True)
            if row[0] - row[1] > last or (outer == TOP and not row[1])
        ]


class Nesting:
    """Finds the slice directly around each one, for slices that come in any order.

    `most` are placed at once; of these are kept the open ones, and those that nothing is around,
    the older of them merged. `approximate` is True once a slice came too late to be placed for
    sure. A slice without length lies inside one that ends there. `inside`, if given, sums up by
    number what is directly inside of a slice.
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
        self.slack = FLOAT_SLACK
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
        return self.waiting > self._most

    def place_new(self, *, is_last: bool = False) -> None:
        """Place what has come; with `is_last` nothing is kept to place more."""
        self.waiting = 0
        tracks = self.tracks.values()
        each = max(self._most // 4 // max(len(tracks), 1), 2)
        for track in tracks:
            if track.new:
                placed = self._nest(track)
                if not is_last:
                    track.keep(*placed, each)
        if sum(len(track.kept) for track in tracks) > self._most:  # so many are open at once
            self.approximate = True
            for track in tracks:
                del track.kept[: len(track.kept) // 2]

    def bare_points(self) -> list[int]:
        """Return the numbers of the slices without length that nothing is around."""
        return [
            row[2]
            for track in self.tracks.values()
            for row, number in track.kept
            if number == TOP and not row[1]
        ]

    def _nest(self, track: Track) -> tuple[list[Slice], list[int]]:
        """Return the slices with what is around each, and sum up what is inside of each."""
        track.widen()
        track.take_apart(min(track.new)[0] - self.slack)
        placed = {id(row): number for row, number in track.kept}
        rows = sorted([row for row, _ in track.kept] + track.new)
        track.new.clear()

        def cross(before: Slice, row: Slice) -> None:
            if LOOSE in (before[2], row[2]):
                self.approximate = True
            elif id(before) not in placed or id(row) not in placed:
                self._crossing(before, row)

        outer = enclosing(rows, self.slack, cross)
        around = [each[2] for each in outer]
        inside = self._inside
        for place, (row, number) in enumerate(zip(rows, around, strict=True)):
            before = placed.get(id(row))
            if number == TOP and before is None:
                continue
            is_kept = id(outer[place]) in placed
            if before is not None and (number == TOP or is_kept):
                around[place] = before
            elif before is not None:
                if inside is not None and number != before:
                    if number >= 0:
                        inside[number] += track.time_of(row)
                    if before >= 0:  # what came now is in between
                        inside[before] -= track.time_of(row)
            elif number == LOOSE or (is_kept and row[0] < track.last):
                self.approximate = True
            elif number >= 0 and inside is not None:
                inside[number] -= row[1]
        return rows, around


class Coverage:
    """When there was something, for slices in the order of their begins: how long, and the gaps."""

    def __init__(self) -> None:
        self.count = self.gap_count = 0
        self.largest_gaps: list[Interval] = []  # begin and end, the longest first
        self.begin: float = 0
        self.end: float = 0
        self._idle: float = 0
        self._last: float = NEVER

    def __bool__(self) -> bool:
        return self._last != NEVER

    @property
    def busy(self) -> float:
        return self.end - self.begin - self._idle

    def add(self, rows: list[Slice], slack: float) -> bool:
        """Unite with sorted slices; False if they come before others that were taken."""
        if not rows:
            return True
        if not self:
            self.begin = self.end = rows[0][0]
        in_order, until = rows[0][0] >= self._last, self.end
        gaps: list[Interval] = []
        for begin, negative, _ in rows:
            if begin > until + slack:
                gaps.append((until, begin))
            until = max(until, begin - negative)
        self.end, self._last = until, max(rows[-1][0], self._last)
        self.count += len(rows)
        self.gap_count += len(gaps)
        self._idle += sum(end - begin for begin, end in gaps)
        found = [*self.largest_gaps, *gaps]
        self.largest_gaps = nlargest(MOST_GAPS, found, key=lambda gap: round(gap[1] - gap[0]))
        return in_order
