"""What a scope costs with nothing open, with a trace and with a flight recorder; and its memory.

The scope is one of the CPU's clock, so that the driver is in no figure. A ring of 64 MiB is full in
most of a run, so that it drops as much as it takes. Windows that wait are a trace of which no step
is active yet. The writer's figure is the CPU time of its thread. Memory is the resident size of a
whole process that records ten million scopes: at the end, and how much it grew after the ring was
full for the first time. A dump's time is that of the call, of a full ring.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

import gpuprof
from support import measure
from support.loops import BenchmarkError
from support.measure import Contender, Rounds
from support.results import Row

_SCOPES = 300_000
_MANY = 10_000_000
_RING = 64 << 20

_NOTHING = "CPU-clock scope, nothing open"
_WAIT = "CPU-clock scope, windows that wait"
_TRACE = "CPU-clock scope, a trace"
_RECORDER = "CPU-clock scope, a flight recorder"
_OF_TRACE = "writer thread of a trace, per event"
_OF_RECORDER = "writer thread of a flight recorder, per event"

# The same as a trace and as nothing, but for the noise between two loops.
_SAME = 1.05
_GROWTH_MIB = 1.0

_MEMORY_PROGRAM = """
import os, sys, time
import gpuprof

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

folder, count, ring = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
scope = gpuprof.timer("step", backend="cpu")
with gpuprof.flight_recorder(folder + "/last.json", keep_last="1h", keep_bytes=ring) as recorder:
    full = 0
    for part in range(10):
        for _ in range(count // 10):
            with scope:
                pass
        recorder.flush()
        if not full and recorder.stats()["events"] > recorder.stats()["held"]:
            full = resident()
    end = resident()
    stats = recorder.stats()
    begun = time.perf_counter_ns()
    recorder.dump()
    took = time.perf_counter_ns() - begun
print(stats["events"], stats["dropped"], stats["held"], full, end, took)
"""


def _scopes(make: Callable[[], AbstractContextManager[object]]) -> Callable[[int], int]:
    def run(count: int) -> int:
        scope = gpuprof.timer("step", backend="cpu")
        with make():
            begun = perf_counter_ns()
            for _ in range(count):
                with scope:
                    pass
            return perf_counter_ns() - begun

    return run


def _writer(make: Callable[[], gpuprof.TraceWriter]) -> Callable[[int], int]:
    def run(count: int) -> int:
        scope = gpuprof.timer("step", backend="cpu")
        with make() as writer:
            for _ in range(count):
                with scope:
                    pass
        stats = writer.stats()
        if stats["dropped"] or stats["events"] != count or stats["error"]:
            raise BenchmarkError(f"not all events were taken: {stats}")
        return int(stats["writer_cpu_ns"])

    return run


def _memory(folder: Path, count: int, notes: list[str]) -> list[Row]:
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY_PROGRAM, str(folder), str(count), str(_RING)],
        check=True,
        capture_output=True,
        text=True,
    )
    events, dropped, held, full, end, took = map(int, done.stdout.split())
    if events != count or dropped:
        raise BenchmarkError(f"{dropped} events were dropped and {events} of {count} taken")
    if not full:
        raise BenchmarkError(f"the ring was never full: it holds {held} of {count}")
    notes.append(f"the ring held {held:,} events when it was full")
    return [
        Row("resident memory with a full ring of 64 MiB", full / 2**20, "MiB"),
        Row(
            f"what it grew by until {count / 1e6:g} million scopes",
            max(end - full, 0) / 2**20,
            "MiB",
            target=_GROWTH_MIB,
        ),
        Row("a dump of a full ring of 64 MiB", took / 1e6, "ms"),
    ]


def _rows(rounds: int, many: int, notes: list[str]) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def trace() -> gpuprof.TraceWriter:
            return gpuprof.trace(folder / "run.json")

        def recorder() -> gpuprof.TraceWriter:
            return gpuprof.flight_recorder(folder / "last.json", keep_last="1h", keep_bytes=_RING)

        def waiting() -> AbstractContextManager[object]:
            return gpuprof.trace_windows(folder / "window.json", schedule=(1, 0, 1, 1))

        measured = Rounds()
        measured.measure(
            [
                Contender(_NOTHING, _scopes(nullcontext), _SCOPES),
                Contender(_WAIT, _scopes(waiting), _SCOPES),
                Contender(_TRACE, _scopes(trace), _SCOPES),
                Contender(_RECORDER, _scopes(recorder), _SCOPES),
                Contender(_OF_TRACE, _writer(trace), _SCOPES),
                Contender(_OF_RECORDER, _writer(recorder), _SCOPES),
            ],
            rounds,
        )
        return [
            replace(measured.row(_NOTHING), ratio=None, ratio_to=None),
            measured.row(_WAIT, to=_NOTHING, target=_SAME),
            measured.row(_TRACE),
            measured.row(_RECORDER, to=_TRACE, target=_SAME),
            measured.row(_OF_TRACE),
            measured.row(_OF_RECORDER, to=_OF_TRACE),
            *_memory(folder, many, notes),
        ]


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    notes = ["per scope: the best of the rounds; no event was dropped in any of them"]
    gpuprof.reset()
    rows = _rows(3 if options.quick else 10, _MANY // 2 if options.quick else _MANY, notes)
    measure.report("trace_ring", rows, notes, options.json)


if __name__ == "__main__":
    main()
