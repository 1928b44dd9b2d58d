"""How far benchmark() and other timing tools are from the hardware profiler.

The reference is CUPTI, asked through torch.profiler in the same process, once everything else has
been measured: from the first kernel's start to the last one's end, in the state that the reading
was taken in: in a graph for readings of graphs, queued in a stream for the others, after a flush of
the L2 cache for `do_bench`, which flushes it. A row is the distance from it, without sign, in
microseconds. Needs a GPU and torch; triton and CuPy are left out where they are not installed.
"""

from __future__ import annotations

import functools
import math
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import gpuprof
from support import benchmark_peers as peers_of
from support import measure
from support.benchmark_peers import BenchmarkPeers
from support.loops import BenchmarkError
from support.profiler import Profiler, Reference
from support.results import Row

GRAPH = "gpuprof graph"
BATCHED = "gpuprof batched"
COLD = "gpuprof, cold"
NEAREST = "gpuprof graph beside the nearest peer"
COLD_NEAREST = "gpuprof, cold, beside do_bench"

# The states that are profiled.
IN_GRAPH = "in a graph"
IN_STREAM = "in a stream"
FLUSHED = "flushed"
ROTATED = "rotated, in a graph"

# The state in which each tool measures; gpuprof's cold results name theirs.
STATES = {
    GRAPH: IN_GRAPH,
    BATCHED: IN_STREAM,
    peers_of.DO_BENCH_CUDAGRAPH: IN_GRAPH,
    peers_of.TORCH_EVENTS: IN_STREAM,
    peers_of.CUPY_BENCHMARK: IN_STREAM,
    peers_of.DO_BENCH: FLUSHED,
}

_COLD_STATES = {("graph", "rotated"): ROTATED, ("isolated", "flushed"): FLUSHED}

_RUNS = 5
_LIMIT_US = 0.35
_LIMIT = 0.03
_DISTURBED_LIMIT = 0.02  # of what `batched` reads
_MAX_TIME_S = 1.0
_NO_LESS_US = 0.001  # the profiler's own step: a peer is not nearer than this


@dataclass(frozen=True)
class Case:
    """A call to time."""

    name: str
    function: Callable[..., object]
    arguments: tuple[Any, ...]
    in_memory: bool = True  # whether its time depends on what the L2 cache holds
    rotates: bool = False  # whether it is large enough for its clones to be rotated
    disturbed: bool = False  # by the profiler, so much that it is no reference

    def call(self) -> Callable[[], object]:
        """Return the call without arguments."""
        return functools.partial(self.function, *self.arguments)


@dataclass
class Readings:
    """The readings of each tool and of the profiler for one case, in microseconds."""

    case: Case
    by_tool: dict[str, float] = field(default_factory=dict)
    by_state: dict[str, Reference] = field(default_factory=dict)
    cold_state: str | None = None

    def error(self, tool: str) -> float | None:
        """Return a reading's distance from the profiler's in the same state, if both exist."""
        state = self.cold_state if tool == COLD else STATES[tool]
        if state is None or state not in self.by_state or tool not in self.by_tool:
            return None
        return abs(self.by_tool[tool] - self.by_state[state].span)


def _cases(torch: Any) -> list[Case]:
    def square(side: int) -> Any:
        return torch.rand(side, side, device="cuda")

    def floats(count: int) -> Any:
        return torch.rand(count, device="cuda")

    spins = [
        Case(f"spin {cycles:,} cycles", torch.cuda._sleep, (cycles,), in_memory=False)
        for cycles in (100, 2_000, 8_000, 40_000)
    ]
    kilo, mega = 1024, 1024 * 1024
    return [
        *spins,
        Case("add, 1 K floats", torch.add, (floats(kilo), floats(kilo))),
        Case("add, 1 M floats", torch.add, (floats(mega), floats(mega)), rotates=True),
        Case("add, 64 M floats", torch.add, (floats(64 * mega), floats(64 * mega)), disturbed=True),
        Case("torch.mm 32", torch.mm, (square(32), square(32))),
        Case("torch.mm 512", torch.mm, (square(512), square(512)), rotates=True),
    ]


