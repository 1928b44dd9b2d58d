"""The walk through what a function reads besides its arguments.

The bytecode shows which globals and attributes it reads. It does not show the names that `getattr`
is given at run time: a function that uses `getattr` may read any attribute.

Not found are attributes of classes, attributes that the function does not name, what is nested
deeper than a few objects, the globals of other files, and hooks that are added to a module later.
"""

from __future__ import annotations

import dis
import functools
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gpuprof._callable.guards import GuardList, has_memory, is_simple
from gpuprof._frameworks.loaded import is_module

_MAX_ALWAYS = 8
_MAX_DEPTH = 3  # functions in functions, objects in objects
_MAX_LIST = 64  # of plain values
_CONTAINERS = (list, tuple, dict)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
# What each module has; their values are noted otherwise, or have no part in what it computes.
_OF_ALL_MODULES = {"training", "_parameters", "_buffers", "_modules", "_is_full_backward_hook"}
_NO_VALUES = (types.ModuleType, type, types.BuiltinFunctionType)
_ANY = {"getattr", "vars", "__dict__", "__getattribute__"}
_LIBRARIES = {"torch", "gpuprof", "cupy", "numpy", "numba", "functools", "contextlib"}


def find_guards(function: Callable[..., Any]) -> GuardList:
    """Return what a callable of any kind reads besides its arguments, as it is now.

    That is the parameters, buffers, training flags and settings of modules, and the tensors, arrays
    and plain values in cells, defaults, partial arguments, globals and attributes that it names.
    """
    guards = GuardList()
    GuardFinder(guards).callable(function)
    return guards


