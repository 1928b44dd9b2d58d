"""Memory of graphed calls: flat under changing shapes, shared in a pool, given back in the end."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.callables import assert_replays

PIECE = 2 << 20  # the driver takes and gives back memory in pieces of this size


def taken(torch: Any) -> tuple[int, int]:
    """Return the bytes that torch holds, and those that are taken from the GPU by anybody."""
    gc.collect()
    torch.cuda.synchronize()
    gpuprof.flush()  # sees that the last replays of closed graphs are over
    free, total = torch.cuda.mem_get_info()
    return int(torch.cuda.memory_reserved()), int(total - free)


@contextlib.contextmanager
def flat_memory(torch: Any) -> Iterator[None]:
    """Check that the block leaves no more memory taken than there was, but for some pieces."""
    reserved, used = taken(torch)
    yield
    reserved_now, used_now = taken(torch)
    assert reserved_now <= reserved + 2 * PIECE
    assert used_now <= used + 4 * PIECE


@needs_the_gpu_alone
def test_a_thousand_changes_of_the_shape_leave_the_memory_flat(torch: Any) -> None:
    def work(values: Any) -> Any:
        return (values + 1) * (values - 1) + values.sum()

    fast = gpuprof.make_graphed_callable(
        work, (torch.ones(1000, device="cuda"),), warmup=1, max_graphs=4
    )

    def change(step: int) -> None:
        values = torch.full((1000 + 100 * (step % 7),), float(step % 5), device="cuda")
        assert torch.equal(fast(values), work(values))
        assert len(fast.graphs) <= 4

    with pytest.warns(RuntimeWarning, match="more kinds of calls than max_graphs=4"):
        for step in range(100):
            change(step)
    with flat_memory(torch):
        for step in range(100, 1000):
            change(step)
    seen = fast.stats()
    assert (seen.replays, seen.eager_calls, seen.failures) == (1000, 0, 0), seen
    assert seen.captures > 900
    assert seen.evictions == seen.captures - 4


@needs_the_gpu_alone
@pytest.mark.parametrize("max_graphs", [1, 2])
def test_changes_of_the_shape_leave_the_memory_flat_in_training(
    torch: Any, max_graphs: int
) -> None:
    model = torch.nn.Linear(64, 64, device="cuda")
    fast = gpuprof.make_graphed_callable(model, warmup=1, max_graphs=max_graphs)

    def change(step: int) -> None:
        values = torch.ones(1 + step % 4, 64, device="cuda")
        fast(values).sum().backward()
        model.zero_grad()

    with pytest.warns(RuntimeWarning, match="more kinds of calls than max_graphs="):
        for step in range(20):
            change(step)
    with flat_memory(torch):
        for step in range(20, 120):
            change(step)
    assert fast.stats().evictions >= 100


@needs_the_gpu_alone
@pytest.mark.parametrize("shares", [False, True])
def test_captures_of_blocks_leave_the_memory_flat(torch: Any, shares: bool) -> None:
    values = torch.ones(64, 64, device="cuda")

    def take_turns(count: int) -> None:
        for _ in range(count):
            with gpuprof.capture(pool=gpuprof.CapturePool() if shares else None) as cap:
                torch.cos(values)
            cap.graph.launch()

    take_turns(10)
    with flat_memory(torch):
        take_turns(50)


def test_results_outlive_the_graph_and_the_callable(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(
        lambda values: values * 2, (torch.ones(4, device="cuda"),), max_graphs=1
    )
    kept = [fast(torch.full((size,), float(size), device="cuda")) for size in (4, 5, 6)]
    del fast
    gc.collect()
    noise = [torch.full((size,), -1.0, device="cuda") for size in (4, 5, 6)]
    for size, result in zip((4, 5, 6), kept, strict=True):
        assert result.tolist() == [2.0 * size] * size
    del noise


def test_static_results_outlive_the_callable(torch: Any) -> None:
    given = torch.full((1 << 20,), 3.0, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda v: v * 2, (given,), outputs="static")
    result = fast(given)
    del fast
    gc.collect()
    torch.cuda.synchronize()
    gpuprof.flush()
    noise = [torch.full((1 << 20,), -1.0, device="cuda") for _ in range(8)]
    assert torch.all(result == 6.0)
    del noise


@needs_the_gpu_alone
def test_a_callable_that_is_let_go_gives_its_memory_back(torch: Any) -> None:
    def cycle() -> None:
        given = torch.ones(4 << 20, device="cuda")
        fast = gpuprof.make_graphed_callable(lambda v: (v + 1) * (v - 1), (given,), warmup=1)
        assert fast(given)[0].item() == 0.0
        assert_replays(fast, 1)

    def used() -> int:
        taken(torch)
        torch.cuda.empty_cache()
        return taken(torch)[1]

    for _ in range(3):
        cycle()
    before = used()
    for _ in range(20):
        cycle()
    assert used() <= before + 2 * PIECE


@pytest.mark.parametrize("outputs", ["clone", "static"])
def test_three_callables_of_one_pool_feed_each_other(torch: Any, outputs: str) -> None:
    pool = gpuprof.CapturePool()
    torch.manual_seed(0)
    layers = [
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
        .to("cuda")
        .requires_grad_(False)
        for _ in range(3)
    ]
    sample = torch.randn(16, 64, device="cuda")
    chain = [
        gpuprof.make_graphed_callable(layer, (sample,), pool=pool, outputs=outputs)
        for layer in layers
    ]
    for _ in range(5):
        given = torch.randn(16, 64, device="cuda")
        found = chain[2](chain[1](chain[0](given)))
        torch.testing.assert_close(found, layers[2](layers[1](layers[0](given))))
    for fast in chain:
        assert_replays(fast, 5)


def test_callables_of_one_pool_may_be_called_in_any_order(torch: Any) -> None:
    pool = gpuprof.CapturePool()

    def function(by: float) -> Any:
        def run(values: Any) -> Any:
            first = values * by
            second = first + 1
            return second * first, first

        return run

    functions = [function(float(by)) for by in range(1, 4)]
    sample = torch.zeros(1 << 16, device="cuda")
    fast = [gpuprof.make_graphed_callable(each, (sample,), pool=pool) for each in functions]
    kept = []
    for step in range(60):
        which = (step * step + step // 7) % 3
        values = torch.full((1 << 16,), float(step), device="cuda")
        kept.append((which, values, fast[which](values)))
    for which, values, found in kept:
        for result, wanted in zip(found, functions[which](values), strict=True):
            assert torch.equal(result, wanted)
    assert sum(each.stats().replays for each in fast) == 60
    assert all(each.stats().eager_calls == 0 for each in fast)


def test_the_memory_of_each_graph_is_told(torch: Any) -> None:
    given = torch.ones(4 << 20, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda v: (v + 1) * (v - 1), (given,))
    fast(given)
    seen = fast.stats()
    assert seen.memory_bytes is not None
    assert seen.memory_bytes >= given.nbytes
    (row,) = seen.graphs
    assert row.memory_bytes is not None
    assert row.memory_bytes >= given.nbytes
