"""What a diagnosis needs of a program's steps, noted while it runs, in bounded memory.

A step ends with an optimizer's step; where there is none, it begins with an outermost forward pass.
Finished samples come through a listener. At the begin of a scope it is noted whether the GPU had
reached the end of the scope before, which is one query of an event: a GPU that keeps up with the
host has nothing queued, whatever the times say. The newest notes count.
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

MOST = 16_384
OPTIMIZER, FORWARD = "optimizer.step", "forward"
_MOST_READINGS = 1024
_FIRST_INTERVAL_NS = 20_000_000
_MEMORY = "/proc/self/statm"


class Mark(NamedTuple):
    """Where a step may begin: which kind of thing ended or begins, and whose."""

    kind: str
    owner: str
    thread: int
    ns: int


class Look(NamedTuple):
    """Whether the GPU had finished the scope before, at the begin of another."""

    thread: int
    ns: int
    caught_up: bool


class Span(NamedTuple):
    """A scope's times: the host's in nanoseconds; the GPU's in milliseconds, None without."""

    name: str
    thread: int
    begin: int
    end: int
    gpu_ms: float | None = None


class Steps:
    """What is noted. `TorchScopes` calls it; `spans` and the lists are for the diagnosis."""

    def __init__(self) -> None:
        self.marks: deque[Mark] = deque(maxlen=MOST)
        self.looks: deque[Look] = deque(maxlen=MOST)
        self.memory: dict[str, list[int]] = {}
        self.memory_is_gpus = False
        self._read_ns: dict[str, tuple[int, int]] = {}  # when it was read last, and how often
        self._samples: deque[Any] = deque(maxlen=MOST)
        self._before = threading.local()
        self._listener: listeners.Listener | None = None

    def start(self) -> None:
        self._listener = listeners.add(self._samples.extend)

    def stop(self) -> None:
        """Note no more samples. Idempotent."""
        if self._listener is not None:
            self._listener.close()

    def begin(self) -> None:
        """Look at the GPU: a scope is about to begin on this thread."""
        before = getattr(self._before, "sample", None)
        if before is not None:
            look = Look(threading.get_native_id(), time.monotonic_ns(), before.ready)
            self.looks.append(look)

    def end(self, sample: Any) -> None:
        """Keep the sample of a scope that has ended on this thread, if the GPU's clock has it."""
        if sample.clock == "cuda":
            self._before.sample = sample

    def mark(self, kind: str, owner: str) -> None:
        """Note that a step may begin here."""
        now = time.monotonic_ns()
        self.marks.append(Mark(kind, owner, threading.get_native_id(), now))
        read_ns, interval = self._read_ns.get(kind, (0, _FIRST_INTERVAL_NS))
        if now - read_ns < interval:
            return
        in_use = self._in_use()
        readings = self.memory.setdefault(kind, [])
        readings.append(in_use)
        if len(readings) >= _MOST_READINGS:
            del readings[1::2]
            interval *= 2
        self._read_ns[kind] = now, interval

    def _in_use(self) -> int:
        """Return the bytes that torch has allocated on the GPU, else what the process holds."""
        if (cuda := loaded.torch_cuda()) is not None:
            if not self.memory_is_gpus:
                self.memory.clear()
                self.memory_is_gpus = True
            return int(cuda.memory_allocated())
        try:
            with open(_MEMORY, "rb") as file:  # noqa: PTH123 (in a program's steps)
                return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except OSError:  # another system than Linux
            return 0

    def spans(self) -> list[Span]:
        """Return what was measured, in the order of time. Nothing is waited for."""
        _core._drain()
        if self._listener is not None:
            self._listener._call()
        found = []
        for each in tuple(self._samples):
            if not each.failed and each.one_in == 1:
                gpu_ms = each.ms if each.clock == "cuda" else None
                times = each.host_begin_ns, each.host_end_ns
                found.append(Span(each.names[-1], each.thread_id, *times, gpu_ms))
        return sorted(found, key=lambda each: (each.begin, -each.end))
