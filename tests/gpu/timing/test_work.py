"""Rates of scopes on a real GPU: a matrix product, a copy, and both in a graph."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof

N = 4096
FLOPS = 2.0 * N**3


def test_the_rate_of_a_matrix_product_is_its_flops_over_the_gpu_time(torch: Any) -> None:
    a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    for _ in range(3):
        a @ b
    scope = gpuprof.timer("mm", flops=FLOPS)
    for _ in range(20):
        with scope as sample:
            a @ b
            sample.nbytes = 3.0 * N * N * 2
    row = gpuprof.stats()["mm"]
    assert row.work is not None
    assert (row.work.count, row.work.flops) == (20, FLOPS)
    assert row.work.flops_per_s == pytest.approx(FLOPS / (row.gpu.mean_ms / 1000), rel=1e-9)
    assert row.work.bytes_per_s == pytest.approx(
        3.0 * N * N * 2 / (row.gpu.mean_ms / 1000), rel=1e-9
    )
    assert 1e12 < row.work.flops_per_s < 1e16
    assert "TFLOP/s" in gpuprof.stats().tree()


def test_the_share_is_of_the_peak_that_was_given(torch: Any) -> None:
    a = torch.randn(N, N, device="cuda", dtype=torch.bfloat16)
    gpuprof.set_peaks({"bfloat16": 1e16}, 1e14)
    try:
        with gpuprof.timer("mm", flops=FLOPS):
            a @ a
        work = gpuprof.stats()["mm"].work
    finally:
        gpuprof.set_peaks()
    assert work is not None
    assert work.flops_per_s is not None
    assert work.flops_share == pytest.approx(work.flops_per_s / 1e16)
    assert work.peak_dtype == "bfloat16"


def test_the_rate_of_a_copy_is_that_of_the_memory(torch: Any) -> None:
    source = torch.ones(1 << 28, device="cuda", dtype=torch.uint8)
    target = torch.empty_like(source)
    target.copy_(source)
    scope = gpuprof.timer("copy", nbytes=2.0 * source.numel())
    for _ in range(20):
        with scope:
            target.copy_(source)
    work = gpuprof.stats()["copy"].work
    assert work is not None
    assert work.bytes_per_s is not None
    assert 1e11 < work.bytes_per_s < 2e13


def test_each_replay_does_the_work_of_the_capture(torch: Any) -> None:
    a, b = (torch.randn(N, N, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    result = torch.empty_like(a)
    torch.mm(a, b, out=result)
    with gpuprof.capture(timers="collect") as cap:
        with gpuprof.timer("mm", flops=FLOPS):
            torch.mm(a, b, out=result)
    with cap.graph as graph:
        for _ in range(10):
            graph.launch()
        row = next(row for row in gpuprof.stats().values() if row.name == "mm")
    assert row.work is not None
    assert (row.gpu.count, row.work.count) == (10, 10)
    assert row.work.flops_per_s == pytest.approx(FLOPS / (row.gpu.mean_ms / 1000), rel=1e-9)
