"""What decorates functions: which are none, and generators inside of a context manager."""

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
    """Raise a TypeError where `what`, as in "a timer", decorates no function."""
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


def around_runs(make: Make, function: Function) -> Function:
    """Return a generator function, maybe an asynchronous one, with `make()` around each run.

    It is made at the first resume of each run, and left at the end.
    """
    kind = _async_generator if inspect.isasyncgenfunction(function) else _generator
    return kind(make, function)


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
