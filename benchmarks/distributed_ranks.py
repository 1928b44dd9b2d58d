"""Ranks side by side: a training step with DDP, one rank slowed on purpose, and who is named.

Run it with torchrun on the GPUs of one host, or on its CPU where there is none:

    torchrun --standalone --nproc-per-node 2 distributed_ranks.py --json FILE --trace FILE

Each rank is slowed in turn by a kernel that spins in its forward pass. Steps then take equally
long on all ranks, and `gather_stats` has to name the slow one by what it does not wait. What the
backward pass waits for the all-reduces at its end stands beside the time of DDP's own timers, which
count the all-reduces whether or not they are hidden behind the computation. The price of watching
is a step with scopes and the watch against the same step without either. With ``--trace`` a few
steps are traced on all ranks, on one clock.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gpuprof
from gpuprof import distributed
from support import measure
from support.loops import BenchmarkError
from support.ranks_training import Step, bare, scoped
from support.results import Row

_DELAY_MS = 10.0
_WAIT = "step/backward/collective/ddp"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write the merged trace there")
    parser.add_argument("--quick", action="store_true", help="fewer steps; for a first look")
    return parser.parse_args()


def _measured(step: Step, slow: int | None, steps: int) -> Any:
    """Run steps with one rank slowed; return rank 0's table, None on the others."""
    step.synchronize()
    gpuprof.reset()
    for _ in range(steps):
        step.run(_DELAY_MS if step.rank == slow else 0.0, scoped)
    step.synchronize()
    return distributed.gather_stats(60.0)


def _step_ms(step: Step, steps: int, *, watched: bool) -> float:
    """Return what one step takes by the host's clock, with scopes and the watch or without."""
    with distributed.time_collectives() if watched else nullcontext():
        step.synchronize()
        begun = time.perf_counter()
        for _ in range(steps):
            step.run(0.0, scoped if watched else bare)
        step.synchronize()
        return (time.perf_counter() - begun) * 1e3 / steps


def _ddp_own_ms(step: Step) -> float | None:
    """Return the time of the all-reduces by DDP's own timers, or None where it has none."""
    logged: dict[str, Any] = step.model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
    nanoseconds = logged.get("avg_backward_comm_time")
    return None if not nanoseconds else float(nanoseconds) / 1e6


def _balanced_rows(found: Any, own_ms: float | None) -> list[Row]:
    whole, wait = found["step"], found[_WAIT]
    rows = [
        Row("balanced: step", whole.mean_ms, "ms", whole.p50_ms),
        Row("balanced: waiting for DDP's all-reduces", wait.mean_ms, "ms", wait.p50_ms),
        Row("balanced: imbalance", whole.imbalance, ""),
    ]
    if own_ms is not None:
        rows.append(Row("balanced: all-reduces by DDP's own timers", own_ms, "ms"))
    return rows


def _slowed_rows(found: Any, slow: int) -> list[Row]:
    whole, wait = found["step"], found[_WAIT]
    if found.slowest_rank != slow or wait.slowest_rank != slow:
        raise BenchmarkError(f"rank {slow} was slowed, and rank {found.slowest_rank} is named")
    others = [rank for rank in whole if rank != slow]
    more = whole[slow].own_ms - statistics.fmean(whole[rank].own_ms for rank in others)
    name = f"rank {slow} slowed by {_DELAY_MS:g} ms"
    return [
        Row(f"{name}: step, fastest rank", whole.min_ms, "ms"),
        Row(f"{name}: step, slowest rank", whole.max_ms, "ms"),
        Row(f"{name}: waiting of rank {slow}", wait[slow].mean_ms, "ms"),
        Row(f"{name}: waiting of the others", max(wait[r].mean_ms for r in others), "ms"),
        Row(f"{name}: found by which it is slower", max(more, 0.0), "ms"),
        Row(f"{name}: imbalance", whole.imbalance, ""),
    ]


def _price(step: Step, steps: int, rounds: int) -> list[Row]:
    plain, watched = [], []
    for number in range(rounds):
        for is_watched in (False, True) if number % 2 == 0 else (True, False):
            taken = _step_ms(step, steps, watched=is_watched)
            (watched if is_watched else plain).append(taken)
    ratios = [one / other for one, other in zip(watched, plain, strict=True)]
    name = "a step without scopes"
    middle = statistics.median
    return [
        Row(name, min(plain), "ms", middle(plain)),
        Row(
            "a step with scopes and collectives watched",
            min(watched),
            "ms",
            middle(watched),
            name,
            min(watched) / min(plain),
            middle(ratios),
        ),
    ]


def _traced(step: Step, path: Path, slow: int) -> list[Row]:
    with distributed.time_collectives(), distributed.trace(path, timeout_s=60.0) as trace:
        for number in range(6):
            step.run(_DELAY_MS / 2 if step.rank == slow and number >= 3 else 0.0, scoped)
        step.synchronize()
    result = trace.result
    if step.rank != 0:
        return []
    if result is None or result.problems:
        raise BenchmarkError(f"the traces were not merged: {result}")
    errors = [error for error in result.clock_error_ms.values() if error]
    return [Row("the clocks of the merged trace are right to within", 1e3 * max(errors), "us")]


def main() -> None:
    """Measure and report on rank 0."""
    options = _arguments()
    steps = 20 if options.quick else 100
    step = Step()
    if step.ranks < 2:
        sys.exit("run it with torchrun --nproc-per-node 2 or more")
    for _ in range(12):  # in the first steps DDP arranges its buckets, and NCCL connects
        step.run(0.0, bare)
    rows = _price(step, steps, 3 if options.quick else 9)
    tables = []
    with distributed.time_collectives():
        step.model._set_ddp_runtime_logging_sample_rate(1)
        found = _measured(step, None, steps)
        own_ms = _ddp_own_ms(step)
        if step.rank == 0:
            rows += _balanced_rows(found, own_ms)
        for slow in range(step.ranks):
            found = _measured(step, slow, steps)
            if step.rank == 0:
                rows += _slowed_rows(found, slow)
                tables.append(found)
    if options.trace is not None:
        rows += _traced(step, options.trace, step.ranks - 1)
    step.synchronize()
    step.close()
    if step.rank == 0:
        backend = "NCCL" if step.on_gpu else "Gloo on the CPU"
        print(tables[-1])
        notes = [f"{step.ranks} ranks on one host, {backend}; times are the mean of one step"]
        measure.report("distributed_ranks", rows, notes, options.json)


if __name__ == "__main__":
    main()
