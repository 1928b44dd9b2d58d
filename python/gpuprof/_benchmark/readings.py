"""What is read beside the samples on the host's clock: what the machine did.

A thread that shares its CPU is preempted, a virtual machine loses time to its host, and a busy
neighbour slows down clocks and caches. So the following is recorded: how long the thread waited for
a CPU, how often it was preempted, how often it gave up the CPU by itself, what the host took, and
how long a fixed short loop takes. Verdicts take these into account. What the system does not report
is left out.
"""

from __future__ import annotations

import resource
from contextlib import suppress
from pathlib import Path
from time import perf_counter, perf_counter_ns

from gpuprof._common.quantiles import quantile
from gpuprof._results import statistics

LOOP_EVERY_S = 0.01
_STEPS = 1500  # of the loop: some 40 microseconds
_STOLEN = 7  # the column of /proc/stat
_COLUMNS = 8  # of it that are parts of the whole


class Noise:
    """Records the noise on one thread, from now on."""

    def __init__(self) -> None:
        self._loops: list[float] = []
        self._walls: list[float] = []
        self._on_cpu: list[int] = []
        self._next = 0.0
        self._begun = perf_counter()
        self._before = _counters()

    def before_sample(self) -> None:
        if perf_counter() < self._next:
            return
        begin = perf_counter_ns()
        _loop()
        self._loops.append((perf_counter_ns() - begin) * 1e-6)
        self._next = perf_counter() + LOOP_EVERY_S

    def add_sample(self, wall_ns: float, on_cpu_ns: int) -> None:
        self._walls.append(wall_ns)
        self._on_cpu.append(on_cpu_ns)

    def found(self, calls: int) -> dict[str, float]:
        """Return the figures, as `BenchResult.noise` has them; a sample is of so many calls."""
        seconds = max(perf_counter() - self._begun, 1e-9)
        now = _counters()
        change = {name: now[name] - self._before[name] for name in now if name in self._before}
        ticks, stolen = change.pop("ticks", 0.0), change.pop("stolen", 0.0)
        found = {name: amount / seconds for name, amount in change.items()}
        if ticks > 0.0:
            found["stolen"] = stolen / ticks
        if self._loops:
            found["loop_ms"] = statistics.median(self._loops)
        if self._walls:
            wall = statistics.median(self._walls)
            found["off_cpu"] = max(0.0, 1.0 - statistics.median(self._on_cpu) / max(wall, 1))
            found["cpu_ms"] = quantile(self._on_cpu, 0.1) * 1e-6 / calls
        return found


def _loop() -> int:
    total = 0
    for step in range(_STEPS):
        total += step * step
    return total


def _counters() -> dict[str, float]:
    """Return the counts so far; those per second have their names in `BenchResult.noise`."""
    found: dict[str, float] = {}
    # Not every system has all of these.
    with suppress(AttributeError, OSError):
        usage = resource.getrusage(resource.RUSAGE_THREAD)
        found |= {"switches_per_s": usage.ru_nivcsw, "sleeps_per_s": usage.ru_nvcsw}
    with suppress(OSError, ValueError, IndexError):
        text = Path("/proc/thread-self/schedstat").read_text(encoding="ascii")
        found["waited"] = int(text.split()[1]) * 1e-9
    with suppress(OSError, ValueError, IndexError):
        line = Path("/proc/stat").read_text(encoding="ascii").partition("\n")[0]
        ticks = [int(text) for text in line.split()[1 : 1 + _COLUMNS]]
        found |= {"stolen": ticks[_STOLEN], "ticks": sum(ticks)}
    return found
