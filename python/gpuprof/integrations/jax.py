"""JAX: scopes that wait for JAX's work, because nobody can record an event on its streams.

JAX queues work and returns; the work runs on streams that JAX gives to nobody. CUDA events around a
call would time another, idle stream, and the host's clock only the queueing. So what is here waits
for the work and reads the host's clock. See docs/integrations/jax.md.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar, cast

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._common.checks import shortened
from gpuprof._common.imports import need
from gpuprof._frameworks.jax import leaves, wait_for_all
from gpuprof._timing.backends import SyncBackend

__all__ = ["backend", "blocking", "timer"]

_LATER = inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction
_jax = functools.partial(need, "jax", "gpuprof.integrations.jax", "jax")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def backend() -> SyncBackend:
    """Return a clock for `gpuprof.timer` that waits for JAX's work at both ends of a scope.

    It waits for every array that is alive, and for side effects such as `jax.debug.print`. Work
    whose results nobody holds is not waited for. A failure of the work is not raised by the wait;
    JAX raises it where the result is used. ModuleNotFoundError if jax is not installed.
    """
    return SyncBackend("jax", functools.partial(wait_for_all, _jax()))


def blocking(function: _Function) -> _Function:
    """Return `function` with a wait for its results, for `gpuprof.benchmark` and the like."""
    jax = _jax()
    _check(function)

    @functools.wraps(function)
    def waiting(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        jax.block_until_ready(leaves(jax, result))
        return result

    return cast("_Function", waiting)


def _check(function: Any) -> None:
    if not callable(function):
        message = f"expected a function of JAX arrays, got {shortened(function)}"
        raise TypeError(message)
    if any(kind(function) for kind in _LATER):
        message = (
            f"expected a function that returns arrays, got {function.__qualname__}, which returns "
            "before its body runs; use gpuprof.timer(name, backend=backend()) in the body"
        )
        raise TypeError(message)


def timer(name: str | None = None) -> Callable[[_Function], _Function]:
    """Make a decorator that measures each call from ready arguments to ready results.

    In transforms (`jax.jit`, `jax.grad`, `jax.vmap`) of the decorated function nothing is measured,
    and its operations get the name by `jax.named_scope`. While gpuprof is disabled, nothing waits.
    Without a `name`, the row in `gpuprof.stats` has the function's qualified name. TypeError for a
    generator or an async function, whose call returns before its work.
    """
    given: object = name  # the function, where somebody writes @timer
    if not (given is None or isinstance(given, str)):
        message = f"name: expected a str or None, got {shortened(given)}; write @timer('name')"
        raise TypeError(message)
    jax = _jax()
    clock = SyncBackend("jax", lambda: None)  # the wrapper waits, for less than everything

    def decorate(function: _Function) -> _Function:
        _check(function)
        shown = name or getattr(function, "__qualname__", type(function).__name__)
        scope, waiting = _core.timer(shown, backend=clock), blocking(function)

        @functools.wraps(function)
        def measured(*args: Any, **kwargs: Any) -> Any:
            given = leaves(jax, (args, kwargs))
            if any(isinstance(leaf, jax.core.Tracer) for leaf in given):
                with jax.named_scope(shown):
                    return function(*args, **kwargs)
            if not _core.is_enabled():
                return function(*args, **kwargs)
            jax.block_until_ready(given)
            with scope:
                return waiting(*args, **kwargs)

        return cast("_Function", measured)

    return decorate
