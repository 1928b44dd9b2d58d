"""Rounds of a given number: the function is called as often as was asked for, and no more.

So nothing finds out beforehand what the function does, and neither its memory nor its launches are
measured, which takes calls of their own. Where CUDA is in use, each round is read on the host's
clock and by events; afterwards the events count if they show GPU work.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from time import perf_counter
from typing import Any

import gpuprof._core as _core
from gpuprof._benchmark import samplers
from gpuprof._benchmark.gate import WAITS, HeldStream
from gpuprof._benchmark.harness import NO_GPU_WORK, l2_bytes
from gpuprof._benchmark.loop import Measurer, Samples
from gpuprof._benchmark.options import checked_options
from gpuprof._benchmark.probe import LEAST_GPU_NS
from gpuprof._benchmark.work import Call, Work
from gpuprof._frameworks.streams import StreamRef
from gpuprof._results.result import BenchResult
from gpuprof._results.statistics import median
from gpuprof._timing.calibration import calibrate
from gpuprof._timing.timer import Timer

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

ANY_PRECISION = 1e9  # because the number of rounds is given
_LATE = (
    "the GPU came into use during the rounds, so they were timed on the CPU's clock; give "
    "warmup_rounds=1 or use the GPU before"
)


class _HostRounds(samplers.CpuSampler):
    """Rounds on the host's clock; `value` is what a single call of the last one returned."""

    value: Any = None

    def _call(self, calls: int) -> None:
        self.value = None  # else the last value would be there beside the new one
        self.value = self._work.call_times(calls, value=calls == 1)

    def decide(self, samples: list[float]) -> list[float]:
        return samples


class _DeviceRounds(_HostRounds):
    """Rounds by events as well, behind a gate for as long as the function does not wait for it."""

    def __init__(self, work: Work, calls: int, where: StreamRef, *, flush: bool) -> None:
        super().__init__(work, calls)
        self._held = HeldStream(where.handle, where.device)
        self._held.calibration = calibrate(where.device)
        self._events = Timer("cuda", where.handle)
        self._gpu_ms: list[float] = []
        self._flushed = flush
        if flush:
            self._held.flush_before_each(2 * l2_bytes(where.device))

    @property
    def gate(self) -> str:
        return self._held.state if self.clock == "cuda" else "n/a"

    def _timed(self, calls: int) -> tuple[int, int]:
        if calls == 0:
            return super()._timed(0)
        found: list[tuple[int, int]] = []

        def queue() -> None:
            timed = super(_DeviceRounds, self)._timed
            self._held.timed(self._events, lambda: found.append(timed(calls)))

        self._held.synchronize()  # the set-up's work is not the call's
        if not self._held.run(queue):
            self._held.give_up(WAITS)
        self._gpu_ms.append(self._held.elapsed_ms(self._events))
        return found[0]

    def decide(self, samples: list[float]) -> list[float]:
        uses_gpu = median(self._gpu_ms) * 1e6 > LEAST_GPU_NS
        if not self._work.ranks.decide("the clock", uses_gpu):
            self._work.warn(NO_GPU_WORK)
            return samples
        self.mode, self.clock = "isolated", "cuda"
        self.tick_ms = self._held.calibration.tick_ns * 1e-6
        self.l2 = "flushed" if self._flushed else "hot"
        self._work.warn(self._held.warning)
        return [each / self.calls for each in self._gpu_ms]

    def noise(self) -> dict[str, float]:
        return {} if self.clock == "cuda" else super().noise()

    def close(self) -> None:
        super().close()
        self._held.close()
        self._events.close()


class _Rounds(Measurer):
    """Calls the function in rounds; the warm-up rounds are its preparation."""

    sampler: _HostRounds

    def __init__(self, warmup_rounds: int, warm: Callable[[], object], *given: Any) -> None:
        self._warmup_rounds = warmup_rounds
        self._warm = warm
        super().__init__(*given)

    def _prepare(self, where: StreamRef | None) -> _HostRounds:
        calls = self._calls or 1
        for _ in range(self._warmup_rounds):
            self.work.set_up()
            self.work.call_times(calls)
        self._warm()
        if where is None and _core.cuda_in_use():
            where = self._enter_stream()
        if where is None:
            return _HostRounds(self.work, calls)
        self.device = where.device
        if self.options.mode in {"graph", "batched"}:
            self.work.warn(f"pedantic calls the function itself, not in mode {self.options.mode!r}")
        return _DeviceRounds(self.work, calls, where, flush=self.options.cold_l2)

    def memory(self) -> dict[str, int]:
        return {}

    def take(self, rounds: int) -> tuple[Any, BenchResult]:
        """Take the rounds; return the value of the last call, and the result."""
        timed = self.sampler
        host = [timed.sample() for _ in range(rounds)]
        samples = timed.decide(host)
        if self.device is None and _core.cuda_in_use():
            self.work.warn(_LATE)
        if timed.clock == "cuda":
            self.host_ms = median(host)
        result = self._report(Samples(samples))
        if timed.calls > 1:  # no round has kept a value
            self.work.set_up()
            timed.value = self.work.call()
        return timed.value, result


def measure_rounds(
    call: Call, options: Mapping[str, Any], counts: tuple[int, int, int], warm: Callable[[], object]
) -> tuple[Any, BenchResult]:
    """Call a function in so many warm-up rounds, and rounds, of so many calls each.

    Returns the last call's value, which is one more call if a round has several, and the result.
    `warm` is called after the warm-up.
    """
    warmup_rounds, rounds, iterations = counts
    checked = checked_options(**{**options, "rel_precision": ANY_PRECISION, "launches": False})
    begun = perf_counter()

    work = Work(call, checked.setup)
    with _Rounds(warmup_rounds, warm, work, checked, iterations) as harness:
        value, result = harness.paused(harness.take, rounds)
    return value, replace(result, duration_s=perf_counter() - begun)
