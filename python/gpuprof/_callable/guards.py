"""The places that a captured function reads from, and whether they are still as they were.

A graph contains the addresses of parameters, and plain values as they were at the capture. After
`model.to()`, `load_state_dict(assign=True)` or `scale = 2.0` a replay would silently use the old
ones. So `_callable.guard_finder` notes each such place after the capture, with what was there. A
call checks some of them; `GuardList.moved` checks all and names those that have changed.

Torch has a hook for each parameter that any module is given, by an assignment or by
`load_state_dict(assign=True)`. One such hook serves all graphed callables, and is installed only
while one of them needs it. Modules are neither changed nor kept alive. All functions need the
interpreter lock, and no other.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from gpuprof._callable.leaves import same_value
from gpuprof._frameworks import loaded

_MAX_ITEMS = 20_000


class Guard(NamedTuple):
    """One place, and what was there."""

    container: Any  # a dict, list, tuple or cell
    key: Any  # of the dict, or the index; None for a cell
    expected: Any  # the very object, or where `is_simple` one of its type that is equal
    address: int | None  # of its memory; None for what has none


class GuardList:
    """The places that a function reads from, as they were when they were noted.

    It keeps alive what it expects, and the memory of that, which the graph still reads.
    """

    def __init__(self) -> None:
        self.items: list[Guard] = []
        self.names: list[str] = []  # of the items, in words
        self.always: list[Guard] = []  # the few of them to look at on each call
        self.modules: list[Any] = []  # torch's that were found; not their submodules
        self.keep: list[Any] = []  # what owns the memory
        self.left_out = 0  # places that were not noted because they are too many
        self._places: set[tuple[int, Any]] = set()

    def add(self, container: Any, key: Any, value: Any, name: str, *, always: bool = False) -> None:
        """Note a place with its name in words, once; with `always`, each call looks there."""
        place = (id(container), key)
        if place in self._places:
            return
        self._places.add(place)
        if len(self.items) >= _MAX_ITEMS:
            self.left_out += 1
            return
        item = Guard(container, key, value, _address_of(value))
        self.items.append(item)
        self.names.append(name)
        if item.address is not None:
            # A tensor can be given other memory, which would free this one.
            self.keep.append(value.untyped_storage() if loaded.is_tensor(value) else value)
        if always:
            self.always.append(item)

    def moved(self) -> list[str]:
        """Return what is not as it was, each place with its name and what happened."""
        changes = []
        for item, name in zip(self.items, self.names, strict=True):
            change = _change_at(item)
            if change is not None:
                changes.append(f"{name}: {change}")
        return changes


def is_simple(value: object) -> bool:
    """Return whether `value` is a bool, a number, a text or None, which are compared by value."""
    return type(value) in {bool, int, float, str, type(None)}


def has_memory(value: Any) -> bool:
    """Return whether `value` is a tensor of torch's, or has its memory on a GPU."""
    return loaded.is_tensor(value) or hasattr(type(value), "__cuda_array_interface__")


def _address_of(value: Any) -> int | None:
    """Return where an array's memory is; None for what is no array, or has no memory of its own."""
    if not has_memory(value):
        return None
    try:
        if loaded.is_tensor(value):
            torch = loaded.torch()
            exact = type(value) in (torch.Tensor, torch.nn.Parameter)
            return int(value.data_ptr()) or None if exact else None
        return int(value.__cuda_array_interface__["data"][0]) or None
    except (RuntimeError, AttributeError, TypeError, ValueError):  # without memory, or not yet
        return None


def _change_at(item: Guard) -> str | None:
    """Return what has happened at a place, in words; None if nothing has."""
    try:
        if isinstance(item.container, types.CellType):
            now = item.container.cell_contents
        else:
            now = item.container[item.key]
    except (LookupError, ValueError):  # an empty cell
        return "it is not there any more"
    if now is item.expected:
        if item.address is None or _address_of(now) == item.address:
            return None
        return "its memory moved (p.data = ..., .to())"
    if not is_simple(now) or not is_simple(item.expected):
        return "replaced by another object"
    return None if same_value(now, item.expected) else f"{now!r}, captured with {item.expected!r}"


class ReplacementHook:
    """Calls a function whenever a parameter is registered anew in one of some modules.

    `modules` are looked at with all that is in them now. The callback runs before the new parameter
    is in its place, on the thread that puts it there, and must neither raise nor do more than to
    make a note. It ends with `remove`, and with the modules.
    """

    def __init__(self, modules: Iterable[Any], callback: Callable[[], object]) -> None:
        self._listeners: list[_Listeners] = []
        for part in {id(part): part for each in modules for part in each.modules()}.values():
            listeners = _by_module.get(id(part))
            if listeners is None:
                listeners = _by_module[id(part)] = _Listeners(part)
            listeners.callbacks[id(self)] = callback
            self._listeners.append(listeners)
        _hook_while_needed()

    def remove(self) -> None:
        """Stop listening. May be called again."""
        while self._listeners:
            listeners = self._listeners.pop()
            listeners.callbacks.pop(id(self), None)
            if not listeners.callbacks:
                listeners.forget()
        _hook_while_needed()


class _Listeners:
    """The callbacks of one module."""

    def __init__(self, module: Any) -> None:
        self.callbacks: dict[int, Callable[[], object]] = {}
        self._number = id(module)
        self._module = weakref.ref(module, self._gone)

    def forget(self) -> None:
        if _by_module.get(self._number) is self:  # not those of a later module with the same id
            del _by_module[self._number]

    def _gone(self, _: object) -> None:
        self.forget()
        _hook_while_needed()


_by_module: dict[int, _Listeners] = {}
_hook: list[Any] = []  # the handle of torch's hook, while there is one


def _hook_while_needed() -> None:
    if not _by_module:
        while _hook:
            _hook.pop().remove()
    elif not _hook:
        register = loaded.torch().nn.modules.module.register_module_parameter_registration_hook
        _hook.append(register(_registered))


def _registered(module: object, _name: str, _parameter: object) -> None:
    listeners = _by_module.get(id(module))
    if listeners is not None:
        for callback in tuple(listeners.callbacks.values()):
            callback()
