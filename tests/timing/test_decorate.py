"""Scopes as decorators: each kind of function keeps its kind, its signature and its answers."""

from __future__ import annotations

import asyncio
import functools
import types
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

import pytest

import gpuprof
from tests.support.ids import short
from tests.support.scopes import cpu


def count(path: str) -> int:
    row = gpuprof.stats()[path]
    return row.time.count


def only_path() -> str:
    (path,) = gpuprof.stats()
    return str(path)


class CustomStop(BaseException):
    pass


# Names and forms


@pytest.mark.parametrize("decorator", [gpuprof.timer, gpuprof.timer()], ids=["bare", "called"])
def test_without_a_name_it_is_the_functions(decorator: Callable[..., Any]) -> None:
    @decorator
    def work(x: int) -> int:
        return x + 1

    assert work(1) == 2
    assert only_path() == "test_without_a_name_it_is_the_functions.<locals>.work"


def test_with_a_name_each_call_is_a_sample_of_that_row() -> None:
    @cpu("named")
    def work() -> None:
        pass

    for _ in range(3):
        work()
    assert count("named") == 3


def test_options_without_a_name_go_with_the_functions_name() -> None:
    @gpuprof.timer(enabled=False)
    def off() -> int:
        return 4

    @gpuprof.timer(backend="cpu")
    def on() -> int:
        return 5

    assert (off(), on()) == (4, 5)
    assert only_path().endswith("<locals>.on")


@pytest.mark.parametrize("given", [3, "text", None, [1]], ids=short)
def test_decorating_what_cannot_be_called_is_a_type_error(given: Any) -> None:
    with pytest.raises(TypeError, match=f"decorates a function, got {type(given).__name__}"):
        cpu("x")(given)


# Methods and other callables


@pytest.mark.parametrize("kind", [staticmethod, classmethod])
def test_static_and_class_methods_may_be_timed_without_parentheses(
    kind: Callable[[Any], Any],
) -> None:
    def work(*args: Any) -> int:
        return len(args)

    timed = gpuprof.timer(kind(work))
    assert type(timed) is kind
    holder = type("Holder", (), {"work": timed})
    assert holder.work() == (1 if kind is classmethod else 0)
    assert only_path().endswith("<locals>.work")


def test_partial_objects_are_timed_and_keep_their_kind() -> None:
    def numbers(n: int) -> Generator[int, None, None]:
        yield from range(n)

    async def answer(n: int) -> int:
        return n

    assert cpu("p")(functools.partial(int, "101", base=2))() == 5
    assert list(cpu("g")(functools.partial(numbers, 3))()) == [0, 1, 2]
    assert asyncio.run(cpu("c")(functools.partial(answer, 4))()) == 4
    assert (count("p"), count("g"), count("c")) == (1, 4, 1)


def test_callable_objects_are_timed_under_their_class() -> None:
    class Layer:
        def __call__(self, x: int) -> int:
            return 2 * x

    assert gpuprof.timer(Layer())(4) == 8
    assert only_path().endswith("<locals>.Layer")


# Coroutines


def test_a_coroutine_is_timed_with_its_awaits() -> None:
    samples = []

    @cpu("awaits")
    async def work() -> None:
        with cpu("inside") as sample:
            await asyncio.sleep(0.002)
        samples.append(sample)

    asyncio.run(work())
    host = gpuprof.stats()["awaits"].host
    assert host is not None
    assert samples[0].path == "awaits/inside"
    assert host.total_ms >= samples[0].host_ms >= 1.0


def test_making_a_coroutine_times_nothing() -> None:
    @cpu("not awaited")
    async def work() -> None: ...

    work().close()
    assert len(gpuprof.stats()) == 0


def test_a_cancelled_coroutine_is_a_failure() -> None:
    @cpu("cancelled")
    async def work() -> None:
        await asyncio.sleep(60)

    async def main() -> None:
        task = asyncio.ensure_future(work())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert gpuprof.stats()["cancelled"].failed == 1


def test_a_coroutine_made_of_a_generator_can_still_be_awaited() -> None:
    @cpu("generator based")
    @types.coroutine
    def work() -> Generator[None, None, int]:
        yield
        return 5

    async def main() -> int:
        return await work()

    assert asyncio.run(main()) == 5


# Generators


@cpu("echo")
def echo(caught: list[BaseException]) -> Generator[Any, Any, str]:
    """Yield what is sent in, remember what is thrown in, and end at None."""
    received = "first"
    while received is not None:
        try:
            received = yield received
        except ValueError as error:
            caught.append(error)
            received = "caught"
    return "result"


def test_making_a_generator_times_nothing() -> None:
    echo([])
    assert len(gpuprof.stats()) == 0


