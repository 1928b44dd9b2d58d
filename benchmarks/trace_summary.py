"""Time and memory of `gpuprof trace summary`, compared with `json.load` of the same file.

The file is made here, as gpuprof writes traces: nested scopes of four threads, and of two GPU
streams, with flows between them. The command is timed as a whole process, its start included;
`json.load` is timed inside of one, without. Both run in turns, the first after the file was read
once. Wall time, milliseconds; resident memory is in the notes.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import perf_counter_ns

from support import measure
from support.measure import Contender, Rounds
from support.results import Row

_LOAD = """\
import json, sys, time
with open(sys.argv[1], encoding="utf-8") as file:
    begin = time.perf_counter_ns()
    json.load(file)
    print(time.perf_counter_ns() - begin)
"""
_SUMMARY = "gpuprof trace summary FILE"
_JSON_LOAD = "json.load(FILE), alone"
_MOST_MB = 100.0  # resident, for a file of any size
_GPU_TID = 1 << 28
_STEP = [
    '{{"ph":"X","name":"load","cat":"scope","pid":9,"tid":{tid},"ts":{us}.100,"dur":0.750}},',
    '{{"ph":"X","name":"forward","cat":"scope","pid":9,"tid":{tid},"ts":{us}.900,"dur":11.500,'
    '"args":{{"step":{step}}}}},',
    '{{"ph":"s","id":{step},"name":"launch","cat":"launch","pid":9,"tid":{tid},"ts":{us}.950}},',
    '{{"ph":"X","name":"{kernel}","cat":"gpu","pid":9,"tid":{gpu},"ts":{us}.975,"dur":8.125}},',
    '{{"ph":"f","bp":"e","id":{step},"name":"launch","cat":"launch","pid":9,"tid":{gpu},'
    '"ts":{us}.975}},',
    '{{"ph":"X","name":"step","cat":"scope","pid":9,"tid":{tid},"ts":{us}.000,"dur":14.750}},',
]


def _lines() -> Iterator[str]:
    chance = random.Random(1)
    kernels = [f"void gemm_{chance.randrange(1 << 40):x}<float, 128, 64>" for _ in range(300)]
    form = "\n".join(_STEP) + "\n"
    step = 0
    while True:
        step += 1
        yield form.format(
            tid=100 + step % 4,
            gpu=_GPU_TID + step % 2,
            us=1_000_000 + 10 * step,
            step=step,
            kernel=chance.choice(kernels),
        )


def _make_file(path: Path, size: int) -> int:
    """Write a trace of about `size` bytes; return how many events it has."""
    head = {"displayTimeUnit": "ns", "baseTimeNanoseconds": 1_700_000_000_000_000_000}
    written, events = 0, 1
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(head)[:-1] + ',"traceEvents":[\n')
        for text in _lines():
            written += file.write(text)
            events += len(_STEP)
            if written >= size:
                break
        file.write('{"ph":"M","name":"process_name","pid":9,"tid":0,"args":{"name":"work"}}\n]}')
    return events


def _summary_ns(path: Path) -> tuple[int, float]:
    """Run the command; return what it took, and its most resident megabytes."""
    command = [sys.executable, "-m", "gpuprof", "trace", "summary", str(path)]
    begin = perf_counter_ns()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    taken = perf_counter_ns() - begin
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return taken, usage.ru_maxrss / 1024


def _load_ns(path: Path) -> int:
    command = [sys.executable, "-c", _LOAD, str(path)]
    return int(subprocess.run(command, capture_output=True, check=True, text=True).stdout)


def _in_ms(row: Row) -> Row:
    return replace(row, value=row.value / 1e6, median=(row.median or 0.0) / 1e6, unit="ms")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; for a first look")
    parser.add_argument(
        "--mb", type=int, default=256, metavar="N", help="size of the trace (default 256)"
    )
    options = parser.parse_args()
    if options.mb < 1:
        parser.error("--mb must be at least 1")
    return options


def main() -> None:
    """Measure and report."""
    options = _arguments()
    resident = 0.0

    def summary(_: int) -> int:
        nonlocal resident
        taken, megabytes = _summary_ns(path)
        resident = max(resident, megabytes)
        return taken

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        events = _make_file(path, options.mb << 20)
        rounds = Rounds()
        contenders = [
            Contender(_JSON_LOAD, lambda _: _load_ns(path), 1),
            Contender(_SUMMARY, summary, 1),
        ]
        rounds.measure(contenders, 1 if options.quick else 3)
    rows = [
        _in_ms(rounds.row(_JSON_LOAD)),
        _in_ms(rounds.row(_SUMMARY, to=_JSON_LOAD, target=1.0)),
    ]
    verdict = "met" if resident <= _MOST_MB else "not met"
    notes = [
        f"{events:,} events in {options.mb} MiB",
        f"the command had at most {resident:.0f} MB resident, target {_MOST_MB:.0f} MB: {verdict}",
    ]
    measure.report("trace_summary", rows, notes, options.json)


if __name__ == "__main__":
    main()
