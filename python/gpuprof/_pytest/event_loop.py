"""Coroutine functions as functions: each call runs to its end in an event loop of gpuprof's own.

Where an event loop runs in the thread already, nothing can run to its end without that loop, so
that is an error.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    import asyncio

__tracebackhide__ = True  # pytest shows the frames of the test and of its function


@contextmanager
def as_function(fn: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Give `fn` itself, or for a coroutine function one that runs it to its end."""
    called = getattr(type(fn), "__call__", None)  # noqa: B004 (its type counts, not that it has one)
    if not any(map(inspect.iscoroutinefunction, (fn, called))):
        yield fn
        return
    asyncio = sys.modules.get("asyncio")
    if asyncio is not None and asyncio._get_running_loop() is not None:
        message = (
            "gpu_benchmark runs a coroutine function in an event loop of its own, but one is "
            "running in this thread already: make the test a plain function, def and not async "
            "def, and leave the awaiting to gpu_benchmark"
        )
        raise InvalidStateError(message)
    with _own_loop() as loop:
        run = loop.run_until_complete

        def call(*args: Any, **kwargs: Any) -> Any:
            return run(fn(*args, **kwargs))

        # Not by functools.wraps, which would copy the mark of a coroutine function.
        call.__name__ = getattr(fn, "__name__", type(fn).__name__)
        call.__qualname__ = getattr(fn, "__qualname__", call.__name__)
        yield call


def run_test(test: Callable[..., Any], arguments: dict[str, Any]) -> None:
    with _own_loop() as loop:
        loop.run_until_complete(test(**arguments))


def refuse_coroutine(value: Any) -> None:
    """Raise a TypeError if what a function returned is a coroutine, whose work is not done."""
    if inspect.iscoroutine(value):
        value.close()
        message = (
            "the function returned a coroutine, so that a call does no work: pass the coroutine "
            "function itself, gpu_benchmark(f, x), not gpu_benchmark(lambda: f(x))"
        )
        raise TypeError(message)


@contextmanager
def _own_loop() -> Iterator[asyncio.AbstractEventLoop]:
    import asyncio

    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        try:
            left = asyncio.all_tasks(loop)
            for task in left:
                task.cancel()
            if left:
                loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
        finally:
            loop.close()
