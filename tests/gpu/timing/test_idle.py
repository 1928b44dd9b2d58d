"""`gpuprof.idle` on a GPU: planted sleeps are found at their line; captures go on."""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.kernels import MILLISECOND, Spin, device


def _planted(found: gpuprof.Idle) -> float:
    return sum(row.idle_ms for row in found.rows if "# planted" in row.code)


@needs_the_gpu_alone
@pytest.mark.parametrize("with_kernels", [False, True])
def test_planted_sleeps_are_found_at_their_line(with_kernels: bool) -> None:
    stream = device().stream()
    spin = Spin(device(), stream, 2 * MILLISECOND)
    planted = 0.0
    with gpuprof.kernels() if with_kernels else nullcontext(), gpuprof.idle() as found:
        for _ in range(600):
            with gpuprof.timer("step", stream=stream) as sample:
                spin.launch()
            _ = sample.ms  # waits
            begin = time.monotonic()
            time.sleep(0.005)  # planted
            planted += (time.monotonic() - begin) * 1e3
    assert _planted(found) == pytest.approx(planted, rel=0.1)


def test_captures_of_torch_go_on_while_it_looks(torch: Any) -> None:
    values = torch.zeros(8, device="cuda")
    with gpuprof.timer("before"):
        values.add_(1)
    with gpuprof.idle():
        for mode in ("global", "thread_local"):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, capture_error_mode=mode):
                for _ in range(50):
                    values.add_(1)
                    time.sleep(0.004)
            graph.replay()
    torch.cuda.synchronize()
    assert values[0].item() == 101


def test_the_gpu_is_not_idle_while_it_works() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, 300 * MILLISECOND)
    with gpuprof.idle() as found:
        with gpuprof.timer("step", stream=stream) as sample:
            spin.launch()
        time.sleep(0.2)  # planted, but the GPU works
        _ = sample.ms
    assert _planted(found) < 20
