"""What CUDA graphs cost the host: launches, captures, inspection, a number on the device.

All graphs hold the same kernels, which do nothing, one after the other. The floor of a launch is
`cuGraphLaunch` called by C++ on the same stream, in the same bursts; its peers are torch's
`CUDAGraph.replay()` and CuPy's `Graph.launch`. Host times; the last rows are the GPU's, and say
what timers inside a graph cost it. Needs a GPU.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import repeat
from pathlib import Path
from time import perf_counter_ns
from typing import Literal

import gpuprof
from raw_driver.build import RawDriver, RawDriverError, RawGraphs
from support import measure
from support.graph_peers import GraphPeers
from support.loops import BenchmarkError, busy_thread, repeated, timed
from support.measure import Contender, Rounds
from support.results import Row

# Kernels in a graph, and how many launches a round and a burst have: within the 1,020 entries of a
# stream's queue, and so that the GPU has done a round in about a tenth of a second.
_SIZES = {1: (2_000, 200), 10: (2_000, 200), 100: (1_000, 100), 1_000: (200, 50)}
_SMALL = 10
_CAPTURED = 5
_WALKED = 1_000
_FILLS = 20_000
_FILL_BURST = 400
_TIMED = 100
_REPLAYS = 50


@dataclass
class Bench:
    """What the sections share."""

    raw: RawDriver
    graphs: RawGraphs
    stream: int
    rounds: int
    notes: list[str] = field(default_factory=list)

    def captured(
        self, kernels: int, *, spans: int = 0, timers: Literal["last", "collect"] = "last"
    ) -> gpuprof.CapturedGraph:
        """Capture `kernels` kernels, with timers around equal parts of them."""
        parts = max(spans, 1)
        with gpuprof.capture(self.stream, timers=timers) as cap:
            for part in range(parts):
                with gpuprof.timer(f"part {part}", stream=self.stream, enabled=spans > 0):
                    self.graphs.kernels(self.stream, kernels // parts)
        return cap.graph

    def wait(self) -> None:
        """Wait for the stream."""
        self.raw.synchronize(self.stream)

    def launches(
        self, name: str, launch: Callable[..., object], size: int, *given: object
    ) -> Contender:
        """Return a loop of launches of a graph of `size` kernels."""
        count, burst = _SIZES[size]
        return Contender(name, timed(repeated(launch, *given), wait=self.wait, burst=burst), count)

    def raw_launches(self, name: str, size: int) -> Contender:
        """Return the same loop in C++."""
        count, burst = _SIZES[size]
        graph = self.graphs.graph(self.stream, size)
        return Contender(
            name, lambda count: self.graphs.launches(graph, self.stream, count, burst=burst), count
        )

    def section(self, measure: Callable[..., list[Row]], *given: object) -> list[Row]:
        """Return a section's rows, or none and a note if what it measured cannot be reported."""
        try:
            return measure(self, *given)
        except (BenchmarkError, RawDriverError) as error:
            self.notes.append(f"{measure.__name__.replace('_', ' ')} is left out: {error}")
            return []
        finally:
            gpuprof.reset()


def captures(bench: Bench, note: str = "") -> list[Row]:
    """A capture of a few kernels, from its begin until the graph can be launched."""
    raw = f"the raw capture of {_CAPTURED} kernels{note}"
    block = f"with gpuprof.capture(stream){note}"
    guard = f"GraphCaptureGuard(stream), finish(){note}"

    def by_block() -> gpuprof.CapturedGraph:
        with gpuprof.capture(bench.stream) as cap:
            bench.graphs.kernels(bench.stream, _CAPTURED)
        return cap.graph

    def by_guard() -> gpuprof.CapturedGraph:
        open_capture = gpuprof.GraphCaptureGuard(bench.stream)
        bench.graphs.kernels(bench.stream, _CAPTURED)
        return open_capture.finish()

    def run(capture: Callable[[], gpuprof.CapturedGraph]) -> Callable[[int], int]:
        def loop(count: int) -> int:
            spent = 0
            for _ in repeat(None, count):
                begun = perf_counter_ns()
                graph = capture()
                spent += perf_counter_ns() - begun
                graph.close()
            return spent

        return loop

    rounds = Rounds()
    rounds.measure(
        [
            Contender(raw, lambda n: bench.graphs.captures(bench.stream, _CAPTURED, n), 200),
            Contender(block, run(by_block), 200),
            Contender(guard, run(by_guard), 200),
        ],
        bench.rounds,
    )
    target = 10.0 if not note else None
    return [
        rounds.row(raw),
        rounds.row(block, to=raw),
        rounds.excess(block, over=raw, target=target),
        rounds.row(guard, to=raw),
        rounds.excess(guard, over=raw, target=target),
    ]


