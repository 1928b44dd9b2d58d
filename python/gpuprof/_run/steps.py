"""What a diagnosis needs of a program's steps, noted while it runs, in bounded memory.

A step ends with an optimizer's step; where there is none, it begins with an outermost forward pass.
Only those of the main thread count. Finished samples come through a listener. At the begin of a
scope it is noted whether the GPU had reached the end of the scope before: one query of an event.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._frameworks import loaded
from gpuprof._timing import listeners

MOST = 16_384  # the newest of what is noted
OPTIMIZER, FORWARD = "optimizer.step", "forward"
_MOST_READINGS, _FIRST_INTERVAL_NS = 1024, 20_000_000  # of memory


class Mark(NamedTuple):
    """Where a step may begin: what ended or begins, and whose."""

    ns: int
    kind: str
    owner: str


class Span(NamedTuple):
    """A scope's times in nanoseconds; `gpu` is None without the GPU's."""

    begin: int
    end: int
    name: str
    is_main: bool
    gpu: int | None


class Steps:
    """What is noted. `TorchScopes` calls it; `spans` and the lists are for the diagnosis."""

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=MOST)
        self.looks: deque[tuple[int, bool]] = deque(maxlen=MOST)
        self.memory: list[int] = []  # in use at the newest kind of mark, in turns that get longer
        self.memory_is_gpus = False
        self._kind, self._due, self._interval = FORWARD, 0, _FIRST_INTERVAL_NS
        # Of the last `spans()`: from when on all are known, and whether a budget left some out.
        self.since, self.is_partial = 0, False
        self._samples: deque[Any] = deque(maxlen=MOST)
        self._before: Any = None  # the sample that ended last on the GPU's clock
        self._main, self._main_id = threading.get_ident(), threading.get_native_id()
        self._listener: listeners.Listener | None = None

    def start(self) -> None:
        self._listener = listeners.add(self._samples.extend)

    def stop(self) -> None:
        """Note no more samples. Idempotent."""
        if self._listener is not None:
            self._listener.close()

    def begin(self) -> None:
        """Look whether the GPU has finished the scope before: another is about to begin."""
        if self._before is not None and threading.get_ident() == self._main:
            self.looks.append((time.monotonic_ns(), self._before.ready))

    def end(self, sample: Any) -> None:
        """Keep the sample of a scope that has ended on this thread."""
        if self._listener and sample.clock == "cuda" and threading.get_ident() == self._main:
            self._before = sample

    def mark(self, kind: str, owner: str) -> None:
        """Note that a step may begin here, and now and then the memory in use."""
        if self._listener is None or threading.get_ident() != self._main:
            return
        now = time.monotonic_ns()
        self.marks.append(Mark(now, kind, owner))
        is_other = kind != self._kind  # that of optimizers counts from the first one on
        if (is_other and self._kind == OPTIMIZER) or (not is_other and now < self._due):
            return
        cuda = loaded.torch_cuda()
        if (kind, cuda is not None) != (self._kind, self.memory_is_gpus):
            self._kind, self.memory_is_gpus = kind, cuda is not None
            self.memory.clear()
        self.memory.append(self._in_use(cuda))
        if len(self.memory) >= _MOST_READINGS:
            del self.memory[1::2]
            self._interval *= 2
        self._due = now + self._interval

    def _in_use(self, cuda: Any) -> int:
        """Return the bytes that torch has allocated on the GPU, else what the process holds."""
        if cuda is not None:
            return int(cuda.memory_allocated())
        try:
            with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 (in a program's steps)
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # another system than Linux
            return 0

    def spans(self) -> list[Span]:
        """Return what was measured, in the order of time. Nothing is waited for."""
        _core._drain()
        if self._listener is not None:
            self._listener._call()
        found, samples = [], tuple(self._samples)
        self.since = samples[0].host_end_ns if len(samples) == MOST else 0
        self.is_partial = any(each.one_in > 1 for each in samples)
        for each in samples:
            if not each.failed:
                gpu = round(each.ms * 1e6) if each.clock == "cuda" else None
                is_main = each.thread_id == self._main_id
                times = each.host_begin_ns, each.host_end_ns
                found.append(Span(*times, each.names[-1], is_main, gpu))
        return sorted(found, key=lambda each: (each.begin, -each.end))
