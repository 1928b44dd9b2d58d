"""``async with`` on a timer scope."""

from __future__ import annotations

import asyncio
import threading

import pytest

import gpuprof


def test_the_span_includes_the_awaits_and_is_one_sample() -> None:
    async def main() -> gpuprof.Sample:
        async with gpuprof.timer("fetch") as sample:
            with gpuprof.timer("inside"):
                await asyncio.sleep(0.02)
        return sample

    sample = asyncio.run(main())
    assert sample.path == "fetch"
    assert sample.host_ms >= 20
    stats = gpuprof.stats()
    assert {"fetch", "fetch/inside"} == set(stats)


def test_one_scope_in_two_tasks_closes_its_own_entries() -> None:
    async def main() -> None:
        scope = gpuprof.timer("same")
        inner_is_done = asyncio.Event()

        async def outer() -> gpuprof.Sample:
            async with scope as sample:
                await inner_is_done.wait()
            return sample

        async def inner() -> gpuprof.Sample:
            async with scope as sample:
                await asyncio.sleep(0.01)
            inner_is_done.set()
            return sample

        long, short = await asyncio.gather(outer(), inner())
        assert long.host_ms > short.host_ms >= 10
        assert long.host_begin_ns < short.host_begin_ns

    asyncio.run(main())
    assert gpuprof.stats()["same"].host.count == 2


def test_the_body_exception_wins_and_its_sample_does_not_count() -> None:
    class OwnError(Exception): ...

    error = OwnError()

    async def main() -> None:
        async with gpuprof.timer("fails"):
            raise error

    with pytest.raises(OwnError) as caught:
        asyncio.run(main())
    assert caught.value is error
    row = gpuprof.stats()["fails"]
    assert (row.failed, row.host.count, row.time.count) == (1, 0, 0)


def test_a_cancelled_task_closes_its_scope() -> None:
    async def main() -> None:
        async def work() -> None:
            async with gpuprof.timer("cancelled"):
                await asyncio.sleep(100)

        task = asyncio.create_task(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with gpuprof.timer("after") as sample:
            pass
        assert sample.path == "after"

    asyncio.run(main())


def test_disabled_scopes_and_threads_with_loops_of_their_own() -> None:
    async def work() -> float:
        async with gpuprof.timer("off", enabled=False) as sample:
            await asyncio.sleep(0)
        return sample.ms

    found: list[float] = []
    thread = threading.Thread(target=lambda: found.append(asyncio.run(work())))
    thread.start()
    thread.join()
    assert found[0] != found[0]  # NaN
    assert "off" not in gpuprof.stats()
