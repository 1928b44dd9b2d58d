"""Where a scope is: paths and entries over nesting, generators, tasks and threads."""

from __future__ import annotations

import asyncio
import contextvars
import os
import random
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuprof
from tests.support.scopes import cpu, path_here, spanning


@pytest.fixture(autouse=True)
def ends_at_the_root() -> Iterator[None]:
    yield
    assert path_here() == ""


# Nesting


def test_one_scope_in_two_places_has_two_rows() -> None:
    scope = cpu("shared")
    for parent in ("left", "right", "left"):
        with cpu(parent), scope:
            pass
    counts = {path: row.time.count for path, row in gpuprof.stats().items()}
    assert counts == {"left": 2, "left/shared": 2, "right": 1, "right/shared": 1}


def test_a_disabled_scope_adds_nothing_to_the_path() -> None:
    with cpu("a"), cpu("off", enabled=False), cpu("b") as sample:
        pass
    assert sample.path == "a/b"


# Generators


def test_a_collected_generator_closes_its_entry() -> None:
    generator = spanning(cpu("collected"))
    sample = next(generator)
    del generator
    assert sample.state == "done"


# Memory


def test_tasks_that_take_turns_keep_no_memory() -> None:
    async def hold(turns: int) -> None:
        with cpu("held"):
            for _ in range(turns):
                await asyncio.sleep(0)
                path_here()

    async def pass_by(turns: int) -> None:
        for _ in range(turns):
            await asyncio.sleep(0)
            path_here()

    async def take_turns(turns: int) -> None:
        await asyncio.gather(hold(turns), pass_by(turns))

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    asyncio.run(take_turns(1000))
    before = resident()
    asyncio.run(take_turns(30_000))
    assert resident() - before < 2 << 20


# Entering and leaving by hand, from functions that are gone in between


def caller_of(method: str, scope: gpuprof.Scope, variables: int) -> Callable[[], Any]:
    """Return a function with that many local variables, so that its frame has a size of its own."""
    arguments = "None, None, None" if method == "__exit__" else ""
    lines = [
        *(f"    v{i} = {i}" for i in range(variables)),
        f"    return scope.{method}({arguments})",
    ]
    names: dict[str, Any] = {"scope": scope}
    exec("def call():\n" + "\n".join(lines), names)
    call: Callable[[], Any] = names["call"]
    return call


def enter_and_exit(enters: list[Callable[[], Any]], exits: list[Callable[[], Any]]) -> int:
    """Enter and exit at random, and return how often another entry than the innermost closed."""
    dice = random.Random(7)
    samples: list[gpuprof.Sample] = []
    wrong = 0
    for _ in range(3000):
        if len(samples) < 6 and dice.random() < 0.5:
            samples.append(dice.choice(enters)())
        elif samples:
            dice.choice(exits)()
            wrong += samples[-1].state != "done"
            samples = [sample for sample in samples if sample.state == "open"]
    for _ in range(len(samples)):
        exits[0]()
    return wrong


def test_plain_functions_close_the_innermost_entry() -> None:
    scope = cpu("by hand")
    enters = [caller_of("__enter__", scope, size) for size in range(16)]
    exits = [caller_of("__exit__", scope, size) for size in range(16)]
    assert contextvars.Context().run(enter_and_exit, enters, exits) == 0


# A model of nesting: what any order of enters and exits must do

NAMES = "abc"
ACTIONS = st.tuples(st.sampled_from(["enter", "exit", "start", "finish"]), st.integers(0, 5))


class NestingModel:
    """Entries in the order of entering; each knows its path, who holds it, and its sample."""

    def __init__(self) -> None:
        self.scopes = {name: cpu(name) for name in NAMES}
        self.entries: list[tuple[str, object, gpuprof.Sample]] = []

    def path(self) -> str:
        return self.entries[-1][0] if self.entries else ""

    def add(self, name: str, holder: object, sample: gpuprof.Sample) -> None:
        expected = f"{self.path()}/{name}".lstrip("/")
        assert sample.path == expected
        self.entries.append((expected, holder, sample))

    def enter(self, choice: int) -> None:
        name = NAMES[choice % len(NAMES)]
        self.add(name, name, self.scopes[name].__enter__())

    def exit(self, choice: int) -> None:
        held = sorted({holder for _, holder, _ in self.entries if isinstance(holder, str)})
        if held:
            name = held[choice % len(held)]
            self.scopes[name].__exit__(None, None, None)
            self.remove(max(i for i, entry in enumerate(self.entries) if entry[1] == name))

    def start(self, choice: int) -> None:
        name = NAMES[choice % len(NAMES)]
        generator = spanning(self.scopes[name])
        self.add(name, generator, next(generator))

    def finish(self, choice: int) -> None:
        held = [i for i, entry in enumerate(self.entries) if not isinstance(entry[1], str)]
        if held:
            index = held[choice % len(held)]
            generator = self.entries[index][1]
            assert isinstance(generator, Generator)
            generator.close()
            self.remove(index)

    def remove(self, index: int) -> None:
        assert self.entries.pop(index)[2].state == "done"
        assert all(sample.state == "open" for _, _, sample in self.entries)
        assert path_here() == self.path()


