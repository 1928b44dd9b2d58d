"""`gpuprof.trace` as a decorator: each call has a file of its own."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any


def decorate(make: Callable[[], AbstractContextManager[Any]], function: Any) -> Any:
    """Return `function` of its own kind, with each call inside of what `make` then returns.

    A generator's trace goes from its first resume to its end, a coroutine's has its awaits in it.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(decorate(make, function.__func__))
    if isinstance(function, type):
        message = (
            f"a trace decorates a function, got the class {function.__qualname__}; decorate a "
            "method of it"
        )
        raise TypeError(message)
    if not callable(function):
        message = (
            f"a trace decorates a function, got {type(function).__name__}; use it in a with "
            "statement instead"
        )
        raise TypeError(message)
    if inspect.isasyncgenfunction(function):
        return _async_generator(make, function)
    if inspect.iscoroutinefunction(function):
        return _coroutine(make, function)
    if inspect.isgeneratorfunction(function):
        return _generator(make, function)

    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return traced


def _coroutine(
    make: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> Any:
        with make():
            return await function(*args, **kwargs)

    return traced


def _generator(
    make: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    def traced(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with make():
            return (yield from function(*args, **kwargs))

    if function.__code__.co_flags & inspect.CO_ITERABLE_COROUTINE:
        awaitable: Callable[..., Any] = types.coroutine(traced)
        return awaitable
    return traced


def _async_generator(
    make: Callable[[], AbstractContextManager[Any]], function: Callable[..., Any]
) -> Callable[..., Any]:
    @functools.wraps(function)
    async def traced(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with make():
            generator = function(*args, **kwargs)
            resume: Callable[[], Any] | None = functools.partial(generator.__anext__)
            try:
                while resume is not None:
                    try:
                        item = await resume()
                    except StopAsyncIteration:
                        return
                    try:
                        sent = yield item
                    except GeneratorExit:
                        await generator.aclose()
                        raise
                    except BaseException as error:
                        resume = functools.partial(generator.athrow, error)
                    else:
                        resume = functools.partial(generator.asend, sent)
            finally:
                resume = None  # what it holds of an exception would hold this frame

    return traced
