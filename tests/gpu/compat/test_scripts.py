"""Scripts for torch and Triton do the same on a GPU with `gpuprof.compat`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuprof.compat import do_bench, do_bench_cudagraph
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import ROOT, run_python

SCRIPTS = ROOT / "tests" / "compat" / "scripts"
OURS = {
    "cuda_events.py": "from gpuprof.compat import Event; names = {'Event': Event}",
    "cuda_graphs.py": "import gpuprof.compat; names = {'torch_cuda': gpuprof.compat}",
}
THEIRS = {
    "cuda_events.py": "import torch; names = {'Event': torch.cuda.Event}",
    "cuda_graphs.py": "import torch; names = {'torch_cuda': torch.cuda}",
}


def run_script(name: str, imports: dict[str, str]) -> dict[str, Any]:
    script = str(Path(SCRIPTS, name))
    done = run_python(
        f"import runpy\n{imports[name]}\nrunpy.run_path({script!r}, names)", timeout=240
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@needs_the_gpu_alone
@pytest.mark.parametrize("imports", [OURS, THEIRS], ids=["gpuprof", "torch"])
def test_events_order_streams_and_measure_the_work(imports: dict[str, str]) -> None:
    torch_or_skip()
    found = run_script("cuda_events.py", imports)
    assert found["done"] == [True] * 4
    assert found["backwards"] is True
    assert found["handles"] == [True, True]
    assert found["first_ms"] > 0
    # Twice the work, on the other stream after the first.
    assert 1.2 < found["ratio"] < 4


@pytest.mark.parametrize("imports", [OURS, THEIRS], ids=["gpuprof", "torch"])
def test_graphs_replay_what_was_captured(imports: dict[str, str]) -> None:
    torch_or_skip()
    assert run_script("cuda_graphs.py", imports) == {
        "right": [True] * 3,
        "inside": True,
        "added": True,
        "doubled": True,
    }


@pytest.fixture
def work() -> Any:
    torch = torch_or_skip()
    x = torch.randn(2048, 2048, device="cuda")
    w = torch.randn(2048, 2048, device="cuda", requires_grad=True)

    def step() -> Any:
        return (x @ w).relu()

    step.parameter = w  # type: ignore[attr-defined]
    return step


@needs_the_gpu_alone
def test_do_bench_agrees_with_tritons(work: Any) -> None:
    triton = pytest.importorskip("triton.testing", reason="the original package is not installed")
    ours = do_bench(work, return_mode="median")
    theirs = triton.do_bench(work, return_mode="median")
    # Triton leaves the empty interval in, some microseconds.
    assert ours == pytest.approx(theirs, rel=0.15, abs=0.01)
    low, high = do_bench(work, quantiles=[0.2, 0.8])
    assert 0 < low <= high
    assert len(do_bench(work, return_mode="all", rep=20)) > 5


@needs_the_gpu_alone
def test_do_bench_cudagraph_agrees_with_tritons(work: Any) -> None:
    triton = pytest.importorskip("triton.testing", reason="the original package is not installed")
    torch = torch_or_skip()
    with torch.no_grad():
        ours = do_bench_cudagraph(work, return_mode="median")
        theirs = triton.do_bench_cudagraph(work, return_mode="median")
    assert ours == pytest.approx(theirs, rel=0.15, abs=0.01)


def test_gradients_are_dropped_before_each_call(work: Any) -> None:
    parameter = work.parameter
    seen = []

    def backward() -> None:
        seen.append(parameter.grad is None)
        work().sum().backward()

    assert do_bench(backward, grad_to_none=[parameter], rep=20) > 0
    assert seen[-1] is True
