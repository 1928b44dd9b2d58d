"""Decorated functions: what is promised of the wrapper, and that one that is off is passed over."""

from __future__ import annotations

import asyncio
import copy
import doctest
import functools
import gc
import inspect
import pickle
import sys
import types
import typing
import weakref
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from typing import Any

import pytest

import gpuprof
from tests.support.processes import check_python
from tests.support.threads import in_threads

FORMS: list[Callable[..., Any]] = [
    gpuprof.timer("named", backend="cpu"),
    gpuprof.timer(enabled=False),
    gpuprof.annotate("named"),
]
form = pytest.mark.parametrize("form", FORMS, ids=["timer", "timer off for good", "annotate"])


both = pytest.mark.parametrize("switch", ["on", "off"], indirect=True)


@pytest.fixture(autouse=True)
def switch(request: pytest.FixtureRequest) -> Iterator[None]:
    """Timing, on or off as the test asks for."""
    if getattr(request, "param", "on") == "off":
        gpuprof.disable()
    yield
    gpuprof.enable()


@gpuprof.timer
def timed(x: int, *, y: int = 2) -> int:
    """Add.

    >>> timed(1)
    3
    """
    return x + y


@gpuprof.annotate
async def annotated(x: int) -> int:
    """Answer."""
    return x


# What tools find


@both
@pytest.mark.parametrize("function", [timed, annotated])
def test_a_wrapper_is_a_function_with_the_functions_facts(function: Any) -> None:
    below = function.__wrapped__
    assert isinstance(function, types.FunctionType)
    assert inspect.isfunction(function)
    assert inspect.isroutine(function)
    assert not hasattr(function, "__self__")
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(function, name) == getattr(below, name), name
    assert inspect.signature(function) == inspect.signature(below)
    assert inspect.getsource(function) == inspect.getsource(below)
    assert typing.get_type_hints(function) == typing.get_type_hints(below)
    assert repr(function).startswith(f"<function {function.__name__} at ")


@both
@form
def test_a_wrapper_is_of_the_functions_kind(form: Any) -> None:
    def plain() -> None: ...

    async def coroutine() -> None: ...

    def generator() -> Generator[int, None, None]:
        yield 1

    async def stream() -> AsyncGenerator[int, None]:
        yield 1

    kinds = [
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
    ]
    for function in (plain, coroutine, generator, stream):
        assert [is_kind(form(function)) for is_kind in kinds] == [
            is_kind(function) for is_kind in kinds
        ]


@both
@pytest.mark.parametrize("function", [timed, annotated])
def test_a_wrapper_is_pickled_and_copied_by_its_name(function: Any) -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(function, protocol)) is function
    assert copy.copy(function) is function
    assert copy.deepcopy([function]) == [function]


@both
def test_a_wrapper_runs_its_doctest() -> None:
    (found,) = doctest.DocTestFinder().find(timed, "timed", module=sys.modules[__name__])
    assert doctest.DocTestRunner(verbose=False).run(found) == (0, 1)


@both
@form
def test_a_wrapper_takes_attributes_and_weak_references(form: Any) -> None:
    def work() -> None: ...

    function = form(work)
    function.note = "kept"
    function.__doc__ = "Other."
    assert (function.note, function.__doc__, work.__doc__) == ("kept", "Other.", None)
    seen = weakref.ref(function)
    assert seen() is function
    del function
    gc.collect()
    assert seen() is None


@both
@form
def test_a_wrapper_in_a_cycle_is_collected(form: Any) -> None:
    function = form(lambda: None)
    function.itself = function
    seen = weakref.ref(function)
    del function
    gc.collect()
    assert seen() is None


@both
@form
def test_a_wrapper_may_be_wrapped_again(form: Any) -> None:
    def work(x: int) -> int:
        return x

    again = functools.wraps(work)(functools.lru_cache(form(form(work))))
    assert (again(3), inspect.unwrap(again)) == (3, work)
    assert functools.partial(form(work), 4)() == 4
    copied = form(work)
    copied = types.FunctionType(
        copied.__code__, copied.__globals__, "copied", copied.__defaults__, copied.__closure__
    )
    assert copied(5) == 5


