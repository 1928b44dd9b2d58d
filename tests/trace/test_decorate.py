"""`gpuprof.trace` as a decorator and in ``async with``."""

from __future__ import annotations

import asyncio
import inspect
import threading
import warnings
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import gpuprof
from tests.support.threads import in_threads
from tests.support.trace_events import files, names


def test_each_call_is_a_trace_of_its_own(tmp_path: Path) -> None:
    @gpuprof.trace(tmp_path / "t.json")
    def step(name: str, *, fails: bool = False) -> str:
        """Step."""
        with gpuprof.timer(name):
            if fails:
                raise ValueError(name)
        return name

    assert (step("a"), step(name="b")) == ("a", "b")
    with pytest.raises(ValueError, match="c"):
        step("c", fails=True)
    found = {name: names(tmp_path / name) for name in files(tmp_path)}
    assert found == {"t.json": ["a"], "t.2.json": ["b"], "t.3.json": ["c"]}
    assert (step.__name__, step.__doc__) == ("step", "Step.")


def test_calls_inside_of_calls_and_on_threads_have_files_of_their_own(tmp_path: Path) -> None:
    together = threading.Barrier(2, timeout=30)

    @gpuprof.trace(tmp_path / "t.json")
    def down(depth: int) -> None:
        with gpuprof.timer("down"):
            if depth:
                down(depth - 1)

    @gpuprof.trace(tmp_path / "u.json")
    def meet() -> None:
        together.wait()

    down(2)
    in_threads(meet, meet)
    found = files(tmp_path)
    assert {name for name in found if name[0] == "t"} == {"t.2.json", "t.3.json", "t.json"}
    assert len([name for name in found if name[0] == "u"]) == 2
    assert not [name for name in found if name.endswith(".part")]


def test_generators_and_methods_keep_their_kind(tmp_path: Path) -> None:
    class Thing:
        @gpuprof.trace(tmp_path / "method.json")
        def method(self) -> Thing:
            return self

        @gpuprof.trace(tmp_path / "static.json")
        @staticmethod
        def static(value: int) -> int:
            return value

        @gpuprof.trace(tmp_path / "class.json")
        @classmethod
        def of_class(cls) -> type:
            return cls

    @gpuprof.trace(tmp_path / "generator.json")
    def numbers() -> Iterator[int]:
        with gpuprof.timer("first"):
            pass
        yield 1
        with gpuprof.timer("second"):
            pass
        yield 2

    thing = Thing()
    assert thing.method() is thing
    assert (Thing.static(3), Thing.of_class()) == (3, Thing)
    assert inspect.isgeneratorfunction(numbers)
    assert list(numbers()) == [1, 2]
    assert names(tmp_path / "generator.json") == ["first", "second"]
    assert len(files(tmp_path)) == 4


def test_async_functions_and_blocks(tmp_path: Path) -> None:
    @gpuprof.trace(tmp_path / "coroutine.json")
    async def fetch() -> int:
        async with gpuprof.timer("fetch"):
            await asyncio.sleep(0)
        return 1

    @gpuprof.trace(tmp_path / "items.json")
    async def items() -> AsyncIterator[int]:
        try:
            for number in range(3):
                yield number
        finally:
            with gpuprof.timer("end"):
                await asyncio.sleep(0)

    async def main() -> None:
        assert await fetch() == 1
        assert [item async for item in items()] == [0, 1, 2]
        early = items()
        assert await anext(early) == 0
        await early.aclose()
        async with gpuprof.trace(tmp_path / "block.json") as writer:
            assert isinstance(writer, gpuprof.TraceWriter)
            with gpuprof.timer("block"):
                pass
        with pytest.raises(ValueError, match="body"):
            async with gpuprof.trace_windows(tmp_path / "w.json", schedule=(0, 0, 1, 1)):
                raise ValueError("body")

    assert inspect.iscoroutinefunction(fetch)
    assert inspect.isasyncgenfunction(items)
    asyncio.run(main())
    items_of = {"items.json", "items.2.json"}
    assert files(tmp_path) == {"block.json", "coroutine.json", "w.1.json"} | items_of
    assert names(tmp_path / "coroutine.json") == ["fetch"]
    assert names(tmp_path / "items.2.json") == ["end"]


def test_decorating_alone_opens_nothing_and_warns_of_nothing(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")

        @gpuprof.trace(tmp_path / "t.json")
        def never() -> None: ...

        del never
    assert files(tmp_path) == set()


@pytest.mark.filterwarnings("ignore:.*was never begun")
def test_what_is_no_function_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with pytest.raises(TypeError, match="got the class Path; decorate a method"):
        gpuprof.trace(path)(Path)
    with pytest.raises(TypeError, match="decorates a function, got int"):
        gpuprof.trace(path)(3)  # type: ignore[type-var]
    with pytest.raises(TypeError, match="does not collect is no decorator"):
        gpuprof.TraceWriter(path)(files)
    with pytest.raises(TypeError, match="a flight recorder is for a whole run"):
        gpuprof.flight_recorder(path, keep_last="1s")(files)
    with pytest.raises(TypeError, match=r"trace_windows\(\) .* and cannot decorate"):
        gpuprof.trace_windows(path, schedule=(1, 1, 1, 1))(files)
