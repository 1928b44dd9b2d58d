"""Verdicts of ``gpuprof ab`` on commands whose change is known: runs of a real one, resampled.

A command of some 0.1 s is run again and again, alone and beside a busy process for each core. For a
comparison, blocks of neighbouring runs are drawn, and dealt to A and B in the order in which `ab`
would run them; the times of B are multiplied by the change. It ends as `ab` does without options:
when the verdict is clear, or after the 60 s of its time that the runs would have taken.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from gpuprof._cli.ab import order
from gpuprof._cli.ab_processes import Command, run_once
from gpuprof._results.decision import Verdict
from gpuprof._results.paired_verdict import DEFAULT_PAIRS, judge_processes_all, looks
from support import measure
from support.results import Row

_RUNS, _BLOCK, _TRIALS = 400, 8, 300
_MAX_TIME_S = 60.0
_WORK = "sum(number % 7 for number in range(1_500_000))"
_BUSY = "while True: pass"
_CHANGES = (0.0, 0.05, 0.1)

Series = dict[str, list[float]]  # the times of each run, by what was measured


def _recorded(runs: int) -> Series:
    command = Command("A", f"{sys.executable} -S -c '{_WORK}'")
    found: Series = {"wall time": [], "CPU time": []}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            ended = run_once(command, str(Path(folder) / "out"), None, [])
            found["wall time"].append(ended.seconds)
            found["CPU time"].append(ended.cpu_seconds)
    return found


def _drawn(series: list[float], chance: random.Random) -> Iterator[float]:
    while True:
        begin = chance.randrange(len(series) - _BLOCK + 1)
        yield from series[begin : begin + _BLOCK]


def _compared(
    series: list[float], change: float, most: int, chance: random.Random
) -> tuple[Verdict, int]:
    """Return the verdict of one comparison, and after how many pairs."""
    times: dict[str, list[float]] = {"A": [], "B": []}
    turns, drawn = order(chance.randrange(1 << 30)), _drawn(series, chance)
    for look in looks():
        pairs = min(look, most)
        for side, time in zip(islice(turns, 2 * pairs - len(times["A"]) * 2), drawn, strict=False):
            times[side].append(time * (1.0 + change * (side == "B")))
        decision = judge_processes_all({"it": (times["A"], times["B"])}, is_look=True)["it"]
        if decision.verdict is not Verdict.AMBIGUOUS or pairs >= most:
            break
    return decision.verdict, pairs


def _rows(where: str, recorded: Series, wall_s: float, notes: list[str]) -> Iterator[Row]:
    most = max(DEFAULT_PAIRS, int(_MAX_TIME_S / wall_s / 2) // 2 * 2)
    for what, series in recorded.items():
        logs = [abs(time / statistics.median(series) - 1.0) for time in series]
        spread = 100 * statistics.stdev(series) / statistics.mean(series)
        notes.append(
            f"{what}, {where}: {len(series)} runs of {1e3 * statistics.median(series):.0f} ms, "
            f"standard deviation {spread:.1f} %, median distance from the median "
            f"{100 * statistics.median(logs):.1f} %; at most {most} pairs in {_MAX_TIME_S:.0f} s"
        )
        for change in _CHANGES:
            chance = random.Random(1)
            found = [_compared(series, change, most, chance) for _ in range(_TRIALS)]
            counts = Counter(verdict for verdict, _ in found)
            slow, same = (100 * counts[each] / _TRIALS for each in (Verdict.SLOW, Verdict.SAME))
            said = f"{100 * change:.0f} % slower" if change else "unchanged"
            label = f"{what}, {where}, {said}"
            if change:
                yield Row(f"{label}: missed", 100 - slow, "%")
                yield Row(f"{label}: called SAME", same, "%")
            else:
                wrong = slow + 100 * counts[Verdict.FAST] / _TRIALS
                yield Row(f"{label}: called SLOW or FAST", wrong, "%", target=1.0)
                yield Row(f"{label}: not called SAME", 100 - same, "%", target=20.0)
            yield Row(f"{label}: pairs of runs", statistics.median(n for _, n in found), "")


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    runs = 60 if options.quick else _RUNS
    rows: list[Row] = []
    notes: list[str] = []
    cores = os.cpu_count() or 1
    for where, busy in (("alone", 0), (f"beside {cores} busy processes", cores)):
        with ExitStack() as neighbours:
            for _ in range(busy):
                neighbour = subprocess.Popen([sys.executable, "-c", _BUSY])
                neighbours.callback(neighbour.wait)
                neighbours.callback(neighbour.kill)
            recorded = _recorded(runs)
        rows += _rows(where, recorded, statistics.mean(recorded["wall time"]), notes)
    notes.append(f"{_TRIALS} comparisons a row, of blocks of {_BLOCK} runs; {cores} cores")
    measure.report("verdict_ab", rows, notes, options.json)


if __name__ == "__main__":
    main()
