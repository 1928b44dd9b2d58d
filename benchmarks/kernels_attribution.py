"""Kernels under scopes inside graph replays: how many are attributed, and what collecting costs.

A graph of small kernels in nested scopes is replayed under a scope, and the same kernels are
launched one by one. Each is run plain, under torch's profiler alone, and under `gpuprof.kernels`.
With --trace FILE a short run is written as a trace, of which trace_picture.py makes a picture.
Needs a GPU and torch.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import torch

import gpuprof
from support import measure
from support.results import Row

_LAYERS = 10
_PARTS = ("attention", "mlp")
_IN_PART = 5  # kernels
_REPLAYS = 200
_ROUNDS = 5
_PICTURE_STEPS = 3
_ENDING = 0.5  # at most, of what torch.profiler takes


class Work:
    """The same kernels, launched one by one and as a graph."""

    def __init__(self) -> None:
        self._data = torch.zeros(1 << 14, device="cuda")
        self._layer_names = [f"layer {number}" for number in range(_LAYERS)]
        self.kernels = _LAYERS * len(_PARTS) * _IN_PART
        self.launch()
        torch.cuda.synchronize()
        with gpuprof.capture(timers="strip") as cap:
            self.launch()
        self.graph = cap.graph
        self.graph.launch()
        torch.cuda.synchronize()

    def launch(self) -> None:
        """Launch each kernel, in nested scopes."""
        for layer in self._layer_names:
            with gpuprof.timer(layer):
                for part in _PARTS:
                    with gpuprof.timer(part):
                        for _ in range(_IN_PART):
                            self._data.add_(1.0)

    def replays(self, count: int) -> None:
        """Replay the graph, each time in a scope."""
        for _ in range(count):
            with gpuprof.timer("serve"):
                self.graph.launch()
        torch.cuda.synchronize()

    def eager(self, count: int) -> None:
        """Launch the kernels one by one, each time in a scope."""
        for _ in range(count):
            with gpuprof.timer("step"):
                self.launch()
        torch.cuda.synchronize()


def attribution(run: Callable[[int], None], count: int, expected: int, depth: int) -> list[Row]:
    """Return how many kernels were seen, and the share without the scope that they belong to."""
    with gpuprof.kernels() as k:
        run(count)
    name = run.__name__
    seen = sum(each.kind == "kernel" for each in k.records)
    placed = sum(len(each.scope) == depth for each in k.records if each.kind == "kernel")
    unscoped = sum(not each.scope for each in k.records)
    late = [each.begin_ns - each.launched_ns for each in k.records if each.launch]
    print(k)
    return [
        Row(f"{name}: kernels collected", seen, ""),
        Row(f"{name}: launched and not collected", abs(expected - seen), "", target=0.0),
        Row(f"{name}: not in its innermost scope", 100 * (1 - placed / seen), "%", target=0.0),
        Row(f"{name}: in no scope", 100 * unscoped / len(k.records), "%", target=0.0),
        Row(f"{name}: work before its launch", sum(each < 0 for each in late), "", target=0.0),
    ]


def _timed(block: Callable[[], Any], run: Callable[[int], None], count: int) -> tuple[int, int]:
    """Return the nanoseconds of the run and those of ending the block."""
    with block():
        begin = perf_counter_ns()
        run(count)
        end = perf_counter_ns()
    return end - begin, perf_counter_ns() - end


def _torchs() -> Any:
    both = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    return torch.profiler.profile(activities=both)


class _Plain:
    def __enter__(self) -> None: ...
    def __exit__(self, *exception: object) -> None: ...


def cost(work: Work, run: Callable[[int], None], count: int, rounds: int) -> list[Row]:
    """Return what a kernel costs in the block, and what ending the block costs for each."""
    blocks: dict[str, Callable[[], Any]] = {
        "plain": _Plain,
        "torch.profiler": _torchs,
        "gpuprof.kernels": gpuprof.kernels,
    }
    inside: dict[str, list[float]] = {name: [] for name in blocks}
    ending: dict[str, list[float]] = {name: [] for name in blocks}
    kernels = count * work.kernels
    for _ in range(rounds + 1):  # the first one warms up
        for name, block in blocks.items():
            ran, ended = _timed(block, run, count)
            inside[name].append(ran / kernels)
            ending[name].append(ended / kernels)
    label = run.__name__
    plain = Row(f"{label}: a kernel, plain", min(inside["plain"][1:]), "ns")
    return [
        plain,
        *_beside(f"{label}: a kernel", inside, 1.0),
        *_beside(f"{label}: ending the block, a kernel", ending, _ENDING),
    ]


def _beside(what: str, values: dict[str, list[float]], target: float) -> list[Row]:
    peer, ours = (min(values[name][1:]) for name in ("torch.profiler", "gpuprof.kernels"))
    of = Row(f"{what}, torch.profiler", peer, "ns")
    ratio = ours / peer
    name = f"{what}, gpuprof.kernels"
    return [of, Row(name, ours, "ns", ratio_to=of.name, ratio=ratio, target=target)]


def write_trace(work: Work, path: Path) -> None:
    """Write a trace of some replays and some launches one by one."""
    with gpuprof.trace(path), gpuprof.kernels():
        work.replays(_PICTURE_STEPS)
        work.eager(_PICTURE_STEPS)
    print(f"written: {path}")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result there")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write a short trace there")
    parser.add_argument("--quick", action="store_true", help="fewer rounds; for a first look")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("kernels_attribution: needs a GPU")
    warnings.simplefilter("ignore")
    count, rounds = (20, 2) if options.quick else (_REPLAYS, _ROUNDS)
    work = Work()
    expected = count * work.kernels
    rows = [
        *attribution(work.replays, count, expected, depth=3),
        *attribution(work.eager, count, expected, depth=3),
        *cost(work, work.replays, count, rounds),
        *cost(work, work.eager, count, rounds),
    ]
    notes = [
        f"{work.kernels} kernels in {_LAYERS * len(_PARTS)} scopes a step, {count} steps",
        "ending the block includes the reading of the records, and gpuprof's table",
    ]
    measure.report("kernels_attribution", rows, notes, options.json)
    if options.trace is not None:
        write_trace(work, options.trace)


if __name__ == "__main__":
    main()
