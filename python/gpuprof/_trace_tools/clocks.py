"""Measured clocks: what the files of ranks say of rank 0's clock, and what a merge makes of it.

A file has instants of the category ``gpuprof.clock``. Each says how far rank 0's monotonic clock
was ahead of the file's own at that moment, and by how much that may be wrong. Between two of them
the offset is linear, outside of them constant. The wall clock then matters only for the rank by
which all others are placed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpuprof._trace_tools.scan import MOST_NS, Event, args_of

CATEGORY = "gpuprof.clock"
NAME = "clock offset to rank 0"
MOST_ANCHORS = 1_000
MOST_REFERENCE = 64


@dataclass(frozen=True)
class Anchor:
    """What was known at one moment, in nanoseconds.

    `clock` is the moment on its rank's clock, `at` in the file's time. Rank 0's clock was `offset`
    ahead, give or take `error`. `reference` is what rank 0 calls its clock, another in each run.
    """

    clock: int
    offset: int
    error: int
    reference: str
    at: int = 0  # where it has been read

    def args(self) -> dict[str, Any]:
        return {
            "clock_ns": self.clock,
            "offset_ns": self.offset,
            "error_ns": self.error,
            "reference": self.reference[:MOST_REFERENCE],
        }


def anchors_in(event: Event, at: int) -> list[Anchor]:
    """Return what an instant at the file's time `at` says; nothing if it is no such instant."""
    args = args_of(event)
    keys = ("clock_ns", "offset_ns", "error_ns", "reference")
    found: list[Any] = [args.get(key) for key in keys]
    clock, offset, error, reference = found
    if (
        not all(type(each) is int and abs(each) <= MOST_NS for each in (clock, offset, error))
        or error < 0
        or not isinstance(reference, str)
        or len(reference) > MOST_REFERENCE
    ):
        return []
    return [Anchor(clock, offset, error, reference, at)]


class FileClock:
    """How the times of one file become those of rank 0's clock, by its anchors."""

    def __init__(self, anchors: Sequence[Anchor]) -> None:
        self.reference = anchors[0].reference
        own = [anchor for anchor in anchors if anchor.reference == self.reference]
        self.anchors = sorted(own, key=lambda anchor: anchor.at)
        self._times = [anchor.at for anchor in self.anchors]
        self._base = self.anchors[0].clock - self.anchors[0].at

    @property
    def error(self) -> int:
        """How far a time may be off."""
        return max(anchor.error for anchor in self.anchors)

    @property
    def start(self) -> int:
        """Rank 0's clock at the file's time 0."""
        return self._base + self.anchors[0].offset

    def drift(self, time: int) -> int:
        """Return how much more the offset is at a time of the file than at its first anchor."""
        place = bisect_right(self._times, time)
        first = self.anchors[0].offset
        if place == 0:
            return 0
        before = self.anchors[place - 1]
        if place == len(self.anchors):
            return before.offset - first
        after = self.anchors[place]
        gained = (after.offset - before.offset) * (time - before.at) // (after.at - before.at)
        return before.offset + gained - first

    def to_dict(self) -> dict[str, Any]:
        return {
            "reference": self.reference,
            "offsetNanoseconds": [anchor.offset for anchor in self.anchors],
            "errorNanoseconds": self.error,
        }
