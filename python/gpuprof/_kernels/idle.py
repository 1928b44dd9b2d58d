"""Why a stream had nothing to do before a kernel: the rule of docs/kernels.md."""

from __future__ import annotations

from array import array
from bisect import bisect_right

from gpuprof._kernels.records import Collected, Column

HOST_BOUND, DEPENDENCY, LAUNCH_GAP, OTHER = range(1, 5)
CAUSES = ("", "host-bound", "dependency", "launch gap", "other")

# How long before a kernel's begin the work it waited for ended, at most; and how long the GPU takes
# from the end of one kernel to the begin of the next that is queued, at most. Both were 1 to 5 us
# on the GPUs that were measured.
DEPENDENCY_NS = 10_000
LAUNCH_GAP_NS = 10_000


def idle(found: Collected, launch: Column) -> tuple[Column, Column]:
    """Return for each record how long its stream was idle before it, and the cause's number.

    `launch` has the index of each record's launch, or -1. Before the first record of a stream
    nothing is counted.
    """
    work, launches = found.work, found.launches
    gaps = array("q", [0]) * len(work)
    causes = array("B", [0]) * len(work)
    ends = sorted(
        (end, device, stream)
        for end, device, stream in zip(work.end_ns, work.device, work.stream, strict=True)
    )
    end_times = array("q", (end for end, _, _ in ends))
    last: dict[tuple[int, int], tuple[int, int]] = {}  # end and correlation, by stream
    for record, (begin, end, device, stream, correlation) in enumerate(
        zip(work.begin_ns, work.end_ns, work.device, work.stream, work.correlation, strict=True)
    ):
        before = last.get((device, stream))
        if before is None or end > before[0]:
            last[device, stream] = (end, correlation)
        if before is None or begin <= before[0]:
            continue
        previous = before[0]
        gaps[record] = gap = begin - previous
        call = launch[record]
        if correlation != before[1] and call >= 0 and launches.end_ns[call] > previous:
            causes[record] = HOST_BOUND
            continue
        earliest = max(previous, begin - DEPENDENCY_NS)
        at = bisect_right(end_times, begin) - 1
        waited = False
        while at >= 0 and end_times[at] > earliest:
            if ends[at][1:] != (device, stream):
                waited = True
                break
            at -= 1
        if waited:
            causes[record] = DEPENDENCY
        else:
            causes[record] = LAUNCH_GAP if gap <= LAUNCH_GAP_NS else OTHER
    return gaps, causes
