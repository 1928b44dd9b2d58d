"""Scopes and readings beside and inside graph captures that torch opened."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device
from tests.support.threads import in_threads

_CLOCK_STEP_MS = 0.002  # a step of the clock of the kernels' stamps, at both ends


@needs_the_gpu_alone
@pytest.mark.parametrize("mode", ["thread_local", "global"])
@pytest.mark.parametrize("thread", ["capturing", "another"])
def test_timing_and_reading_during_a_capture_leave_it_intact(mode: str, thread: str) -> None:
    torch = torch_or_skip()
    values = torch.zeros(1024, device="cuda")
    values += 0  # loads the kernel
    stream = device().stream()
    spin = Spin(device(), stream, 2 * MILLISECOND)
    spin.launch()  # the first launch takes the host long, and the scope's stream is idle
    device().synchronize()
    scope = gpuprof.timer("beside a capture", stream=stream)
    samples = []

    def measure_and_read() -> None:
        with scope as sample:
            spin.launch()
        gpuprof.flush()
        assert sample.ready
        samples.append(sample.ms)

    def on_another_thread() -> None:
        device().make_current()
        measure_and_read()

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode=mode):
        values += 1
        if thread == "another":
            in_threads(on_another_thread)
        else:
            measure_and_read()
        values += 1
    assert samples[0] == pytest.approx(spin.milliseconds(), abs=0.05)
    for _ in range(3):
        graph.replay()
    torch.cuda.synchronize()
    assert values[0].item() == 6.0


@needs_the_gpu_alone
@pytest.mark.parametrize("replays", [1, 10, 100])
def test_a_recorded_scope_reads_the_last_replay(replays: int) -> None:
    torch = torch_or_skip()
    stream = torch.cuda.Stream()
    before, spin, after = (Spin(device(), stream.cuda_stream, 1000) for _ in range(3))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        before.launch()
        with gpuprof.timer("recorded", in_capture="record") as sample:
            spin.launch()
        after.launch()
    for microseconds in (400, 150):
        # All replays but the last take another time, so that the last one can be told.
        spin.set_duration(1_000_000)
        for _ in range(replays - 1):
            graph.replay()
        torch.cuda.synchronize()
        spin.set_duration(microseconds * 1000)
        graph.replay()
        torch.cuda.synchronize()
        # However long the graph pauses between its nodes, the scope holds its own kernel and lies
        # between the two others of the same replay.
        widest = (after.stamps()[0] - before.stamps()[1]) / MILLISECOND
        assert spin.milliseconds() >= microseconds / 1000.0
        assert spin.milliseconds() - _CLOCK_STEP_MS <= sample.ms <= widest + _CLOCK_STEP_MS
        assert widest < 1.0, "the last replay took as long as the others"


def test_reading_a_recorded_scope_waits_for_a_replay_under_way() -> None:
    torch = torch_or_skip()
    graph, sample, spin = _recorded(torch)
    spin.set_duration(100 * MILLISECOND)
    graph.replay()
    assert sample.ms >= 99.9


def _recorded(torch: Any) -> tuple[Any, gpuprof.Sample, Spin]:
    cuda = torch.cuda
    stream = cuda.Stream()
    spin = Spin(device(), stream.cuda_stream, 50_000)
    graph = cuda.CUDAGraph()
    scope = gpuprof.timer("recorded", in_capture="record")
    with cuda.graph(graph, stream=stream), scope as sample:
        spin.launch()
    return graph, sample, spin
