"""The walk through what a function reads besides its arguments."""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any, NamedTuple

from gpuprof._callable.names import (
    Names,
    functions_of,
    has_library_globals,
    is_of_library,
    names_in,
    unwrapped,
)
from gpuprof._callable.places import Notes, is_array, is_module, is_plain

_MAX_ALWAYS = 8
_MAX_DEPTH = 3  # functions in functions, objects in objects
_MAX_LIST = 64  # of plain values
_CONTAINERS = (list, tuple, dict)
_FUNCTIONS = (types.FunctionType, types.MethodType, functools.partial)
# What each module has; their values are noted otherwise, or have no part in what it computes.
_OF_ALL_MODULES = {"training", "_parameters", "_buffers", "_modules", "_is_full_backward_hook"}
_NO_VALUES = (types.ModuleType, type, types.BuiltinFunctionType)


class _Trail(NamedTuple):
    """How a place was come upon."""

    path: str
    names: Names  # that the functions on the way read
    depth: int  # how many objects and functions lie in between

    def at(self, name: str) -> _Trail:
        """Return the trail to what has a name there."""
        return self._replace(path=f"{self.path}.{name}" if self.path and name else self.path + name)

    def deeper(self) -> _Trail:
        """Return the trail with one object or function more in between."""
        return self._replace(depth=self.depth + 1)