@dataclass(eq=False)
class Names:
    """What functions read: `texts` are the constants, each of which may be the key of a dict.

    `any_attribute` says that attributes are also read by names that are not known.
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


_NOTHING = Names()
_ANYTHING = Names(any_attribute=True)
_FORWARD = Names(attributes={"forward"})


class _Path(NamedTuple):
    """How the walk came to a value."""

    text: str
    names: Names  # that the functions on the way read
    depth: int  # how many objects and functions lie in between

    def at(self, name: str) -> _Path:
        """Return the path to what has a name here."""
        return self._replace(text=f"{self.text}.{name}" if self.text and name else self.text + name)

    def deeper(self) -> _Path:
        """Return the path with one object or function more in between."""
        return self._replace(depth=self.depth + 1)


class GuardFinder:
    """One walk, which begins with `callable` and notes what it finds in `guards`."""

    def __init__(self, guards: GuardList) -> None:
        self._guards = guards
        self._seen: dict[tuple[int, ...], Any] = {}  # with the objects, so that ids stay theirs
        self._names: dict[tuple[Names, tuple[types.FunctionType, ...]], Names] = {}

    def callable(self, function: Any, name: str = "", depth: int = 0) -> None:
        """Note what a callable of any kind reads; `name` is empty for the one that was captured."""
        path = _Path(name, _NOTHING, depth)
        for each in _unwrapped(function):
            if is_module(each):
                self._module(each, path)
                break
            if isinstance(each, functools.partial):
                self._partial(each, path)
            elif isinstance(each, types.MethodType):
                self._owner(each.__self__, path, each.__func__)
            elif isinstance(each, types.FunctionType):
                if not _has_library_globals(each):
                    self._function(each, depth)
            elif not isinstance(each, _NO_VALUES):
                self._owner(each, path)

    def _is_new(self, *values: Any) -> bool:
        """Return whether these are visited together for the first time, and note the visit."""
        key = tuple(map(id, values))
        return self._seen.setdefault(key, values) is values

    def _names_of(self, functions: tuple[types.FunctionType, ...], more: Names) -> Names:
        """Return what functions read, and what `more` has; the same object for the same two."""
        key = (more, functions)
        if key not in self._names:
            names = self._names[key] = Names()
            for each in functions:
                names.add(_names_in(each.__code__))
            names.add(more)
        return self._names[key]

    def _partial(self, partial: Any, path: _Path) -> None:
        self.callable(partial.func, path.text, path.depth)
        path = path._replace(names=_ANYTHING)
        for index, value in enumerate(partial.args):
            self._value(partial.args, index, value, "argument", path.at(str(index)))
        for name, value in partial.keywords.items():
            self._value(partial.keywords, name, value, "argument", path.at(name))

    def _function(self, function: types.FunctionType, depth: int) -> None:
        """Note a function's cells, defaults and globals."""
        if not self._is_new(function):
            return
        code = function.__code__
        path = _Path("", self._names_of((function,), _NOTHING), depth)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # nothing yet
                continue
            self._value(cell, None, value, "closure variable", path.at(name))
        defaults = function.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        for index, value in enumerate(defaults):
            name = code.co_varnames[first + index]
            self._value(defaults, index, value, "default of", path.at(name))
        keywords = function.__kwdefaults__ or {}
        for name, value in keywords.items():
            self._value(keywords, name, value, "default of", path.at(name))
        own = function.__globals__
        for name in sorted(path.names.globals & own.keys()):
            value = own[name]
            elsewhere = isinstance(value, types.FunctionType) and value.__globals__ is not own
            if not elsewhere:  # another file's functions are a library's, as often as not
                self._value(own, name, value, "global", path.at(name))

    def _owner(self, owner: Any, path: _Path, function: Any = None) -> None:
        """Note the attributes of an object that are read by name, by its own methods too.

        `function` is the method that is called; without one the object is, or only read.
        """
        if is_module(owner):
            self._module(owner, path, function)
            return
        kind = owner if isinstance(owner, type) else type(owner)
        functions = _functions_of(kind, {*path.names.attributes, "__call__"}, function)
        names = self._names_of(functions, path.names)
        if self._is_new(owner, names):
            for each in functions:
                self._function(each, path.depth)
            self._attributes(owner, path._replace(names=names))

    def _attributes(self, owner: Any, path: _Path) -> None:
        own = getattr(owner, "__dict__", None)
        if not isinstance(own, dict):  # of a class, or of none
            return
        for name, value in tuple(own.items()):
            if path.names.has_attribute(name) and name not in _OF_ALL_MODULES:
                self._value(own, name, value, "attribute", path.at(name))

    def _module(self, module: Any, path: _Path, function: Any = None) -> None:
        """Note all that is in a module, and in those inside of it."""
        children = module._modules
        if isinstance(children, dict):  # what `torch.compile` gave back holds what it was given
            module = children.get("_orig_mod", module)
        if self._is_new(module, module):
            self._guards.modules.append(module)
        for name, part in module.named_modules():
            entry = function if part is module else None
            if self._is_new(part, entry):
                inner = path.at(name.replace("_orig_mod.", "").removesuffix("._orig_mod"))
                self._part(part, path if part is module else inner.deeper(), entry)

    def _part(self, module: Any, path: _Path, function: Any) -> None:
        """Note what one module has without those inside of it."""
        inside = f"{path.text}." if path.text else ""
        for kind, owned in (
            ("parameter", module._parameters),
            ("buffer", module._buffers),
            ("submodule", module._modules),
        ):
            for container, key, name, value in _entries(owned):
                self._guards.add(container, key, value, f"{kind} '{inside}{name}'")
        own = vars(module)
        if isinstance(own.get("training"), bool):
            name = f"training flag of {path.text!r}" if path.text else "training flag"
            always = self._is_near(path.depth)
            self._guards.add(own, "training", own["training"], name, always=always)
        for name, value in own.items():
            if isinstance(value, float):  # dropout's p, a norm's eps and momentum
                self._guards.add(own, name, value, f"attribute '{inside}{name}'")
        if _is_of_library(type(module)):
            return
        functions = _functions_of(type(module), ("forward",), function)
        for each in functions:
            self._function(each, path.depth + 1)
        names = self._names_of(functions, _FORWARD)  # which may stand in for the class's
        self._attributes(module, path.deeper()._replace(names=names))

    def _is_near(self, depth: int) -> bool:
        return depth == 0 and len(self._guards.always) < _MAX_ALWAYS

    def _value(self, container: Any, key: Any, value: Any, kind: str, path: _Path) -> None:
        """Note one place, and what is in the value there."""
        if isinstance(value, _NO_VALUES):
            return
        is_leaf = is_simple(value) or has_memory(value)
        if not isinstance(container, tuple) or has_memory(value):  # a tuple's items stay
            always = self._is_near(path.depth) and (is_leaf or is_module(value))
            self._guards.add(container, key, value, f"{kind} '{path.text}'", always=always)
        if is_leaf:
            return
        if is_module(value):
            self._module(value, path)
        elif path.depth < _MAX_DEPTH:
            deeper = path.deeper()
            if isinstance(value, _CONTAINERS):
                self._items(value, kind, deeper)
            elif isinstance(value, _FUNCTIONS) or "__wrapped__" in getattr(value, "__dict__", ()):
                self.callable(value, deeper.text, deeper.depth)
            else:
                self._owner(value, deeper)

    def _items(self, values: Any, kind: str, path: _Path) -> None:
        """Note what is in a list, tuple or dict: other than arrays and modules, what is named."""
        if not self._is_new(values, path.names):
            return
        is_dict = isinstance(values, dict)
        for key, value in tuple(values.items() if is_dict else enumerate(values)):
            known = path.names.has_key(key) if is_dict else len(values) <= _MAX_LIST
            is_inside = has_memory(value) or is_module(value) or isinstance(value, _CONTAINERS)
            if is_inside or known:
                self._value(values, key, value, kind, path._replace(text=f"{path.text}[{key!r}]"))


