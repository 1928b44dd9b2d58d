"""Why a GPU was idle before a kernel, and how long a launch took to reach it.

One rule for traces and for live records. A piece of work is (begin, end, launch): when the GPU
began and ended it, and when the GPU was given it (`launched_at`), None where that is not known, and
`IN_TIME` for work that waits for no host, as inside of a graph's replay. All are nanoseconds on one
clock. For the work of one stream these are the gaps of that stream; for that of all streams of a
device, the times in which none of them ran anything.

The work that ends a gap says why it was there:

- ``host_bound``: the GPU was given it when it was idle already. A launch reaches the GPU within
  `REACH_NS`; what the work waited beyond that is a dependency, and only the time up to the launch
  is the host's.
- ``launch_gap``: it was given in time and began within `LAUNCH_GAP_NS` after what ran before,
  which is what the GPU takes from one kernel to the next, in a graph too.
- ``dependency``: it was given in time, and began later than that: it waited for an event, a copy,
  a host function or another device.
- ``unknown``: its launch is not known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import NamedTuple

CAUSES = ("host_bound", "dependency", "launch_gap", "unknown")
LAUNCH_GAP_NS = 5_000
REACH_NS = 20_000
IN_TIME = -math.inf


class Gap(NamedTuple):
    """A time in which nothing ran, between two pieces of work."""

    begin: float
    end: float
    cause: str
    place: int  # of the work that ended it, among those given

    @property
    def ns(self) -> float:
        return self.end - self.begin


def launched_at(call: str, begin: float, end: float) -> float:
    """Return when the GPU was given work by a call of CUDA's.

    A launch hands its work over near its end: a host that launches one short kernel after the other
    begins each call before the GPU is idle, and is late all the same. A call that copies may wait
    for the copy, so of that it is the begin.
    """
    return end if "Launch" in call else begin


def cause_of(idle_since: float, begin: float, launch: float | None) -> tuple[float, str]:
    """Return why the GPU was idle from `idle_since` until work began that was launched then.

    The first is how long of that the host let it wait before a dependency did, the second the cause
    of the rest.
    """
    if launch is None:
        return 0, "unknown"
    if launch >= idle_since:
        is_held_up = begin - launch > REACH_NS
        return (launch - idle_since, "dependency") if is_held_up else (0, "host_bound")
    return 0, "launch_gap" if begin - idle_since <= LAUNCH_GAP_NS else "dependency"


def gaps(works: Iterable[tuple[float, float, float | None]]) -> Iterator[Gap]:
    """Yield the gaps between pieces of work, which come in the order in which they begin.

    What is before the first and after the last is none.
    """
    busy_until: float | None = None
    for place, (begin, end, launch) in enumerate(works):
        if busy_until is not None and begin > busy_until:
            late, cause = cause_of(busy_until, begin, launch)
            if late:
                yield Gap(busy_until, busy_until + late, "host_bound", place)
            yield Gap(busy_until + late, begin, cause, place)
        busy_until = end if busy_until is None else max(busy_until, end)


def totals(found: Iterable[Gap]) -> dict[str, tuple[int, float]]:
    """Return (how many, nanoseconds in all) of each cause, also of those that did not occur."""
    counts = dict.fromkeys(CAUSES, 0)
    sums = dict.fromkeys(CAUSES, 0.0)
    for gap in found:
        counts[gap.cause] += 1
        sums[gap.cause] += gap.ns
    return {cause: (counts[cause], sums[cause]) for cause in CAUSES}
