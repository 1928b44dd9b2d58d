"""What is read beside the samples on the host's clock: what the machine did, and the instructions.

A thread that shares its CPU is preempted, a virtual machine loses time to its host, and a busy
neighbour slows down clocks and caches. So the following is recorded: how long the thread waited for
a CPU, how often it was preempted, how often it gave up the CPU by itself, what the host took, and
how long a fixed short loop takes. Verdicts take these into account. What the system does not report
is left out.

The hardware counts instructions while a sample is taken; the counter is read before the clock is,
and after it, so that nothing is added to the time.
"""

from __future__ import annotations

import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter, perf_counter_ns
from typing import Any

from gpuprof._common.instruction_counter import InstructionCounter
from gpuprof._common.instructions import Instructions, reason_of
from gpuprof._common.quantiles import quantile
from gpuprof._results import statistics

LOOP_EVERY_S = 0.01
_STEPS = 1500  # of the loop: some 40 microseconds
_STOLEN = 7  # the column of /proc/stat
_COLUMNS = 8  # of it that are parts of the whole
MAX_READINGS = 64  # the count hardly varies: more would only fill the files
_SHARED = "the counter took turns with others, as where perf counts as well, or this core has none"
open_counter: Callable[[], Any] = InstructionCounter


class Noise:
    """Records the noise on one thread from `restart` on."""

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
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


class InstructionReadings:
    """The readings of one thread from `restart` on; it opens the counter, on that thread."""

    def __init__(self) -> None:
        self._counter = open_counter()
        self._reason = ""
        self._before: tuple[int, int, int] | None = None
        if self._counter.error:
            self._give_up(reason_of(self._counter.error))
        self.restart()

    def restart(self) -> None:
        self._per_call: list[float] = []
        self._lost = 0

    def begin(self) -> None:
        if self._counter is not None and len(self._per_call) < MAX_READINGS:
            self._before = self._read()

    def end(self, calls: int) -> None:
        before, self._before = self._before, None
        now = before and self._read()
        if before is None or now is None:
            return
        count, enabled_ns, running_ns = (b - a for a, b in zip(before, now, strict=True))
        if running_ns < enabled_ns:  # an estimate would not be steady
            self._lost += 1
        else:
            self._per_call.append(count / calls)

    def found(self) -> Instructions:
        reason = self._reason or (_SHARED if self._lost else "no sample was taken")
        return Instructions(tuple(self._per_call), "" if self._per_call else reason)

    def close(self) -> None:
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.close()

    def _read(self) -> Any:
        try:
            return self._counter.read()
        except OSError as error:  # as after a fork into a sandbox
            self._give_up(reason_of(error.errno or 0))
            return None

    def _give_up(self, reason: str) -> None:
        self._reason = reason
        self.close()