def _entries(owned: Any) -> Iterator[tuple[Any, Any, str, Any]]:
    """Yield container, key, name and value of what a module has of one kind.

    A scripted module makes its dicts when asked: what is in them is held in a tuple, of which only
    the addresses matter.
    """
    if isinstance(owned, dict):
        for name, value in owned.items():
            if value is not None:
                yield owned, name, name, value
        return
    values = tuple(value for _, value in owned.items())
    for index, name in enumerate(owned.keys()):
        if has_memory(values[index]):
            yield values, index, name, values[index]


@functools.lru_cache(maxsize=1024)
def _names_in(code: types.CodeType) -> Names:
    """Return what a function reads, with those that are written inside of it."""
    found = Names()
    for step in dis.get_instructions(code):
        if step.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            found.globals.add(step.argval)
        elif step.opname.startswith("LOAD") and step.opname.endswith(("ATTR", "METHOD")):
            found.attributes.add(step.argval)
        elif step.opname == "LOAD_CONST":
            if isinstance(step.argval, types.CodeType):
                found.add(_names_in(step.argval))
            elif isinstance(step.argval, str):
                found.texts.add(step.argval)
    found.any_attribute = bool(_ANY & (found.globals | found.attributes))
    return found


def _is_of_library(value: Any) -> bool:
    """Return whether a class or function belongs to a library that has no settings of the user."""
    return _is_library(getattr(value, "__module__", None))


def _has_library_globals(function: types.FunctionType) -> bool:
    """Return whether a function's own globals and cells are a library's business.

    A wrapper that a library has made bears the name of what it wraps; its globals do not.
    """
    return _is_library(function.__globals__.get("__name__"))


def _is_library(module: object) -> bool:
    top = str(module).partition(".")[0]
    return top in _LIBRARIES or top in sys.stdlib_module_names


def _unwrapped(function: Any) -> Iterator[Any]:
    """Yield a function and what it is wrapped around, the outermost first."""
    seen: set[int] = set()
    while function is not None and id(function) not in seen:
        seen.add(id(function))
        yield function
        own: dict[str, Any] = getattr(function, "__dict__", {})
        function = own.get("_torchdynamo_orig_callable") or own.get("__wrapped__")


def _functions_of(
    kind: type, names: Iterable[str], entry: Any = None
) -> tuple[types.FunctionType, ...]:
    """Return the functions of a class reached by names, and by the names in those.

    `entry` is one more function to begin with.
    """
    found: dict[int, types.FunctionType] = {}
    to_do = [] if entry is None else [entry]
    for name in names:
        to_do += _functions_at(kind, name)
    while to_do:
        for function in _unwrapped(to_do.pop()):
            if isinstance(function, types.FunctionType) and id(function) not in found:
                found[id(function)] = function
                if not _has_library_globals(function):
                    for name in _names_in(function.__code__).attributes:
                        to_do += _functions_at(kind, name)
    return tuple(each for each in found.values() if not _has_library_globals(each))


def _functions_at(kind: type, name: str) -> Iterator[types.FunctionType]:
    member = inspect.getattr_static(kind, name, None)
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    for each in (member, getattr(member, "fget", None), getattr(member, "func", None)):
        if isinstance(each, types.FunctionType) and not _is_of_library(each):
            yield each
