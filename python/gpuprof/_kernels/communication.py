"""Exposed communication: when a GPU runs kernels of NCCL and nothing else.

A collective costs a step only what no other work of the same GPU hides. Waits for it are events
between streams and no calls of the host, so only the records of kernels show it.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from gpuprof._kernels.records import KERNEL, Collected, Column

Interval = tuple[int, int]


def communication(found: Collected) -> tuple[Column, Column]:
    """Return for each record how long it communicates, and how long nothing else runs meanwhile.

    Both are nanoseconds, and 0 for what is no kernel of NCCL. Where several such kernels run at
    once on one device, the time counts for the one that began first. The records are in the order
    in which they began.
    """
    work = found.work
    is_nccl = ["nccl" in name.lower() for name in found.names]
    took, exposed = array("q", [0]) * len(work), array("q", [0]) * len(work)
    if not any(is_nccl):
        return took, exposed
    collectives: dict[int, list[int]] = {}
    for record, (kind, name, device) in enumerate(
        zip(work.kind, work.name, work.device, strict=True)
    ):
        if kind == KERNEL and is_nccl[name]:
            collectives.setdefault(device, []).append(record)
    for device, records in collectives.items():
        own = set(records)
        others = _Covered(
            (work.begin_ns[record], work.end_ns[record])
            for record in range(len(work))
            if work.device[record] == device and record not in own
        )
        until = 0
        for record in records:
            begin, end = max(until, work.begin_ns[record]), work.end_ns[record]
            if begin < end:
                took[record] = end - begin
                exposed[record] = end - begin - (others.before(end) - others.before(begin))
                until = end
    return took, exposed


class _Covered:
    """How much of the time some intervals cover together, which are sorted by their begins."""

    def __init__(self, intervals: Iterable[Interval]) -> None:
        self._begins: list[int] = []
        self._ends: list[int] = []
        self._sums: list[int] = [0]  # of what lies before each
        for begin, end in intervals:
            if self._ends and begin <= self._ends[-1]:
                if end > self._ends[-1]:
                    self._sums[-1] += end - self._ends[-1]
                    self._ends[-1] = end
            else:
                self._begins.append(begin)
                self._ends.append(end)
                self._sums.append(self._sums[-1] + end - begin)

    def before(self, moment: int) -> int:
        """Return how much is covered before a moment."""
        at = bisect_right(self._begins, moment)
        return self._sums[at] - max(0, self._ends[at - 1] - moment) if at else 0
