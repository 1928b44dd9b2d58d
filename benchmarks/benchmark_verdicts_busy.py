"""Verdicts on CPU code in real processes, on a machine whose other cores are busy.

A process for each core but one computes all the time. Beside them, processes measure the same
functions, one process after the other. The verdict is that of five such runs against the next, or
the next three where it may be SLOW. For slower code their times are multiplied: the noise is real,
and the change is known. Then one process compares the same functions in turns.
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
from support.verdict_runs import in_process, share, verdicts

_PROCESSES = 26
_IN_TURNS = 200
_FALSE_TARGET, _MISSED_10, _MISSED_20, _WRONG_SAME = 0.7, 20.0, 5.0, 2.0
_SHORT: dict[str, Any] = {"warmup_s": 0.05, "max_time_s": 1.0, "progress": False}
_BUSY = "while True: pass"

Function = Callable[[], object]


def _functions() -> dict[str, Function]:
    chance = random.Random(1)
    numbers = [chance.random() for _ in range(600)]
    table = {str(place): [place, place * 2.5, "text"] for place in range(50)}
    text = json.dumps(table)
    large = bytearray(1 << 20)

    def loop() -> int:
        total = 0
        for step in range(3000):
            total += step % 7
        return total

    return {
        "a loop": loop,
        "sorting": lambda: sorted(numbers),
        "writing JSON": lambda: json.dumps(table),
        "counting words": lambda: Counter(text.split()),
        "scanning 1 MiB": lambda: large.count(1),
        "60,000 square roots": lambda: sum(number**0.5 for number in range(60_000)),
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


def _rows(processes: int, notes: list[str]) -> Iterator[Row]:
    runs = [in_process(__file__, "runs") for _ in range(processes)]
    for ratio, target in ((1.0, _FALSE_TARGET), (1.1, _MISSED_10), (1.2, _MISSED_20)):
        found = [*verdicts(runs, "first", "first", ratio)]
        counts = Counter(verdict for _, verdict in found)
        percent = f"{100 * (ratio - 1):.0f} % slower"
        what = "false SLOW" if ratio == 1.0 else f"missed, {percent}"
        name = f"busy machine: {what}, 5 runs against up to 3"
        yield share(name, counts, missed=ratio > 1.0, target=target)
        if ratio == 1.1:
            same = 100 * counts[Verdict.SAME.value] / len(found)
            yield Row(f"busy machine: called SAME, {percent}", same, "%", target=_WRONG_SAME)
        notes.append(f"{what}: {_in_words(counts)}")
        wrong = [name for name, verdict in found if (verdict == "slow") == (ratio == 1.0)]
        if wrong:
            names = ", ".join(f"{name} ({n})" for name, n in Counter(wrong).most_common())
            windows = len(found) // len(_functions())
            notes.append(f"{what}, of {windows} windows: {names}")
    found = in_process(__file__, "interleaved", str(-(-_IN_TURNS // len(_functions()))))
    counts = Counter(verdict for _, verdict in found["same"])
    yield share("busy machine: false SLOW, in turns", counts, missed=False, target=_FALSE_TARGET)
    notes.append(f"in turns, unchanged: {_in_words(counts)}")
    counts = Counter(verdict for _, verdict in found["slower"])
    name = "busy machine: missed, twice as long, in turns"
    yield share(name, counts, missed=True, target=5.0)


def _in_words(counts: Counter[str]) -> str:
    return ", ".join(f"{number} {found.upper()}" for found, number in counts.most_common())


def _measure_once() -> dict[str, dict[str, dict[str, Any]]]:
    functions = _functions().items()
    measured = [gpuprof.benchmark(each, name=name, progress=False) for name, each in functions]
    return {"first": {each.name: each.to_dict() for each in measured}}


def _compare_in_turns(times: int) -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {"same": [], "slower": []}
    for _ in range(times):
        for name, function in _functions().items():
            others = {"same": function, "slower": _twice(function)}
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
    processes = 12 if options.quick else _PROCESSES
    with _busy_neighbours() as neighbours:
        cores = os.cpu_count()
        notes = [f"busy machine: {cores} cores, {neighbours} of them busy with other processes"]
        rows = [*_rows(processes, notes)]
    measure.report("benchmark_verdicts_busy", rows, notes, options.json)


if __name__ == "__main__":
    main()
