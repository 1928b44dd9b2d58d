"""How one sample is taken: the time of one call, in each of the modes.

A slope is the time of m calls less the time of n calls, over m - n: the event pair, the gate and
the launch of a graph are in both and cancel out. n and m take turns in which comes first, so that a
drift of the clock cancels out too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from functools import partial
from time import get_clock_info, perf_counter_ns, thread_time_ns
from typing import TYPE_CHECKING

from gpuprof._benchmark.gate import HeldStream
from gpuprof._benchmark.readings import Noise
from gpuprof._benchmark.work import Work
from gpuprof._common.interrupts import collector_off
from gpuprof._results.statistics import median
from gpuprof._timing.timer import Timer

if TYPE_CHECKING:
    from gpuprof._graphs.graph import CapturedGraph

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

MAX_TRIES = 3  # of a sample, before the gate is given up
_EMPTY_LOOPS = 15  # the last ones, of which the median counts: any may be preempted


class Sampler(ABC):
    """Takes samples of one function in one mode; `calls` is over how many calls each is taken.

    The other attributes are those of `BenchResult`.
    """

    mode = ""
    clock = ""
    l2 = "n/a"
    calls = 1
    tick_ms = get_clock_info("perf_counter").resolution * 1e3  # the step of its clock
    cpu_ms = 0.0  # the CPU time of a call in the last sample, on the CPU's clock

    def __init__(self, work: Work) -> None:
        self._work = work

    @property
    def gate(self) -> str:
        return "n/a"

    @abstractmethod
    def sample(self) -> float:
        """Return the time of one call, in milliseconds."""

    def restart(self) -> None:  # noqa: B027
        """Forget what was read beside the samples so far."""

    def noise(self) -> dict[str, float]:
        """Return what was read beside the samples, as `BenchResult.noise` has it."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Release what it holds."""


class DeviceSampler(Sampler):
    """One of calls on the device; `sizes` are those of the two sides of a slope."""

    def __init__(self, work: Work, held: HeldStream, sizes: tuple[int, int] = (0, 1)) -> None:
        super().__init__(work)
        self._held = held
        self._few, self._many = sizes
        self.calls = self._many - self._few
        self.l2 = "rotated" if work.clones > 1 else "hot"

    def run(self, times: int) -> int:
        """Wait for the calls of the last run, and queue those of so many samples without a gate.

        So the GPU works while something else is read. Returns how many are queued.
        """
        self._held.synchronize()
        self._queue_many(times)
        return times * self._many

    def _queue_many(self, times: int) -> None:
        self._work.call_times(times * self._many)


class _GatedSampler(DeviceSampler):
    """What the modes on the GPU's clock share: two event pairs and a gate."""

    clock = "cuda"

    def __init__(self, work: Work, held: HeldStream, sizes: tuple[int, int] = (0, 1)) -> None:
        super().__init__(work, held, sizes)
        self.tick_ms = held.calibration.tick_ns * 1e-6
        self._timers = [Timer("cuda", held.handle) for _ in range(2)]
        self._few_first = True

    @property
    def gate(self) -> str:
        return self._held.state

    def _queue(self, queue: Callable[[], object]) -> None:
        """Queue with the GPU held back; without, if the gate opened too early in each try."""
        is_alone = self._work.ranks.is_alone  # else another try would be this rank's alone
        for _ in range(MAX_TRIES if is_alone else 1):
            if self._held.run(queue):
                return
            if is_alone:
                self._opened_early()
        self._held.give_up("queueing its work waits for the GPU")
        self._work.warn(self._held.warning)
        if is_alone:
            queue()

    def _opened_early(self) -> None:
        self._held.synchronize()

    def _slope(self, few: Callable[[], object], many: Callable[[], object]) -> float:
        order = [*zip(self._timers, (few, many), strict=True)]
        if not self._few_first:
            order.reverse()
        self._few_first = not self._few_first

        def queue() -> None:
            for timer, body in order:
                self._held.timed(timer, body)

        self._queue(queue)
        short, long = (timer.elapsed_ms() for timer in self._timers)
        return (long - short) / self.calls  # read here: `calls` may have become smaller

    def close(self) -> None:
        self._held.close()
        for timer in self._timers:
            timer.close()


