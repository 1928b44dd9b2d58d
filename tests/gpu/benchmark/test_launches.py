"""What a call launches on a real GPU: each way of counting agrees, and one more kernel is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip
from tests.gpu.support.scripts import run_pytest

QUICK: dict[str, Any] = {"max_time_s": 0.5, "warmup_s": 0.05, "progress": False}
TEST = """
import os

import torch

def step(x, w):
    y = torch.relu(x @ w)
    return y + 1 if os.environ.get("ONE_MORE") else y

def test_step(gpu_benchmark):
    x, w = (torch.ones(256, 256, device="cuda") for _ in range(2))
    launches = gpu_benchmark.check_launches(step, x, w)
    assert launches.num_kernels >= 2
"""


@pytest.fixture
def step(torch: Any) -> Callable[[], Any]:
    x, w = (torch.ones(256, 256, device="cuda") for _ in range(2))
    return lambda: torch.relu(x @ w)


def measure(function: Callable[[], Any], **options: Any) -> gpuprof.BenchResult:
    return gpuprof.benchmark(function, **{**QUICK, **options})


def counted(function: Callable[[], Any], **options: Any) -> gpuprof.results.Launches:
    found = measure(function, launches=True, **options).launches
    assert found is not None
    return found


def test_a_step_with_one_more_kernel_is_said_in_words(step: Callable[[], Any]) -> None:
    base, again, more = counted(step), counted(step), counted(lambda: step() + 1)
    assert (base.source, base.varies) == ("graph", "")
    assert base.diff(again) == ""
    found, count = base.diff(more), base.num_kernels
    assert found.startswith("+1 ")
    assert found.endswith(f", {count} -> {count + 1} kernels")
    assert more.diff(base).startswith("-1 ")


def test_another_operator_is_other_work(torch: Any) -> None:
    x = torch.ones(4096, device="cuda")
    found = counted(lambda: x + 1).diff(counted(lambda: x * 2))
    assert found.startswith("+1 ")
    assert ", -1 " in found


@pytest.mark.parametrize("mode", ["batched", "isolated"])
def test_each_mode_counts_the_same(step: Callable[[], Any], mode: str) -> None:
    assert counted(step, mode=mode).same(counted(step, mode="graph"))


def test_copies_and_memsets_count(torch: Any) -> None:
    x, y = (torch.ones(1 << 20, device="cuda") for _ in range(2))
    found = counted(lambda: y.copy_(x))
    assert (found.num_kernels, found.copies) == (0, 1)
    cupy = cupy_or_skip()
    zeroed = cupy.ones(1 << 20)
    found = counted(lambda: zeroed.data.memset_async(0, zeroed.nbytes))
    assert (found.num_kernels, found.memsets) == (0, 1)


def test_what_cannot_be_captured_is_counted_by_a_profiler(
    torch: Any, step: Callable[[], Any]
) -> None:
    found = counted(lambda: step().sum().item())
    assert found.source == "CUPTI"
    assert found.copies >= 1
    assert found.num_kernels > counted(step).num_kernels
    assert found.varies == ""
    assert found.same(counted(lambda: step().sum().item())), "another time"


def test_the_versions_of_what_chooses_kernels_are_kept(torch: Any, step: Callable[[], Any]) -> None:
    found = counted(step).versions
    assert found["gpu"] == torch.cuda.get_device_name()
    assert found["cc"] == ".".join(map(str, torch.cuda.get_device_capability()))
    assert found["torch"] == torch.__version__
    assert found["cublas"].startswith(f"{torch.version.cuda.partition('.')[0]}.")
    image = torch.ones(1, 3, 32, 32, device="cuda")
    layer = torch.nn.Conv2d(3, 8, 3).cuda()
    cudnn = counted(lambda: layer(image)).versions["cudnn"]
    number = torch.backends.cudnn.version()
    assert cudnn.split(".")[:2] == [str(number // 10_000), str(number % 10_000 // 100)]


def test_a_training_step_launches_the_same_each_time(torch: Any) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), capturable=True)
    x = torch.randn(32, 64, device="cuda")

    def train() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    first, second = counted(train), counted(train)
    assert first.varies == second.varies == ""
    assert first.diff(second) == ""


def test_a_test_fails_for_one_more_kernel(torch: Any, tmp_path: Path) -> None:
    pytest.importorskip("scipy", reason="SciPy is not installed")
    (tmp_path / "test_it.py").write_text(TEST, encoding="utf-8")
    assert run_pytest(tmp_path, "--gpu-benchmark-save=main").returncode == 0
    same = run_pytest(tmp_path, "--gpu-benchmark-compare=main")
    assert same.returncode == 0, same.stdout
    more = run_pytest(tmp_path, "--gpu-benchmark-compare=main", ONE_MORE="1")
    assert more.returncode == 1, more.stdout
    assert "LAUNCHES: test_step: launches more: +1 " in more.stdout
