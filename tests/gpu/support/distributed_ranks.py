"""Two ranks started by torchrun: statistics, waiting in NCCL's collectives, traces.

Each has a GPU of its own, or both share the only one. Run it from the repository's root:
``torchrun --standalone --nproc-per-node 2 -m tests.gpu.support.distributed_ranks NAME FOLDER``.
"""

from __future__ import annotations

import copy
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.distributed import _functional_collectives as functional_collectives
from torch.distributed.fsdp import fully_shard

import gpuprof
from gpuprof import distributed
from tests.gpu.support.frameworks import gpu_of_rank
from tests.gpu.support.training import data_parallel

STEPS = 10
SLOWER_MS = 20.0


def spin(ms: float) -> None:
    """Run a kernel that takes that long."""
    torch.cuda._sleep(int(ms * _cycles_per_ms()))


_rate: list[float] = []


def _cycles_per_ms() -> float:
    if not _rate:
        for cycles in (1_000_000, 20_000_000):  # the first one loads the kernel
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            begin.record()
            torch.cuda._sleep(cycles)
            end.record()
            end.synchronize()
            _rate[:] = [cycles / begin.elapsed_time(end)]
    return _rate[0]


def _ready() -> None:
    torch.cuda.synchronize()
    dist.barrier()
    gpuprof.reset()


def _table(collected: gpuprof.Kernels | None = None) -> Any:
    return distributed.gather_stats(60.0, kernels=collected)


def all_reduce(rank: int, _folder: Path) -> None:
    """A slow kernel on one rank, then an all-reduce: the other one waits on its stream."""
    values = torch.ones(1 << 20, device="cuda")
    spin(1.0)
    dist.all_reduce(values)
    for slow in range(2):
        for is_async in (False, True):
            with distributed.time_collectives():
                _ready()
                begun = time.monotonic()
                for _ in range(STEPS):
                    with gpuprof.timer("step"):
                        if rank == slow:
                            spin(SLOWER_MS)
                        work = dist.all_reduce(values, async_op=is_async)
                        if work is not None:
                            work.wait()
                queued = (time.monotonic() - begun) * 1e3
            found = _table()
            assert queued < STEPS * SLOWER_MS, "the host has waited for the GPU"
            if rank != 0:
                continue
            step, wait = found["step", "cuda"], found["step/collective/all_reduce", "cuda"]
            assert found.slowest_rank == step.slowest_rank == wait.slowest_rank == slow, found
            assert step[slow].own_ms > 0.8 * SLOWER_MS, found
            assert step[1 - slow].waiting_ms > 0.5 * SLOWER_MS, found
            assert step.imbalance > 1.5, found


def ddp(rank: int, _folder: Path) -> None:
    """What DDP waits for at the end of a backward pass, which runs on a thread of autograd."""
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(1024, 1024), nn.ReLU()) for _ in range(4)]
    model = data_parallel(nn.Sequential(*layers).cuda())
    data = torch.randn(64, 1024, device="cuda")

    def step(slow: int | None) -> None:
        with gpuprof.timer("step"):
            with gpuprof.timer("forward"):
                if rank == slow:
                    spin(SLOWER_MS)
                loss = model(data).square().mean()
            with gpuprof.timer("backward"):
                loss.backward()

    for _ in range(5):
        step(None)
    with distributed.time_collectives():
        for slow in range(2):
            _ready()
            for _ in range(STEPS):
                step(slow)
            found = _table()
            with model.no_sync():
                step(None)
            if rank != 0:
                continue
            wait = found["step/backward/collective/ddp"]
            assert (wait.clock, len(wait), wait[0].count) == ("cuda", 2, STEPS), found
            assert found.slowest_rank == wait.slowest_rank == slow, found
            assert found["step/backward"][1 - slow].waiting_ms > 0.5 * SLOWER_MS, found
            assert found["step"][slow].own_ms > 0.8 * SLOWER_MS, found


def exposed(rank: int, folder: Path) -> None:
    """Exposed communication beside what the intervals of torch's own trace say, of the same steps.

    The two look at one step after the other, as CUPTI serves one profiler at a time.
    """
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4096, 4096), nn.ReLU()) for _ in range(8)]
    data = torch.randn(4096, 4096, device="cuda")
    by_ddp = data_parallel(nn.Sequential(*layers).cuda())
    by_fsdp = copy.deepcopy(by_ddp.module)
    for layer in by_fsdp:
        fully_shard(layer)
    fully_shard(by_fsdp)

    def functional() -> None:
        hidden = functional_collectives.all_reduce(data, "sum", dist.group.WORLD)
        product = data @ data
        (hidden + product).sum()
        (functional_collectives.all_reduce(product, "sum", dist.group.WORLD) + data).sum()

    steps = {
        "ddp": lambda: by_ddp(data).square().mean().backward(),
        "fsdp": lambda: by_fsdp(data).square().mean().backward(),
        "functional": functional,
    }
    results = []
    for name, step in steps.items():
        for _ in range(3):
            step()
        _ready()
        with torch.profiler.profile() as profiler:
            _meet(folder / f"{name} by torch ", rank)
            for _ in range(STEPS):
                step()
            torch.cuda.synchronize()
        profiler.export_chrome_trace(str(folder / f"{name}{rank}.json"))
        _ready()
        with gpuprof.kernels() as collected:
            _meet(folder / f"{name} by gpuprof ", rank)
            for _ in range(STEPS):
                with gpuprof.timer("step"):
                    step()
        [row] = [each for each in collected.rows if each.path == "step"]
        communication, exposed = _by_hand(folder / f"{name}{rank}.json")
        print(name, rank, communication, exposed, row.communication_ms, row.exposed_ms, flush=True)
        results.append((name, exposed, row, _table(collected)))
    # Only now, as a rank that fails leaves the other one in a collective.
    for name, exposed, row, found in results:
        assert row.entries == STEPS
        assert 0.0 < row.exposed_ms < row.communication_ms
        assert row.exposed_ms == pytest.approx(exposed, rel=0.3, abs=0.05 * row.communication_ms)
        if found is not None:
            print(name, found, flush=True)
            assert found["step"][rank].exposed_ms == pytest.approx(row.exposed_ms / STEPS)


