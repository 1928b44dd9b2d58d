"""Many ranges in little memory, and the paths that their nesting gives them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

NONE = -1  # in the place of a number


class Spans:
    """Begin, end, name and track of many ranges."""

    def __init__(self) -> None:
        self.begin, self.end = array("d"), array("d")
        self.name, self.track = array("l"), array("l")

    def __len__(self) -> int:
        return len(self.begin)

    def add(self, begin: float, end: float, name: int, track: int) -> None:
        self.begin.append(begin)
        self.end.append(end)
        self.name.append(name)
        self.track.append(track)

    def by_track(self) -> dict[int, list[int]]:
        """Return the places of each track's ranges, outer ones first."""
        found = defaultdict(list)
        for place, track in enumerate(self.track):
            found[track].append(place)
        for places in found.values():
            places.sort(key=lambda place: (self.begin[place], -self.end[place]))
        return found


class Numbers:
    """A number for each thing met, at most so many; `NONE` past that."""

    def __init__(self, most: int) -> None:
        self.of: dict[Any, int] = {}
        self._most = most

    def __getitem__(self, key: Any) -> int:
        found = self.of.get(key)
        if found is None:
            found = self.of[key] = len(self.of) if len(self.of) < self._most else NONE
            if found == NONE:
                del self.of[key]
        return found


class Nested:
    """The paths of nested ranges, and which was open on a track at a time."""

    def __init__(self, spans: Spans, names: list[str]) -> None:
        self.path: list[str] = [""] * len(spans)
        self._parent = array("q", [NONE]) * len(spans)
        self._times: dict[int, list[float]] = {}
        self._open: dict[int, list[str]] = {}
        for track, places in spans.by_track().items():
            times: list[float] = []
            opened: list[str] = []
            self._times[track], self._open[track] = times, opened
            stack: list[tuple[float, str, int]] = []
            for place in places:
                begin, name = spans.begin[place], names[spans.name[place]]
                while stack and stack[-1][0] <= begin:
                    times.append(max(stack.pop()[0], times[-1]))
                    opened.append(stack[-1][1] if stack else "")
                path = f"{stack[-1][1]}/{name}" if stack else name
                self.path[place] = path
                if stack:
                    self._parent[place] = stack[-1][2]
                stack.append((spans.end[place], path, place))
                times.append(max(begin, times[-1]) if times else begin)
                opened.append(path)
            while stack:
                times.append(max(stack.pop()[0], times[-1]))
                opened.append(stack[-1][1] if stack else "")

    def around(self, place: int) -> Iterator[int]:
        """Yield the place of a range and those of the ranges around it, from the inside out."""
        while place != NONE:
            yield place
            place = self._parent[place]

    def at(self, track: int, time: float) -> str:
        """Return the innermost path; one that begins there counts, one that ends there does not."""
        times = self._times.get(track)
        if not times:
            return ""
        place = bisect_right(times, time) - 1
        return self._open[track][place] if place >= 0 else ""
