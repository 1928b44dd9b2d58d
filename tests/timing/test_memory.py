"""Memory of scopes: torch's counters as they are told, on the fake driver."""

from __future__ import annotations

import asyncio
import gc
import json
import math
import os
import pickle
import re
from collections.abc import AsyncIterator, Iterator

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.stand_in_memory import KIB, TorchMemory, install_torch
from tests.support.threads import in_threads


@pytest.fixture
def torch(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> TorchMemory:
    return install_torch(monkeypatch)


def use_of(sample: gpuprof.Sample) -> tuple[float, float, float]:
    """Return peak, absolute peak and change."""
    memory = sample.memory
    assert memory is not None
    return memory.peak, memory.absolute_peak, memory.change


def row_of(path: str) -> gpuprof.results.MemoryUse:
    memory = gpuprof.stats()[path].memory
    assert memory is not None
    return memory


def test_a_sample_has_the_peak_and_the_change(torch: TorchMemory, stream: int) -> None:
    torch.allocate(100)
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        assert sample.memory is None
        torch.use(30)
        torch.allocate(10)
    assert sample.memory == gpuprof.results.MemoryUse(1, peak=30, absolute_peak=130, change=10)
    assert json.loads(json.dumps(sample.to_dict()))["memory"] == {
        "count": 1,
        "peak": 30,
        "absolute_peak": 130,
        "change": 10,
        "note": "",
    }
    assert pickle.loads(pickle.dumps(sample)).memory == sample.memory


def test_a_row_has_the_largest_peak_and_the_mean_change(torch: TorchMemory, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    for size in (10, 50, 30):
        with scope:
            torch.use(size)
            torch.allocate(3)
    assert row_of("step") == gpuprof.results.MemoryUse(3, peak=50, absolute_peak=53, change=3)
    with gpuprof.timer("step", stream=stream):  # does not ask
        torch.use(500)
    assert row_of("step").count == 3


def test_the_table_has_columns_where_a_scope_asked(torch: TorchMemory, stream: int) -> None:
    with gpuprof.timer("plain", stream=stream):
        torch.use(9 * KIB)
    assert "memory" not in gpuprof.stats().tree().split("\n")[1]
    with gpuprof.timer("step", stream=stream, memory=True):
        torch.allocate(3 * KIB)
    lines = gpuprof.stats().tree().split("\n")
    lines_of = {line.split()[0]: line for line in lines}
    assert "peak memory  memory change" in lines[1]
    assert "KiB" not in lines_of["plain"]
    assert {"3.0 KiB", "+3.0 KiB"} <= set(re.split(" {2,}", lines_of["step"]))


def test_a_peak_below_an_earlier_one_is_seen(torch: TorchMemory, stream: int) -> None:
    torch.use(1000)
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        torch.use(30)
    assert use_of(sample) == (30, 30, 0)


def test_the_peak_of_the_process_stays_in_the_statistics(torch: TorchMemory, stream: int) -> None:
    torch.use(1000)
    with gpuprof.timer("step", stream=stream, memory=True):
        torch.use(30)
    assert torch.max_memory_allocated() == 30  # torch's own counter cannot be put back
    assert gpuprof.stats().memory[0]["peak_bytes"] == 1000
    torch.use(2000)
    assert gpuprof.stats().memory[0]["peak_bytes"] == 2000


def test_a_reset_by_the_user_is_noticed(torch: TorchMemory, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    torch.use(1000)
    with scope:
        torch.use(30)
    torch.reset_peak_memory_stats()
    torch.use(20)
    assert gpuprof.stats().memory[0]["peak_bytes"] == 20
    with scope as sample:
        torch.use(10)
    assert use_of(sample) == (10, 10, 0)
    assert gpuprof.stats().memory[0]["peak_bytes"] == 20


def test_a_reset_by_the_user_in_the_body_begins_the_peak_anew(
    torch: TorchMemory, stream: int
) -> None:
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        torch.use(70)
        torch.reset_peak_memory_stats()
        torch.use(20)
        torch.allocate(5)
    assert use_of(sample) == (20, 20, 5)


def test_nothing_is_reset_where_the_peak_is_the_level(torch: TorchMemory, stream: int) -> None:
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        torch.allocate(10)
    with gpuprof.timer("step", stream=stream, memory=True):
        torch.use(10)
    assert use_of(sample) == (10, 10, 10)
    assert torch.resets == 0


def test_nested_scopes_have_their_own_peaks(torch: TorchMemory, stream: int) -> None:
    def timed(name: str) -> gpuprof.Scope:
        return gpuprof.timer(name, stream=stream, memory=True)

    with timed("outer") as outer:
        torch.use(100)
        with timed("first") as first:
            torch.use(20)
        with timed("second") as second:
            torch.allocate(1)
            torch.use(60)
    assert [use_of(each) for each in (outer, first, second)] == [
        (100, 100, 1),
        (20, 20, 0),
        (61, 61, 1),
    ]


def test_a_scope_inside_itself(torch: TorchMemory, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    with scope as outer:
        torch.use(100)
        with scope as inner:
            torch.use(20)
    assert (use_of(outer)[0], use_of(inner)[0]) == (100, 20)


def test_scopes_may_overlap(torch: TorchMemory, stream: int) -> None:
    first = gpuprof.timer("first", stream=stream, memory=True)
    second = gpuprof.timer("second", stream=stream, memory=True)
    a = first.__enter__()
    torch.use(70)
    b = second.__enter__()
    torch.use(10)
    first.__exit__(None, None, None)
    torch.use(40)
    second.__exit__(None, None, None)
    assert (use_of(a)[0], use_of(b)[0]) == (70, 40)


def test_threads_share_the_counters_of_a_device(torch: TorchMemory, stream: int) -> None:
    samples = {}

    def work() -> None:
        with gpuprof.timer("thread", stream=stream, memory=True) as sample:
            torch.use(20)
        samples["thread"] = sample

    with gpuprof.timer("main", stream=stream, memory=True) as main:
        torch.use(100)
        in_threads(work)
    assert use_of(main)[0] == 100
    assert use_of(samples["thread"])[0] == 20


def test_scopes_of_many_threads_never_lose_a_peak(torch: TorchMemory, stream: int) -> None:
    def work() -> None:
        for _ in range(50):
            with gpuprof.timer("thread", stream=stream, memory=True) as sample:
                pass
            assert use_of(sample) == (0, 100, 0)

    torch.allocate(100)
    in_threads(*[work] * 4)
    assert row_of("thread").count == 200


def test_a_stream_names_its_device(torch: TorchMemory, stream: int) -> None:
    class Stream:
        cuda_stream = stream
        device_index = 1

    with gpuprof.timer("step", stream=Stream(), memory=True) as sample:
        torch.use(20, device=1)
        torch.use(99, device=0)
    assert use_of(sample)[0] == 20


def test_a_body_that_raised_does_not_count(torch: TorchMemory, stream: int) -> None:
    error = ValueError("body")
    scope = gpuprof.timer("step", stream=stream, memory=True)
    with scope:
        torch.use(5)
    with pytest.raises(ValueError, match="body") as caught, scope as sample:
        torch.use(50)
        raise error
    assert caught.value is error
    assert use_of(sample)[0] == 50
    assert (row_of("step").count, row_of("step").peak) == (1, 5)


def test_a_reset_of_the_statistics_forgets_open_entries_too(
    torch: TorchMemory, stream: int
) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    with scope:
        gpuprof.reset()
        torch.use(50)
    assert "step" not in gpuprof.stats()


def test_no_allocator_is_said(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, stream: int) -> None:
    install_torch(monkeypatch).initialised = False
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        pass
    assert sample.memory is not None
    assert math.isnan(sample.memory.peak)
    assert "neither torch nor CuPy" in sample.memory.note
    row = gpuprof.stats()["step"]
    assert row.memory is not None
    assert row.memory.count == 0
    assert row.to_dict()["memory"]["peak"] is None
    assert "neither torch nor CuPy" in gpuprof.stats().tree()
    assert row.gpu.count == 1


def test_the_cpu_clock_reads_no_allocator(torch: TorchMemory) -> None:
    with gpuprof.timer("step", backend="cpu", memory=True) as sample:
        torch.use(50)
    assert sample.memory is None
    assert pickle.loads(pickle.dumps(sample)).memory is None
    assert torch.asked == 0
    row = gpuprof.stats()["step"]
    assert row.memory is not None
    assert (row.memory.count, row.memory.note) == (0, "read on the 'cuda' clock only")


def test_a_disabled_scope_reads_nothing(torch: TorchMemory, stream: int) -> None:
    with gpuprof.timer("step", stream=stream, memory=True, enabled=False) as sample:
        torch.use(50)
    assert (sample.memory, torch.asked) == (None, 0)


@pytest.mark.parametrize("when", ["enter", "exit"])
def test_an_allocator_that_raises_breaks_nothing(
    torch: TorchMemory, stream: int, when: str
) -> None:
    torch.failing = RuntimeError("no stats") if when == "enter" else None
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        torch.failing = RuntimeError("no stats") if when == "exit" else None
    torch.failing = None
    assert sample.memory is not None
    assert sample.memory.note == "the allocator could not be read"
    assert math.isnan(sample.memory.change)
    assert gpuprof.stats()["step"].gpu.count == 1
    with gpuprof.timer("step", stream=stream, memory=True) as sample:
        torch.use(4)
    assert use_of(sample)[0] == 4


@pytest.mark.parametrize("when", ["enter", "exit"])
def test_an_interrupt_while_reading_comes_out_and_leaves_no_scope_open(
    torch: TorchMemory, stream: int, when: str
) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    with pytest.raises(KeyboardInterrupt):
        torch.failing = KeyboardInterrupt() if when == "enter" else None
        with scope:
            torch.failing = KeyboardInterrupt()
    torch.failing = None
    with scope as sample:
        torch.use(4)
    assert sample.path == "step"
    assert use_of(sample)[0] == 4


def test_a_scope_that_goes_while_it_is_open_lets_go_of_its_reading(
    torch: TorchMemory, stream: int
) -> None:
    gpuprof.timer("gone", stream=stream, memory=True).__enter__()
    gc.collect()
    assert [each for each in gc.get_objects() if type(each).__name__ == "_TorchWindow"] == []


def test_decorated_functions_of_every_kind(torch: TorchMemory, stream: int) -> None:
    timed = gpuprof.timer(stream=stream, memory=True)

    @timed
    def plain(size: int) -> int:
        torch.use(size)
        return size

    @timed
    async def coroutine() -> None:
        await asyncio.sleep(0)
        torch.use(20)

    @timed
    def generator() -> Iterator[int]:
        torch.use(30)
        yield 1
        torch.use(40)

    @timed
    async def async_generator() -> AsyncIterator[int]:
        torch.use(50)
        yield 1

    async def main() -> None:
        await asyncio.gather(coroutine(), coroutine())
        async for _ in async_generator():
            torch.use(500)

    assert plain(10) == 10
    for _ in generator():
        torch.use(500)
    asyncio.run(main())
    found = {row.name.split(".")[-1]: row.memory for row in gpuprof.stats().values()}
    assert {name: (use.peak, use.count) for name, use in found.items() if use} == {
        "plain": (10, 1),
        "coroutine": (20, 2),
        "generator": (40, 2),
        "async_generator": (50, 2),
    }


def test_a_captured_scope_says_that_replays_allocate_nothing(
    torch: TorchMemory, fake: FakeCuda, stream: int
) -> None:
    with gpuprof.capture(stream, timers="collect") as cap:
        with gpuprof.timer("fwd", stream=stream, memory=True) as sample:
            torch.use(50)
            fake.work(stream, 1000)
    assert use_of(sample) == (50, 50, 0)
    assert sample.memory is not None
    assert "replays of the graph allocate nothing" in sample.memory.note
    with cap.graph as graph:
        for _ in range(2):
            graph.launch()
        row = next(row for row in gpuprof.stats().values() if row.name == "fwd")
    assert row.gpu.count == 2
    assert row.memory is not None
    assert (row.memory.count, row.memory.note) == (0, "replays of a graph allocate nothing")


def test_a_scope_that_verifies_its_stream_reads_memory_too(
    torch: TorchMemory, fake: FakeCuda, stream: int, other: int
) -> None:
    scope = gpuprof.timer("step", stream=stream, verify_stream=True, memory=True)
    with scope as sample:
        fake.work(stream, 1000)
        torch.use(4)
    assert use_of(sample)[0] == 4
    with pytest.raises(gpuprof.errors.StreamMismatchError), scope as sample:
        fake.work(other, 9_000_000)
        torch.use(6)
    assert use_of(sample)[0] == 6


def test_the_last_sample_of_a_scope_has_its_memory(torch: TorchMemory, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    with scope as sample:
        torch.use(4)
    assert scope.last == sample
    assert use_of(scope.last)[0] == 4


def test_an_unnamed_scope_has_memory_and_no_row(torch: TorchMemory, stream: int) -> None:
    with gpuprof.timer(stream=stream, memory=True) as sample:
        torch.use(4)
    assert use_of(sample)[0] == 4
    assert len(gpuprof.stats()) == 0


def test_a_scope_that_is_open_at_a_fork_reads_nothing_in_the_child(
    torch: TorchMemory, stream: int
) -> None:
    scope = gpuprof.timer("step", stream=stream, memory=True)
    sample = scope.__enter__()
    asked = torch.asked
    child = os.fork()
    if child == 0:
        status = 1
        try:
            scope.__exit__(None, None, None)
            memory = sample.memory
            if memory is not None and math.isnan(memory.peak) and torch.asked == asked:
                status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    torch.use(5)
    scope.__exit__(None, None, None)
    assert use_of(sample)[0] == 5


def test_an_interrupt_while_entering_leaves_nothing_behind(
    torch: TorchMemory, fake: FakeCuda, stream: int
) -> None:
    answers = [KeyboardInterrupt]

    def synchronize() -> None:
        if answers:
            raise answers.pop()

    scope = gpuprof.timer("step", backend=gpuprof.SyncBackend("npu", synchronize), memory=True)
    with pytest.raises(KeyboardInterrupt):
        scope.__enter__()
    with scope as sample:
        torch.use(5)
    assert sample.memory is None
    assert sample.path == "step"
    row = gpuprof.stats()["step", "npu"]
    assert row.memory is not None
    assert (row.memory.count, row.host.count) == (0, 1)
