"""The energy of a call on a real GPU, as NVML counts it."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from gpuprof import BenchResult
from tests.gpu.support.alone import ALONE

pytestmark = [*ALONE]


def measure(torch: Any, width: int) -> BenchResult:
    pytest.importorskip("pynvml", reason="the GPU's counter needs nvidia-ml-py")
    a = torch.randn(width, width, device="cuda", dtype=torch.bfloat16)
    try:
        return gpuprof.benchmark(torch.mm, (a, a), energy=True, max_time_s=1.0, progress=False)
    except gpuprof.GpuprofError as error:
        if "has no counter of its energy" in str(error):
            pytest.skip("this GPU has no counter of energy")
        raise


def test_a_call_takes_what_its_power_and_its_time_say(torch: Any) -> None:
    result = measure(torch, 4096)
    found = result.energy
    assert result.mode == "graph"
    assert found["block_s"] >= 0.2
    assert 0.0 < found["resolution"] <= 0.5
    # The calls run as densely as in the samples, at the clocks of a GPU under load.
    assert found["joules"] / found["watts"] == pytest.approx(result.median_ms * 1e-3, rel=0.25)
    assert found["watts"] > 50.0


def test_more_work_takes_more_energy(torch: Any) -> None:
    small, large = (measure(torch, width).energy["joules"] for width in (2048, 8192))
    assert large > 10.0 * small
