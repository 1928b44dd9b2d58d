"""``gpu_benchmark`` on a real GPU: rounds with their steps."""

from __future__ import annotations

import textwrap
from pathlib import Path

from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.scripts import run_pytest

TESTS = """
    import pytest
    import torch

    pytestmark = pytest.mark.gpu_benchmark(max_time=1.0)


    @pytest.fixture
    def x():
        return torch.randn(1024, 1024, device="cuda")


    def test_steps(gpu_benchmark, x):
        opened, closed = [], []

        def setup():
            opened.append(x.clone())
            return (opened[-1],), {}

        gpu_benchmark.pedantic(torch.Tensor.sort, setup=setup, teardown=closed.append, rounds=8)
        assert gpu_benchmark.result.clock == "cuda"
        assert gpu_benchmark.result.mode == "isolated"
        assert gpu_benchmark.result.count == gpu_benchmark.stats["rounds"] == 8
        assert len(closed) == len(opened) == 8
        assert all(one is other for one, other in zip(opened, closed))


    @pytest.mark.parametrize("iterations", [1, 20])
    def test_iterations(gpu_benchmark, x, iterations):
        calls = []

        def multiply():
            calls.append(1)
            return x @ x

        gpu_benchmark.pedantic(multiply, rounds=10, warmup_rounds=2, iterations=iterations)
        assert len(calls) == 12 * iterations + (iterations > 1)
        assert (gpu_benchmark.result.clock, gpu_benchmark.result.mode) == ("cuda", "isolated")
        assert gpu_benchmark.result.calls_per_sample == iterations
        assert gpu_benchmark.stats["iterations"] == iterations


    @pytest.mark.gpu_benchmark(min_rounds=40, max_time=0.001, disable_gc=True)
    def test_min_rounds(gpu_benchmark, x):
        gpu_benchmark(torch.matmul, x, x)
        assert gpu_benchmark.result.count >= 40

"""


def test_what_pytest_benchmarks_tests_use_works_on_the_gpus_clock(tmp_path: Path) -> None:
    torch_or_skip()
    (tmp_path / "test_it.py").write_text(textwrap.dedent(TESTS), encoding="utf-8")
    first = run_pytest(tmp_path, "--gpu-benchmark-autosave", "--gpu-benchmark-compare")
    assert first.returncode == 0, first.stdout + first.stderr
    assert "4 passed" in first.stdout
    again = run_pytest(tmp_path, "--gpu-benchmark-compare", "-k", "iterations")
    assert again.returncode == 0, again.stdout + again.stderr
