"""The torch modules and the arrays that a function holds, and the modules that it reads."""

from __future__ import annotations

import contextlib
import functools
import threading
import types
from collections.abc import Iterable, Iterator
from typing import Any

import gpuprof._core as _core
from gpuprof._frameworks.loaded import is_module, whole_torch
from gpuprof._frameworks.torch_hooks import replace


def find_modules(function: Any, constants: Iterable[Any] = ()) -> list[Any]:
    """Return the modules that a callable is or holds, and those among `constants`, each once.

    A callable holds what it is a method of, its closure's variables and defaults, globals that it
    names, what it wraps, the arguments of a partial, and the attributes of the object that it
    belongs to.
    """
    found = map(inside, filter(is_module, [*_all_held(function), *constants]))
    return list({id(each): each for each in found}.values())


def find_arrays(function: Any) -> list[Any]:
    """Return the arrays on a GPU that a callable holds, also in containers and in objects.

    A graph of other libraries' work reads them where they are, and nothing else shows which.
    """
    held = list(_all_held(function))
    for each in tuple(held):
        if isinstance(each, (list, tuple)):
            held += each
        elif not is_module(each) and not isinstance(each, (type, types.ModuleType)):
            held += (each if isinstance(each, dict) else getattr(each, "__dict__", {})).values()
    found = [each for each in held if hasattr(type(each), "__cuda_array_interface__")]
    return list({id(each): each for each in found}.values())


@contextlib.contextmanager
def read_modules(found: dict[int, Any]) -> Iterator[None]:
    """Add the modules of which the block reads an attribute on this thread, by their ids.

    Containers of modules, and modules whose parameters are used without a call, are seen so.
    """
    torch = whole_torch()
    if torch is None:
        yield
        return
    module = torch.nn.Module
    own = vars(module).get("__getattribute__")
    here = threading.get_ident()

    def noted(self: Any, name: str) -> Any:
        # isinstance() asks for `__class__`.
        if not name.startswith("__") and threading.get_ident() == here:
            found.setdefault(id(self), self)
        return super(module, self).__getattribute__(name) if own is None else own(self, name)

    with contextlib.ExitStack() as undo:
        undo.callback(replace(module, "__getattribute__", noted))
        yield


def _all_held(function: Any) -> Iterator[Any]:
    """Yield a callable, the callables that it is made of, and what each holds."""
    seen: dict[int, Any] = {}
    waiting = [function]
    while waiting:
        each = waiting.pop(0)
        if id(each) in seen:
            continue
        seen[id(each)] = each
        yield each
        if not is_module(each):
            inner, held = _held_by(each)
            waiting += inner
            yield from held


def _held_by(function: Any) -> tuple[list[Any], list[Any]]:
    """Return the callables that a callable is made of, and what else it holds."""
    inner: list[Any] = []
    held: list[Any] = []
    if isinstance(function, functools.partial):
        inner.append(function.func)
        held += [*function.args, *function.keywords.values()]
    elif isinstance(function, types.MethodType):
        inner.append(function.__func__)
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
            inner.append(attributes[name])
    return inner, held


def _names_in(code: types.CodeType) -> set[str]:
    """Return the names in a function and in those that are written inside of it."""
    inner = [each for each in code.co_consts if isinstance(each, types.CodeType)]
    return set(code.co_names).union(*map(_names_in, inner))


def _contents(cell: types.CellType) -> Iterator[Any]:
    with contextlib.suppress(ValueError):  # nothing yet
        yield cell.cell_contents


def inside(module: Any) -> Any:
    """Return the module that a graphed one or `torch.compile` was given, else the same one."""
    while isinstance(module, _core.CallBase):
        module = vars(module)["_fn"]
    children = module._modules
    return children.get("_orig_mod", module) if isinstance(children, dict) else module