@settings(deadline=None, max_examples=200, derandomize=True)
@given(st.lists(ACTIONS, max_size=30))
def test_any_order_of_enters_and_exits_follows_the_model(actions: list[tuple[str, int]]) -> None:
    def act() -> None:
        model = NestingModel()
        for action, choice in actions:
            getattr(model, action)(choice)
        while model.entries:
            model.finish(0)
            model.exit(0)

    contextvars.Context().run(act)  # a flow of its own, whatever happens in it


# Tasks


def test_tasks_start_at_the_root() -> None:
    async def child(name: str) -> str:
        with cpu(name) as sample:
            await asyncio.sleep(0)
        return sample.path

    async def main() -> list[str]:
        with cpu("main"):
            return await asyncio.gather(child("a"), asyncio.create_task(child("b")))

    assert asyncio.run(main()) == ["a", "b"]


def test_an_awaited_coroutine_stays_inside_its_caller() -> None:
    async def child() -> str:
        await asyncio.sleep(0)
        with cpu("child") as sample:
            await asyncio.sleep(0)
        return sample.path

    async def main() -> tuple[str, str]:
        with cpu("main"):
            before = await child()
            await asyncio.sleep(0)
            return before, await child()

    assert asyncio.run(main()) == ("main/child", "main/child")


def test_interleaved_tasks_keep_their_own_nesting() -> None:
    shared = cpu("shared")
    done: list[gpuprof.Sample] = []

    async def task(number: int) -> None:
        with cpu(f"task{number}"):
            for _ in range(3):
                with shared as sample:
                    await asyncio.sleep(0)
                    assert sample.state == "open"
                    with cpu("leaf") as leaf:
                        await asyncio.sleep(0)
                assert sample.state == "done"
                assert sample.path == f"task{number}/shared"
                assert leaf.path == f"task{number}/shared/leaf"
                assert leaf.host_ms <= sample.host_ms
                done.append(sample)

    async def main() -> None:
        await asyncio.gather(*(task(number) for number in range(100)))

    asyncio.run(main())
    assert len(done) == len(set(done)) == 300
    counts = {path: row.time.count for path, row in gpuprof.stats().items()}
    assert len(counts) == 300
    assert all(counts[f"task{number}/shared"] == 3 for number in range(100))


def test_a_task_that_outlives_its_makers_scope_is_not_inside_it() -> None:
    async def late(go: asyncio.Event) -> str:
        await go.wait()
        with cpu("late") as sample:
            pass
        return sample.path

    async def main() -> str:
        go = asyncio.Event()
        with cpu("maker"):
            task = asyncio.create_task(late(go))
            await asyncio.sleep(0)
        go.set()
        return await task

    assert asyncio.run(main()) == "late"


def test_a_callback_of_the_loop_does_not_disturb_an_open_scope() -> None:
    async def main() -> tuple[str, str]:
        paths: list[str] = []
        loop = asyncio.get_running_loop()
        with cpu("main"):
            with cpu("callback", enabled=True):
                loop.call_soon(lambda: paths.append(path_here()))
                await asyncio.sleep(0)
            with cpu("after") as after:
                await asyncio.sleep(0)
        return paths[0], after.path

    assert asyncio.run(main()) == ("", "main/after")


def test_setting_context_variables_inside_a_scope_keeps_the_nesting() -> None:
    variable = contextvars.ContextVar("variable", default=0)
    with cpu("outer") as outer:
        token = variable.set(1)
        with cpu("inner") as inner:
            for value in range(100):
                variable.set(value)
        variable.reset(token)
    assert (outer.path, inner.path) == ("outer", "outer/inner")
    assert outer.state == inner.state == "done"


def test_a_copied_context_starts_at_the_root_and_leaves_the_callers_nesting_alone() -> None:
    with cpu("outer"):
        assert contextvars.copy_context().run(path_here) == ""
        assert path_here() == "outer"


def test_interleaved_async_generators_of_one_scope_each_close_their_own_entry() -> None:
    scope = cpu("one")

    async def hold() -> AsyncIterator[gpuprof.Sample]:
        with scope as sample:
            yield sample

    async def main() -> list[str]:
        generators = [hold(), hold()]
        samples = [await generator.__anext__() for generator in generators]
        await generators[0].aclose()  # type: ignore[attr-defined]
        states = [sample.state for sample in samples]
        await generators[1].aclose()  # type: ignore[attr-defined]
        return states

    assert asyncio.run(main()) == ["done", "open"]
