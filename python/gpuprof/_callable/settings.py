"""Checks of the arguments of `make_graphed_callable`, and what is used where none is given."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from gpuprof._callable.buckets import Buckets
from gpuprof._graphs.pool import CapturePool, check_pool
from gpuprof._graphs.types import CaptureMode, capture_mode, graph_name, timers_number

_CHOICES = {
    "outputs": ("clone", "static"),
    "on_new_shape": ("capture", "eager", "raise"),
    "on_capture_error": ("raise", "eager"),
    "check": ("strict", "sweep"),
    "param_grads": ("autograd", "accumulate"),
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
    param_grads: str
    compile: bool
    writes: Writes
    guards: tuple[Callable[[], Hashable], ...]  # of the caller's own
    verify: str | int
    timers: Any
    name: str
    shares_pool: bool  # with what else is captured

    @property
    def verify_every(self) -> int:
        """Which calls are compared with the function; 0 for none but the first."""
        return self.verify if isinstance(self.verify, int) else 0


class Writes(NamedTuple):
    """What ``writes=`` names; None is "auto"."""

    names: tuple[str, ...] | None
    positions: Mapping[str, int]  # of the function's parameters

    def numbers(self, paths: Sequence[str]) -> set[int] | None:
        """Return the numbers of the arrays that are named; ValueError if one is not there."""
        if self.names is None:
            return None
        found: set[int] = set()
        for name in self.names:
            forms = (name, f"args[{self.positions.get(name)}]", f"kwargs[{name!r}]")
            named = {
                number
                for number, path in enumerate(paths)
                for form in forms
                if path == form or path.startswith((f"{form}[", f"{form}."))
            }
            if not named:
                known = ", ".join(paths) or "nowhere"
                message = f"writes: no array at {name!r}; the call has arrays at {known}"
                raise ValueError(message)
            found |= named
        return found


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
    if not isinstance(given["compile"], bool):
        message = f"compile: expected True or False, got {type(given['compile']).__name__}"
        raise TypeError(message)
    if given["guards"] is not None and not callable(given["guards"]):
        message = (
            "guards: expected a function without arguments that returns something hashable, got "
            f"{type(given['guards']).__name__}"
        )
        raise TypeError(message)
    takes_nothing = samples is not None and not samples.args and not samples.kwargs
    pool = check_pool(given["pool"])
    checked = {
        "warmup": _count("warmup", given["warmup"], 0 if takes_nothing else _WARMUP, lowest=0),
        "mode": capture_mode(given["mode"]),
        "pool": CapturePool() if pool is None else pool,
        "max_graphs": _count("max_graphs", given["max_graphs"], None, lowest=1),
        "shares_pool": pool is not None,
        "writes": _writes(fn, given["writes"]),
        "guards": () if given["guards"] is None else (given["guards"],),
        "verify": _verify(given["verify"]),
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


def _verify(value: Any) -> str | int:
    if value in {"capture", "off"}:
        return str(value)
    if isinstance(value, str):
        message = f"verify: expected 'capture', 'off' or a number of calls, got {value!r}"
        raise ValueError(message)
    return _count("verify", value, None, lowest=1)


def _writes(fn: Any, value: Any) -> Writes:
    if value == "auto":
        return Writes(None, {})
    if isinstance(value, str) or not isinstance(value, Iterable):
        message = (
            f"writes: expected 'auto' or a tuple of names, as in ('x',) or ('args[0]',), got "
            f"{value!r}"
        )
        raise TypeError(message)
    names = tuple(value)
    if not all(isinstance(name, str) for name in names):
        message = f"writes: expected names of arguments, got {names!r}"
        raise TypeError(message)
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters
    except (TypeError, ValueError):
        parameters = types.MappingProxyType({})
    return Writes(names, {name: number for number, name in enumerate(parameters)})


def _name_of(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    try:
        return graph_name(name) or "callable"
    except (TypeError, ValueError):
        return "callable"


def sees_order_of_keywords(fn: Callable[..., Any]) -> bool:
    """Return whether a function may see in which order keywords are given: it takes any of them."""
    try:
        parameters = inspect.signature(getattr(fn, "forward", fn)).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters)