class Measurement:
    """Takes all readings before all references, because the profiler may leave hooks."""

    def __init__(self, peers: BenchmarkPeers, *, quick: bool) -> None:
        self.peers = peers
        self.notes: list[str] = []
        self._runs = 2 if quick else _RUNS
        self._profiler = Profiler(peers.torch)

    def readings(self, case: Case) -> Readings:
        """Time a case with every tool."""
        found = Readings(case)
        for tool, mode, runs in ((GRAPH, "graph", self._runs), (BATCHED, "batched", 1)):
            value = self._own(case, mode, runs)
            if value is not None:
                found.by_tool[tool] = value
        for tool in STATES:
            if tool in (GRAPH, BATCHED):
                continue
            value = self.peers.reading(tool, case.call())
            if value is not None:
                found.by_tool[tool] = value
        if case.rotates:
            self._read_cold(found)
        return found

    def refer(self, found: Readings) -> None:
        """Profile a case in every state in which it was timed."""
        case = found.case
        call = case.call()
        states: dict[str, Callable[[], Reference]] = {
            IN_STREAM: lambda: self._profiler.queued(call),
            IN_GRAPH: lambda: self._profiler.copies(call),
            FLUSHED: lambda: self._profiler.flushed(call, found.by_state[IN_STREAM].kernels),
        }
        if found.cold_state == ROTATED:
            states[ROTATED] = lambda: self._profiler.replayed(self._rotation(case))
        for state, profile in states.items():
            try:
                found.by_state[state] = profile()
            except (BenchmarkError, KeyError) as error:
                self.notes.append(f"{case.name}, {state}: no reference: {error}")

    def _own(self, case: Case, mode: str, runs: int) -> float | None:
        results = [self._benchmark(case, mode) for _ in range(runs)]
        for result in results:
            if result.mode != mode:
                self.notes.append(
                    f"{case.name}: {mode} was asked for, {result.mode} was measured, and is left "
                    f"out: {'; '.join(result.warnings)}"
                )
                return None
        return statistics.median(result.median_ms for result in results) * 1e3

    def _read_cold(self, found: Readings) -> None:
        results = [self._benchmark(found.case, "auto", cold_l2=True) for _ in range(self._runs)]
        how = {(result.mode, result.l2) for result in results}
        state = _COLD_STATES.get(next(iter(how)))
        if state is None or len(how) > 1:
            states = ", ".join(sorted(f"{mode}, {l2}" for mode, l2 in how))
            self.notes.append(f"{found.case.name}: cold was asked for, measured was {states}")
            return
        found.by_tool[COLD] = statistics.median(result.median_ms for result in results) * 1e3
        found.cold_state = state

    def _benchmark(self, case: Case, mode: str, *, cold_l2: bool = False) -> Any:
        return gpuprof.benchmark(
            case.function,
            case.arguments,
            name=case.name,
            mode=mode,
            cold_l2=cold_l2,
            max_time_s=_MAX_TIME_S,
            progress=False,
        )

    def _rotation(self, case: Case) -> list[Callable[[], object]]:
        # As many clones of the arguments as fill the L2 cache twice.
        l2 = self.peers.torch.cuda.get_device_properties(0).L2_cache_size
        size = sum(argument.nbytes for argument in case.arguments)
        sets = [
            tuple(argument.clone() for argument in case.arguments)
            for _ in range(math.ceil(2 * l2 / size) + 1)
        ]
        return [functools.partial(case.function, *arguments) for arguments in sets]


