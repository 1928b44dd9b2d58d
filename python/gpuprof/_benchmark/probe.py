"""What a function does to the GPU, found out before it is measured."""

from __future__ import annotations

import statistics
import sys
from contextlib import closing, suppress
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any

import gpuprof._core as _core
from gpuprof._benchmark.gate import Hold
from gpuprof._benchmark.work import Work
from gpuprof._frameworks.streams import StreamRef as Where
from gpuprof._timing.calibration import Calibration, calibrate
from gpuprof._timing.timer import Timer
from gpuprof.errors import StreamMismatchError

_MIN_CALLS, _MAX_CALLS = 3, 50
_PROBE_MS = 50.0
__tracebackhide__ = True  # pytest shows the frames of the test and of its function

SLOW_MS = 1000.0  # a call that takes longer is looked at once, not several times
_STRAY_CALLS = 32  # so that short work elsewhere adds up to more than what goes unseen
_LEAST_GPU_NS = 250.0  # over an empty interval: under half of the shortest kernel
_EMPTY_TRIES = 3
_TAIL_TRIES = 3  # a thread that has to wait for the interpreter makes a tail look long
_TAIL_MS, _TAIL_SHARE = 0.05, 0.1  # as a scope that verifies its stream has them
_ALLOCATIONS = "num_device_alloc"  # of torch's statistics; older ones count segments only
_SEGMENTS = "segment.all.allocated"


@dataclass(frozen=True)
class Facts:
    """What `probe` found.

    Attributes
    ----------
    host_ms : float
        The median time that a call takes on the host.
    wall_ms : float
        The time of a call until the device is done with it.
    gpu_ms : float
        What one call reads while the GPU is held back, over an empty interval; infinite if the call
        waits.
    uses_gpu : bool
        Whether it gives the GPU work.
    elsewhere : bool
        Whether work of it goes on on other streams when its own is done.
    waits : bool
        Whether it waits for the GPU.
    calibration : Calibration
        What an empty interval reads.
    """

    host_ms: float
    wall_ms: float
    gpu_ms: float
    uses_gpu: bool
    elsewhere: bool
    waits: bool
    calibration: Calibration


def probe(work: Work, where: Where, hold: Hold) -> Facts:
    """Call the function some times and tell what it does. It has been called before."""
    calibration = calibrate(where.device)
    host_ms, wall_ms = _host_times(work, where)
    elsewhere = _works_elsewhere(work, where, wall_ms)
    hold.allow(host_ms)  # else a function that only keeps the host busy seems to wait for the GPU
    tries = 1 if wall_ms > SLOW_MS else _EMPTY_TRIES
    reading_ns, held = _gated_reading(work, where, hold, calibration, tries)
    waits = not held
    return Facts(
        host_ms=host_ms,
        wall_ms=wall_ms,
        gpu_ms=reading_ns * 1e-6,
        uses_gpu=elsewhere or waits or reading_ns > _LEAST_GPU_NS,
        elsewhere=elsewhere,
        waits=waits,
        calibration=calibration,
    )


def _host_times(work: Work, where: Where) -> tuple[float, float]:
    # Each call starts on an idle GPU: with a full queue the host would wait for it.
    host: list[float] = []
    walls: list[float] = []
    spent = 0.0  # with the set-up
    begun = perf_counter_ns()
    while not _enough(len(host), spent):
        _set_up(work, where)
        begin = perf_counter_ns()
        work.call()
        queued = perf_counter_ns()
        _core._synchronize(where.handle, where.device)
        host.append((queued - begin) * 1e-6)
        walls.append((perf_counter_ns() - begin) * 1e-6)
        spent = (perf_counter_ns() - begun) * 1e-6
    return statistics.median(host), statistics.median(walls)


def _enough(calls: int, spent_ms: float) -> bool:
    if calls < _MIN_CALLS:
        return spent_ms > SLOW_MS
    return spent_ms >= _PROBE_MS or calls >= _MAX_CALLS


def _set_up(work: Work, where: Where) -> None:
    if work.setup is not None:
        work.set_up()
        _core._synchronize(where.handle, where.device)  # what it still runs is not the call's


def _works_elsewhere(work: Work, where: Where, wall_ms: float) -> bool:
    """Compare the stream's end with the device's, over enough calls for short work to show."""
    calls = max(1, min(_STRAY_CALLS, round(_PROBE_MS / max(wall_ms, 1e-3))))
    if work.setup is not None:
        calls = 1
    scope = _core.timer(None, stream=where.handle, backend="cuda", enabled=True, verify_stream=True)
    _set_up(work, where)
    sample = _core._enter_unpaused(scope)
    try:
        work.call_times(calls)
    except BaseException:
        scope.__exit__(*sys.exc_info())
        raise
    try:
        scope.__exit__(None, None, None)
    except StreamMismatchError:
        return True
    # With GPUPROF_DISABLE no scope measures.
    return not sample.ready and all(_has_tail(work, where, calls) for _ in range(_TAIL_TRIES))


def _has_tail(work: Work, where: Where, calls: int) -> bool:
    _set_up(work, where)
    _core._synchronize(where.handle, where.device)
    with closing(Timer("cuda", where.handle)) as span, closing(Timer("cuda", where.handle)) as tail:
        span.record_start(where.handle)
        work.call_times(calls)
        span.record_end()
        tail.record_start(where.handle)
        _core._synchronize(where.handle, where.device)
        tail.record_end()
        return tail.elapsed_ms() > _TAIL_MS + _TAIL_SHARE * span.elapsed_ms()


def _gated_reading(
    work: Work, where: Where, hold: Hold, calibration: Calibration, tries: int
) -> tuple[float, bool]:
    """Return how much longer than an empty interval one call reads, and if it was held back."""
    timer = Timer("cuda", where.handle)
    least = float("inf")

    def queue() -> None:
        timer.record_start(where.handle)
        try:
            work.call()
        finally:
            timer.record_end()

    try:
        for _ in range(tries):
            _set_up(work, where)
            if not hold.run(queue):
                return float("inf"), False
            least = min(least, timer.elapsed_ms() * 1e6)
    finally:
        timer.close()
    empty = calibration.queued_ns if hold.state == "gated" else calibration.idle_ns
    return least - (empty or 0.0), True


def device_allocations() -> tuple[int, ...]:
    """Return figures that change when a framework's allocator asks the driver for memory."""
    found = []
    torch: Any = sys.modules.get("torch")
    cuda: Any = getattr(torch, "cuda", None)
    if getattr(cuda, "is_initialized", bool)():
        with suppress(RuntimeError):  # an allocator that was plugged in keeps no such books
            figures = cuda.memory_stats()
            found.append(int(figures.get(_ALLOCATIONS, figures.get(_SEGMENTS, 0))))
    cupy: Any = sys.modules.get("cupy")
    if hasattr(cupy, "get_default_memory_pool"):
        found.append(int(cupy.get_default_memory_pool().total_bytes()))
    return tuple(found)
