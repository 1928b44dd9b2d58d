"""How long streams were idle before each kernel, and why: the rule of `gpuprof._trace_tools.idle`.

The idle time before a kernel is what lies between the end of all earlier work of its stream and its
own begin. It belongs to that kernel, and so to the scope that launched it. Work of one stream may
overlap, as branches of a graph do: then the latest end counts.

`gaps` of that module is for one stream's work as a list; here the streams are told apart on the
way, and there may be a million records.
"""

from __future__ import annotations

from array import array

from gpuprof._kernels.records import Collected, Column
from gpuprof._trace_tools.idle import CAUSES as _CAUSES
from gpuprof._trace_tools.idle import IN_TIME, cause_of, launched_at

# By number; 0 is for work that followed without a gap, or that is the first of its stream.
CAUSES = ("", *_CAUSES)
HOST_BOUND, DEPENDENCY, LAUNCH_GAP, UNKNOWN = map(
    CAUSES.index, ("host_bound", "dependency", "launch_gap", "unknown")
)


def idle(found: Collected, launch: Column) -> tuple[Column, Column, Column]:
    """Return for each record how long its stream was idle before it, and the cause's number.

    The third says how much of it was host-bound where the cause is that of the rest.
    `launch` has the index of each record's launch, or -1. What has the correlation of the work
    before it is of the same replay, and waits for no host.
    """
    work, launches = found.work, found.launches
    gaps = array("q", [0]) * len(work)
    causes, late = array("B", [0]) * len(work), array("q", [0]) * len(work)
    numbers = {cause: number for number, cause in enumerate(CAUSES)}
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
        given: float | None = None
        if correlation == before[1]:
            given = IN_TIME
        elif call >= 0:
            name = found.names[launches.name[call]]
            given = launched_at(name, launches.begin_ns[call], launches.end_ns[call])
        gaps[record] = begin - before[0]
        host_bound, cause = cause_of(before[0], begin, given)
        causes[record], late[record] = numbers[cause], int(host_bound)
    return gaps, causes, late
