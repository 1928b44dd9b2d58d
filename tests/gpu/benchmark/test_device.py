"""The memory of a call, on a real GPU with torch and CuPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip

MIB = 1 << 20
ROUNDED = 2 * MIB  # a cached block of torch's is up to 1 MiB larger than what is asked for


def measure(function: Callable[..., object], *arguments: Any, **options: Any) -> Any:
    return gpuprof.benchmark(function, arguments, max_time_s=1.0, progress=False, **options)


# Memory


@pytest.mark.parametrize("mode", ["graph", "batched", "isolated"])
def test_the_peak_is_what_a_call_allocates_in_each_mode(torch: Any, mode: str) -> None:
    x = torch.ones(16 * MIB, dtype=torch.uint8, device="cuda")
    result = measure(lambda: (x + 1) + 1, mode=mode)
    assert result.mode == mode
    assert result.peak_bytes == pytest.approx(32 * MIB, abs=ROUNDED)
    assert result.memory["change_bytes"] == 0
    in_place = measure(lambda: x.add_(1), mode=mode)
    assert in_place.memory == {"peak_bytes": 0, "change_bytes": 0}


def training_step(torch: Any, width: int) -> Callable[[], None]:
    layers = torch.nn
    model = layers.Sequential(
        layers.Linear(256, width), layers.ReLU(), layers.Linear(width, 256)
    ).cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x = torch.randn(512, 256, device="cuda")

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def test_the_peak_of_a_training_step_is_the_same_each_time(torch: Any) -> None:
    step = training_step(torch, 2048)
    first, second = measure(step), measure(step)
    assert first.peak_bytes == pytest.approx(second.peak_bytes, abs=ROUNDED)
    assert first.peak_bytes > 512 * 2048 * 4  # what the first layer returns
    assert abs(first.memory["change_bytes"]) < ROUNDED
    wider = measure(training_step(torch, 4096))
    assert wider.peak_bytes / first.peak_bytes == pytest.approx(2.0, rel=0.02)


def test_an_earlier_peak_of_the_process_does_not_count(torch: Any) -> None:
    torch.empty(512 * MIB, dtype=torch.uint8, device="cuda")
    x = torch.ones(64 * MIB, dtype=torch.uint8, device="cuda")
    assert measure(lambda: x + 1).peak_bytes == pytest.approx(64 * MIB, abs=ROUNDED)


def test_memory_that_a_call_keeps_is_said(torch: Any) -> None:
    kept: list[Any] = []  # little, as there are thousands of calls
    result = measure(lambda: kept.append(torch.ones(128, device="cuda")), mode="isolated")
    assert result.memory == {"peak_bytes": 512, "change_bytes": 512}
    assert "512 B stay allocated after it" in str(result)


def test_memory_of_cupys_pool() -> None:
    cupy = cupy_or_skip()
    x = cupy.ones(16 * MIB, dtype="u1")
    result = measure(lambda: (x + 1) + 1)
    assert result.peak_bytes == pytest.approx(32 * MIB, abs=ROUNDED)
    assert result.memory["change_bytes"] == 0