@both
@form
def test_a_wrapper_can_be_dispatched_on(form: Any) -> None:
    @functools.singledispatch
    def describe(_value: object) -> str:
        return "object"

    @describe.register(int)
    @form
    def _(_value: int) -> str:
        return "int"

    assert (describe(1), describe("x")) == ("int", "object")


# Calls


@both
@form
def test_arguments_of_every_kind_arrive(form: Any) -> None:
    def work(a: Any, /, b: Any = 0, *rest: Any, c: Any = 0, **more: Any) -> Any:
        return a, b, rest, c, more

    function = form(work)
    assert function(1) == work(1)
    assert function(1, 2, 3, c=4, d=5) == work(1, 2, 3, c=4, d=5)
    some, named = [1, 2], {"c": 3}
    assert function(*some, **named) == work(1, 2, c=3)
    assert list(map(function, [1, 2])) == [work(1), work(2)]
    with pytest.raises(TypeError, match=r"work\(\) missing 1 required positional argument: 'a'"):
        function()


@both
@form
def test_methods_bind(form: Any) -> None:
    class Engine:
        @form
        def method(self, x: int) -> Any:
            return type(self).__name__, x

        @form
        def __getitem__(self, x: int) -> Any:
            return "item", x

        @property
        @form
        def size(self) -> int:
            return 7

        @form
        @classmethod
        def class_below(cls) -> str:
            return cls.__name__

        @classmethod
        @form
        def class_above(cls) -> str:
            return cls.__name__

        @form
        @staticmethod
        def static_below(x: int) -> int:
            return x

        @staticmethod
        @form
        def static_above(x: int) -> int:
            return x

    class Faster(Engine):
        @form
        def method(self, x: int) -> Any:
            return super().method(x + 1)

    fast = Faster()
    for _ in range(20):  # past what the interpreter specialises
        assert fast.method(1) == Faster.method(fast, 1) == ("Faster", 2)
        assert (fast[3], fast.size) == (("item", 3), 7)
        for owner in (fast, Faster):
            assert (owner.class_below(), owner.class_above()) == ("Faster", "Faster")
            assert (owner.static_below(4), owner.static_above(5)) == (4, 5)
    bound = fast.method
    assert bound.__self__ is fast
    assert bound.__func__ is Faster.method
    fast.static_above = types.MethodType(form(lambda self: self), fast)  # type: ignore[method-assign]
    assert fast.static_above() is fast


@both
@form
@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_an_exception_passes_with_its_context_and_traceback(
    form: Any, kind: type[BaseException]
) -> None:
    raised, context = kind("raised"), KeyError("context")

    @form
    def work() -> None:
        raise raised

    def call() -> None:
        try:
            raise context
        except KeyError:
            work()

    with pytest.raises(kind) as caught:
        call()
    assert caught.value is raised
    assert raised.__context__ is context
    names = [entry.name for entry in caught.traceback]
    assert (names[-1], names.count("work")) == ("work", 1)


@both
@form
def test_a_function_may_call_itself(form: Any) -> None:
    @form
    def factorial(n: int) -> int:
        return 1 if n == 0 else n * factorial(n - 1)

    assert factorial(20) == 2432902008176640000

    @form
    def endless() -> None:
        endless()

    with pytest.raises(RecursionError):
        endless()


@both
@form
def test_threads_may_call_it_together(form: Any) -> None:
    @form
    def work(x: int) -> int:
        return x + 1

    results: list[int] = []
    in_threads(*[lambda i=i: results.extend(work(i) for _ in range(50)) for i in range(4)])
    assert sorted(results) == sorted([i + 1 for i in range(4)] * 50)


@both
@form
def test_each_kind_gives_what_the_function_gives(form: Any) -> None:
    @form
    async def coroutine(x: int) -> int:
        await asyncio.sleep(0)
        return x

    @form
    def generator(n: int) -> Generator[int, str, str]:
        got = yield n
        return got

    @form
    async def stream(n: int) -> AsyncGenerator[int, None]:
        for i in range(n):
            yield i

    async def main() -> Any:
        together = await asyncio.gather(coroutine(1), asyncio.create_task(coroutine(2)))
        return together, [i async for i in stream(2)]

    assert asyncio.run(main()) == ([1, 2], [0, 1])
    running = generator(3)
    assert next(running) == 3
    with pytest.raises(StopIteration) as stop:
        running.send("sent")
    assert stop.value.value == "sent"


