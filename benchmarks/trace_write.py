"""What writing a trace costs per event and in memory, compared with orjson, json and viztracer.

The writer's figure is the CPU time of the writer thread, from taking the events out of the threads'
buffers to bytes in a file, while a loop of scopes makes them. The peers dump ready Python objects
of the same events to a file; theirs is the CPU time of the process. Calls of `TraceWriter.span` and
`trace_span` are timed in the program's thread. Memory is the highest resident size of a whole
process that traces ten million scopes. Peers that are not installed are left out and named.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns, process_time_ns
from typing import Any

import gpuprof
from support import measure
from support.loops import BenchmarkError
from support.measure import Contender, Rounds
from support.results import Row

_EVENTS = 300_000
_MANY = 10_000_000

_WRITER = "writer thread, per event"
_SPAN = "TraceWriter.span, per call"
_TRACE_SPAN = "gpuprof.trace_span, per call"
_ORJSON = "orjson.dumps of ready dicts, per event"
_JSON = "json.dumps of ready dicts, per event"
_VIZTRACER = "viztracer save, per event"

# Six million events a second and core; one and a half times orjson.
_WRITER_NS = 1000.0 / 6.0
_OF_ORJSON = 1.0 / 1.5
_CALL_NS = 500.0

_MEMORY_PROGRAM = """
import sys
import gpuprof
scope = gpuprof.timer("step", backend="cpu")
with gpuprof.trace(sys.argv[1]) as writer:
    for _ in range(int(sys.argv[2])):
        with scope:
            pass
stats = writer.stats()
assert stats["error"] is None, stats["error"]
with open("/proc/self/status") as status:
    peak = next(line for line in status if line.startswith("VmHWM"))
print(stats["events"], stats["dropped"], peak.split()[1])
"""


def _write(folder: Path, count: int) -> int:
    """Trace `count` scopes and return the CPU nanoseconds of the writer thread."""
    scope = gpuprof.timer("step", backend="cpu")
    with gpuprof.trace(folder / "run.json") as writer:
        for _ in range(count):
            with scope:
                pass
    stats = writer.stats()
    if stats["dropped"] or stats["events"] != count or stats["error"]:
        raise BenchmarkError(f"not all events were written: {stats}")
    return int(stats["writer_cpu_ns"])


def _span(folder: Path, count: int) -> int:
    """Write `count` slices and return the nanoseconds that the calls took."""
    with gpuprof.TraceWriter(folder / "own.json") as writer:
        begun = perf_counter_ns()
        for _ in range(count):
            writer.span("decode", 0.001, begin_ns=begun, cat="engine")
        return perf_counter_ns() - begun


def _trace_span(folder: Path, count: int) -> int:
    with gpuprof.trace(folder / "own.json"):
        begun = perf_counter_ns()
        for _ in range(count):
            gpuprof.trace_span("decode", 0.001, cat="engine")
        return perf_counter_ns() - begun


def _ready_events(count: int) -> list[dict[str, Any]]:
    return [
        {
            "ph": "X",
            "name": "step",
            "cat": "scope",
            "pid": 12345,
            "tid": 12345,
            "ts": 1_000_000 + number * 1.337,
            "dur": 0.241,
        }
        for number in range(count)
    ]


def _dump(folder: Path, dumps: Callable[[Any], bytes | str]) -> Callable[[int], int]:
    events = _ready_events(_EVENTS)

    def run(count: int) -> int:
        part = events[:count]
        begun = process_time_ns()
        text = dumps({"traceEvents": part})
        (folder / "peer.json").write_bytes(text if isinstance(text, bytes) else text.encode())
        return process_time_ns() - begun

    return run


def _viztracer(folder: Path, viztracer: Any) -> Callable[[int], int]:
    def run(count: int) -> int:
        tracer = viztracer.VizTracer(
            tracer_entries=count + 1000, verbose=0, output_file=str(folder / "viz.json")
        )
        tracer.start()
        for _ in range(count // 2):
            abs(-1)  # a call and a return: what it traces
        tracer.stop()
        begun = process_time_ns()
        tracer.save()
        return (process_time_ns() - begun) * 2

    return run


def _peers(folder: Path, notes: list[str]) -> list[Contender]:
    found = [Contender(_JSON, _dump(folder, json.dumps), _EVENTS // 3)]
    for name, row, make in (
        (
            "orjson",
            _ORJSON,
            lambda module: Contender(_ORJSON, _dump(folder, module.dumps), _EVENTS),
        ),
        (
            "viztracer",
            _VIZTRACER,
            lambda module: Contender(_VIZTRACER, _viztracer(folder, module), 100_000),
        ),
    ):
        try:
            found.append(make(importlib.import_module(name)))
        except ImportError:
            notes.append(f"{row}: {name} is not installed")
    return found


def _open_and_close_ms(folder: Path, rounds: int) -> float:
    best = float("inf")
    for _ in range(rounds):
        begun = perf_counter_ns()
        with gpuprof.trace(folder / "empty.json"):
            pass
        best = min(best, (perf_counter_ns() - begun) / 1e6)
    return best


def _memory(folder: Path, count: int) -> Row:
    out = folder / "many.json"
    done = subprocess.run(
        [sys.executable, "-c", _MEMORY_PROGRAM, str(out), str(count)],
        check=True,
        capture_output=True,
        text=True,
    )
    events, dropped, peak_kib = map(int, done.stdout.split())
    out.unlink()
    if events != count or dropped:
        raise BenchmarkError(f"{dropped} events were dropped and {events} of {count} written")
    return Row(
        f"resident memory of a process that traces {count / 1e6:g} million scopes",
        peak_kib / 1024,
        "MiB",
        target=64.0 * 1e6 / 2**20,
    )


def _rows(rounds: int, many: int, notes: list[str]) -> list[Row]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        contenders = [Contender(_WRITER, lambda count: _write(folder, count), _EVENTS)]
        measured = Rounds()
        measured.measure([*contenders, *_peers(folder, notes)], rounds)
        writer = measured.row(_WRITER)
        rows = [Row(_WRITER, writer.value, "ns", writer.median, target=_WRITER_NS)]
        if _ORJSON in measured:
            beside = measured.row(_WRITER, to=_ORJSON, target=_OF_ORJSON)
            rows.append(replace(beside, name=f"{_WRITER}, beside orjson"))
        rows += [measured.row(row) for row in (_ORJSON, _JSON, _VIZTRACER) if row in measured]
        calls = [
            Contender(_SPAN, lambda count: _span(folder, count), _EVENTS // 3),
            Contender(_TRACE_SPAN, lambda count: _trace_span(folder, count), _EVENTS // 3),
        ]
        measured.measure(calls, rounds)
        rows += [replace(measured.row(each.name), target=_CALL_NS) for each in calls]
        rows.append(Row("a trace opened and closed", _open_and_close_ms(folder, 20), "ms"))
        rows.append(_memory(folder, many))
    return rows


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    notes = ["per event: the best of the rounds; no event was dropped in any of them"]
    gpuprof.reset()
    rows = _rows(3 if options.quick else 10, _MANY // 10 if options.quick else _MANY, notes)
    measure.report("trace_write", rows, notes, options.json)


if __name__ == "__main__":
    main()
