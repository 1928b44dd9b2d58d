"""Memory of scopes against the counters of torch and CuPy themselves."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip, torch_or_skip

MIB = 1 << 20


@pytest.fixture
def torch() -> Any:
    torch = torch_or_skip()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    return torch


@pytest.fixture
def cupy() -> Any:
    cupy = cupy_or_skip()
    float(cupy.arange(1024, dtype=cupy.float32).sum())  # loads the kernels
    gc.collect()
    return cupy


def hooks(cupy: Any) -> dict[str, Any]:
    found: dict[str, Any] = cupy.cuda.memory_hook.get_memory_hooks()
    return found


def use_of(sample: gpuprof.Sample) -> gpuprof.results.MemoryUse:
    assert sample.clock == "cuda"
    memory = sample.memory
    assert memory is not None
    return memory


def of_torch(torch: Any, work: Callable[[], object]) -> tuple[int, int, int]:
    """Return peak, absolute peak and change as torch itself tells them."""
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    kept = work()
    peak = torch.cuda.max_memory_allocated()
    after = torch.cuda.memory_allocated()
    del kept
    return peak - before, peak, after - before


def figures(memory: gpuprof.results.MemoryUse) -> tuple[float, float, float]:
    return memory.peak, memory.absolute_peak, memory.change


def block(torch: Any, mib: int) -> Any:
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def test_the_figures_are_torchs_own(torch: Any) -> None:
    held = block(torch, 8)

    def work() -> Any:
        block(torch, 64)
        return block(torch, 16)

    expected = of_torch(torch, work)
    kept = None
    with gpuprof.timer("step", memory=True) as sample:
        kept = work()
    assert figures(use_of(sample)) == expected
    assert use_of(sample).peak == 64 * MIB
    assert use_of(sample).change == 16 * MIB
    del held, kept


def test_the_figures_of_a_training_step_are_torchs_own(torch: Any) -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(512, 512) for _ in range(8))).cuda()
    given = torch.randn(4096, 512, device="cuda")

    def forward() -> Any:
        return model(given).square().mean()

    forward().backward()  # makes the gradients and cuBLAS' workspace
    expected_forward = of_torch(torch, forward)
    loss = forward()
    expected_backward = of_torch(torch, loss.backward)
    del loss
    torch.cuda.reset_peak_memory_stats()
    with gpuprof.timer("step", memory=True) as step:
        with gpuprof.timer("forward", memory=True) as first:
            loss = forward()
        with gpuprof.timer("backward", memory=True) as second:
            loss.backward()
    assert figures(use_of(first)) == expected_forward
    assert figures(use_of(second)) == expected_backward
    assert use_of(step).absolute_peak == max(expected_forward[1], expected_backward[1])
    rows = {row.name: row.memory for row in gpuprof.stats().values()}
    assert rows["backward"] == use_of(second)


def test_a_peak_below_an_earlier_one_and_the_peak_of_the_process(torch: Any) -> None:
    block(torch, 256)
    peak = torch.cuda.max_memory_allocated()
    with gpuprof.timer("step", memory=True) as sample:
        block(torch, 32)
    assert use_of(sample).peak == 32 * MIB
    assert gpuprof.stats().memory[0]["peak_bytes"] == peak
    assert torch.cuda.max_memory_allocated() < peak  # as the documentation says
    torch.cuda.reset_peak_memory_stats()
    block(torch, 4)
    assert gpuprof.stats().memory[0]["peak_bytes"] == torch.cuda.max_memory_allocated()


def test_torchs_own_peak_is_left_alone_where_the_scope_begins_at_it(torch: Any) -> None:
    held = block(torch, 128)
    with gpuprof.timer("step", memory=True):
        block(torch, 32)
    assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated() + 32 * MIB
    del held


def test_replays_of_a_captured_scope_allocate_nothing(torch: Any) -> None:
    given = torch.ones(MIB, device="cuda")
    (given * 2 + 1).sum()
    with gpuprof.capture(timers="collect") as cap:
        with gpuprof.timer("fwd", memory=True) as sample:
            result = given * 2 + 1
    assert sample.state == "captured"
    assert sample.memory is not None
    assert sample.memory.peak == 8 * MIB
    assert "replays of the graph allocate nothing" in sample.memory.note
    with cap.graph as graph, gpuprof.timer("replay", memory=True) as replay:
        graph.launch()
        graph.launch()
    assert figures(use_of(replay))[::2] == (0, 0)
    rows = [row for row in gpuprof.stats().values() if row.name == "fwd"]
    assert [row.gpu.count for row in rows] == [2]
    assert rows[0].memory is not None
    assert rows[0].memory.note == "replays of a graph allocate nothing"
    del result


def test_the_figures_of_cupy_are_its_pools(cupy: Any) -> None:
    pool = cupy.get_default_memory_pool()
    held = cupy.empty(8 * MIB, cupy.uint8)
    before = pool.used_bytes()
    found = None
    with gpuprof.timer("step", stream=cupy.cuda.get_current_stream(), memory=True) as sample:
        found = cupy.empty(16 * MIB, cupy.uint8)
        most = cupy.empty(64 * MIB, cupy.uint8)
        highest = pool.used_bytes()
        del most
    after = pool.used_bytes()
    assert figures(use_of(sample))[::2] == (highest - before, after - before)
    assert use_of(sample).peak == 80 * MIB
    assert hooks(cupy) == {}
    del held, found


def test_a_pool_of_the_drivers_has_no_peak(cupy: Any) -> None:
    if not cupy.cuda.runtime.deviceGetAttribute(
        cupy.cuda.runtime.cudaDevAttrMemoryPoolsSupported, 0
    ):
        pytest.skip("the GPU has no memory pools")
    pool = cupy.cuda.MemoryAsyncPool()
    stream = cupy.cuda.Stream(non_blocking=True)
    with (
        cupy.cuda.using_allocator(pool.malloc),
        stream,
        gpuprof.timer("step", stream=stream, memory=True) as sample,
    ):
        kept = cupy.empty(16 * MIB, cupy.uint8)
    stream.synchronize()
    assert math.isnan(use_of(sample).peak)
    assert use_of(sample).change == 16 * MIB
    del kept


def test_torch_and_cupy_add_up(torch: Any, cupy: Any) -> None:
    with gpuprof.timer("step", memory=True) as sample:
        block(torch, 32)
        cupy.empty(16 * MIB, cupy.uint8)
    memory = use_of(sample)
    assert (memory.peak, memory.change) == (48 * MIB, 0)
    assert memory.note.startswith("the sum of torch's and CuPy's peaks")


def test_an_exception_for_lack_of_memory_comes_out_unchanged(torch: Any) -> None:
    with (
        pytest.raises(torch.cuda.OutOfMemoryError),
        gpuprof.timer("step", memory=True) as sample,
    ):
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    assert sample.failed
    assert use_of(sample).change == 0
    row = gpuprof.stats()["step"]
    assert (row.failed, row.memory) == (1, None)
