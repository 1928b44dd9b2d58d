"""What a process holds, read again and again, and whether that grows.

One reading says nothing: memory goes up and down. The slope of many is what a leak has: the median
of the slopes between any two readings after the warm-up (Theil and Sen), times the rounds between
the first and the last.
"""

from __future__ import annotations

import bisect
import ctypes
import gc
import itertools
import os
import statistics
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WARM_UP = 0.3  # of the rounds
MOST = 60  # readings that are kept: they are memory too
# How much may be gained between the first and the last reading after the warm-up. Memory of the
# process has its allocator's pages in it, and the samples those that the most threads at once took;
# of the others a slope is a leak, however small.
LIMITS = {
    "rss KiB": 2048.0,
    "malloc KiB": 1024.0,  # the first 10,000 threads are remembered, for traces
    "traced KiB": 48.0,
    "objects": 150.0,
    "samples": 100.0,
    "device KiB": 4096.0,
}
LEAST = 0.9  # of what is counted one by one


def resident_kib() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


class Heap(ctypes.Structure):
    """What `mallinfo2` returns: what C and C++ have allocated, of all arenas."""

    _fields_ = tuple((name, ctypes.c_size_t) for name in "abcdefghij")  # as in <malloc.h>


def allocated_kib() -> int:
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Heap
    heap = mallinfo()
    return int(heap.e + heap.h) // 1024  # hblkhd: by mmap; uordblks: in use


def of_process() -> dict[str, int]:
    """Return what this process holds, after a collection."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what is free goes back to the system, where it can
    held = {
        "rss KiB": resident_kib(),
        "malloc KiB": allocated_kib(),
        "objects": len(gc.get_objects()),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }
    if tracemalloc.is_tracing():
        held["traced KiB"] = tracemalloc.get_traced_memory()[0] // 1024
    return held


def slope(rounds: Sequence[int], values: Sequence[float]) -> float:
    """Return the median of the slopes between any two points; 0 for fewer than two."""
    pairs = itertools.combinations(zip(rounds, values, strict=True), 2)
    return statistics.median([(b - a) / (n - m) for (m, a), (n, b) in pairs] or [0.0])


@dataclass
class Readings:
    """The readings of a run, in order."""

    more: Callable[[], Mapping[str, int]] = dict
    rounds: list[int] = field(default_factory=list)
    values: dict[str, list[int]] = field(default_factory=dict)

    def read(self, after: int) -> None:
        """Read what is held after so many rounds, and drop every other reading of too many."""
        self.rounds.append(after)
        for kind, value in {**of_process(), **self.more()}.items():
            self.values.setdefault(kind, []).append(value)
        if len(self.rounds) > MOST:
            for column in (self.rounds, *self.values.values()):
                del column[1:-1:2]

    def warm(self) -> int:
        """Return the number of the first reading after the warm-up."""
        return bisect.bisect_left(self.rounds, WARM_UP * self.rounds[-1])

    def growth(self, kind: str) -> float:
        """Return what a kind gained from the end of the warm-up to the last reading.

        It is the lesser of the slopes of the first and the last two thirds: one step, as where a
        table of Python's is made larger, is in the middle of one of them at most.
        """
        first = self.warm()
        rounds, values = self.rounds[first:], self.values[kind][first:]
        third = len(rounds) // 3
        parts = (slice(None, len(rounds) - third), slice(third, None))
        slopes = [slope(rounds[part], values[part]) for part in parts]
        return min(slopes) * (rounds[-1] - rounds[0])

    def grown(self) -> list[str]:
        """Return the kinds that gained more than they may."""
        return [kind for kind in self.values if self.growth(kind) > LIMITS.get(kind, LEAST)]

    def last(self) -> str:
        """Return the last reading in a line."""
        return ", ".join(f"{kind} {values[-1]:,}" for kind, values in self.values.items())

    def table(self) -> str:
        """Return a row for each kind: first reading, after the warm-up, last, growth, limit."""
        first = self.warm()
        lines = [f"{'':14}{'first':>12}{'warm':>12}{'last':>12}{'growth':>12}{'limit':>9}"]
        for kind, values in self.values.items():
            numbers = f"{values[0]:12,}{values[first]:12,}{values[-1]:12,}"
            limit = LIMITS.get(kind, LEAST)
            lines.append(f"{kind:14}{numbers}{self.growth(kind):12,.1f}{limit:9,.1f}")
        return "\n".join(lines)
