"""What scopes cost a loop within a budget of 1 % of its time, and without one.

Nanoseconds per turn, best and median of several rounds in one process. The loop has one scope
around its work. The scope is switched off, left out in nearly each visit, measured within the
budget, or measured in each visit. A budget bounds what measuring adds to visits that are left out.
Each round begins with a time that is not measured, in which gpuprof finds out how often the scope
is entered.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from time import monotonic, perf_counter_ns
from typing import Any

import gpuprof
from support import measure
from support.loops import BenchmarkError, nothing
from support.measure import Contender, Rounds
from support.peers import Peers
from support.results import Row

_SHARE = 0.01
_OVER_BUDGET = 1.2  # an estimate decides, so what is spent may be a fifth more
_LEFT_OUT = 1.3  # of a disabled scope
_SETTLE_S = 1.0  # windows of the budget have grown to some 0.5 s then
_COUNT = 40_000
_RARE = 1e-9  # a budget in which nearly no visit is measured


def _loop(name: str, work: Callable[[], object], clock: str) -> Callable[[int], None]:
    scope = gpuprof.timer(name, backend=clock)

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            with scope:
                work()

    return loop


@contextmanager
def _measuring(share: float | None) -> Iterator[None]:
    """Measure within a budget, where it is None in each visit, or where it is 0 not at all."""
    if share == 0:
        gpuprof.disable()
    else:
        gpuprof.set_budget(share)
    try:
        yield
    finally:
        gpuprof.set_budget(None)
        gpuprof.enable()


def _rows(
    of: str, work: Callable[[], object], rounds: int, clock: str, wait: Callable[[], object]
) -> list[Row]:
    """Measure a loop in all ways."""
    loop = _loop(of, work, clock)

    def contender(name: str, share: float | None) -> Contender:
        def run(count: int) -> int:
            gpuprof.reset()
            with _measuring(share):
                until = monotonic() + _SETTLE_S
                while monotonic() < until:
                    loop(max(count // 40, 1))
                wait()
                begun = perf_counter_ns()
                loop(count)
                wait()
                spent = perf_counter_ns() - begun
            counted = 0 if share == 0 else gpuprof.stats()[of].time.count
            if share != 0 and counted < count:
                raise BenchmarkError(f"{name}: {counted} of {count} visits are counted")
            return spent

        return Contender(f"{of}: {name}", run, _COUNT)

    off, each = contender("switched off", 0.0), contender("all measured", None)
    out, kept = contender("left out", _RARE), contender(f"budget of {_SHARE:.0%}", _SHARE)
    found = Rounds()
    found.measure([off, each], rounds // 3)
    found.measure([out, kept], rounds)  # these are close together
    return [
        found.row(off.name),
        found.row(each.name, to=off.name),
        found.row(out.name),
        found.row(kept.name, to=out.name, target=1 + _SHARE * _OVER_BUDGET),
    ]


def _left_out(rounds: int) -> list[Row]:
    """Measure the visits of an empty scope that are left out, beside those of one switched off."""
    loop = _loop("empty", nothing, "cpu")

    def contender(name: str, share: float) -> Contender:
        def run(count: int) -> int:
            with _measuring(share):
                loop(count)
                begun = perf_counter_ns()
                loop(count)
                return perf_counter_ns() - begun

        return Contender(name, run, 5 * _COUNT)

    off, out = "empty scope, switched off", "empty scope, left out"
    found = Rounds()
    found.measure([contender(off, 0), contender(out, _RARE)], rounds)
    return [found.row(off), found.row(out, to=off, target=_LEFT_OUT)]


def _on_the_gpu(torch: Any, rounds: int) -> list[Row]:
    """Measure a loop of small kernels, as torch launches them."""
    values = torch.zeros(64, device="cuda")

    def work() -> None:
        values.add_(1.0)

    return _rows("a small kernel on the GPU", work, rounds, "cuda", torch.cuda.synchronize)


def main() -> int:
    """Measure, print the table, and write it with ``--json``."""
    options = measure.arguments(__doc__)
    rounds = 3 if options.quick else 21
    numbers = list(range(2000))
    notes = ["the GPU's work is waited for at the end of each round"]
    rows = _left_out(rounds)
    rows += _rows("a sum of 2,000 numbers on the CPU", lambda: sum(numbers), rounds, "cpu", nothing)
    torch = Peers().torch
    if torch is None:
        notes.append("without torch and a GPU: nothing is measured there")
    else:
        rows += _on_the_gpu(torch, rounds)
    measure.report("timing_budget", rows, notes, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
