"""Why a GPU was idle before a kernel.

One rule for traces and for live records. A piece of work is (begin, end, launch, given): when the
GPU began and ended it, the number of its launch, and when the GPU was given it (`launched_at`);
these two are None where they are not known. What has the launch of the work before it is of the
same replay of a graph, and waits for no host. Times are nanoseconds on one clock. For the work of
one stream these are the gaps of that stream; for that of all streams of a device, the times in
which none of them ran anything.

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
from typing import NamedTuple, TypeAlias

CAUSES = ("host_bound", "dependency", "launch_gap", "unknown")
LAUNCH_GAP_NS = 5_000
REACH_NS = 20_000


Work: TypeAlias = "tuple[float, float, int | None, float | None]"


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


def gaps(works: Iterable[Work]) -> Iterator[Gap]:
    """Yield the gaps between pieces of work, which come in the order in which they begin.

    What is before the first and after the last is none.
    """
    busy_until, of_last = math.inf, None  # the launch of the work that ended last
    for place, (begin, end, launch, given) in enumerate(works):
        if begin > busy_until:
            in_time = launch is not None and launch == of_last
            late, cause = cause_of(busy_until, begin, -math.inf if in_time else given)
            if late:
                yield Gap(busy_until, busy_until + late, "host_bound", place)
            yield Gap(busy_until + late, begin, cause, place)
        if not place or end >= busy_until:
            busy_until, of_last = end, launch
