"""Scopes and annotations as decorators: each kind of function is wrapped in one of its kind."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator, Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._frameworks.torch_compile import in_graph

if TYPE_CHECKING:
    from gpuprof._core import Annotation, Scope


def name_of(function: Any) -> str:
    if isinstance(function, (staticmethod, classmethod)):
        return name_of(function.__func__)
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return name or type(function).__qualname__


def decorate(scope: Any, function: Any) -> Any:
    """Return `function` with each call timed by `scope`, or shown as an annotation.

    An unnamed scope is replaced by one with the function's ``__qualname__``. A generator is timed
    at each resume, an async function with its awaits; an annotation of these is one range, from
    the first resume to the end, which may cross others. A coroutine that was made while timing, or
    all that shows annotations, was off is the function's own and stays unmeasured; on Python 3.11
    it is measured where that is on when it runs.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(scope, function.__func__))
    is_range = isinstance(scope, _core.Annotation)
    _check_function("an annotation" if is_range else "a timer scope", function)
    if scope.name is None:
        given = {key: value for key, value in scope._options.items() if value is not None}
        make = _core.annotate if is_range else _core.timer
        scope = make(name_of(function), **given)
    if inspect.iscoroutinefunction(function):
        wrap = _coroutine
    elif inspect.isasyncgenfunction(function):
        wrap = _async_generator
    else:
        wrap = _generator if inspect.isgeneratorfunction(function) else _function
    return _core._shorten(wrap(scope, function))


def _check_function(what: str, function: Any) -> None:
    if isinstance(function, type):
        method = next(
            (name for name in ("forward", "__call__") if name in vars(function)), "__init__"
        )
        message = (
            f"{what} decorates a function, got the class {function.__qualname__}; decorate a "
            f"method of it, such as {function.__qualname__}.{method}"
        )
        raise TypeError(message)
    if not callable(function):
        message = (
            f"{what} decorates a function, got {type(function).__name__}; "
            "use it in a with statement instead"
        )
        raise TypeError(message)


# The closure of each wrapper is `function` and `scope`, as `_core._shorten` expects it.


def _function(scope: Scope | Annotation, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Any:
        if in_graph():
            return function(*args, **kwargs)
        with scope:
            return function(*args, **kwargs)

    return timed


def _coroutine(scope: Scope | Annotation, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def timed(*args: Any, **kwargs: Any) -> Any:
        with _one_range(scope) if isinstance(scope, _core.Annotation) else scope:
            return await function(*args, **kwargs)

    return timed


def _generator(scope: Scope | Annotation, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def timed(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        generator = function(*args, **kwargs)
        if in_graph():
            return (yield from generator)
        if isinstance(scope, _core.Annotation):
            with _one_range(scope):
                return (yield from generator)
        resume: Callable[[], Any] = functools.partial(next, generator)
        closed: GeneratorExit | None = None
        try:
            while True:
                item = None
                with scope:
                    try:
                        item = resume()
                    except StopIteration as stop:  # the end of the work, no failure of it
                        return stop.value
                    except GeneratorExit as error:  # closed, which is no failure either
                        closed = error
                if closed is not None:
                    raise closed
                try:
                    sent = yield item
                except BaseException as error:
                    resume = functools.partial(generator.throw, error)
                else:
                    resume = functools.partial(generator.send, sent)
        finally:
            del resume, closed  # what they hold of an exception would hold this frame

    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        awaitable: Callable[..., Any] = types.coroutine(timed)
        return awaitable
    return timed


def _async_generator(scope: Scope | Annotation, function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def timed(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        run: Any = nullcontext()  # around the whole, and around each resume
        each: Any = scope
        if isinstance(scope, _core.Annotation):
            run, each = _one_range(scope), nullcontext()
        with run:
            generator = function(*args, **kwargs)
            resume: Callable[[], Any] = functools.partial(generator.__anext__)
            try:
                while True:
                    with each:
                        try:
                            item = await resume()
                        except StopAsyncIteration:  # the end of the work, no failure of it
                            return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        with each:
                            await generator.aclose()
                        raise
                    except BaseException as error:
                        resume = functools.partial(generator.athrow, error)
                    else:
                        resume = functools.partial(generator.asend, sent)
            finally:
                del resume  # what it holds of an exception would hold this frame

    return timed


@contextmanager
def _one_range(scope: Annotation) -> Iterator[None]:
    number = scope._start()
    try:
        yield
    finally:
        scope._end(number)
