"""Checks of the arguments of `make_graphed_callable`, and what is used where none is given."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from gpuprof._callable.buckets import Buckets
from gpuprof._common import checks
from gpuprof._graphs.pool import CapturePool, check_pool
from gpuprof._graphs.types import CaptureMode, capture_mode, graph_name, timers_number

_CHOICES = {
    "outputs": ("clone", "static"),
    "on_new_shape": ("capture", "eager", "raise"),
    "on_capture_error": ("raise", "eager"),
    "check": ("strict", "sweep"),
    "param_grads": ("autograd", "accumulate"),
}
_VERIFY = {"capture": 0, "off": None}
_WARMUP = 3

# The arguments that a callable is captured for when it is made: positional ones, and by keyword.
Samples: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"


class Settings(NamedTuple):
    """What a graphed callable was asked for, checked."""

    warmup: int
    mode: CaptureMode
    stream: object
    pool: CapturePool
    outputs: str
    on_new_shape: str
    max_graphs: int
    buckets: Buckets
    on_capture_error: str
    check: str
    param_grads: str
    compile: bool
    writes: Writes
    guards: tuple[Callable[[], Hashable], ...]  # of the caller's own
    verify: int | None  # every n-th call is, too; 0 is the first one alone, None is none
    timers: Any
    name: str
    shares_pool: bool  # with what else is captured
    keywords_in_order: bool  # the function may see in which order they are given


class Writes(NamedTuple):
    """What ``writes=`` names; None is "auto"."""

    names: tuple[str, ...] | None
    positions: Mapping[str, int]  # of the function's parameters

    def numbers(self, paths: Sequence[str], *, foreign: bool) -> set[int]:
        """Return the numbers of the arrays that are named, with "auto" all if work is `foreign`."""
        if self.names is None:
            return set(range(len(paths))) if foreign else set()
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


def check_samples(args: Any, kwargs: Any) -> Samples | None:
    """Check ``sample_args=`` and ``sample_kwargs=``; None if neither is given."""
    if args is None and kwargs is None:
        return None
    args = () if args is None else args
    if not isinstance(args, tuple):
        expected = "a tuple of arguments (for one argument write (x,))"
        raise checks.type_error(args, "sample_args", expected)
    return args, checks.mapping("sample_kwargs", {} if kwargs is None else kwargs)


def check_settings(fn: Any, samples: Samples | None, given: Mapping[str, Any]) -> Settings:
    """Check the function, and the other arguments, which are given by their names."""
    checks.function("fn", fn, "a function or a module")
    for name, known in _CHOICES.items():
        checks.choice(name, given[name], known)
    timers_number(given["timers"])
    checks.flag("compile", given["compile"])
    guards, verify, warmup = given["guards"], given["verify"], given["warmup"]
    if guards is not None:
        checks.function("guards", guards, "a function that returns something hashable")
    if not isinstance(verify, str):
        verify = checks.whole("verify", verify)
    elif verify not in _VERIFY:
        raise checks.value_error(verify, "verify", "'capture', 'off' or a number of calls")
    if warmup is None:
        warmup = 0 if samples is not None and not any(samples) else _WARMUP
    pool = check_pool(given["pool"])
    checked = {
        "warmup": checks.whole("warmup", warmup, 0),
        "mode": capture_mode(given["mode"]),
        "pool": CapturePool() if pool is None else pool,
        "max_graphs": checks.whole("max_graphs", given["max_graphs"]),
        "shares_pool": pool is not None,
        "writes": _writes(fn, given["writes"]),
        "guards": () if guards is None else (guards,),
        "verify": _VERIFY.get(verify, verify),
        "buckets": Buckets(given["buckets"]),
        "name": graph_name(given["name"]) or _name_of(fn),
        "keywords_in_order": _takes_any_keyword(fn),
    }
    return Settings(**{**given, **checked})


def _writes(fn: Any, value: Any) -> Writes:
    if value == "auto":
        return Writes(None, {})
    expected = "'auto' or a tuple of names, as in ('x',) or ('args[0]',)"
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise checks.type_error(value, "writes", expected)
    names = tuple(value)
    if not all(isinstance(name, str) for name in names):
        raise checks.type_error(names, "writes", expected)
    return Writes(names, {name: number for number, name in enumerate(_parameters(fn) or ())})


def _parameters(fn: Any) -> Mapping[str, inspect.Parameter] | None:
    """Return the parameters of a function by name; None of one that does not tell them."""
    try:
        return inspect.signature(getattr(fn, "forward", fn)).parameters
    except (TypeError, ValueError):
        return None


def _name_of(fn: Any) -> str:
    while isinstance(fn, functools.partial):
        fn = fn.func
    name = getattr(fn, "__qualname__", None) or type(fn).__qualname__
    try:
        return graph_name(name) or "callable"
    except (TypeError, ValueError):
        return "callable"


def _takes_any_keyword(fn: Callable[..., Any]) -> bool:
    known = _parameters(fn)
    return known is None or any(
        each.kind is inspect.Parameter.VAR_KEYWORD for each in known.values()
    )
