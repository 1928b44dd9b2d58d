"""How one sample is taken: the time of one call, in each of the modes.

A slope is the time of m calls less the time of n calls, over m - n: what is the same for both (the
event pair, the gate, the launch of a graph) cancels out. n and m take turns in which comes first,
so that a drift of the clock cancels out too.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from time import perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING, Protocol

import gpuprof._core as _core
from gpuprof._benchmark.gate import Hold
from gpuprof._benchmark.noise import Noise
from gpuprof._benchmark.work import Work
from gpuprof._frameworks.streams import StreamRef as Where
from gpuprof._timing.timer import Timer

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

MAX_TRIES = 3  # of a sample, before the gate is given up


class Sampler(Protocol):
    """Takes samples of one function in one mode."""

    @property
    def mode(self) -> str:
        """As `BenchResult.mode`."""

    @property
    def clock(self) -> str:
        """As `BenchResult.clock`."""

    @property
    def l2(self) -> str:
        """As `BenchResult.l2`."""

    @property
    def gate(self) -> str:
        """As `BenchResult.gate`."""

    @property
    def calls(self) -> int:
        """Over how many calls a sample is taken."""

    def sample(self) -> float:
        """Return the time of one call, in milliseconds."""

    def close(self) -> None:
        """Give back what it holds."""


class _OnGpu:
    """What the modes on the GPU's clock share: two event pairs and a gate."""

    clock = "cuda"

    def __init__(self, work: Work, where: Where, hold: Hold) -> None:
        self._work = work
        self._where = where
        self._hold = hold
        self._timers = [Timer("cuda", where.handle) for _ in range(2)]
        self._few_first = True

    @property
    def gate(self) -> str:
        return self._hold.state

    def _timed(self, index: int, body: Callable[[], object]) -> None:
        self._timers[index].record_start(self._where.handle)
        try:
            body()
        finally:
            self._timers[index].record_end()

    def _held(self, queue: Callable[[], object]) -> None:
        """Queue with the GPU held back; after some tries that were let go too early, without."""
        for _ in range(MAX_TRIES):
            if self._hold.run(queue):
                return
            self._was_let_go()
        self._hold.give_up("queueing its work waits for the GPU")
        self._work.warn(self._hold.warning)
        queue()

    def _was_let_go(self) -> None:
        _core._synchronize(self._where.handle, self._where.device)

    def _difference(self, few: Callable[[], object], many: Callable[[], object]) -> float:
        order = [(0, few), (1, many)] if self._few_first else [(1, many), (0, few)]
        self._few_first = not self._few_first

        def queue() -> None:
            for index, body in order:
                self._timed(index, body)

        self._held(queue)
        short, long = (timer.elapsed_ms() for timer in self._timers)
        return long - short

    def close(self) -> None:
        for timer in self._timers:
            timer.close()


class GraphSampler(_OnGpu):
    """The slope of two graphs of n and m captured calls: steady-state time in stream order."""

    mode = "graph"

    def __init__(
        self,
        work: Work,
        where: Where,
        hold: Hold,
        graphs: tuple[CapturedGraph, CapturedGraph],
        sizes: tuple[int, int],
    ) -> None:
        super().__init__(work, where, hold)
        self.l2 = "rotated" if work.clones > 1 else "hot"
        self._few, self._many = graphs
        self.calls = sizes[1] - sizes[0]
        for graph in graphs:  # a first launch uploads the graph, which may wait for a closed gate
            graph.launch(where.handle)
        _core._synchronize(where.handle, where.device)

    def sample(self) -> float:
        handle = self._where.handle
        more_ms = self._difference(
            lambda: self._few.launch(handle), lambda: self._many.launch(handle)
        )
        return more_ms / self.calls

    def close(self) -> None:
        super().close()
        self._few.close()
        self._many.close()


