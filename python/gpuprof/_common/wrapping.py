"""Functions with each call inside of a context manager, each wrapped in one of its own kind."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

Function: TypeAlias = "Callable[..., Any]"
Make: TypeAlias = "Callable[[], AbstractContextManager[Any]]"


def check_function(what: str, function: Any) -> None:
    """Raise a TypeError where `what`, as in "a trace", decorates no function."""
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


def around_calls(make: Make, function: Any) -> Any:
    """Return `function` with each call inside of what `make` then returns.

    A generator is in it from its first resume to its end, a coroutine with its awaits.
    """
    if isinstance(function, (staticmethod, classmethod)):
        return type(function)(around_calls(make, function.__func__))
    check_function("a trace", function)
    if inspect.isasyncgenfunction(function):
        return _async_generator(make, function)
    if inspect.iscoroutinefunction(function):
        return _coroutine(make, function)
    if inspect.isgeneratorfunction(function):
        return _generator(make, function)

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return function(*args, **kwargs)

    return wrapped


def _coroutine(make: Make, function: Function) -> Function:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        with make():
            return await function(*args, **kwargs)

    return wrapped


def _generator(make: Make, function: Function) -> Function:
    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
        with make():
            return (yield from function(*args, **kwargs))

    return as_awaitable_as(function, wrapped)


def as_awaitable_as(function: Function, wrapper: Function) -> Function:
    """Return a generator function that can be awaited if `function` can (`types.coroutine`)."""
    code = getattr(function, "__code__", None)
    if code is not None and code.co_flags & inspect.CO_ITERABLE_COROUTINE:
        awaitable: Function = types.coroutine(wrapper)
        return awaitable
    return wrapper


def _async_generator(make: Make, function: Function) -> Function:
    @functools.wraps(function)
    async def wrapped(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, Any]:
        with make():
            generator = function(*args, **kwargs)
            resume: Callable[[], Any] = functools.partial(generator.__anext__)
            try:
                while True:
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
                del resume  # what it holds of an exception would hold this frame

    return wrapped
