"""Contenders that call something with arguments that alternate, measured four ways.

A loop of calls until the last one is done, the host's time of calls that are queued, the latency of
a call that is waited for, and the GPU's time, which `gpuprof.benchmark` measures with the calls
queued behind a gate.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import cycle, islice
from typing import Any, Literal

import gpuprof
from support.loops import BenchmarkError, Loop, timed
from support.measure import Contender, Rounds
from support.results import Row

Call = Callable[..., object]
Arguments = Sequence[tuple[Any, ...]]
GpuMode = Literal["batched", "isolated"]

HOST_TIME, LATENCY, GPU_TIME = "host time", "latency", "GPU time"


@dataclass(frozen=True)
class Counts:
    """How often a contender is called in a round: in a loop, for host time, for latency."""

    loop: int
    host: int
    latency: int
    # Calls between two waits where only host time is measured. They have to fit into the 1,020
    # entries of a stream's queue.
    burst: int
    # "isolated" where a call has too many kernels for several calls to be queued behind the gate.
    gpu_mode: GpuMode = "batched"


@dataclass
class Bench:
    """What the sections of a script share."""

    torch: Any
    quick: bool
    notes: list[str] = field(default_factory=list)

    @property
    def rounds(self) -> int:
        """How often all contenders of a group take their turn."""
        return 2 if self.quick else 7

    def section(self, measure: Callable[..., list[Row]], *given: object) -> list[Row]:
        """Return a section's rows, or none and a note if what it measured cannot be reported."""
        try:
            return measure(self, *given)
        except BenchmarkError as error:
            self.notes.append(f"{measure.__name__.replace('_', ' ')} is left out: {error}")
            return []

    def loop(self, name: str, call: Call, arguments: Arguments, count: int) -> Contender:
        """Return calls whose time ends when the last one is done."""
        finish = self.torch.cuda.synchronize
        return Contender(name, timed(_called(call, arguments), finish=finish), self._scaled(count))

    def host(
        self, name: str, call: Call, arguments: Arguments, count: int, burst: int
    ) -> Contender:
        """Return calls of which only the host time is measured."""
        wait = self.torch.cuda.synchronize
        run = timed(_called(call, arguments), wait=wait, burst=burst)
        return Contender(name, run, max(self._scaled(count), burst))

    def latency(self, name: str, call: Call, arguments: Arguments, count: int) -> Contender:
        """Return calls that are waited for, each."""
        loop = _waited(call, arguments, self.torch.cuda.synchronize)
        return Contender(name, timed(loop), self._scaled(count))

    def gpu_time(self, name: str, call: Call, given: tuple[Any, ...], mode: GpuMode) -> list[Row]:
        """Return the row of a call's GPU time, or none and a note."""
        try:
            found = gpuprof.benchmark(
                call, given, mode=mode, max_time_s=0.1 if self.quick else 0.4, progress=False
            )
        except Exception as error:  # a peer may fail in ways of its own
            self.notes.append(f"{name} is left out: {first_line(error)}")
            return []
        if (found.mode, found.gate) != (mode, "gated"):
            self.notes.append(f"{name} is left out: measured {found.mode}, {found.gate}")
            return []
        return [Row(name, min(found.samples_ms) * 1e6, "ns", found.median_ms * 1e6)]

    def _scaled(self, count: int) -> int:
        return max(count // 4, 1) if self.quick else count


class Table:
    """A loop of calls, their latency, host time and GPU time, of each way to call one thing."""

    def __init__(
        self, bench: Bench, name: str, calls: dict[str, Call], counts: Callable[[str], Counts]
    ) -> None:
        self._bench = bench
        self._calls = calls
        self._counts = counts
        self._names = {way: f"{name}: {way}" for way in calls}
        self._rounds = {kind: Rounds() for kind in ("", LATENCY, HOST_TIME)}

    def measure(self, arguments: Arguments) -> None:
        """Measure everything but GPU time."""
        bench = self._bench
        groups: dict[str, list[Contender]] = {kind: [] for kind in self._rounds}
        for way, call in self._calls.items():
            name, counts = self._names[way], self._counts(way)
            groups[""].append(bench.loop(name, call, arguments, counts.loop))
            groups[LATENCY].append(bench.latency(name, call, arguments, counts.latency))
            groups[HOST_TIME].append(bench.host(name, call, arguments, counts.host, counts.burst))
        for kind, contenders in groups.items():
            self._rounds[kind].measure(contenders, bench.rounds)

    def rows(self, way: str, given: tuple[Any, ...]) -> list[Row]:
        """Return the figures of one way, compared with nothing."""
        name, mode = self._names[way], self._counts(way).gpu_mode
        rows = [
            replace(rounds.row(name), name=_titled(name, kind))
            for kind, rounds in self._rounds.items()
        ]
        rows += self._bench.gpu_time(_titled(name, GPU_TIME), self._calls[way], given, mode)
        return [microseconds(row) for row in rows]

    def compared(self, way: str, to: str, target: float | None, kind: str = "") -> list[Row]:
        """Return one figure of a way beside that of another, if both were measured."""
        if way not in self._calls or to not in self._calls:
            return []
        row = self._rounds[kind].row(self._names[way], to=self._names[to], target=target)
        shown = f"{_titled(self._names[way], kind)}, beside {to}"
        return [microseconds(replace(row, name=shown, ratio_to=_titled(self._names[to], kind)))]


def first_line(error: BaseException) -> str:
    """Return an error in one line."""
    said = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__


def microseconds(row: Row) -> Row:
    """Return a row of nanoseconds in microseconds."""
    median = None if row.median is None else row.median / 1e3
    return replace(row, value=row.value / 1e3, unit="us", median=median)


def torch_with_gpu(script: str) -> Any:
    """Return torch, or leave the script."""
    try:
        import torch
    except ImportError as error:
        sys.exit(f"{script} needs torch: {error}")
    if not torch.cuda.is_available():
        sys.exit(f"{script} needs a GPU: torch finds none")
    return torch


def _titled(name: str, kind: str) -> str:
    return f"{name}, {kind}" if kind else name


def _called(call: Call, arguments: Arguments) -> Loop:
    # As in a program's loop, a result lives until the next one exists.
    def loop(count: int) -> None:
        result = None
        for given in islice(cycle(arguments), count):
            result = call(*given)
        del result

    return loop


def _waited(call: Call, arguments: Arguments, wait: Callable[[], object]) -> Loop:
    def loop(count: int) -> None:
        result = None
        for given in islice(cycle(arguments), count):
            result = call(*given)
            wait()
        del result

    return loop
