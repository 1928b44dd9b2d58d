"""Being told that a parameter of a module was replaced, without a change to the module.

Torch has a hook for all parameters that any module is given: `load_state_dict(assign=True)`, and
assignments, go through it. One such hook serves all graphed callables and is there only while one
of them listens. For other modules it is one look into a dict. Modules are not kept alive.

All functions need the interpreter lock, which is all that guards what is here.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any


class Replacements:
    """Who listens to which modules; see `on_replaced`."""

    def __init__(self, modules: Iterable[Any], callback: Callable[[], object]) -> None:
        self._callback = callback
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


def on_replaced(modules: Iterable[Any], callback: Callable[[], object]) -> Replacements:
    """Call `callback` whenever a parameter is registered anew in one of the modules.

    Parameters
    ----------
    modules : iterable of torch.nn.Module
        With all that is in them now.
    callback : callable
        Without arguments. It runs before the new parameter is in its place, on the thread that puts
        it there, and must neither raise nor do more than to make a note.

    Returns
    -------
    Replacements
        Its ``remove()`` ends it. Nothing else does, other than the end of the modules.
    """
    return Replacements(modules, callback)


class _Listeners:
    """The callbacks of one module."""

    def __init__(self, module: Any) -> None:
        self.callbacks: dict[int, Callable[[], object]] = {}
        self._number = id(module)
        self._module = weakref.ref(module, self._gone)

    def forget(self) -> None:
        if _by_module.get(self._number) is self:  # and not those of a module with its number since
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
        torch: Any = sys.modules["torch"]
        register = torch.nn.modules.module.register_module_parameter_registration_hook
        _hook.append(register(_registered))


def _registered(module: object, _name: str, _parameter: object) -> None:
    listeners = _by_module.get(id(module))
    if listeners is not None:
        for callback in tuple(listeners.callbacks.values()):
            callback()