def _meet(place: Path, rank: int) -> None:
    """Wait for the other rank without NCCL, whose kernels would wait for its profiler to start."""
    Path(f"{place}{rank}").touch()
    while not Path(f"{place}{1 - rank}").exists():
        time.sleep(0.0001)


def _by_hand(path: Path) -> tuple[float, float]:
    """Return the communication of one of torch's traces, and what is exposed of it, in ms."""
    changes: list[tuple[float, int, int]] = []
    for event in json.loads(path.read_text())["traceEvents"]:
        if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
            is_nccl = int("nccl" in event["name"])
            changes += [
                (event["ts"], is_nccl, 1),
                (event["ts"] + event["dur"], is_nccl, -1),
            ]
    running, before, sums = [0, 0], 0.0, [0.0, 0.0]  # of others, and of NCCL
    for at, is_nccl, change in sorted(changes):
        if running[1]:
            sums[0] += at - before
            sums[1] += 0.0 if running[0] else at - before
        running[is_nccl] += change
        before = at
    return sums[0] / 1e3, sums[1] / 1e3


def gather(rank: int, _folder: Path) -> None:
    """Through the store of torchrun's agent."""
    for _ in range(2):
        _ready()
        with gpuprof.timer("step"):
            spin(1.0)
        found = distributed.gather_stats(60.0)
        if rank == 0:
            assert found is not None
            assert (found.ranks, found.missing) == ((0, 1), ()), found
            assert [found["step"][each].count for each in (0, 1)] == [1, 1], found
        else:
            assert found is None


def hung(rank: int, folder: Path) -> None:
    """A rank that never comes to an all-reduce: rank 0 has its GPU waiting, and is not stopped."""
    values = torch.ones(1024, device="cuda")
    dist.all_reduce(values)
    _ready()
    over = folder / "over"
    if rank == 1:
        while not over.exists():
            time.sleep(0.05)
        dist.all_reduce(values)
        torch.cuda.synchronize()
        return
    with distributed.time_collectives(), gpuprof.timer("step"):
        dist.all_reduce(values)
    begun = time.monotonic()
    found = distributed.gather_stats(5.0)
    seconds = time.monotonic() - begun
    over.touch()
    assert found is not None
    assert (found.missing, found.pending) == ((1,), (0,)), found
    assert seconds < 10.0, seconds
    torch.cuda.synchronize()


def trace(rank: int, folder: Path) -> None:
    """Both ranks in one file, with GPU tracks, and all-reduces that overlap."""
    values = torch.ones(1 << 20, device="cuda")
    dist.all_reduce(values)
    with (
        distributed.time_collectives(),
        distributed.trace(folder / "run.json", timeout_s=60.0) as written,
    ):
        for _ in range(STEPS):
            with gpuprof.timer("step"):
                spin(1.0 + rank)
                dist.all_reduce(values)
            torch.cuda.synchronize()
    if rank == 0:
        result = written.result
        assert result is not None
        assert not result.problems, result
        assert result.ranks == (0, 1)


def together(rank: int, _folder: Path) -> None:
    """Benchmarks of functions with collectives: every rank makes rank 0's calls."""
    values = torch.ones(1 << 20, device="cuda")
    calls = 0

    def all_reduce_once() -> None:
        nonlocal calls
        calls += 1
        dist.all_reduce(values)

    def all_reduce_ten_times() -> None:
        for _ in range(10):
            all_reduce_once()

    for mode in ("auto", "batched", "isolated"):
        calls = 0
        result = gpuprof.benchmark(all_reduce_once, mode=mode)
        assert result.clock == "cuda", result
        mine = torch.tensor([float(calls), result.median_ms], dtype=torch.float64, device="cuda")
        both = [torch.empty_like(mine) for _ in range(2)]
        dist.all_gather(both, mine)
        assert torch.equal(*both), (mode, both)
    found = gpuprof.compare({"one": all_reduce_once, "ten": all_reduce_ten_times})
    assert found["ten"].ratio > 3.0, found
    if rank == 0:
        print(found)


CHECKS: dict[str, Callable[[int, Path], None]] = {
    each.__name__: each for each in (all_reduce, ddp, exposed, gather, hung, together, trace)
}


def main(name: str, folder: str) -> None:
    """Run one check as the rank that torchrun has made this process."""
    rank = int(os.environ["LOCAL_RANK"])
    device = gpu_of_rank(rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=torch.device("cuda", device))
    spin(0.1)  # the first one waits for the GPU
    CHECKS[name](rank, Path(folder))
    torch.cuda.synchronize()
    dist.barrier()
    # Not after a failure: that may wait for the other rank, and torchrun waits for this one to end.
    dist.destroy_process_group()
    print(f"rank {rank} is done")


if __name__ == "__main__":
    main(*sys.argv[1:])