class BatchedSampler(_OnGpu):
    """The slope of n and m calls that are queued one after the other."""

    mode = "batched"

    def __init__(self, work: Work, where: Where, hold: Hold, sizes: tuple[int, int]) -> None:
        super().__init__(work, where, hold)
        self.l2 = "rotated" if work.clones > 1 else "hot"
        self._few, self._many = sizes

    @property
    def calls(self) -> int:
        return self._many - self._few

    def sample(self) -> float:
        more_ms = self._difference(
            lambda: self._work.call_times(self._few), lambda: self._work.call_times(self._many)
        )
        return more_ms / self.calls  # as it is afterwards: portions may have become smaller

    def _was_let_go(self) -> None:
        # Fewer calls may fit into the queue; if even two do not, the function itself waits.
        super()._was_let_go()
        if self._many > 2:
            self._few, self._many = max(1, self._few // 4), max(2, self._many // 4)


class IsolatedSampler(_OnGpu):
    """One call at a time, after its set-up and, if wanted, with a flushed L2 cache.

    The reading of an empty interval is taken off: the first of `empty_ms` as long as the GPU is
    held back, the second once it is not.
    """

    mode = "isolated"
    calls = 1

    def __init__(
        self, work: Work, where: Where, hold: Hold, empty_ms: tuple[float, float], flush: int
    ) -> None:
        super().__init__(work, where, hold)
        self._empty_ms = empty_ms
        self._buffer = _core.DeviceBuffer(flush) if flush else None
        self.l2 = "flushed" if flush else "hot"
        if self._buffer is not None:  # the first call loads, which may wait for a closed gate
            self._buffer.fill(1, where.handle)
            _core._synchronize(where.handle, where.device)

    def sample(self) -> float:
        self._set_up()

        def queue() -> None:
            if self._buffer is not None:
                self._buffer.fill(1, self._where.handle)
            self._timed(0, self._work.call)

        self._held(queue)
        empty_ms = self._empty_ms[self._hold.state == "ungated"]
        return max(self._timers[0].elapsed_ms() - empty_ms, 0.0)

    def _set_up(self) -> None:
        if self._work.setup is not None:
            self._work.set_up()
            # What it has on other streams must not run beside the call.
            _core._synchronize(self._where.handle, self._where.device)

    def _was_let_go(self) -> None:
        super()._was_let_go()
        self._set_up()

    def close(self) -> None:
        super().close()
        self._buffer = None


class SynchronizedSampler:
    """The slope of n and m calls on the host's clock, each time until the whole device is done."""

    mode = "synchronized"
    clock = "host"
    gate = "n/a"

    def __init__(self, work: Work, where: Where, sizes: tuple[int, int]) -> None:
        self._work = work
        self._where = where
        self._few, self._many = sizes
        self.calls = self._many - self._few
        self.l2 = "rotated" if work.clones > 1 else "hot"

    def sample(self) -> float:
        self._work.set_up()
        short, long = self._until_done(self._few), self._until_done(self._many)
        return (long - short) / self.calls

    def _until_done(self, calls: int) -> float:
        _core._synchronize(self._where.handle, self._where.device)
        begin = perf_counter_ns()
        self._work.call_times(calls)
        _core._synchronize(self._where.handle, self._where.device)
        return (perf_counter_ns() - begin) * 1e-6

    def close(self) -> None:
        pass


class CpuSampler:
    """The mean of n calls on the host's clock, with cyclic garbage collection put off."""

    mode = "cpu"
    clock = "cpu"
    gate = "n/a"
    l2 = "n/a"

    def __init__(self, work: Work, calls: int, noise: Noise) -> None:
        self._work = work
        self._noise = noise
        self.calls = calls

    def sample(self) -> float:
        self._noise.look()
        self._work.set_up()
        collecting = gc.isenabled()
        try:
            if collecting:  # else another thread's sample may switch it on between the two lines
                gc.disable()
            on_cpu = thread_time_ns()
            begin = perf_counter_ns()
            self._work.call_times(self.calls)
            end = perf_counter_ns()
            on_cpu = thread_time_ns() - on_cpu
        finally:
            if collecting:
                gc.enable()
        self._noise.taken(end - begin, on_cpu)
        return (end - begin) * 1e-6 / self.calls

    def close(self) -> None:
        pass