def rows(found: Readings) -> list[Row]:
    """Return a case's rows: the profiler's times, the distance of each tool, the nearest peer."""
    name = found.case.name
    made = []
    for state, reference in found.by_state.items():
        made.append(Row(f"{name}: CUPTI, {state}", reference.span, "us"))
        if reference.kernels > 1:
            title = f"{name}: CUPTI, {state}, its {reference.kernels} kernels alone"
            made.append(Row(title, reference.busy, "us"))
    for tool in (*STATES, COLD):
        error = found.error(tool)
        if error is not None:
            made.append(Row(f"{name}: {tool}", error, "us", target=_limit(found, tool)))
    if found.case.disturbed:
        made += _beside_batched(found)
    else:
        made += _nearest(found, GRAPH, NEAREST, _same_state(found.case))
        made += _nearest(found, COLD, COLD_NEAREST, [peers_of.DO_BENCH])
    return made


def _limit(found: Readings, tool: str) -> float | None:
    if found.case.disturbed or tool != GRAPH:
        return None
    return max(_LIMIT_US, _LIMIT * found.by_state[IN_GRAPH].span)


def _same_state(case: Case) -> list[str]:
    # do_bench flushes the L2 cache, which is another state only where memory is read.
    tools = [tool for tool in STATES if tool not in (GRAPH, BATCHED)]
    return [tool for tool in tools if not (case.in_memory and tool == peers_of.DO_BENCH)]


def _nearest(found: Readings, own: str, title: str, tools: list[str]) -> list[Row]:
    error = found.error(own)
    others = {tool: found.error(tool) for tool in tools}
    known = {tool: other for tool, other in others.items() if other is not None}
    if error is None or not known:
        return []
    nearest = min(known, key=lambda tool: known[tool])
    ratio = error / max(known[nearest], _NO_LESS_US)
    name = found.case.name
    to = f"{name}: {nearest}"
    return [Row(f"{name}: {title}", error, "us", ratio_to=to, ratio=ratio, target=1.0)]


def _beside_batched(found: Readings) -> list[Row]:
    graph, batched = found.by_tool.get(GRAPH), found.by_tool.get(BATCHED)
    if graph is None or batched is None:
        return []
    title = f"{found.case.name}: from graph to batched"
    return [Row(title, abs(graph - batched), "us", target=_DISTURBED_LIMIT * batched)]


def table(all_found: list[Readings]) -> str:
    """Return all readings beside the profiler's, in microseconds."""
    states = [IN_GRAPH, IN_STREAM, FLUSHED, ROTATED]
    tools = [*STATES, COLD]
    lines = [["us per call", *(f"CUPTI {state}" for state in states), *tools]]
    for found in all_found:
        spans = {state: reference.span for state, reference in found.by_state.items()}
        lines.append(
            [found.case.name, *_cells(spans, states), *_cells(found.by_tool, tools)],
        )
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in lines
    )


def _cells(values: Mapping[str, float], names: list[str]) -> list[str]:
    return [f"{values[name]:.2f}" if name in values else "" for name in names]


def main() -> None:
    """Measure and report."""
    options = measure.arguments(__doc__)
    peers = BenchmarkPeers()
    if peers.torch is None:
        why = "; ".join(peers.missing)
        sys.exit(f"benchmark_accuracy needs a GPU, and torch for the profiler: {why}")
    measurement = Measurement(peers, quick=options.quick)
    all_found = [measurement.readings(case) for case in _cases(peers.torch)]
    for found in all_found:
        measurement.refer(found)
    print(table(all_found))
    notes = [
        "distance from CUPTI's time of one call in the same state: first kernel's start to last "
        f"one's end, median; {GRAPH} and {COLD} are the median of "
        f"{2 if options.quick else _RUNS} runs",
        *([f"triton {peers.triton_version}"] if peers.triton_version else []),
        *measurement.notes,
        *dict.fromkeys(peers.missing),
    ]
    every_row = [row for found in all_found for row in rows(found)]
    measure.report("benchmark_accuracy", every_row, notes, options.json)


if __name__ == "__main__":
    main()
