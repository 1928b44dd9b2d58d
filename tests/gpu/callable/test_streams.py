"""Graphed calls in flight: many on one stream, on several streams, from several threads."""

from __future__ import annotations

import functools
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays
from tests.support.threads import in_threads

SIZE = 1 << 14
HELD = 50_000_000  # cycles: the GPU is busy for some 25 ms, while calls are queued


def steps(values: Any) -> Any:
    """Compute in a few kernels, so that two calls in one memory would be seen."""
    for _ in range(6):
        values = values + 1
    return values * 2


def expected(torch: Any, results: list[Any], first: float = 0.0) -> None:
    """Fail unless result i is that of the number first + i."""
    for index, result in enumerate(results):
        assert torch.all(result == (first + index + 6) * 2), index


def graphed(torch: Any, **options: Any) -> Any:
    fast = gpuprof.make_graphed_callable(steps, (torch.zeros(SIZE, device="cuda"),), **options)
    torch.cuda.synchronize()
    return fast


@pytest.mark.parametrize("held", [True, False])
def test_two_hundred_calls_in_flight_are_all_right(torch: Any, held: bool) -> None:
    fast = graphed(torch)
    if held:
        torch.cuda._sleep(HELD)
    results = [fast(torch.full((SIZE,), float(step), device="cuda")) for step in range(200)]
    torch.cuda.synchronize()
    expected(torch, results)
    assert_replays(fast, 200)


def test_one_argument_that_is_overwritten_between_calls_in_flight(torch: Any) -> None:
    fast = graphed(torch)
    given = torch.zeros(SIZE, device="cuda")
    torch.cuda._sleep(HELD)
    results = []
    for step in range(200):
        given.fill_(step)
        results.append(fast(given))
    torch.cuda.synchronize()
    expected(torch, results)
    assert_replays(fast, 200)


@pytest.mark.parametrize("held", [True, False])
def test_calls_that_alternate_between_two_streams_are_all_right(torch: Any, held: bool) -> None:
    fast = graphed(torch)
    streams = [torch.cuda.Stream() for _ in range(2)]
    if held:
        with torch.cuda.stream(streams[0]):
            torch.cuda._sleep(HELD)
    results = []
    for step in range(100):
        with torch.cuda.stream(streams[step % 2]):
            results.append(fast(torch.full((SIZE,), float(step), device="cuda")))
    torch.cuda.synchronize()
    expected(torch, results)
    assert_replays(fast, 100)


def test_two_graphs_of_one_callable_on_two_streams(torch: Any) -> None:
    fast = graphed(torch)
    fast(torch.zeros(2 * SIZE, device="cuda"))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    results: list[list[Any]] = [[], []]
    torch.cuda._sleep(HELD)
    for step in range(50):
        for which in range(2):
            with torch.cuda.stream(streams[which]):
                given = torch.full(((which + 1) * SIZE,), float(step), device="cuda")
                results[which].append(fast(given))
    torch.cuda.synchronize()
    for which in range(2):
        assert results[which][0].numel() == (which + 1) * SIZE
        expected(torch, results[which])
    assert_replays(fast, 101, captures=2)


@pytest.mark.parametrize("held", [True, False])
def test_a_layout_that_needs_a_copy_on_two_streams(torch: Any, held: bool) -> None:
    fast = gpuprof.make_graphed_callable(steps, (torch.zeros(64, 128, device="cuda"),))
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in range(2)]
    if held:
        with torch.cuda.stream(streams[1]):
            torch.cuda._sleep(HELD)
    results = []
    for step in range(60):
        with torch.cuda.stream(streams[step % 2]):
            results.append(fast(torch.full((128, 64), float(step), device="cuda").t()))
    torch.cuda.synchronize()
    expected(torch, results)
    assert_replays(fast, 60)


@pytest.mark.parametrize("threads", [2, 6])
def test_threads_with_streams_of_their_own_share_one_callable(torch: Any, threads: int) -> None:
    fast = graphed(torch)
    results: list[list[Any]] = [[] for _ in range(threads)]

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(60):
                given = torch.full((SIZE,), 1000.0 * index + step, device="cuda")
                results[index].append(fast(given))
            torch.cuda.current_stream().synchronize()

    in_threads(*(functools.partial(work, index) for index in range(threads)))
    for index in range(threads):
        assert len(results[index]) == 60
        expected(torch, results[index], 1000.0 * index)
    assert_replays(fast, threads * 60)


def test_threads_that_meet_new_shapes_at_once(torch: Any) -> None:
    fast = graphed(torch)
    results: list[list[Any]] = [[] for _ in range(4)]

    def work(index: int) -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            for step in range(20):
                size = 128 * (1 + step % 3)
                given = torch.full((size,), 100.0 * index + step, device="cuda")
                results[index].append(fast(given))
            torch.cuda.current_stream().synchronize()

    in_threads(*(functools.partial(work, index) for index in range(4)))
    for index in range(4):
        expected(torch, results[index], 100.0 * index)
    assert_replays(fast, 80, captures=4)


@pytest.mark.parametrize("shared", [True, False])
def test_callables_that_run_at_once_on_two_streams(torch: Any, shared: bool) -> None:
    pool = gpuprof.CapturePool() if shared else None
    both = [graphed(torch, pool=pool) for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    results: list[list[Any]] = [[], []]
    torch.cuda._sleep(HELD)
    for step in range(60):
        for which in range(2):
            with torch.cuda.stream(streams[which]):
                given = torch.full((SIZE,), 100.0 * which + step, device="cuda")
                results[which].append(both[which](given))
    torch.cuda.synchronize()
    for which in range(2):
        expected(torch, results[which], 100.0 * which)
        assert_replays(both[which], 60)


def test_a_launch_without_arguments_beside_calls(torch: Any) -> None:
    total = torch.zeros(SIZE, device="cuda")
    total += 0

    def count() -> Any:
        total.add_(1)
        return total * 2

    torch.mul(total, 2)
    fast = gpuprof.make_graphed_callable(count, ())
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    results = []
    for step in range(40):
        with torch.cuda.stream(streams[step % 2]):
            if step % 4 == 3:
                fast.launch()
            else:
                results.append((step + 1, fast()))
    torch.cuda.synchronize()
    for number, result in results:
        assert torch.all(result == 2.0 * number)
    assert torch.all(total == 40.0)
