"""What a rank of `tests.support.rank_pool` can be asked to do; each answers with plain data."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import platform
import random
import sys
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import gpuprof
from gpuprof import distributed

_CLOCK_GETTIME = {"x86_64": 228, "aarch64": 113}
_open: list[Any] = []  # what stays from one check to the next


def own() -> int:
    return int(dist.get_rank())


def own_process() -> int:
    return os.getpid()


def true_ns() -> int:
    """Return the host's monotonic time past the library that shifts the clocks."""

    class Time(ctypes.Structure):
        _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))

    now = Time()
    ctypes.CDLL(None).syscall(_CLOCK_GETTIME[platform.machine()], 1, ctypes.byref(now))
    return int(now.seconds) * 10**9 + int(now.nanoseconds)


def _keys() -> int:
    return int(dist.distributed_c10d._get_default_store().num_keys())


def _report(found: Any) -> Any:
    return None if found is None else found.to_dict()


def gather(timeout: float) -> Any:
    """Measure a scope and gather."""
    gpuprof.reset()
    with gpuprof.timer("step", backend="cpu"):
        pass
    begun = time.monotonic()
    found = distributed.gather_stats(timeout)
    return {"table": _report(found), "seconds": time.monotonic() - begun}


def _keys_after(times: int, work: Callable[[], object]) -> list[int]:
    """Return how many keys the store has after each time."""
    counts = []
    for _ in range(times):
        work()
        dist.barrier()  # of Gloo, which leaves no key
        counts.append(_keys())
        dist.barrier()
    return counts


def gather_often(times: int) -> int:
    """Gather several times; return by how many keys the store has grown after the first."""
    counts = _keys_after(times, lambda: distributed.gather_stats(30.0))
    return counts[-1] - counts[0]


def gather_in_group(members: list[int]) -> Any:
    """Gather in a group of ranks that is not all of them."""
    group = dist.new_group(members)
    try:
        return _report(distributed.gather_stats(30.0, group=group))
    except gpuprof.errors.InvalidStateError as error:
        return str(error)


def _refusal(work: Callable[[], object], *kinds: type[Exception]) -> str:
    """Return what the InvalidStateError says by which a call is refused, or one of the kinds."""
    try:
        work()
    except (gpuprof.errors.InvalidStateError, *kinds) as error:
        return str(error)
    return "nothing was raised"


def watched_collectives() -> dict[str, int]:
    """Use the collectives; return how often each was measured, by path."""
    gpuprof.reset()
    names = ("all_reduce", "barrier", "broadcast", "all_gather", "all_gather_object")
    before = {name: getattr(dist, name) for name in names}
    wait, forward = dist.Work.wait, DistributedDataParallel.forward
    backward = torch.autograd.backward
    tensor = torch.full((4,), float(own()))
    with distributed.time_collectives():
        with gpuprof.timer("step", backend="cpu"):
            dist.all_reduce(tensor)
            dist.barrier()
            work = dist.all_reduce(tensor, async_op=True)
            work.wait()
            work = dist.all_reduce(tensor, dist.ReduceOp.MAX, None, True)
            work.wait()
            for each in dist.batch_isend_irecv(_ring(tensor)):
                each.wait()
            dist.broadcast(tensor, src=0)
            dist.all_gather([torch.empty(4) for _ in range(dist.get_world_size())], tensor)
            dist.all_gather_object([None] * dist.get_world_size(), "x")
        distributed.gather_stats(30.0)  # uses none
    assert all(getattr(dist, name) is function for name, function in before.items())
    assert (dist.Work.wait, DistributedDataParallel.forward) == (wait, forward)
    assert torch.autograd.backward is backward
    dist.barrier()
    assert tensor[0] == 6.0 * 4.0, tensor
    return {str(row.path): int(row.host.count) for row in gpuprof.stats().values()}


def _ring(tensor: Any) -> list[Any]:
    """Return the messages of a ring of ranks."""
    size = dist.get_world_size()
    return [
        dist.P2POp(dist.isend, tensor, (own() + 1) % size),
        dist.P2POp(dist.irecv, torch.empty(4), (own() - 1) % size),
    ]


def watched_twice() -> str:
    """Watch while it is being watched."""
    with distributed.time_collectives():
        return _refusal(distributed.time_collectives)


