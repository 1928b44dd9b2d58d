"""Which names a function reads: globals, and attributes of whatever objects.

The bytecode tells. What is read by `getattr` with a name that is made up at run time it does not
tell, but the word `getattr` it does: then any attribute may be read.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

_ANY = {"getattr", "vars", "__dict__", "__getattribute__"}
_LIBRARIES = {"torch", "gpuprof", "cupy", "numpy", "numba", "functools", "contextlib"}


@dataclass(eq=False)
class Names:
    """What functions read.

    Attributes
    ----------
    globals, attributes : set of str
    texts : set of str
        The constants among them, each of which may be the key of a dict.
    any_attribute : bool
        Whether attributes are also read by names that are not known.
    """

    globals: set[str] = field(default_factory=set)
    attributes: set[str] = field(default_factory=set)
    texts: set[str] = field(default_factory=set)
    any_attribute: bool = False

    def add(self, other: Names) -> None:
        """Take in what another one has."""
        self.globals |= other.globals
        self.attributes |= other.attributes
        self.texts |= other.texts
        self.any_attribute |= other.any_attribute

    def has_attribute(self, name: str) -> bool:
        return self.any_attribute or name in self.attributes

    def has_key(self, key: object) -> bool:
        return not isinstance(key, str) or key in self.texts


@functools.lru_cache(maxsize=1024)
def names_in(code: types.CodeType) -> Names:
    """Return what a function reads, with those that are written inside of it."""
    found = Names()
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            found.globals.add(step.argval)
        elif step.opname.startswith("LOAD") and step.opname.endswith(("ATTR", "METHOD")):
            found.attributes.add(step.argval)
        elif step.opname == "LOAD_CONST":
            if isinstance(step.argval, types.CodeType):
                found.add(names_in(step.argval))
            elif isinstance(step.argval, str):
                found.texts.add(step.argval)
    found.any_attribute = bool(_ANY & (found.globals | found.attributes))
    return found


def is_of_library(value: Any) -> bool:
    """Return whether a class or function belongs to a library that has no settings of the user."""
    return _is_library(getattr(value, "__module__", None))


def _is_library(module: object) -> bool:
    top = str(module).partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names


def unwrapped(function: Any) -> Iterator[Any]:
    """Yield a function and what it is wrapped around, the outermost first."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        yield function
        own: dict[str, Any] = getattr(function, "__dict__", {})
        function = own.get("_torchdynamo_orig_callable") or own.get("__wrapped__")


def functions_of(
    kind: type, names: Iterable[str], entry: Any = None
) -> tuple[types.FunctionType, ...]:
    """Return the functions of a class that are reached by names, and by the names in those.

    Parameters
    ----------
    kind : type
    names : iterable of str
        What is read of an object of the class.
    entry : function, optional
        One more to begin with.
    """
    found: dict[int, types.FunctionType] = {}
    to_do = [] if entry is None else [entry]
    for name in names:
        to_do += _functions_at(kind, name)
    while to_do:
        for function in unwrapped(to_do.pop()):
            if isinstance(function, types.FunctionType) and id(function) not in found:
                found[id(function)] = function
                if not has_library_globals(function):
                    for name in names_in(function.__code__).attributes:
                        to_do += _functions_at(kind, name)
    return tuple(each for each in found.values() if not has_library_globals(each))


def _functions_at(kind: type, name: str) -> Iterator[types.FunctionType]:
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    for each in (member, getattr(member, "fget", None), getattr(member, "func", None)):
        if isinstance(each, types.FunctionType) and not is_of_library(each):
            yield each


def has_library_globals(function: types.FunctionType) -> bool:
    """Return whether a function's own globals and cells are a library's business.

    A wrapper that a library has made bears the name of what it wraps; its globals do not.
    """
    return _is_library(function.__globals__.get("__name__"))
