"""Annotations of functions, generators and tasks: each kind keeps its kind."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.nvtx_injection.processes import calls_under_tool, check_under_tool

# Tasks


def test_async_with_is_a_started_range_of_its_task(tool: Path) -> None:
    code = """
        import asyncio
        shared = gpuprof.annotate("shared")
        async def work(turns):
            async with shared as annotation:
                assert annotation is shared
                for _ in range(turns):
                    await asyncio.sleep(0)
                    assert shared.is_active
        async def main():
            await asyncio.gather(work(3), work(1))
            assert not shared.is_active
            async with shared, shared:
                pass
        asyncio.run(main())
        print(*[f"{e.kind} {e.id}" for e in tool.events()
                if e.kind not in ("register", "domain", "category")], sep=", ")
    """
    expected = "start 1, start 2, end 2, end 1, start 3, start 4, end 4, end 3"
    assert check_under_tool(tool, code).strip() == expected


def test_an_async_with_left_in_another_task_is_ended(tool: Path) -> None:
    # The event loop closes an async generator that was not run to its end, in a task of its own.
    code = """
import asyncio, gc
shared = gpuprof.annotate("shared")
async def generate():
    async with shared:
        yield 1
        yield 2
async def main():
    for _ in range(2):
        async for item in generate():
            break
        gc.collect()
        for _ in range(5):
            await asyncio.sleep(0)
    assert not shared.is_active
asyncio.run(main())
"""
    assert calls_under_tool(tool, code) == "start shared, end, start shared, end"


def test_an_async_with_entered_unseen_ends_no_other_tasks_range(tool: Path) -> None:
    code = """
import asyncio
shared = gpuprof.annotate("shared")
async def unseen(entered, leave):
    async with shared:
        entered.set()
        await leave.wait()
async def main():
    gpuprof.nvtx.disable()
    entered, leave = asyncio.Event(), asyncio.Event()
    task = asyncio.ensure_future(unseen(entered, leave))
    await entered.wait()
    gpuprof.nvtx.enable()
    async with shared:
        leave.set()
        await task
        assert shared.is_active
asyncio.run(main())
"""
    assert calls_under_tool(tool, code) == "start shared, end"


def test_a_plain_with_across_awaits_stays_balanced(tool: Path) -> None:
    code = """
import asyncio
async def work(name, turns):
    with gpuprof.annotate(name):
        for _ in range(turns):
            await asyncio.sleep(0)
async def main():
    await asyncio.gather(work("a", 1), work("b", 3), work("c", 2))
asyncio.run(main())
"""
    got = calls_under_tool(tool, code).split(", ")
    assert sorted(got) == ["pop", "pop", "pop", "push a", "push b", "push c"]


def test_a_coroutine_that_is_cancelled_or_never_run_leaves_nothing_open(tool: Path) -> None:
    code = """
import asyncio
@gpuprof.annotate("work")
async def work():
    await asyncio.sleep(60)
async def main():
    work().close()
    task = asyncio.ensure_future(work())
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
asyncio.run(main())
"""
    assert calls_under_tool(tool, code) == "start work, end"


# Decorators


def test_decorated_kinds_keep_their_kind_and_open_what_fits_them(tool: Path) -> None:
    code = """
import asyncio, inspect
class Thing:
    @gpuprof.annotate
    def method(self): return 1
    @gpuprof.annotate("static")
    @staticmethod
    def static(): return 2
    @gpuprof.annotate()
    @classmethod
    def classy(cls): return cls
    @staticmethod
    @gpuprof.annotate
    def below(): return 3
thing = Thing()
assert (thing.method(), thing.static(), Thing.static(), thing.classy(), Thing.below()) == (
    1, 2, 2, Thing, 3)
@gpuprof.annotate("generator")
def generator():
    got = yield 1
    yield got
    return 9
assert inspect.isgeneratorfunction(generator)
def outer():
    result = yield from generator()
    assert result == 9
running = outer()
assert [next(running), running.send("sent")] == [1, "sent"]
assert next(running, None) is None
list(generator())
next(generator())
@gpuprof.annotate("coroutine")
async def coroutine(): return 4
assert inspect.iscoroutinefunction(coroutine)
assert asyncio.run(coroutine()) == 4
@gpuprof.annotate("stream")
async def stream():
    try:
        got = yield 1
        assert got == "sent"
        yield 2
    except KeyError:
        yield 3
assert inspect.isasyncgenfunction(stream)
async def use():
    items = stream()
    assert await items.__anext__() == 1
    assert await items.asend("sent") == 2
    assert await items.athrow(KeyError()) == 3
    assert [x async for x in items] == []
    cut = stream()
    await cut.__anext__()
    await cut.aclose()
asyncio.run(use())
"""
    assert calls_under_tool(tool, code) == ", ".join(
        [
            *["push Thing.method", "pop", "push static", "pop", "push static", "pop"],
            *["push Thing.classy", "pop", "push Thing.below", "pop"],
            *["start generator", "end"] * 3,
            *["start coroutine", "end"],
            *["start stream", "end"] * 2,
        ]
    )


def test_a_generator_is_one_range_from_its_first_item_to_its_end(tool: Path) -> None:
    code = """
@gpuprof.annotate("items")
def items():
    yield 1
    yield 2
running = items()
gpuprof.mark("made")
for item in running:
    with gpuprof.annotate(f"use {item}"):
        pass
"""
    assert calls_under_tool(tool, code) == (
        "mark made, start items, push use 1, pop, push use 2, pop, end"
    )


class Failure(Exception):
    """One that can be watched."""


@pytest.mark.parametrize("decorator", [gpuprof.annotate, gpuprof.timer])
def test_a_failure_thrown_into_a_generator_is_not_kept_alive(decorator: Any) -> None:
    @decorator
    def generate() -> Generator[int, None, None]:
        yield 1

    thrown = Failure()
    seen = weakref.ref(thrown)
    running = generate()
    next(running)
    gc.disable()
    try:
        with pytest.raises(Failure) as caught:
            running.throw(thrown)
        assert caught.value is thrown
        del thrown, caught
        assert seen() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("decorator", [gpuprof.annotate, gpuprof.timer])
def test_a_failure_thrown_into_an_async_generator_is_not_kept_alive(decorator: Any) -> None:
    @decorator
    async def generate() -> AsyncGenerator[int, None]:
        yield 1

    async def throw() -> weakref.ref[Failure]:
        thrown = Failure()
        running = generate()
        await running.__anext__()
        with pytest.raises(Failure) as caught:
            await running.athrow(thrown)
        assert caught.value is thrown
        seen = weakref.ref(thrown)
        del thrown, caught
        return seen

    gc.disable()
    try:
        assert asyncio.run(throw())() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("what", [3, "text", None])
def test_what_is_no_function_cannot_be_decorated(what: object) -> None:
    with pytest.raises(TypeError, match="an annotation decorates a function, got"):
        gpuprof.annotate("x")(what)  # type: ignore[operator]
