"""The time of a call by the hardware profiler: CUPTI, through torch.profiler.

A call's time is the span from its first kernel's start to its last one's end, in microseconds, the
median over all calls. It depends on how the calls reach the GPU, so there is one method for each
way: queued in a stream, queued with the L2 cache flushed before each, and as parts of a CUDA graph.
The host is out of it: a kernel that only waits goes first, and everything is queued behind it. Not
for use from two threads at once.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.loops import BenchmarkError

Call = Callable[[], object]

# The queue of a stream takes 1,020 entries; a call of three kernels and a flush make four.
_CALLS = 120
_COPIES = 20
_REPLAYS = 6
_AHEAD_CYCLES = 40_000_000  # about 20 ms, in which all that follows is queued
_FLUSH_BYTES = 256 * 1024 * 1024
_AHEAD_LEAST_US = 5_000.0  # no other kernel takes so long
_WARM_S = 0.1
_ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")


@dataclass(frozen=True)
class Reference:
    """The time of one call by the profiler, in microseconds."""

    span: float  # from the first kernel's start to the last one's end, median over the calls
    busy: float  # the sum of the kernels' own times, median over the calls
    kernels: int


@dataclass(frozen=True)
class _Activity:
    start: float
    duration: float


class Profiler:
    """Profiles calls on torch's current stream."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch

    def queued(self, call: Call, calls: int = _CALLS) -> Reference:
        """Profile calls that are queued one after the other in a stream."""
        self._warm(call)

        def work() -> None:
            for _ in range(calls):
                call()

        return _reference(self._profile(work), calls)

    def flushed(self, call: Call, kernels: int, calls: int = _CALLS) -> Reference:
        """Profile calls of `kernels` kernels, with the L2 cache flushed before each."""
        torch = self._torch
        cache = torch.empty(_FLUSH_BYTES // 4, dtype=torch.int, device="cuda")

        def work() -> None:
            for _ in range(calls):
                cache.zero_()
                call()

        self._warm(call)
        return _reference(self._profile(work), calls, kernels)

    def replayed(self, calls: Sequence[Call]) -> Reference:
        """Profile these calls, all of them in one graph, replayed."""
        torch = self._torch
        for call in calls[:1]:
            self._warm(call)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for call in calls:
                call()
        self._warm(graph.replay)

        def work() -> None:
            for _ in range(_REPLAYS):
                graph.replay()

        return _reference(self._profile(work), _REPLAYS * len(calls))

    def copies(self, call: Call) -> Reference:
        """Profile a graph of copies of one call, which run with a hot L2 cache."""
        return self.replayed([call] * _COPIES)

    def _warm(self, call: Call) -> None:
        # Long enough for the clocks to rise and for lazy loading.
        until = time.monotonic() + _WARM_S
        while time.monotonic() < until:
            for _ in range(20):
                call()
            self._torch.cuda.synchronize()

    def _profile(self, work: Callable[[], None]) -> list[_Activity]:
        torch = self._torch
        activities = [torch.profiler.ProfilerActivity.CUDA]
        with torch.profiler.profile(activities=activities) as profile:
            torch.cuda._sleep(_AHEAD_CYCLES)
            work()
            torch.cuda.synchronize()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            profile.export_chrome_trace(str(path))
            events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
        return _in_order(events)


def _in_order(events: Sequence[Any]) -> list[_Activity]:
    # Without the waiting kernel, which the profiler may miss because it is the first.
    found = [
        _Activity(float(event["ts"]), float(event["dur"]))
        for event in events
        if event.get("cat") in _ON_DEVICE
    ]
    own = [activity for activity in found if activity.duration < _AHEAD_LEAST_US]
    return sorted(own, key=lambda activity: activity.start)


def _reference(activities: Sequence[_Activity], calls: int, last: int | None = None) -> Reference:
    # Calls are told apart by counting: each launches as many kernels as any other. Of those that
    # belong to a call, only the `last` may be its own.
    each, rest = divmod(len(activities), calls)
    if each == 0 or rest != 0:
        raise BenchmarkError(
            f"the profiler saw {len(activities)} kernels of {calls} calls: not the same for each"
        )
    own = last or each
    groups = [
        activities[index + each - own : index + each] for index in range(0, calls * each, each)
    ]
    spans = [group[-1].start - group[0].start + group[-1].duration for group in groups]
    busy = [sum(activity.duration for activity in group) for group in groups]
    return Reference(statistics.median(spans), statistics.median(busy), own)
