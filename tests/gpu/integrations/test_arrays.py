"""JAX, CuPy and Numba beside gpuprof on a GPU: what the pages say, and that their scripts run."""

from __future__ import annotations

import importlib.util
import time
from typing import Any

import pytest

import gpuprof
from tests.docs.examples import of_integration
from tests.gpu.support.frameworks import cupy_or_skip, numba_cuda_or_skip, torch_or_skip
from tests.gpu.support.kernels import device
from tests.support.processes import run_python

# A newer NumPy has it no more, but numba-cuda 0.x names it.
_NUMPY = "import numpy\nif not hasattr(numpy, 'row_stack'): numpy.row_stack = numpy.vstack\n"

JAX = """
import sys, time
import jax.numpy as jnp

if jax.default_backend() != "gpu":
    sys.exit(77)

@jax.jit
def work(x):  # some ten milliseconds
    for _ in range(50):
        x = x @ x / 4096
    return x

x = jnp.ones((4096, 4096))
work(x).block_until_ready()

def waited():
    begun = time.perf_counter()
    work(x).block_until_ready()
    return 1e3 * (time.perf_counter() - begun)

whole = min(waited() for _ in range(5))
gpuprof.reset()
"""


def run_script(page: str, more: str) -> str:
    """Run a page's script in a process of its own, then `more`; return what it printed."""
    done = run_python(f"{_NUMPY}{of_integration(page)[0].script}\n{more}", timeout=300)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def check_jax(body: str) -> None:
    if importlib.util.find_spec("jax") is None:
        pytest.skip("JAX is not installed")
    variables = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = run_python(of_integration("jax")[0].script + JAX + body, timeout=300, **variables)
    if done.returncode == 77:
        pytest.skip("JAX finds no GPU")
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


def test_cuda_events_measure_nothing_of_jaxs_work_and_the_backend_all_of_it() -> None:
    check_jax("""
with gpuprof.timer("events", backend="cuda") as events:
    y = work(x)
y.block_until_ready()
assert events.ms < whole / 2, (events.ms, whole)

with gpuprof.timer("backend", backend=BACKEND) as sample:
    y = work(x)
assert y.is_ready()
assert 0.8 * whole < sample.ms < 3 * whole + 5, (sample.ms, whole)

step = timer("step")(work)
y = step(x)
assert y.is_ready()
row = gpuprof.stats()["step"]
assert row.clock == "jax"
assert 0.8 * whole < row.time.max_ms < 3 * whole + 5, (row.time.max_ms, whole)
""")


def test_a_benchmark_of_a_blocking_function_of_jaxs_is_of_the_whole_call() -> None:
    check_jax("""
found = gpuprof.benchmark(
    blocking(work), (x,), warmup_s=0.0, min_samples=5, max_time_s=2.0, progress=False
)
assert found.mode in ("isolated", "cpu"), found
assert 0.8 * whole < found.median_ms < 2 * whole + 1, (found.median_ms, whole)
""")


def test_jaxs_work_beside_torchs_in_one_scope() -> None:
    torch_or_skip()
    check_jax("""
import torch
a = torch.ones(2048, 2048, device="cuda")
b = a @ a
torch.cuda.synchronize()
with gpuprof.timer("torch") as of_torch:
    for _ in range(10):
        b = a @ a
y = work(x)
with gpuprof.timer("both", backend=BACKEND):
    b = a @ a
    y = work(y)
assert y.is_ready()
assert of_torch.clock == "cuda" and of_torch.ms > 0.0
""")


def test_the_script_of_the_page_on_jax_runs() -> None:
    check_jax(f"gpuprof.reset()\n{of_integration('jax')[-1].script}")


def test_the_script_of_the_page_on_cupy_runs() -> None:
    cupy_or_skip()
    shown = run_script(
        "cupy",
        """
cupy.cuda.Device().synchronize()
assert bool(cupy.allclose(y, normalise(x * 2), atol=1e-4))
row = gpuprof.stats()["normalise", "cuda"]
assert row.time.count >= 20 and row.memory.peak > 0, row
assert cap.graph.num_nodes >= 3
assert fast.stats().captures == 1
""",
    )
    assert "normalise" in shown
    assert "graph mode" in shown


def test_the_script_of_the_page_on_numba_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    numba_cuda_or_skip(monkeypatch)
    shown = run_script(
        "numba",
        """
assert result.copy_to_host().tolist()[:3] == [2.0] * 3
row = gpuprof.stats()["add", "cuda"]
assert row.time.count >= 20 and row.time.min_ms > 0, row
assert cap.graph.num_nodes == 10
assert "add" in cap.graph.nodes[0].name
assert fast.stats().captures == 1
""",
    )
    assert "add" in shown


def test_a_kernel_of_numbas_on_the_current_streams_of_torch_and_cupy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch, cupy = torch_or_skip(), cupy_or_skip()
    cuda = numba_cuda_or_skip(monkeypatch)

    @cuda.jit
    def spin(values: Any) -> None:
        index = cuda.grid(1)
        total = 0.0
        for step in range(20_000):
            total += step * 1e-9
        values[index] += 1 + total * 0

    values = cuda.device_array(1 << 16)
    spin[256, 256](values)
    cuda.synchronize()

    def elapsed_ms(stream: Any, handle: int) -> float:
        with stream, gpuprof.timer("numba") as sample:
            spin[256, 256, cuda.external_stream(handle)](values)
        return sample.ms

    side = torch.cuda.Stream()
    of_torch = elapsed_ms(torch.cuda.stream(side), side.cuda_stream)
    own = cupy.cuda.Stream(non_blocking=True)
    of_cupy = elapsed_ms(own, own.ptr)
    device().synchronize()
    begun = time.perf_counter()
    spin[256, 256](values)
    cuda.synchronize()
    wall_ms = 1e3 * (time.perf_counter() - begun)
    for found in (of_torch, of_cupy):
        assert 0.2 * wall_ms < found < 5 * wall_ms


def test_numbas_stream_object_is_a_stream_for_scopes_and_captures(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cuda = numba_cuda_or_skip(monkeypatch)
    stream = cuda.stream()
    given: Any = stream if hasattr(stream, "__cuda_stream__") else int(stream)
    timer = gpuprof.Timer("cuda", given)
    timer.record_start()
    timer.record_end()
    assert {*timer.streams} == {int(stream)}
    timer.close()
