"""Many ranges in little memory, and the paths that their nesting gives them."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import defaultdict
from typing import Any

from gpuprof._trace_tools.nesting import TOP, enclosing

MOST_NAMES = 50_000
NONE = TOP  # in the place of a number


class Spans:
    """Begin, end, name and track of many ranges, and the number that joins each to others."""

    def __init__(self) -> None:
        self.begin, self.end = array("d"), array("d")
        self.name, self.track, self.link = array("l"), array("l"), array("q")

    def __len__(self) -> int:
        return len(self.begin)

    def add(self, begin: float, size: float, name: int, track: int, link: int) -> None:
        self.begin.append(begin)
        self.end.append(begin + size)
        self.name.append(name)
        self.track.append(track)
        self.link.append(link)

    def size(self, place: int) -> float:
        return self.end[place] - self.begin[place]

    def by_track(self) -> dict[int, list[int]]:
        """Return the places of each track's ranges, outer ones first."""
        found = defaultdict(list)
        for place, track in enumerate(self.track):
            found[track].append(place)
        for places in found.values():
            places.sort(key=lambda place: (self.begin[place], -self.end[place]))
        return found


class Numbers(dict[Any, int]):
    """A number for each thing met, at most `MOST_NAMES`; `NONE` past that."""

    def __missing__(self, key: Any) -> int:
        if len(self) >= MOST_NAMES:
            return NONE
        return self.setdefault(key, len(self))


class Nested:
    """The paths of nested ranges, and which was open on a track at a time."""

    def __init__(self, spans: Spans, names: list[str], slack: float) -> None:
        self.path: list[str] = [""] * len(spans)
        self._parent = array("q", [NONE]) * len(spans)
        self._spans, self._tracks = spans, spans.by_track()
        for places in self._tracks.values():
            rows = [(spans.begin[at], spans.begin[at] - spans.end[at], at) for at in places]
            outer = enclosing(rows, slack)
            for place, (_, _, around) in zip(places, outer, strict=True):
                name = names[spans.name[place]]
                self.path[place] = name if around == NONE else f"{self.path[around]}/{name}"
                self._parent[place] = around

    def at(self, track: int, time: float) -> str:
        """Return the innermost path; one that begins there counts, one that ends there does not."""
        places = self._tracks.get(track, [])
        after = bisect_right(places, time, key=self._spans.begin.__getitem__)
        place = places[after - 1] if after else NONE
        while place != NONE and self._spans.end[place] <= time:
            place = self._parent[place]
        return "" if place == NONE else self.path[place]
