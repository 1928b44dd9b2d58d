"""Checks of the arguments of `make_graphed_callable`, and what is used where none is given."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, NamedTuple

from gpuprof._callable.buckets import Buckets
from gpuprof._graphs.pool import CapturePool, check_pool
from gpuprof._graphs.types import CaptureMode, capture_mode, graph_name, timers_number

_CHOICES = {
    "outputs": ("clone", "static"),
    "on_new_shape": ("capture", "eager", "raise"),
    "on_capture_error": ("raise", "eager"),
    "check": ("sweep", "strict"),
}
_WARMUP = 3


class Settings(NamedTuple):
    """What a graphed callable was asked for, checked."""

    warmup: int
    mode: CaptureMode
    stream: object
    pool: CapturePool
    outputs: str
    on_new_shape: str
    max_graphs: int
    buckets: Buckets | None
    on_capture_error: str
    check: str
    timers: Any
    name: str


class Samples(NamedTuple):
    """The arguments that a callable is captured for when it is made."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def check_function(fn: Any) -> None:
    """Refuse what cannot be called."""
    if not callable(fn):
        message = (
            f"fn: expected a function or a module, got {type(fn).__name__}; pass the function, "
            "not what it returns"
        )
        raise TypeError(message)


def check_samples(args: Any, kwargs: Any) -> Samples | None:
    """Check ``sample_args=`` and ``sample_kwargs=``; None if neither is given."""
    if args is None and kwargs is None:
        return None
    args = () if args is None else args
    if not isinstance(args, tuple):
        hint = "write (x,) for one argument" if not isinstance(args, list) else "write tuple(x)"
        message = f"sample_args: expected a tuple of arguments, got {type(args).__name__}; {hint}"
        raise TypeError(message)
    kwargs = {} if kwargs is None else kwargs
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        message = f"sample_kwargs: expected a dict with str keys, got {type(kwargs).__name__}"
        raise TypeError(message)
    return Samples(tuple(args), dict(kwargs))


def check_settings(fn: Any, samples: Samples | None, given: Mapping[str, Any]) -> Settings:
    """Check the other arguments, which are given by their names."""
    for name, choices in _CHOICES.items():
        if given[name] not in choices:
            message = f"{name}: expected one of {choices}, got {given[name]!r}"
            raise (ValueError if isinstance(given[name], str) else TypeError)(message)
    timers_number(given["timers"])
    takes_nothing = samples is not None and not samples.args and not samples.kwargs
    pool = check_pool(given["pool"])
    checked = {
        "warmup": _count("warmup", given["warmup"], 0 if takes_nothing else _WARMUP, lowest=0),
        "mode": capture_mode(given["mode"]),
        "pool": CapturePool() if pool is None else pool,
        "max_graphs": _count("max_graphs", given["max_graphs"], None, lowest=1),
        "buckets": None if given["buckets"] is None else Buckets(given["buckets"]),
        "name": graph_name(given["name"]) or _name_of(fn),
    }
    return Settings(**{**given, **checked})


def _count(name: str, value: Any, default: int | None, *, lowest: int) -> int:
    if value is None and default is not None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        message = f"{name}: expected an int, got {type(value).__name__}"
        raise TypeError(message)
    if value < lowest:
        message = f"{name}: expected at least {lowest}, got {value}"
        raise ValueError(message)
    return value


def _name_of(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    try:
        return graph_name(name) or "callable"
    except (TypeError, ValueError):
        return "callable"