# Turning on and off


def test_the_switch_decides_each_call() -> None:
    function = gpuprof.timer("switched", backend="cpu")(lambda: None)
    function()
    gpuprof.disable()
    function()
    gpuprof.enable()
    function()
    assert gpuprof.stats()["switched"].time.count == 2


def test_a_function_may_switch_timing_itself() -> None:
    @gpuprof.timer("outer", backend="cpu")
    def switch_to(on: bool) -> None:
        if on:
            gpuprof.enable()
        else:
            gpuprof.disable()

    switch_to(False)  # entered on, left off: measured
    switch_to(True)  # entered off
    switch_to(True)
    assert gpuprof.stats()["outer"].time.count == 2


def test_a_generator_follows_the_switch_at_each_resume() -> None:
    @gpuprof.timer("resumed", backend="cpu")
    def numbers() -> Generator[int, None, None]:
        yield from range(4)

    gpuprof.disable()
    running = numbers()
    next(running)
    gpuprof.enable()
    next(running)
    next(running)
    assert gpuprof.stats()["resumed"].time.count == 2


def test_a_coroutine_made_while_timing_is_off_stays_unmeasured() -> None:
    out = check_python(
        """
        import asyncio
        from functools import partial
        import gpuprof

        @gpuprof.timer("made", backend="cpu")
        async def work(): ...

        gpuprof.disable()
        off = partial(work)()  # by C code, as Python 3.11 runs the wrapper where Python calls
        gpuprof.enable()
        asyncio.run(off)
        asyncio.run(work())
        print(gpuprof.stats()["made"].time.count)
        """
    )
    assert out == "1\n"


def test_a_backends_interrupt_after_a_failure_has_it_as_its_context() -> None:
    calls: list[int] = []

    def synchronize() -> None:
        calls.append(1)
        if len(calls) == 2:
            raise KeyboardInterrupt

    @gpuprof.timer("interrupted", backend=gpuprof.SyncBackend("interrupted", synchronize))
    def work() -> None:
        raise ValueError("body")

    with pytest.raises(KeyboardInterrupt) as caught:
        work()
    assert isinstance(caught.value.__context__, ValueError)


# What is off is passed over


# Called by C code, as Python 3.11 runs the wrapper where Python code calls.
OFF = """
import sys
from functools import partial
import gpuprof
def main():
    def plain():
        return sys._getframe(1).f_code.co_name
    async def coroutine():
        pass
    def generator():
        yield
    for decorator in (gpuprof.timer, gpuprof.timer("x"), gpuprof.annotate):
        print(partial(decorator(plain))())
        made = partial(decorator(coroutine))()
        print(made.cr_code is coroutine.__code__)
        made.close()
    made = partial(gpuprof.timer(enabled=False)(generator))()
    print(made.gi_code is generator.__code__)
"""


@pytest.mark.parametrize(
    ("switch_off", "environment"),
    [("gpuprof.disable()", {}), ("", {"GPUPROF_DISABLE": "1"})],
    ids=["disable", "GPUPROF_DISABLE"],
)
def test_a_call_that_is_off_runs_no_wrapper(switch_off: str, environment: dict[str, str]) -> None:
    out = check_python(OFF + switch_off + "\nmain()", **environment)
    assert out.split() == ["main", "True"] * 3 + ["True"]


def test_a_call_of_a_function_that_is_on_runs_no_wrapper_either() -> None:
    out = check_python(
        """
        import sys
        from functools import partial
        import gpuprof
        @gpuprof.timer("on", backend="cpu")
        def work():
            return sys._getframe(1).f_code.co_name
        def main():
            return partial(work)()
        print(main(), gpuprof.stats()["on"].time.count)
        """
    )
    assert out == "main 1\n"