def train(slow: int, steps: int) -> Any:
    """Train with DDP, one rank slower than the others; return the table and the gradients."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)))
    plain = [p.detach().clone() for p in model.module.parameters()]
    data = torch.full((2, 8), 1.0 + own())

    def step() -> None:
        with gpuprof.timer("step", backend="cpu"):
            with gpuprof.timer("forward", backend="cpu"):
                if own() == slow:
                    time.sleep(0.1)
                loss = model(data).sum()
            with gpuprof.timer("backward", backend="cpu"):
                loss.backward()

    step()  # in the first step DDP arranges its buckets
    gpuprof.reset()
    with distributed.time_collectives():
        for _ in range(steps):
            model.zero_grad()
            step()
        with model.no_sync(), gpuprof.timer("apart", backend="cpu"):
            model(data).sum().backward()
        with gpuprof.timer("two results", backend="cpu"):
            (model(data).sum() + model(data).sum()).backward()
    gradient = [float(p.grad.sum()) for p in model.parameters() if p.grad is not None]
    assert len(gradient) == len(plain)
    paths = {str(row.path): int(row.host.count) for row in gpuprof.stats().values()}
    return {"table": _report(distributed.gather_stats(30.0)), "paths": paths}


def watch_that_fails() -> Any:
    """Have what DDP's wait is found by fail: the backward pass goes on, and the watch ends."""
    model = DistributedDataParallel(nn.Linear(4, 1))
    forward, task_id = DistributedDataParallel.forward, torch._C._current_graph_task_id

    def fail() -> int:
        raise RuntimeError("another torch")

    with warnings.catch_warnings(record=True) as said, distributed.time_collectives() as watch:
        warnings.simplefilter("always")
        torch._C._current_graph_task_id = fail
        try:
            model(torch.ones(2, 4)).sum().backward()
        finally:
            torch._C._current_graph_task_id = task_id
        closed = watch.closed
    gradients = [p.grad is not None for p in model.parameters()]
    restored = DistributedDataParallel.forward is forward
    return [closed, restored, all(gradients), [str(each.message) for each in said]]


def wrapped_once_more() -> int:
    """Close a watch whose wrapper somebody has wrapped: it stays, and measures no more."""
    gpuprof.reset()
    before = dist.barrier
    with distributed.time_collectives():
        theirs = dist.barrier
        dist.barrier = lambda: theirs()  # noqa: PLW0108 (what a library would do)
    try:
        dist.barrier()
    finally:
        dist.barrier = before
    return len(gpuprof.stats())


def traced(path: str, timeout: float, marks: int, merge: bool = True) -> Any:
    """Write a trace of all ranks, with moments whose true time is known."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with distributed.trace(path, timeout_s=timeout, merge=merge) as trace:
            for _ in range(marks):
                before, now, after = true_ns(), time.monotonic_ns(), true_ns()
                args = {"true_ns": (before + after) // 2, "within_ns": after - before}
                trace.writer.instant("mark", at_ns=now, args=args)
                with gpuprof.timer("step", backend="cpu"):
                    pass
    return {
        "path": trace.path,
        "result": _report(trace.result),
        "warnings": [str(each.message) for each in said],
    }


def open_trace(path: str, timeout: float) -> str:
    """Begin a trace that stays open."""
    trace = distributed.trace(path, timeout_s=timeout).start()
    _open.append(trace)
    with gpuprof.timer("step", backend="cpu"):
        pass
    gpuprof.flush()
    trace.writer.flush()
    return trace.path


def close_trace() -> Any:
    """Close it."""
    trace = _open.pop()
    begun = time.monotonic()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        trace.close()
    return {
        "result": _report(trace.result),
        "warnings": [str(each.message) for each in said],
        "seconds": time.monotonic() - begun,
    }


def traced_in_group(path: str, members: list[int]) -> Any:
    """Write a trace of some of the ranks."""
    group = dist.new_group(members)
    if own() not in members:
        return None
    with distributed.trace(path, timeout_s=30.0, group=group) as trace:
        pass
    return _report(trace.result)


def trace_that_raises(path: str, rank: int) -> str:
    """Leave the block of a trace by an exception, on one rank."""
    try:
        with distributed.trace(path, timeout_s=20.0):
            if own() == rank:
                raise KeyError("the body's own")
    except KeyError as error:
        return str(error)
    return ""


def close_trace_elsewhere(rank: int) -> Any:
    """Close it, the file of one rank being on a host without a shared file system."""
    if own() == rank:
        state_of = sys.modules["gpuprof._distributed.files"].FileState.of
        trace = _open[-1]

        def say(exchange: Any) -> None:
            state = state_of(trace.writer, is_closed=True)
            there = dataclasses.replace(state, path="/elsewhere/run.rank2.json", host="another")
            exchange.post(there.to_bytes())

        trace._say = say
    return close_trace()


def _noisy_all_reduce(calls: list[int]) -> None:
    """Be in a collective with the other ranks, after noise of this rank's own."""
    calls[0] += 1
    time.sleep(random.Random(own() * 1000 + calls[0]).random() ** 8 * 0.02)
    dist.all_reduce(torch.ones(4))


