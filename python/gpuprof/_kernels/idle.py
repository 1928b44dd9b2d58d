"""How long streams were idle before each kernel, and why: the rule of `gpuprof._trace.idle`.

The idle time before a kernel is what lies between the end of all earlier work of its stream and its
own begin. It belongs to that kernel, and so to the scope that launched it.
"""

from __future__ import annotations

from array import array

from gpuprof._kernels.records import Collected, Column
from gpuprof._trace.idle import CAUSES as _CAUSES
from gpuprof._trace.idle import cause_of

# By number; 0 is for work that followed without a gap, or that is the first of its stream.
CAUSES = ("", *_CAUSES)
HOST_BOUND, DEPENDENCY, LAUNCH_GAP, UNKNOWN = map(
    CAUSES.index, ("host_bound", "dependency", "launch_gap", "unknown")
)


def idle(found: Collected, launch: Column) -> tuple[Column, Column]:
    """Return for each record how long its stream was idle before it, and the cause's number.

    `launch` has the index of each record's launch, or -1. A kernel or graph counts as launched when
    the call returned, since the GPU gets it near the call's end: a host that launches one short
    kernel after the other begins each call before the kernel before has ended, and is late all the
    same. Calls that copy may wait for the copy, so for them it is when the call began. Inside a
    graph's replay nothing waits for the host.
    """
    work, launches = found.work, found.launches
    gaps = array("q", [0]) * len(work)
    causes = array("B", [0]) * len(work)
    numbers = {cause: number for number, cause in enumerate(CAUSES)}
    is_launch = ["Launch" in name for name in found.names]
    last: dict[tuple[int, int], tuple[int, int]] = {}  # end and correlation, by stream
    for record, (begin, end, device, stream, correlation, call) in enumerate(
        zip(
            work.begin_ns,
            work.end_ns,
            work.device,
            work.stream,
            work.correlation,
            launch,
            strict=True,
        )
    ):
        before = last.get((device, stream))
        if before is None or end > before[0]:
            last[device, stream] = (end, correlation)
        if before is None or begin <= before[0]:
            continue
        launched: int | None = None
        if correlation == before[1]:
            launched = 0
        elif call >= 0:
            times = launches.end_ns if is_launch[launches.name[call]] else launches.begin_ns
            launched = times[call]
        gaps[record] = begin - before[0]
        causes[record] = numbers[cause_of(before[0], begin, launched)]
    return gaps, causes