class GraphSampler(_GatedSampler):
    """The slope of two graphs of n and m captured calls: steady-state time in stream order."""

    mode = "graph"

    def __init__(
        self, work: Work, held: HeldStream, sizes: tuple[int, int], *graphs: CapturedGraph
    ) -> None:
        super().__init__(work, held, sizes)
        self._graphs = graphs
        for graph in graphs:  # a first launch uploads the graph, which may wait for a closed gate
            graph.launch(held.handle)
        held.synchronize()

    def sample(self) -> float:
        few, many = (partial(graph.launch, self._held.handle) for graph in self._graphs)
        return self._slope(few, many)

    def _queue_many(self, times: int) -> None:
        for _ in range(times):
            self._graphs[1].launch(self._held.handle)

    def close(self) -> None:
        super().close()
        for graph in self._graphs:
            graph.close()


class BatchedSampler(_GatedSampler):
    """The slope of n and m calls that are queued one after the other."""

    mode = "batched"

    def sample(self) -> float:
        return self._slope(
            lambda: self._work.call_times(self._few), lambda: self._work.call_times(self._many)
        )

    def _opened_early(self) -> None:
        # Fewer calls may fit into the queue; if even two do not, the function itself waits.
        super()._opened_early()
        if self._many > 2:
            self._few, self._many = max(1, self._few // 4), max(2, self._many // 4)
            self.calls = self._many - self._few


class IsolatedSampler(_GatedSampler):
    """One call at a time less an empty interval, after its set-up and a flush of L2 if wanted."""

    mode = "isolated"

    def __init__(self, work: Work, held: HeldStream, flush: int) -> None:
        super().__init__(work, held)
        if flush:
            self.l2 = "flushed"
            held.flush_before_each(flush)

    def sample(self) -> float:
        self._work.set_up(self._held.synchronize)
        timer = self._timers[0]
        self._queue(lambda: self._held.timed(timer, self._work.call))
        return self._held.elapsed_ms(timer)

    def _opened_early(self) -> None:
        super()._opened_early()
        self._work.set_up(self._held.synchronize)


class SynchronizedSampler(DeviceSampler):
    """The slope of n and m calls on the host's clock, each time until the whole device is done."""

    mode = "synchronized"
    clock = "host"

    def sample(self) -> float:
        self._work.set_up()
        short, long = self._until_done(self._few), self._until_done(self._many)
        return (long - short) / self.calls

    def _until_done(self, calls: int) -> float:
        self._held.synchronize()
        begin = perf_counter_ns()
        self._work.call_times(calls)
        self._held.synchronize()
        return (perf_counter_ns() - begin) * 1e-6


class CpuSampler(Sampler):
    """The mean of n calls on the host's clock, with cyclic garbage collection put off.

    The same loop of no calls is taken off: it is no part of the function, and as long as a short
    one where a sample is one call.
    """

    mode = "cpu"
    clock = "cpu"

    def __init__(self, work: Work, calls: int) -> None:
        super().__init__(work)
        self._noise = Noise()
        self._empty_ns: deque[float] = deque(maxlen=_EMPTY_LOOPS)
        self.calls = calls

    def sample(self) -> float:
        self._noise.before_sample()
        self._work.set_up()
        with collector_off():
            self._timed(0)  # after a set-up even the loop's own code is out of the caches
            self._empty_ns.append(self._timed(0)[0])
            spent_ns, on_cpu_ns = self._timed(self.calls)
        self._noise.add_sample(spent_ns, on_cpu_ns)
        empty_ns = median(self._empty_ns)
        self.cpu_ms = max(on_cpu_ns - empty_ns, 0.0) * 1e-6 / self.calls
        return max(spent_ns - empty_ns, 0.0) * 1e-6 / self.calls

    def _timed(self, calls: int) -> tuple[int, int]:
        on_cpu = thread_time_ns()
        begin = perf_counter_ns()
        self._call(calls)
        end = perf_counter_ns()
        return end - begin, thread_time_ns() - on_cpu

    def _call(self, calls: int) -> None:
        self._work.call_times(calls)

    def restart(self) -> None:
        self._noise = Noise()

    def noise(self) -> dict[str, float]:
        return self._noise.found(self.calls)