class Reads:
    """One walk, which begins with `callable`.

    Parameters
    ----------
    notes : Notes
        Where it is written down.

    Attributes
    ----------
    modules : list of torch.nn.Module
        Those that were come upon; not their submodules.
    """

    def __init__(self, notes: Notes) -> None:
        self.modules: list[Any] = []
        self._notes = notes
        self._seen: dict[tuple[int, ...], Any] = {}  # with the objects, so that ids stay theirs
        self._names: dict[tuple[Names, tuple[types.FunctionType, ...]], Names] = {}

    def callable(self, function: Any, path: str = "", depth: int = 0) -> None:
        """Note what a callable of any kind reads.

        Parameters
        ----------
        function : callable
        path : str
            Where it was found; empty for the one that was captured.
        depth : int
            How many others lie in between.
        """
        trail = _Trail(path, _NOTHING, depth)
        for each in unwrapped(function):
            if is_module(each):
                self._module(each, trail)
                break
            if isinstance(each, functools.partial):
                self._partial(each, trail)
            elif isinstance(each, types.MethodType):
                self._owner(each.__self__, trail, each.__func__)
            elif isinstance(each, types.FunctionType):
                if not has_library_globals(each):
                    self._function(each, depth)
            elif not isinstance(each, _NO_VALUES):
                self._owner(each, trail)

    def _is_new(self, *values: Any) -> bool:
        """Return whether these were not come upon together before, and note that they were."""
        key = tuple(map(id, values))
        return self._seen.setdefault(key, values) is values

    def _names_of(self, functions: tuple[types.FunctionType, ...], more: Names) -> Names:
        """Return what functions read, and what `more` has; the same object for the same two."""
        key = (more, functions)
        if key not in self._names:
            names = self._names[key] = Names()
            for each in functions:
                names.add(names_in(each.__code__))
            names.add(more)
        return self._names[key]

    def _partial(self, partial: Any, trail: _Trail) -> None:
        self.callable(partial.func, trail.path, trail.depth)
        trail = trail._replace(names=_ANYTHING)
        for index, value in enumerate(partial.args):
            self._place(partial.args, index, value, "argument", trail.at(str(index)))
        for name, value in partial.keywords.items():
            self._place(partial.keywords, name, value, "argument", trail.at(name))

    def _function(self, function: types.FunctionType, depth: int) -> None:
        """Note a function's cells, defaults and globals."""
        if not self._is_new(function):
            return
        code = function.__code__
        trail = _Trail("", self._names_of((function,), _NOTHING), depth)
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                value = cell.cell_contents
            except ValueError:  # nothing yet
                continue
            self._place(cell, None, value, "closure variable", trail.at(name))
        defaults = function.__defaults__ or ()
        first = code.co_argcount - len(defaults)
        for index, value in enumerate(defaults):
            name = code.co_varnames[first + index]
            self._place(defaults, index, value, "default of", trail.at(name))
        keywords = function.__kwdefaults__ or {}
        for name, value in keywords.items():
            self._place(keywords, name, value, "default of", trail.at(name))
        own = function.__globals__
        for name in sorted(trail.names.globals & own.keys()):
            value = own[name]
            elsewhere = isinstance(value, types.FunctionType) and value.__globals__ is not own
            if not elsewhere:  # another file's functions are a library's, as often as not
                self._place(own, name, value, "global", trail.at(name))

    def _owner(self, owner: Any, trail: _Trail, function: Any = None) -> None:
        """Note the attributes of an object that are read by name, by its own methods too.

        Parameters
        ----------
        function : function, optional
            The method that is called. Otherwise the object is, or only read.
        """
        if is_module(owner):
            self._module(owner, trail, function)
            return
        kind = owner if isinstance(owner, type) else type(owner)
        functions = functions_of(kind, {*trail.names.attributes, "__call__"}, function)
        names = self._names_of(functions, trail.names)
        if self._is_new(owner, names):
            for each in functions:
                self._function(each, trail.depth)
            self._attributes(owner, trail._replace(names=names))

    def _attributes(self, owner: Any, trail: _Trail) -> None:
        own = getattr(owner, "__dict__", None)
        if not isinstance(own, dict):  # of a class, or of none
            return
        for name, value in tuple(own.items()):
            if trail.names.has_attribute(name) and name not in _OF_ALL_MODULES:
                self._place(own, name, value, "attribute", trail.at(name))

    def _module(self, module: Any, trail: _Trail, function: Any = None) -> None:
        """Note all that is in a module, and in those inside of it."""
        module = _uncompiled(module)
        if self._is_new(module, module):
            self.modules.append(module)
        for path, part in module.named_modules():
            entry = function if part is module else None
            if self._is_new(part, entry):
                inner = trail.at(path.replace("_orig_mod.", "").removesuffix("._orig_mod"))
                self._part(part, trail if part is module else inner.deeper(), entry)

    def _part(self, module: Any, trail: _Trail, function: Any) -> None:
        """Note what one module has without those inside of it."""
        inside = f"{trail.path}." if trail.path else ""
        for kind, owned in (
            ("parameter", module._parameters),
            ("buffer", module._buffers),
            ("submodule", module._modules),
        ):
            for container, key, name, value in _entries(owned):
                self._notes.add(container, key, value, f"{kind} '{inside}{name}'")
        own = vars(module)
        if isinstance(own.get("training"), bool):
            name = f"training flag of {trail.path!r}" if trail.path else "training flag"
            self._notes.add(
                own, "training", own["training"], name, always=self._is_near(trail.depth)
            )
        for name, value in own.items():
            if isinstance(value, float):  # dropout's p, a norm's eps and momentum
                self._notes.add(own, name, value, f"attribute '{inside}{name}'")
        if is_of_library(type(module)):
            return
        functions = functions_of(type(module), ("forward",), function)
        for each in functions:
            self._function(each, trail.depth + 1)
        names = self._names_of(functions, _FORWARD)  # which may stand in for the class's
        self._attributes(module, trail.deeper()._replace(names=names))

    def _is_near(self, depth: int) -> bool:
        return depth == 0 and len(self._notes.always) < _MAX_ALWAYS

    def _place(self, container: Any, key: Any, value: Any, kind: str, trail: _Trail) -> None:
        """Note one place, and what is in the value there."""
        if isinstance(value, _NO_VALUES):
            return
        is_leaf = is_plain(value) or is_array(value)
        if not isinstance(container, tuple) or is_array(value):  # a tuple's items stay
            always = self._is_near(trail.depth) and (is_leaf or is_module(value))
            self._notes.add(container, key, value, f"{kind} '{trail.path}'", always=always)
        if is_leaf:
            return
        if is_module(value):
            self._module(value, trail)
        elif trail.depth < _MAX_DEPTH:
            deeper = trail.deeper()
            if isinstance(value, _CONTAINERS):
                self._items(value, kind, deeper)
            elif isinstance(value, _FUNCTIONS) or "__wrapped__" in getattr(value, "__dict__", ()):
                self.callable(value, deeper.path, deeper.depth)
            else:
                self._owner(value, deeper)

    def _items(self, values: Any, kind: str, trail: _Trail) -> None:
        """Note what is in a list, tuple or dict: other than arrays and modules, what is named."""
        if not self._is_new(values, trail.names):
            return
        is_dict = isinstance(values, dict)
        for key, value in tuple(values.items() if is_dict else enumerate(values)):
            known = trail.names.has_key(key) if is_dict else len(values) <= _MAX_LIST
            is_inside = is_array(value) or is_module(value) or isinstance(value, _CONTAINERS)
            if is_inside or known:
                self._place(values, key, value, kind, trail._replace(path=f"{trail.path}[{key!r}]"))


_NOTHING = Names()
_ANYTHING = Names(any_attribute=True)
_FORWARD = Names(attributes={"forward"})


def _uncompiled(module: Any) -> Any:
    """Return the module that `torch.compile` was given, where this is what it gave back."""
    children = module._modules
    return children.get("_orig_mod", module) if isinstance(children, dict) else module


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
        if is_array(values[index]):
            yield values, index, name, values[index]