def launches(bench: Bench, peers: GraphPeers, size: int) -> list[Row]:
    """Launches of graphs of several sizes on an explicit stream."""
    kernels = f"{size:,} kernel{'' if size == 1 else 's'}"
    raw, own = f"raw cuGraphLaunch, {kernels}", f"launch(stream), {kernels}"
    replay, launch = f"torch replay(), {kernels}", f"CuPy Graph.launch, {kernels}"
    graph = bench.captured(size)
    contenders = [
        bench.raw_launches(raw, size),
        bench.launches(own, graph.launch, size, bench.stream),
    ]
    if peers.torch is not None:
        contenders.append(bench.launches(replay, peers.torch_graph(bench.stream, size), size))
    if peers.cupy is not None:
        function, on = peers.cupy_graph(bench.stream, size)
        contenders.append(bench.launches(launch, function, size, on))
    rounds = Rounds()
    with peers.current(bench.stream):
        rounds.measure(contenders, bench.rounds)
    rows = [rounds.row(raw), rounds.row(own, to=raw, target=1.2)]
    for peer, target in ((replay, 1 / 1.5), (launch, 1.0)):
        if peer in rounds:
            rows.append(rounds.row(peer, to=raw))
            rows.append(rounds.row(own, to=peer, target=target, shown=f"{own}, beside {peer}"))
    return rows


def busy_python_thread(bench: Bench, peers: GraphPeers) -> list[Row]:
    """Launches while another thread computes in Python and competes for the GIL."""
    if peers.torch is None:
        return []
    replay, own = "torch replay(), beside a busy thread", "launch(stream), beside a busy thread"
    graph = bench.captured(_SMALL)
    theirs = bench.launches(replay, peers.torch_graph(bench.stream, _SMALL), _SMALL)
    rounds = Rounds(disturbed=True)
    with peers.current(bench.stream), busy_thread():
        rounds.measure(
            [
                Contender(theirs.name, theirs.run, 50),
                bench.launches(own, graph.launch, _SMALL, bench.stream),
            ],
            bench.rounds,
        )
    return [rounds.row(replay), rounds.row(own, to=replay, target=1 / 10)]


def current_stream(bench: Bench, peers: GraphPeers) -> list[Row]:
    """Launches on torch's current stream, compared with torch's, also of a graph of torch's."""
    if peers.torch is None:
        return []
    replay, own = "torch replay(), current stream", "launch(), torch's current stream"
    of_torch = "launch(), a graph of torch's"
    graph = bench.captured(_SMALL)
    theirs = peers.torch_graph(bench.stream, _SMALL)
    rounds = Rounds()
    with peers.current(bench.stream):
        with gpuprof.capture(backend="torch") as cap:
            bench.graphs.kernels(cap.stream, _SMALL)
        rounds.measure(
            [
                bench.launches(replay, theirs, _SMALL),
                bench.launches(own, graph.launch, _SMALL),
                bench.launches(of_torch, cap.graph.launch, _SMALL),
            ],
            bench.rounds,
        )
    return [rounds.row(replay), rounds.row(own, to=replay), rounds.row(of_torch, to=replay)]


def watched_launches(bench: Bench) -> list[Row]:
    """Launches with listeners: collected timers inside, NVTX, a trace."""
    plain, collecting = "launch(stream), nobody watches", 'launch(stream), timers="collect"'
    last, nvtx, traced = (
        f"launch(stream), {how}" for how in ("timers inside", "NVTX on, no tool", "traced")
    )
    graph = bench.captured(_SMALL)
    timed_graph = bench.captured(_SMALL, spans=_SMALL)
    collected = bench.captured(_SMALL, spans=_SMALL, timers="collect")
    rounds = Rounds()
    listening = bench.launches(nvtx, graph.launch, _SMALL, bench.stream)
    tracing = bench.launches(traced, graph.launch, _SMALL, bench.stream)
    collect = bench.launches(collecting, collected.launch, _SMALL, bench.stream)

    def with_nvtx(count: int) -> int:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that no tool listens is no news here
            gpuprof.nvtx.enable()
            try:
                return listening.run(count)
            finally:
                gpuprof.nvtx.disable()

    def with_trace(count: int) -> int:
        with tempfile.TemporaryDirectory() as folder, gpuprof.trace(Path(folder) / "trace.json"):
            return tracing.run(count)

    def with_statistics(count: int) -> int:
        gpuprof.reset()
        spent = collect.run(count)
        dropped = gpuprof.stats().dropped
        if dropped != 0:
            raise BenchmarkError(f"{dropped} samples were dropped")
        return spent

    rounds.measure(
        [
            bench.launches(plain, graph.launch, _SMALL, bench.stream),
            bench.launches(last, timed_graph.launch, _SMALL, bench.stream),
            Contender(collecting, with_statistics, collect.count),
            Contender(nvtx, with_nvtx, listening.count),
            Contender(traced, with_trace, tracing.count),
        ],
        bench.rounds,
    )
    return [
        rounds.row(plain),
        *(rounds.row(name, to=plain) for name in (last, collecting, nvtx, traced)),
    ]


