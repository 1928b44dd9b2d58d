"""Verdicts on CPU code in real processes, on a machine whose other cores are busy.

A process for each core but one computes all the time. Beside them, processes measure the same
functions, one process after the other: each function twice, as a test that is repeated would be,
and twice what does its work twice. The verdict is that of five such runs against the next. Then one
process compares the same functions in turns.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpuprof
from gpuprof._results.decision import Verdict
from support import measure
from support.results import Row
from support.verdict_runs import BASE_RUNS, in_process, one_run, share, verdicts

COMPARISONS = 200
_FALSE_TARGET = 1.0
_MISSED_TARGET = 5.0
_SHORT: dict[str, Any] = {"warmup_s": 0.05, "max_time_s": 1.0, "progress": False}
_BUSY = "while True: pass"

Function = Callable[[], object]


def _functions() -> dict[str, Function]:
    chance = random.Random(1)
    numbers = [chance.random() for _ in range(600)]
    table = {str(place): [place, place * 2.5, "text"] for place in range(50)}
    text = json.dumps(table)
    large = bytearray(4 << 20)

    def loop() -> int:
        total = 0
        for step in range(3000):
            total += step % 7
        return total

    return {
        "a call": lambda: None,
        "a loop": loop,
        "sorting": lambda: sorted(numbers),
        "writing JSON": lambda: json.dumps(table),
        "reading JSON": lambda: json.loads(text),
        "counting words": lambda: Counter(text.split()),
        "summing": lambda: sum(numbers),
        "scanning 4 MiB": lambda: large.count(1),
    }


def _twice(function: Function) -> Function:
    def twice() -> None:
        function()
        function()

    return twice


@contextmanager
def _busy_neighbours() -> Iterator[int]:
    count = max(1, (os.cpu_count() or 1) - 1)
    neighbours = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(count)]
    try:
        yield count
    finally:
        for neighbour in neighbours:
            neighbour.kill()
            neighbour.wait()


def _rows(comparisons: int, notes: list[str]) -> Iterator[Row]:
    functions = len(_functions())
    count = BASE_RUNS + -(-comparisons // functions)
    runs = [one_run(__file__) for _ in range(count)]
    # Forwards only, so that each comparison has another new run.
    windows = [(runs[end - BASE_RUNS : end], runs[end]) for end in range(BASE_RUNS, count)]
    unchanged = [*verdicts(windows, "first", "again")]
    twice = [*verdicts(windows, "twice", "twice again")]
    interleaved = in_process(__file__, "interleaved", str(-(-comparisons // functions)))
    for how, same, slower in (
        ("5 runs against 1", unchanged, twice),
        ("in turns", interleaved["same"], interleaved["twice"]),
    ):
        counts = Counter(found for _, found in same)
        name = f"busy machine: false SLOW, {how}"
        yield share(name, counts, missed=False, target=_FALSE_TARGET)
        notes.append(f"busy machine, {how}, unchanged: {_in_words(counts)}")
        counts = Counter(found for _, found in slower)
        name = f"busy machine: missed, twice as long, {how}"
        yield share(name, counts, missed=True, target=_MISSED_TARGET)
        notes.append(f"busy machine, {how}, twice as long: {_in_words(counts)}")
        missed = Counter(name for name, found in slower if found != Verdict.SLOW.value)
        if missed:
            names = ", ".join(f"{name} ({number})" for name, number in missed.most_common())
            notes.append(f"busy machine, {how}, missed: {names}")


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {found.upper()}" for found, number in counts.most_common())


def _measure_once() -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {kind: {} for kind in ("first", "again")}
    found |= {kind: {} for kind in ("twice", "twice again")}
    for name, function in _functions().items():
        twice = _twice(function)
        for kind in found:
            measured = twice if kind.startswith("twice") else function
            result = gpuprof.benchmark(measured, name=name, **_SHORT)
            found[kind][name] = result.to_dict()
    return found


def _compare_in_turns(times: int) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {"same": [], "twice": []}
    for _ in range(times):
        for name, function in _functions().items():
            others = {"same": function, "twice": _twice(function)}
            for kind, other in others.items():
                result = gpuprof.compare({"base": function, "new": other}, **_SHORT)
                verdict = result["new"].verdict
                assert verdict is not None
                found[kind].append((name, verdict.value))
    return found


def main() -> None:
    """Measure and report, or be one of the processes."""
    if sys.argv[1:2] in (["runs"], ["interleaved"]):
        kind, out, *rest = sys.argv[1:]
        made: Any = _measure_once() if kind == "runs" else _compare_in_turns(int(rest[0]))
        Path(out).write_text(json.dumps(made), encoding="utf-8")
        return
    options = measure.arguments(__doc__)
    comparisons = 40 if options.quick else COMPARISONS
    with _busy_neighbours() as neighbours:
        cores = os.cpu_count()
        notes = [f"busy machine: {cores} cores, {neighbours} of them busy with other processes"]
        rows = [*_rows(comparisons, notes)]
    measure.report("benchmark_verdicts_busy", rows, notes, options.json)


if __name__ == "__main__":
    main()
