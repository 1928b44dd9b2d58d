"""What a function does to the GPU, found out before it is measured."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from time import perf_counter_ns

from gpuprof._benchmark.gate import HeldStream
from gpuprof._benchmark.work import Work
from gpuprof._timing.calibration import calibrate
from gpuprof._timing.timer import Timer

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

_MIN_CALLS, _MAX_CALLS = 3, 50
_PROBE_MS = 50.0
SLOW_MS = 1000.0  # a call that takes longer is probed once, not several times
_STRAY_CALLS = 32  # so that short work on other streams adds up to what can be seen
LEAST_GPU_NS = 250.0  # over an empty interval: under half of the shortest kernel
_EMPTY_TRIES = 3
_TAIL_TRIES = 4  # waiting for the GIL makes a tail look long
_EMPTY_TAILS = 3  # for each of these, as the other processes of a GPU take it at any time
_TAIL_MS, _TAIL_SHARE = 0.05, 0.1  # as a scope that verifies its stream has them


@dataclass(frozen=True)
class ProbeResult:
    host_ms: float  # the median that a call takes on the host
    wall_ms: float  # the median of a call until the device is done with it
    gpu_ms: float  # the least reading of a call, less an empty interval; infinite if it waits
    uses_gpu: bool
    elsewhere: bool  # its work goes on on other streams after its own stream is done


def probe(work: Work, held: HeldStream) -> ProbeResult:
    """Call the function some times and tell what it does. It has been called before."""
    held.calibration = calibrate(held.device)
    host_ms, wall_ms = _host_times(work, held)
    elsewhere = _works_elsewhere(work, held, wall_ms)
    held.allow(host_ms)  # else a call that keeps the host busy for long seems to wait for the GPU
    tries = 1 if wall_ms > SLOW_MS else _EMPTY_TRIES
    gpu_ns = reading_ns(work, held, work.call, tries)
    return ProbeResult(
        host_ms=host_ms,
        wall_ms=wall_ms,
        gpu_ms=gpu_ns * 1e-6,
        uses_gpu=elsewhere or gpu_ns > LEAST_GPU_NS,
        elsewhere=elsewhere,
    )


def _host_times(work: Work, held: HeldStream) -> tuple[float, float]:
    # Each call starts on an idle GPU: with a full queue the host would wait for it.
    host: list[float] = []
    walls: list[float] = []
    spent = 0.0  # with the set-up
    begun = perf_counter_ns()
    while len(host) < _MAX_CALLS and spent < (_PROBE_MS if len(host) >= _MIN_CALLS else SLOW_MS):
        work.set_up(held.synchronize)
        begin = perf_counter_ns()
        work.call()
        queued = perf_counter_ns()
        held.synchronize()
        host.append((queued - begin) * 1e-6)
        walls.append((perf_counter_ns() - begin) * 1e-6)
        spent = work.ranks.decide("the probe", (perf_counter_ns() - begun) * 1e-6)
    host_ms, wall_ms = statistics.median(host), statistics.median(walls)
    return work.ranks.decide("the host's time", host_ms), work.ranks.decide("the time", wall_ms)


def _works_elsewhere(work: Work, held: HeldStream, wall_ms: float) -> bool:
    """Compare the stream's end with the device's, over enough calls for short work to show.

    Each comparison is with those without any call, because another process on the GPU delays the
    device's end too.
    """
    calls = max(1, min(_STRAY_CALLS, round(_PROBE_MS / max(wall_ms, 1e-3))))
    if work.setup is not None:
        calls = 1
    tries = 1 if wall_ms > SLOW_MS else _TAIL_TRIES
    tails = (_has_tail(work, held, calls) for _ in range(tries))
    return all(work.ranks.decide("its streams", has_tail) for has_tail in tails)


def _has_tail(work: Work, held: HeldStream, calls: int) -> bool:
    work.set_up(held.synchronize)
    with closing(Timer("cuda", held.handle)) as span, closing(Timer("cuda", held.handle)) as tail:

        def tail_ms(body: Callable[[], object]) -> float:
            held.synchronize()
            span.record_start(held.handle)
            body()
            span.record_end()
            tail.record_start(held.handle)
            held.synchronize()
            tail.record_end()
            return tail.elapsed_ms()

        empty = max(tail_ms(lambda: None) for _ in range(_EMPTY_TAILS))
        found = tail_ms(lambda: work.call_times(calls))
        return found > empty + _TAIL_MS + _TAIL_SHARE * span.elapsed_ms()


def reading_ns(work: Work, held: HeldStream, body: Callable[[], object], tries: int) -> float:
    """Return the least reading less that of an empty interval; infinite if `body` waits.

    The function is set up before each try, also where `body` is the replay of a graph.
    """
    least = float("inf")
    with closing(Timer("cuda", held.handle)) as timer:
        for _ in range(tries):
            work.set_up(held.synchronize)
            if not work.ranks.decide("the gate", held.run(lambda: held.timed(timer, body))):
                return float("inf")
            least = work.ranks.decide("a reading", min(least, timer.elapsed_ms() * 1e6))
            if least > SLOW_MS * 1e6:
                break
    return work.ranks.decide("the GPU's time", least - held.empty_ns())
