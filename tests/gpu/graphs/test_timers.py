"""Timers inside graphs and replays in traces, on a GPU, with kernels of a known length."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import free_bytes
from tests.support.held import samples_in_memory

torch = pytest.importorskip("torch", reason="needs torch and a GPU")


def spin(cycles: int) -> None:
    torch.cuda.init()
    torch.cuda._sleep(cycles)


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_spans_inside_a_graph_agree_with_events_around_it(timers: str) -> None:
    spin(1000)
    with gpuprof.capture(timers=timers, name="step") as cap:  # type: ignore[arg-type]
        with gpuprof.timer("outer"):
            for _ in range(3):
                with gpuprof.timer("inner"):
                    spin(1_000_000)
    graph = cap.graph
    graph.launch()
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.launch()
    end.record()
    times = graph.timings()
    whole = begin.elapsed_time(end)
    assert times["outer"].ms == pytest.approx(whole, rel=0.05)
    assert times["outer/inner"].count == 3
    assert times["outer/inner"].ms == pytest.approx(times["outer"].ms, rel=0.05)
    if timers == "collect":
        stats = gpuprof.stats()
        row = stats["outer/inner"].gpu
        assert row is not None
        assert row.count == 6
        replay = stats["step"].gpu
        assert replay is not None
        assert replay.max_ms == pytest.approx(whole, rel=0.1)
    graph.close()


@needs_the_gpu_alone
def test_replays_and_what_is_inside_nest_on_one_track_after_their_launch(tmp_path: Path) -> None:
    spin(1000)
    with gpuprof.capture(timers="collect", name="step") as cap:
        with gpuprof.timer("outer"):
            for _ in range(3):
                with gpuprof.timer("inner"):
                    spin(200_000)
    graph = cap.graph
    graph.launch()
    path = tmp_path / "run.json"
    with gpuprof.trace(path):
        for _ in range(20):
            graph.launch()
        torch.cuda.synchronize()
    graph.close()
    events = json.loads(path.read_text())["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    replays = [event for event in slices if event["cat"] == "gpu_graph"]
    inside = [event for event in slices if event["cat"] == "gpu_in_graph"]
    launches = [event for event in slices if event["cat"] == "graph"]
    assert (len(replays), len(inside), len(launches)) == (20, 80, 20)
    assert len({event["tid"] for event in replays + inside}) == 1
    for event in inside:
        assert any(
            replay["ts"] - 1 <= event["ts"]
            and event["ts"] + event["dur"] <= replay["ts"] + replay["dur"] + 1
            for replay in replays
        )
    for launch, replay in zip(launches, replays, strict=True):
        assert replay["ts"] >= launch["ts"]
    assert sum(event["ph"] == "s" for event in events) == 20


@needs_the_gpu_alone
@pytest.mark.parametrize("backend", ["driver", "torch"])
def test_a_thousand_captures_leave_memory_as_it_was(backend: Literal["driver", "torch"]) -> None:
    stream = torch.cuda.Stream()
    data = torch.zeros(64, device="cuda")

    def once() -> None:
        with torch.cuda.stream(stream), gpuprof.capture(stream, backend=backend) as cap:
            with gpuprof.timer("add"):
                data.add_(1)
        cap.graph.launch()
        cap.graph.close()

    def once_by_torch() -> None:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream):
            graph.capture_begin()
            data.add_(1)
            graph.capture_end()
            graph.replay()

    once()  # the first through torch makes its cuBLAS handle: 96 MiB, 32 of them its workspace
    of_torch = 0
    if backend == "torch":  # 2.11 itself leaves 48 KiB on the host with each graph
        growth_kib(once_by_torch, 1000)  # fills what earlier tests have left free
        of_torch = growth_kib(once_by_torch, 1000)
    free = free_bytes(torch)
    samples = samples_in_memory()
    assert growth_kib(once, 1000) < of_torch + (16 << 10)
    assert free - free_bytes(torch) <= 8 << 20
    assert samples_in_memory() <= samples + 64


def growth_kib(call: Callable[[], None], times: int) -> int:
    """Return how much of the host's memory calls keep, once some have been made."""

    def resident() -> int:
        status = Path("/proc/self/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1])

    for _ in range(20):
        call()
    torch.cuda.synchronize()
    before = resident()
    for _ in range(times):
        call()
    torch.cuda.synchronize()
    return resident() - before