def benchmark_a_collective() -> Any:
    """Measure a function with a collective: how often it was called, and what the result has."""
    calls = [0]
    result = gpuprof.benchmark(
        _noisy_all_reduce, (calls,), warmup_s=0.02, min_time_s=0.05, max_time_s=0.3
    )
    again = gpuprof.BenchResult.from_dict(result.to_dict())
    assert again.to_dict() == result.to_dict()
    samples = zip(*(each.samples_ms for each in result.ranks), strict=True)
    assert result.samples_ms == tuple(map(max, samples))
    return {"calls": calls[0], "ranks": len(result.ranks), "median_ms": result.median_ms}


def compare_collectives() -> Any:
    """Compare two functions with a collective, the second far longer, on the others mostly."""

    def wait(seconds: float, own_number: float) -> None:
        time.sleep(seconds * (1.0 if own() else 0.5))
        total = torch.full((1,), own_number)
        dist.all_reduce(total)
        assert float(total) == own_number * dist.get_world_size(), "ranks are in two functions"

    functions = {"short": lambda: wait(0.0, 1.0), "long": lambda: wait(0.2, 100.0)}
    found = gpuprof.compare(functions, warmup_s=0.0, rounds=3)
    return {"seed": found.seed, "ratio": found["long"].ratio}


def benchmark_each() -> Any:
    """Measure alone on one rank, with another function on each."""
    found = gpuprof.benchmark(abs, (own(),), warmup_s=0.0, max_time_s=0.05, ranks="each")
    both = gpuprof.compare({"one": abs, "other": abs}, (own(),), rounds=own() + 1, ranks="each")
    assert len(both["one"].result.samples_ms) == own() + 1
    return len(found.ranks)


def measure_with_a_rank_missing(seconds: float, comparing: bool) -> str:
    """Measure where not all ranks do; return what is said."""
    store = dist.distributed_c10d._get_default_store()
    limit = store.timeout
    store.set_timeout(timedelta(seconds=seconds))
    try:
        if comparing:
            return _refusal(lambda: gpuprof.compare({"one": abs, "other": abs}, (1,)))
        return _refusal(lambda: gpuprof.benchmark(abs, (1,)))
    finally:
        store.set_timeout(limit)


def benchmark_that_fails(failing: int) -> str:
    """Measure a function that raises on one rank after some calls; return what is said."""
    calls = [0]

    def work() -> None:
        calls[0] += 1
        if own() == failing and calls[0] > 100:
            raise ValueError("no more")

    return _refusal(lambda: gpuprof.benchmark(work, warmup_s=0.0, max_time_s=0.1), ValueError)


def benchmark_often(times: int) -> int:
    """Measure several times; return by how many keys the store has grown after the second."""
    quick: Any = {"warmup_s": 0.0, "min_time_s": 0.0, "max_time_s": 0.02}
    counts = _keys_after(times, lambda: gpuprof.benchmark(abs, (1,), **quick))
    return max(counts) - 2 * counts[1]


def benchmark_in_pytest(folder: str) -> Any:
    """Run a test with the fixture in this process; return pytest's exit status."""
    test = Path(folder) / f"test_rank{own()}.py"
    body = "import pytest\nimport torch\nimport torch.distributed as dist\n"
    body += "@pytest.mark.gpu_benchmark(warmup_s=0.02, min_time_s=0.05, max_time_s=0.3)\n"
    body += "def test_it(gpu_benchmark):\n"
    body += "    gpu_benchmark(lambda: dist.all_reduce(torch.ones(4)))\n"
    body += "    assert len(gpu_benchmark.result.ranks) == dist.get_world_size()\n"
    test.write_text(body, encoding="utf-8")
    options = ["-o", "addopts=", "-p", "no:cacheprovider", "--rootdir", folder, "-c", "/dev/null"]
    options += ["-p", "gpuprof._pytest.plugin"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # the plugins of others take seconds
        return int(pytest.main([str(test), *options]))
