"""The torch modules that a function holds, found without running it."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterable, Iterator
from typing import Any

from gpuprof._frameworks.loaded import is_module


def find_modules(function: Any, constants: Iterable[Any] = ()) -> list[Any]:
    """Return the modules that a callable is or holds, and those among `constants`, each once.

    A callable holds what it is a method of, its closure's variables and defaults, globals that it
    names, what it wraps, the arguments of a partial, and the attributes of the object that it
    belongs to.
    """
    found: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    waiting = [function, *filter(is_module, constants)]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen[id(each)] = each
        if is_module(each):
            found[id(inside(each))] = inside(each)
        else:
            waiting += _held_by(each)
    return list(found.values())


def _held_by(function: Any) -> Iterator[Any]:
    """Yield the modules, and the callables it is made of, that a callable holds."""
    held: list[Any] = []
    if isinstance(function, functools.partial):
        yield function.func
        held += [*function.args, *function.keywords.values()]
    elif isinstance(function, types.MethodType):
        yield function.__func__
        held += [function.__self__, *getattr(function.__self__, "__dict__", {}).values()]
    elif isinstance(function, types.FunctionType):
        held += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        held += [value for cell in function.__closure__ or () for value in _contents(cell)]
        own = function.__globals__
        held += [own[name] for name in _names_in(function.__code__) if name in own]
    elif not isinstance(function, type):
        held += getattr(function, "__dict__", {}).values()  # an object that can be called
    attributes = getattr(function, "__dict__", {})
    for name in ("_torchdynamo_orig_callable", "__wrapped__"):
        if name in attributes:
            yield attributes[name]
    yield from filter(is_module, held)


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names in a function and in those that are written inside of it."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _contents(cell: types.CellType) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # nothing yet
        return


def inside(module: Any) -> Any:
    """Return the module that `torch.compile` was given, else the same one."""
    children = module._modules
    return children.get("_orig_mod", module) if isinstance(children, dict) else module
