"""Which slices of a track lie inside which, and when a track was busy, in bounded memory.

Times are nanoseconds: integers, or floats that are off by far less than one (then times that differ
by less than `slack` are the same). What could not be kept is said, not guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from heapq import nlargest
from itertools import accumulate, islice, pairwise
from operator import le

from gpuprof._trace_values import MOST_NS

# Begin, negative duration, and the owner's number: in this order, outer slices come first.
Slice = tuple[float, float, int]
Interval = tuple[float, float]

MOST_SLICES = 250_000
MOST_INTERVALS = 8192
NEVER = -MOST_NS - 1  # before all times
FLOAT_SLACK = 0.5
# Instead of numbers:
TOP = -1  # nothing is around a slice
LOOSE = -2  # several slices that were put together


class Track:
    """The slices of one track. The owner adds to `new`, and reads `begin` and `end` of them all."""

    def __init__(self) -> None:
        self.new: list[Slice] = []
        self.kept: list[Slice] = []  # those that were placed
        self.around: list[int] = []  # for each the number of what is around it
        self.ends: list[float] = []  # for each the last end up to there
        self.covered: dict[Slice, float] = {}  # how much of a loose one is not empty
        self.begin: float = -NEVER
        self.end: float = NEVER

    def widen(self, begin: float, end: float) -> None:
        """Take a span into its own."""
        self.begin, self.end = min(self.begin, begin), max(self.end, end)

    def keep(self, rows: list[Slice], around: list[int], ends: list[float]) -> None:
        """Keep slices behind all that are."""
        last = self.ends[-1] if self.ends else NEVER
        self.kept += rows
        self.around += around
        self.ends += islice(accumulate(ends, max, initial=last), 1, None)

    def take_back(self, begin: float) -> tuple[list[Slice], list[int]]:
        """Give up those that may reach past `begin`."""
        place = bisect_right(self.ends, begin)
        rows, around = self.kept[place:], self.around[place:]
        del self.kept[place:], self.around[place:], self.ends[place:]
        return rows, around

    def let_go(self) -> None:
        """Let go what is inside of others and whose time is over."""
        newest = self.kept[-1][0] if self.kept else NEVER
        rows, around = self.take_back(NEVER)
        places = [
            place
            for place, (row, number) in enumerate(zip(rows, around, strict=True))
            if number == TOP or row[0] - row[1] > newest
        ]
        rows, around = [rows[place] for place in places], [around[place] for place in places]
        self.keep(rows, around, [row[0] - row[1] for row in rows])


class Nesting:
    """Finds the slice directly around each one, for slices that come in any order.

    Exact as long as at most `most` are kept. Then those are let go that are inside of others and
    whose time is over. What is left at the top of a track is put together where it must be, and
    `approximate` is True once something came too late to be placed. So traces in the order of
    begins or of ends are exact at any length. A slice without length lies inside one that ends
    there. `inside`, if given, sums up by number what is directly inside of a slice.
    """

    def __init__(
        self,
        crossing: Callable[[Slice, Slice], None],
        inside: list[float] | None = None,
        most: int = MOST_SLICES,
    ) -> None:
        self.tracks: list[Track] = []
        self.approximate = False
        self.slack: float = 0
        self._inside, self._crossing = inside, crossing
        self._most = most

    def track(self) -> Track:
        """Add a track."""
        self.tracks.append(Track())
        return self.tracks[-1]

    def settle(self) -> None:
        """Place what has come."""
        for track in self.tracks:
            if track.new:
                self._settle(track)
        if self._kept() <= self._most:
            return
        for track in self.tracks:
            track.let_go()
        if self._kept() > self._most // 2:
            group = self._kept() // (self._most // 8 + 1) + 1
            for track in self.tracks:
                _put_together(track, group)
        if self._kept() > self._most // 2:  # so many are open at once
            self.approximate = True
            for track in self.tracks:
                track.take_back(track.ends[len(track.ends) // 2] if track.ends else NEVER)

    def tops(self) -> list[Slice]:
        """Return the slices that nothing is around, of those that are kept."""
        return [
            row
            for track in self.tracks
            for row, number in zip(track.kept, track.around, strict=True)
            if number == TOP and row[2] != LOOSE
        ]

    def _kept(self) -> int:
        return sum(len(track.kept) for track in self.tracks)

    def _settle(self, track: Track) -> None:
        rows = sorted(track.new)
        track.new.clear()
        track.widen(rows[0][0], NEVER)
        back, was_around = track.take_back(rows[0][0])
        placed = dict(zip(map(id, back), was_around, strict=True))
        if back:
            rows = sorted(back + rows)
        ends = [begin - size for begin, size, _ in rows]
        begins = [row[0] for row in rows]
        if not back and all(map(le, ends, islice(begins, 1, None))) and ends[-1] != begins[-1]:
            around = [TOP] * len(rows)
        else:
            around = self._place(track, rows, ends, placed)
        track.keep(rows, around, ends)
        track.widen(rows[0][0], track.ends[-1])

    def _place(
        self, track: Track, rows: list[Slice], row_ends: list[float], placed: dict[int, int]
    ) -> list[int]:
        """Answer the numbers of what is around each row; sum up what is inside of each."""
        inside, slack = self._inside, self.slack
        around: list[int] = []
        stack: list[Slice] = []
        ends: list[float] = []
        for row, end in zip(rows, row_ends, strict=True):
            begin, negative, number = row
            while ends and ends[-1] < end - slack:
                if ends.pop() > begin + slack:
                    self._cross(stack[-1], row, placed)
                stack.pop()
            if negative:  # what ends where this begins is around it only if this has no length
                while ends and ends[-1] <= begin + slack:
                    ends.pop()
                    stack.pop()
            outer = stack[-1][2] if ends else TOP
            stack.append(row)
            ends.append(end)
            around.append(outer)
            if placed and id(row) in placed:
                before = placed[id(row)]
                if before == outer:
                    continue
                if before >= 0 and inside is not None:
                    inside[before] += negative
            elif outer == LOOSE:
                self.approximate = True
            if outer >= 0 and inside is not None:
                inside[outer] -= negative if number != LOOSE else -track.covered[row]
        return around

    def _cross(self, before: Slice, row: Slice, placed: dict[int, int]) -> None:
        if LOOSE in (before[2], row[2]):
            self.approximate = True
        elif id(before) not in placed or id(row) not in placed:
            self._crossing(before, row)


def _put_together(track: Track, group: int) -> None:
    """Make one of each group of neighbours that do not overlap.

    Not of the newest quarter: what is around those is most likely still to come, and may begin
    between any two.
    """
    rows, around = track.take_back(NEVER)
    loose: list[Slice] = []
    outer: list[int] = []
    covered: dict[Slice, float] = {}
    newest = len(rows) - len(rows) // 4
    place = 0
    while place < len(rows):
        members = rows[place : min(place + group, newest)]
        if not members or not _are_neighbours(members, around[place : place + len(members)]):
            members = [rows[place]]
        begin, size, number = members[0]
        if len(members) > 1:
            size, number = begin - (members[-1][0] - members[-1][1]), LOOSE
        row = begin, size, number
        if number == LOOSE:
            covered[row] = sum(track.covered.get(one, -one[1]) for one in members)
        loose.append(row)
        outer.append(around[place])
        place += len(members)
    track.covered = covered
    track.keep(loose, outer, [begin - size for begin, size, _ in loose])


def _are_neighbours(rows: list[Slice], around: list[int]) -> bool:
    """Whether they follow each other at the top of a track."""
    return all(number == TOP for number in around) and all(
        before[0] - before[1] <= after[0] for before, after in pairwise(rows)
    )


class Coverage:
    """The union of many intervals, and the gaps between them.

    Past `most` intervals, the smallest gaps are closed for good and only their length is
    remembered, so that the largest stay exact; an interval that comes later inside a closed gap
    adds nothing.
    """

    def __init__(self, most: int = MOST_INTERVALS) -> None:
        self._most = most
        self._intervals: list[Interval] = []
        self._closed: float = 0  # of gaps that were closed
        self._closed_count = 0

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def add(self, intervals: list[Interval], slack: float = 0) -> None:
        """Unite with these, in any order."""
        if not intervals:
            return
        intervals.sort()
        united = self._intervals
        if united and united[-1][1] > intervals[0][0]:
            intervals = sorted(united + intervals)
            united.clear()
        at, until = united.pop() if united else intervals[0]
        for begin, end in intervals:
            if begin > until + slack:
                united.append((at, until))
                at, until = begin, end
            elif end > until:
                until = end
        united.append((at, until))
        if len(united) > 2 * self._most:
            self._close_smallest(self._most // 2)

    @property
    def extent(self) -> Interval:
        """From the begin of the first to the end of the last."""
        return (self._intervals[0][0], self._intervals[-1][1]) if self._intervals else (0, 0)

    @property
    def busy(self) -> float:
        """How long there was one."""
        return sum(end - begin for begin, end in self._intervals) - self._closed

    @property
    def gap_count(self) -> int:
        """How many gaps there are."""
        return self._closed_count + max(len(self._intervals) - 1, 0)

    def _gaps(self) -> list[Interval]:
        return [(before[1], after[0]) for before, after in pairwise(self._intervals)]

    def largest_gaps(self, most: int) -> list[Interval]:
        """Return begin and end of the longest ones, the longest first."""
        return nlargest(most, self._gaps(), key=lambda gap: round(gap[1] - gap[0]))

    def _close_smallest(self, left: int) -> None:
        gaps = self._gaps()
        gaps.sort(key=_length, reverse=True)
        largest = sorted(gaps[:left])
        begin, end = self.extent
        self._closed += sum(map(_length, gaps[left:]))
        self._closed_count += len(gaps) - len(largest)
        begins = [begin, *(to for _, to in largest)]
        self._intervals = list(zip(begins, [*(at for at, _ in largest), end], strict=True))


def _length(interval: Interval) -> float:
    return interval[1] - interval[0]
