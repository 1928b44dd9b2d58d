"""What torch documents of its graphs and events holds for `gpuprof.compat.torch` as well.

Tests that take `api` run with both; the others need both, or would leave torch's capture broken.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof import compat, errors
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.scripts import check_script

LONG = 100_000_000  # cycles, some 50 ms


@pytest.fixture
def torch() -> Any:
    torch = torch_or_skip()
    torch.ones(4, device="cuda").uniform_().sum().item()
    torch.cuda.synchronize()
    return torch


@pytest.fixture(params=["gpuprof", "torch"])
def api(request: pytest.FixtureRequest, torch: Any) -> Any:
    return compat if request.param == "gpuprof" else torch.cuda


# Pools


def pool_ids(torch: Any) -> set[tuple[int, int]]:
    return {tuple(each["segment_pool_id"]) for each in torch.cuda.memory_snapshot()}


@pytest.mark.parametrize("order", ["torch first", "gpuprof first"])
def test_a_handle_is_of_one_pool_for_torch_and_for_gpuprof(torch: Any, order: str) -> None:
    handle = torch.cuda.graph_pool_handle() if order[0] == "t" else compat.graph_pool_handle()
    stream = torch.cuda.Stream()
    theirs, ours = torch.cuda.CUDAGraph(), compat.CUDAGraph()
    temporaries, results = [], []

    def body() -> None:
        temporary = torch.full((1 << 20,), 2.0, device="cuda")
        temporaries.append(temporary.data_ptr())
        results.append(temporary.sum())

    def by_torch() -> None:
        with torch.cuda.graph(theirs, pool=handle, stream=stream):
            body()

    def by_compat() -> None:
        with compat.graph(ours, pool=handle, stream=stream):
            body()

    with torch.cuda.stream(stream):
        body()
    temporaries.clear()
    results.clear()
    torch.cuda.synchronize()
    in_order = [(by_torch, theirs.replay), (by_compat, ours.replay)]
    in_order = in_order if order[0] == "t" else in_order[::-1]
    for capture, _ in in_order:
        capture()
    with gpuprof.capture(stream, pool=theirs.pool()) as cap:
        body()
    assert theirs.pool() == ours.pool() == handle
    assert handle in pool_ids(torch)
    assert len(set(temporaries)) == 1  # each capture took the memory that the one before let go
    for replay in (*(each for _, each in in_order), cap.graph.launch):
        replay()  # what shares memory is replayed in the order of the captures
    assert [float(each) for each in results] == [2.0 * (1 << 20)] * 3
    assert cap.graph.pool is ours.graph.pool
    theirs.reset()
    ours.reset()
    cap.graph.close()


def test_private_functions_of_torchs_allocator_know_the_pool_of_a_graph(torch: Any) -> None:
    # What inductor's graph trees do with the pools of their graphs.
    g = compat.CUDAGraph()
    with compat.graph(g):
        kept = torch.ones(4, device="cuda") + 1
    handle = g.pool()
    assert torch._C._cuda_checkPoolLiveAllocations(0, handle, {kept.data_ptr()})
    state = torch._C._cuda_getCheckpointState(0, handle)
    torch._C._cuda_setCheckpointPoolState(0, state, [], [])
    g.replay()
    assert kept.tolist() == [2.0] * 4
    g.reset()


def test_a_handle_is_used_again_after_its_graphs_are_gone(torch: Any) -> None:
    handle = compat.graph_pool_handle()
    values = torch.zeros(64, device="cuda")
    for step in range(3):
        g = compat.CUDAGraph()
        with compat.graph(g, pool=handle):
            values += torch.ones(64, device="cuda")
        g.replay()
        assert g.pool() == handle
        assert values[0].item() == step + 1
        g.reset()
        del g
        gc.collect()


def test_captures_take_the_memory_of_a_mempool() -> None:
    torch_or_skip()
    check_script("""
        import gc
        import warnings
        warnings.simplefilter("ignore")
        import torch
        from gpuprof import compat
        pool = torch.cuda.MemPool()
        stream = torch.cuda.Stream()
        with torch.cuda.use_mem_pool(pool), torch.cuda.stream(stream):
            before = torch.zeros(1 << 20, device="cuda")
            address = before.data_ptr()
            del before
        with gpuprof.capture(stream, pool=pool.id) as cap:
            inside = torch.zeros(1 << 20, device="cuda")
        assert inside.data_ptr() == address
        g = compat.CUDAGraph()
        with compat.graph(g, pool=pool.id, stream=stream):
            inside += 1
        assert g.pool() == pool.id
        cap.graph.launch()
        g.replay()
        torch.cuda.synchronize()
        assert float(inside[0]) == 1.0
        g.reset()
        cap.graph.close()
        del g, cap, inside
        gc.collect()
        torch.cuda.synchronize()
        assert pool.use_count() == 1
        del pool
    """)


# Random numbers


def test_a_registered_generator_draws_anew_as_it_does_eagerly(torch: Any, api: Any) -> None:
    generator, eager = torch.Generator(device="cuda"), torch.Generator(device="cuda")
    drawn = torch.zeros(1024, device="cuda")
    g = api.CUDAGraph()
    g.register_generator_state(generator)
    with api.graph(g):
        drawn.uniform_(generator=generator)
    for seed in (5, 6):
        generator.manual_seed(seed)
        eager.manual_seed(seed)
        for _ in range(3):
            g.replay()
            assert torch.equal(drawn, torch.empty_like(drawn).uniform_(generator=eager))
    g.reset()


# Events


def test_external_events_have_the_time_of_each_replay(torch: Any, api: Any) -> None:
    start = api.Event(enable_timing=True, external=True)
    end = api.Event(enable_timing=True, external=True)
    g = api.CUDAGraph()
    with api.graph(g):
        start.record()
        torch.cuda._sleep(LONG)
        end.record()
    assert start.query()
    assert end.query()
    times = []
    for _ in range(2):
        g.replay()
        end.synchronize()
        times.append(start.elapsed_time(end))
    assert min(times) > 5
    g.reset()


def test_an_external_event_orders_the_replays_of_two_graphs(torch: Any, api: Any) -> None:
    first, second, done = api.CUDAGraph(), api.CUDAGraph(), api.Event(external=True)
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    value, seen = torch.zeros(4, device="cuda"), torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with api.graph(first, stream=one):
        torch.cuda._sleep(LONG)
        value += 1
        done.record()
    with api.graph(second, stream=two):
        done.wait()
        seen.copy_(value)
    with torch.cuda.stream(one):
        first.replay()
    with torch.cuda.stream(two):
        second.replay()
    assert not done.query()
    torch.cuda.synchronize()
    assert seen.tolist() == [1.0] * 4
    first.reset()
    second.reset()


def test_a_graph_keeps_the_external_events_of_its_nodes(torch: Any) -> None:
    g, event = compat.CUDAGraph(), compat.Event(external=True)
    values = torch.zeros(4, device="cuda")
    with compat.graph(g):
        values += 1
        event.record()
    del event
    gc.collect()
    for _ in range(3):
        g.replay()
    assert values.tolist() == [3.0] * 4
    g.reset()


def test_an_event_has_torchs_device_and_works_with_torchs_streams(torch: Any, api: Any) -> None:
    event, stream = api.Event(), torch.cuda.Stream()
    assert event.device is None
    assert event.cuda_event == event.event_id == 0
    stream.record_event(event)
    torch.cuda.current_stream().wait_event(event)
    event.synchronize()
    assert event.device == torch.device("cuda", torch.cuda.current_device())
    assert event.cuda_event == event.event_id != 0


def test_more_events_than_a_pool_has_may_be_open(torch: Any, api: Any) -> None:
    pairs = [[api.Event(enable_timing=True) for _ in range(2)] for _ in range(5000)]
    for start, end in pairs:
        start.record()
        end.record()
    torch.cuda.synchronize()
    assert all(start.elapsed_time(end) >= 0 for start, end in pairs)


# Errors


def captured(api: Any, torch: Any) -> Any:
    g = api.CUDAGraph()
    values = torch.zeros(4, device="cuda")
    with api.graph(g):
        values += 1
    return g


def recorded(api: Any, **options: bool) -> Any:
    event = api.Event(**options)
    event.record()
    event.synchronize()
    return event


WRONG: dict[str, tuple[type[Exception], Callable[[Any, Any], object]]] = {
    "replay before a capture": (RuntimeError, lambda api, _: api.CUDAGraph().replay()),
    "pool before a capture": (RuntimeError, lambda api, _: api.CUDAGraph().pool()),
    "an end without a begin": (RuntimeError, lambda api, _: api.CUDAGraph().capture_end()),
    "a second capture": (
        RuntimeError,
        lambda api, torch: api.graph(captured(api, torch)).__enter__(),
    ),
    "a pool that is none": (TypeError, lambda api, _: api.CUDAGraph().capture_begin(pool="pool")),
    "events without timing": (ValueError, lambda api, _: recorded(api).elapsed_time(recorded(api))),
    "events without a record": (
        ValueError,
        lambda api, _: api.Event(enable_timing=True).elapsed_time(api.Event(enable_timing=True)),
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_call_raises_what_it_raises_in_torch(torch: Any, api: Any, what: str) -> None:
    kind, call = WRONG[what]
    before = torch.cuda.current_stream()
    with torch.cuda.stream(torch.cuda.Stream()), pytest.raises(kind):
        call(api, torch)
    torch.cuda.set_stream(before)  # a failed begin of torch's leaves its own stream


def test_an_event_that_is_not_reached_has_no_time(torch: Any, api: Any) -> None:
    start, end = api.Event(enable_timing=True), api.Event(enable_timing=True)
    start.record()
    torch.cuda._sleep(LONG)
    end.record()
    with pytest.raises(RuntimeError):
        start.elapsed_time(end)
    end.synchronize()
    assert start.elapsed_time(end) > 5


def test_an_empty_graph_is_warned_of(torch: Any, api: Any) -> None:
    g = api.CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty"):
        with api.graph(g):
            pass


@pytest.mark.parametrize("how", ["block", "block on a stream", "by hand"])
def test_an_item_in_a_capture_leaves_the_current_stream_and_torch_as_they_were(
    torch: Any, how: str
) -> None:
    before = torch.cuda.current_stream()
    values = torch.ones(4, device="cuda")
    mine = torch.cuda.Stream()
    g = compat.CUDAGraph()

    def begin() -> None:
        values.add_(1)
        values[0].item()

    with pytest.raises(RuntimeError):
        if how == "by hand":
            with torch.cuda.stream(mine):
                g.capture_begin()
                begin()
        else:
            with compat.graph(g, stream=mine if how == "block on a stream" else None):
                begin()
    assert torch.cuda.current_stream() == before
    if how == "by hand":
        with pytest.raises(errors.CaptureInvalidatedError):
            g.capture_end()
    assert torch.cuda.current_stream() == before
    assert not torch.cuda.is_current_stream_capturing()
    assert not gpuprof.is_stream_capturing(mine)
    with compat.graph(g, stream=mine):
        values.add_(torch.rand(4, device="cuda"))
    g.replay()
    torch.cuda.synchronize()
    assert all(1.0 < each < 2.0 for each in values.tolist())
    g.reset()