def test_time_between_resumes_is_not_the_generators() -> None:
    generator = echo([])
    next(generator)
    with cpu("outside") as outside:
        sum(range(100_000))
    generator.send("x")
    host = gpuprof.stats()["echo"].host
    assert host is not None
    assert host.total_ms < outside.host_ms
    assert outside.path == "outside"


def test_a_generator_is_a_sample_for_each_resume_which_takes_what_is_sent() -> None:
    generator = echo([])
    assert next(generator) == "first"
    assert generator.send("second") == "second"
    with pytest.raises(StopIteration) as stop:
        generator.send(None)
    assert stop.value.value == "result"
    row = gpuprof.stats()["echo"]
    assert (row.time.count, row.failed) == (3, 0)  # the last one finds the end


def test_an_exception_thrown_in_reaches_the_generator_unchanged() -> None:
    caught: list[BaseException] = []
    thrown = ValueError("thrown")
    generator = echo(caught)
    next(generator)
    assert generator.throw(thrown) == "caught"
    assert caught == [thrown]
    assert thrown.__context__ is None


def test_an_exception_that_the_generator_does_not_catch_comes_back_unchanged() -> None:
    thrown = CustomStop("thrown")
    generator = echo([])
    next(generator)
    with pytest.raises(CustomStop) as back:
        generator.throw(thrown)
    assert back.value is thrown
    assert thrown.__context__ is None
    assert gpuprof.stats()["echo"].failed == 1
    with pytest.raises(StopIteration):
        next(generator)


def test_closing_a_generator_runs_its_clean_up_inside_the_scope() -> None:
    paths = []

    @cpu("closing")
    def work() -> Generator[int, None, None]:
        try:
            yield 1
        finally:
            with cpu("clean up") as sample:
                paths.append(sample.path)

    generator = work()
    next(generator)
    generator.close()
    assert paths == ["closing/clean up"]
    row = gpuprof.stats()["closing"]
    assert (row.time.count, row.failed) == (2, 0)


def test_closing_a_generator_that_goes_on_is_an_error_as_without_a_timer() -> None:
    @cpu("stubborn")
    def work() -> Generator[int, None, None]:
        try:
            yield 1
        except GeneratorExit:
            yield 2

    generator = work()
    next(generator)
    with pytest.raises(RuntimeError, match="ignored GeneratorExit"):
        generator.close()


def test_a_generator_may_answer_a_thrown_generator_exit() -> None:
    @cpu("answers")
    def work() -> Generator[str, None, str]:
        try:
            yield "first"
        except GeneratorExit:
            yield "second"
        return "result"

    generator = work()
    next(generator)
    assert generator.throw(GeneratorExit()) == "second"
    with pytest.raises(StopIteration) as stop:
        next(generator)
    assert stop.value.value == "result"


def test_a_stop_iteration_inside_a_generator_is_the_usual_runtime_error() -> None:
    @cpu("stops")
    def work() -> Generator[int, None, None]:
        yield 1
        next(iter(()))

    with pytest.raises(RuntimeError, match="generator raised StopIteration"):
        list(work())


# Async generators


@cpu("async echo")
async def async_echo(caught: list[BaseException]) -> AsyncGenerator[Any, Any]:
    """As `echo`, with awaits between."""
    received = "first"
    while received is not None:
        await asyncio.sleep(0)
        try:
            received = yield received
        except ValueError as error:
            caught.append(error)
            received = "caught"


def test_an_async_generator_is_a_sample_for_each_resume_which_takes_what_is_sent() -> None:
    caught: list[BaseException] = []
    thrown = ValueError("thrown")

    async def main() -> None:
        generator = async_echo(caught)
        assert await generator.__anext__() == "first"
        assert await generator.asend("second") == "second"
        assert await generator.athrow(thrown) == "caught"
        with pytest.raises(StopAsyncIteration):
            await generator.asend(None)

    asyncio.run(main())
    assert caught == [thrown]
    row = gpuprof.stats()["async echo"]
    assert (row.time.count, row.failed) == (4, 0)


def test_closing_an_async_generator_runs_its_clean_up_inside_the_scope() -> None:
    paths = []

    @cpu("async closing")
    async def work() -> AsyncGenerator[int, None]:
        try:
            yield 1
        finally:
            await asyncio.sleep(0)
            with cpu("clean up") as sample:
                paths.append(sample.path)

    async def main() -> None:
        generator = work()
        await generator.__anext__()
        await generator.aclose()

    asyncio.run(main())
    assert paths == ["async closing/clean up"]
    assert gpuprof.stats()["async closing"].failed == 0
