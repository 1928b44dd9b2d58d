"""What gathering the statistics of many ranks costs rank 0, in time and in memory.

Rank 0 is a process of its own with a real TCPStore, which it also hosts, as under torchrun. The
other ranks are simulated: this process packs the statistics of each, 100 scopes with figures of
their own, and leaves them in the store as a rank does. Rank 0 then calls `gather_stats`. Time is
from the call to the table as an object, and from there to the text; memory is the highest resident
size of rank 0's process from the call on, less the size before it, and apart from that what the
values take in the store. It needs torch, its CPU build is enough.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from datetime import timedelta
from time import perf_counter_ns
from typing import Any

import gpuprof
from gpuprof._distributed import wire
from gpuprof._distributed.exchange import Exchange
from gpuprof._distributed.world import Connection, World
from support import measure
from support.loops import BenchmarkError
from support.results import Row

_SCOPES = 100
_SIZES = (8, 64, 1024)
_TIMEOUT_S = 120.0

# For 1,024 ranks: less than what one of them takes to import torch, and a thousandth of its memory.
_GATHER_MS = 5_000.0
_MEMORY_MIB = 128.0

_RANK_0 = """
import json, os, sys, time
from pathlib import Path
from torch.distributed import TCPStore
import gpuprof.distributed

def status(key):
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(key)).split()[1])

store = TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
empty_kib = status("VmRSS")
print(store.port, flush=True)
sys.stdin.readline()
Path("/proc/self/clear_refs").write_text("5")  # the highest size counts from here
before_kib = status("VmRSS")
begun = time.perf_counter_ns()
found = gpuprof.distributed.gather_stats(60.0, store=store)
gathered = time.perf_counter_ns()
text = str(found)
shown = time.perf_counter_ns()
assert not found.missing and not found.left_out, text[-500:]
print(json.dumps({
    "ranks": len(found.ranks), "rows": len(found), "slowest": found.slowest_rank,
    "gather_ns": gathered - begun, "table_ns": shown - gathered,
    "store_kib": before_kib - empty_kib, "added_kib": max(status("VmHWM") - before_kib, 0),
    "keys": store.num_keys(),
}), flush=True)
"""


def _times(own: random.Random, mean: float, count: int) -> gpuprof.results.Summary:
    """Return made-up times around a mean, in whole nanoseconds as clocks give them."""
    most = own.uniform(1.5, 3.0)
    p50, p90, p99 = (own.uniform(*within) for within in ((0.9, 1.0), (1.1, 1.3), (1.3, 1.5)))
    parts = (count, 1.0, own.uniform(0.7, 0.9), p50, p90, p99, most, most)
    return gpuprof.results.Summary(count, *(round(mean * part, 6) for part in parts))


def _stats(rank: int) -> gpuprof.Stats:
    """Return what a rank might have measured: steps with layers and collectives inside."""
    own = random.Random(rank)
    rows = []
    for number in range(_SCOPES):
        layer = ("step", f"layer{number // 4}")
        inner = ("forward", "attention", "mlp", "collective/all_gather_into_tensor")[number % 4]
        names = ("step",) if number == 0 else (*layer, inner)
        mean = 100.0 if number == 0 else own.uniform(0.1, 1.0)
        gpu, host = _times(own, mean, 1000), _times(own, mean / 3.0, 1000)
        rows.append(gpuprof.results.Row("/".join(names), "cuda", gpu, host, names=names))
    return gpuprof.Stats(rows)


def _leave(store: Any, size: int) -> tuple[float, int]:
    """Be the other ranks; return the milliseconds that one needs, and the bytes that it writes."""
    spent, written = 0, 0
    for rank in range(1, size):
        stats = _stats(rank)
        begun = perf_counter_ns()
        packed = wire.pack(stats)
        exchange = Exchange(World(rank, tuple(range(size)), Connection(store)), "stats")
        if not exchange.post(packed):
            raise BenchmarkError(f"rank {rank} came too late")
        spent += perf_counter_ns() - begun
        written += len(packed)
    return spent / (size - 1) / 1e6, written // (size - 1)


def _gather(size: int) -> dict[str, Any]:
    from torch.distributed import TCPStore

    variables = {**os.environ, "RANK": "0", "WORLD_SIZE": str(size)}
    with subprocess.Popen(
        [sys.executable, "-c", _RANK_0],
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        limit = timedelta(seconds=_TIMEOUT_S)
        store = TCPStore("127.0.0.1", port, None, False, limit, wait_for_workers=False)
        rank_ms, rank_bytes = _leave(store, size)
        process.stdin.write("\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise BenchmarkError(f"rank 0 of {size} has ended")
    found: dict[str, Any] = json.loads(answer)
    if found["ranks"] != size or found["rows"] != _SCOPES:
        raise BenchmarkError(f"not everything came together: {found}")
    return {**found, "rank_ms": rank_ms, "rank_bytes": rank_bytes}


def _rows(size: int, rounds: int) -> list[Row]:
    found = [_gather(size) for _ in range(rounds)]
    most = size == max(_SIZES)

    def row(what: str, key: str, unit: str, scale: float, target: float | None = None) -> Row:
        values = sorted(each[key] / scale for each in found)
        middle = values[len(values) // 2]
        return Row(f"{size:,} ranks: {what}", values[0], unit, middle, target=target)

    return [
        row("rank 0 gathers", "gather_ns", "ms", 1e6, _GATHER_MS if most else None),
        row("rank 0 writes the table", "table_ns", "ms", 1e6),
        row("memory that it adds", "added_kib", "MiB", 1024, _MEMORY_MIB if most else None),
        row("memory of the values in the store", "store_kib", "MiB", 1024),
        row("another rank packs and leaves its own", "rank_ms", "ms", 1.0),
        row("keys that stay in the store", "keys", "", 1.0),
    ]


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    sizes = _SIZES[:2] if options.quick else _SIZES
    rounds = 1 if options.quick else 3
    rows = [row for size in sizes for row in _rows(size, rounds)]
    notes = [f"each rank has {_SCOPES} scopes with figures of its own; ranks but 0 are simulated"]
    measure.report("distributed_gather", rows, notes, options.json)


if __name__ == "__main__":
    main()
