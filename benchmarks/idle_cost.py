"""What `gpuprof.idle` costs a program on the GPU, and how far it is off.

Nanoseconds per step, best and median of several rounds in one process, of three loops, each as it
is and inside of an `idle` block. In the first the GPU is always busy, in the second the host works
in Python all the time and the GPU is mostly idle, in the third both do something in turns. Each
step has one scope. Then sleeps of 5 ms are planted between steps that keep the GPU busy for 2 ms,
and what `idle` finds at that line is compared with how long they took.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

import gpuprof
from support import measure
from support.measure import Contender, Rounds
from support.results import Row

_MOST_COST = 1.01
_MOST_ERROR = 10.0  # per cent
_PLANTED_S, _BUSY_MS = 0.005, 2.0
_PLANTED = 1_000


def _cycles_of_a_ms() -> int:
    """Return for how many cycles the GPU has to spin for a millisecond."""
    cycles = 10_000_000
    with gpuprof.timer(backend="cuda") as sample:
        torch.cuda._sleep(cycles)
    return int(cycles / sample.ms)


def _spin(ms: float, per_ms: int) -> Callable[[], None]:
    def step() -> None:
        with gpuprof.timer("spin"):
            torch.cuda._sleep(int(ms * per_ms))

    return step


def _host(values: torch.Tensor) -> Callable[[], None]:
    def step() -> None:
        with gpuprof.timer("host"):
            values.add_(1.0)
        sum(number * number for number in range(2_000))

    return step


def _loop(step: Callable[[], object], around: Callable[[], Any]) -> Callable[[int], int]:
    def run(count: int) -> int:
        torch.cuda.synchronize()
        with around():
            begun = time.perf_counter_ns()
            for _ in range(count):
                step()
            torch.cuda.synchronize()
            return time.perf_counter_ns() - begun

    return run


def _cost(name: str, step: Callable[[], object], count: int, rounds: int) -> list[Row]:
    found = Rounds()
    plain, watched = f"{name}: as it is", f"{name}: with idle()"
    found.measure(
        [
            Contender(plain, _loop(step, nullcontext), count),
            Contender(watched, _loop(step, gpuprof.idle), count),
        ],
        rounds,
    )
    return [found.row(plain), found.row(watched, to=plain, target=_MOST_COST)]


def _error(busy: Callable[[], None], count: int, around: Callable[[], Any], name: str) -> Row:
    """Return by how much idle() is off for sleeps that are planted; their line is this file's."""
    planted = 0
    with around(), gpuprof.idle() as found:
        for _ in range(count):
            busy()
            torch.cuda.synchronize()
            begun = time.perf_counter_ns()
            time.sleep(_PLANTED_S)
            planted += time.perf_counter_ns() - begun
    at_sleep = sum(row.idle_ms for row in found.rows if row.code == "time.sleep(_PLANTED_S)")
    off = abs(at_sleep / (planted * 1e-6) - 1) * 100
    return Row(f"planted sleeps of 5 ms, {name}: off by", off, "%", target=_MOST_ERROR)


def main() -> int:
    """Measure, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    if not torch.cuda.is_available():
        print("this script needs a GPU and torch")
        return 1
    rounds = 3 if options.quick else 7
    per_ms = _cycles_of_a_ms()
    busy = _spin(_BUSY_MS, per_ms)
    host = _host(torch.zeros(64, device="cuda"))

    def turns() -> None:
        busy()
        torch.cuda.synchronize()
        host()

    rows = [
        *_cost("the GPU works", busy, 400, rounds),
        *_cost("the host works", host, 5_000, rounds),
        *_cost("both in turns", turns, 400, rounds),
    ]
    count = _PLANTED // 5 if options.quick else _PLANTED
    rows.append(_error(busy, count, nullcontext, "by events"))
    rows.append(_error(busy, count, gpuprof.kernels, "with kernels()"))
    notes = [f"{count} sleeps between steps of {_BUSY_MS:g} ms; looks: some 100 a second"]
    measure.report("idle_cost", rows, notes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