def looking_inside(bench: Bench) -> list[Row]:
    """Reading the nodes of a graph from the driver, and its signature."""
    graph = bench.captured(_WALKED)
    nodes = f"nodes of a graph of {_WALKED:,} kernels"
    edges, signature = f"edges of the {_WALKED:,}", f"nodes and signature() of the {_WALKED:,}"

    def fresh() -> gpuprof.CapturedGraph:
        return gpuprof.CapturedGraph.from_handles(graph.raw_graph, graph.raw_exec)

    rounds = Rounds()
    rounds.measure(
        [
            Contender(nodes, timed(repeated(lambda: fresh().nodes)), 10),
            Contender(edges, timed(repeated(lambda: fresh().edges)), 10),
            Contender(signature, timed(repeated(lambda: fresh().signature())), 10),
        ],
        bench.rounds,
    )
    if len(fresh().nodes) != _WALKED:
        raise BenchmarkError(f"{len(fresh().nodes)} nodes were found in place of {_WALKED}")
    return [
        _milliseconds(rounds.row(nodes), target=10.0),
        _milliseconds(rounds.row(edges)),
        _milliseconds(rounds.row(signature)),
    ]


def device_scalars(bench: Bench) -> list[Row]:
    """Updates of a number on the device."""
    raw, own = "raw cuMemsetD32Async", "DeviceScalar.update(value, stream)"
    halves = "DeviceScalar.update(value, stream), float64"
    single = gpuprof.DeviceScalar(0.0, "float32", bench.stream)
    double = gpuprof.DeviceScalar(0.0, "float64", bench.stream)

    def updates(name: str, scalar: gpuprof.DeviceScalar) -> Contender:
        loop = repeated(scalar.update, 0.5, bench.stream)
        return Contender(name, timed(loop, wait=bench.wait, burst=_FILL_BURST), _FILLS)

    rounds = Rounds()
    rounds.measure(
        [
            Contender(
                raw, lambda n: bench.graphs.memsets(bench.stream, n, burst=_FILL_BURST), _FILLS
            ),
            updates(own, single),
            updates(halves, double),
        ],
        bench.rounds,
    )
    return [
        rounds.row(raw),
        rounds.row(own, to=raw, target=1.4),
        rounds.row(halves, to=raw),
    ]


def cost_of_timers_on_the_gpu(bench: Bench) -> list[Row]:
    """The GPU's time of a graph, without timers inside and with some."""
    plain = f"GPU: a graph of {_TIMED} kernels"
    inside = {10: f"{plain}, 10 timers inside", 100: f"{plain}, 100 timers inside"}
    timer = gpuprof.Timer("cuda", bench.stream)

    def replays(graph: gpuprof.CapturedGraph) -> Callable[[int], int]:
        def run(count: int) -> int:
            timer.record_start()
            for _ in repeat(None, count):
                graph.launch(bench.stream)
            timer.record_end()
            return round(timer.elapsed_ms() * 1e6)

        return run

    rounds = Rounds()
    rounds.measure(
        [
            Contender(plain, replays(bench.captured(_TIMED)), _REPLAYS),
            *(
                Contender(name, replays(bench.captured(_TIMED, spans=count)), _REPLAYS)
                for count, name in inside.items()
            ),
        ],
        bench.rounds,
    )
    own = rounds.row(plain)
    rows = [own, *(rounds.row(name, to=plain) for name in inside.values())]
    per_record = max(rows[-1].value - own.value, 0.0) / (2 * _TIMED)
    return [*rows, Row("GPU: one event record in a graph", per_record, "ns")]


def _milliseconds(row: Row, target: float | None = None) -> Row:
    median = None if row.median is None else row.median / 1e6
    return Row(row.name, row.value / 1e6, "ms", median, target=target)


def _frameworks(bench: Bench) -> list[Row]:
    peers = GraphPeers(bench.graphs)
    bench.notes += peers.missing
    rows = [row for size in _SIZES for row in bench.section(launches, peers, size)]
    rows += bench.section(busy_python_thread, peers)
    rows += bench.section(current_stream, peers)
    if peers.cupy is not None:
        rows += bench.section(captures, ", CuPy loaded")
    return rows


def main() -> None:
    """Measure every section and report."""
    options = measure.arguments(__doc__)
    raw = RawDriver()
    try:
        raw.open()
        bench = Bench(raw, raw.graphs(), raw.stream(), rounds=3 if options.quick else 9)
    except RawDriverError as error:
        sys.exit(f"graphs_launch needs a GPU: {error}")
    bench.notes += [
        "ratio is best over best, beside a busy thread mean over mean",
        "a capture goes from its begin to the instantiated graph, whose end is not timed; its "
        "kernels are launched by one call through ctypes, which is in the excess",
    ]
    rows = bench.section(captures)  # before the frameworks are imported
    rows += bench.section(looking_inside)
    rows += bench.section(device_scalars)
    rows += bench.section(watched_launches)
    rows += bench.section(cost_of_timers_on_the_gpu)
    rows += _frameworks(bench)
    measure.report("graphs_launch", rows, bench.notes, options.json)


if __name__ == "__main__":
    main()
