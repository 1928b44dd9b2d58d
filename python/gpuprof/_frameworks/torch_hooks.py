"""Hooks around the calls of a torch module that are in no pickle and in no copy of it.

Torch keeps hooks in the module, and so pickles and copies them. While a module has hooks of ours,
`copyreg` has a reducer for its class that leaves them out. A module that is reduced in another way,
as by its class's own ``__deepcopy__``, has functions of the standard library in their place.
"""

from __future__ import annotations

import contextlib
import copyreg
from collections import Counter
from collections.abc import Callable
from typing import Any

_HOOKS = ("_forward_pre_hooks", "_forward_hooks")
# By the numbers of hooks, which of them have an option.
_OPTIONS = (
    "_forward_pre_hooks_with_kwargs",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
)
_COMPILED = "_compiled_call_impl"
_hooked: Counter[type] = Counter()  # how often modules of a class have hooks
_reducers: dict[type, Any] = {}  # what `copyreg` had for such a class, or None


class Hook:
    """What is called around a module's calls; subclasses do so, or `call` does."""

    def __init__(self, call: Callable[..., Any] | None = None) -> None:
        self._call = call

    def __call__(self, *arguments: Any) -> Any:
        return self._call and self._call(*arguments)

    def __reduce__(self) -> Any:
        return getattr, (contextlib.nullcontext(), "__exit__")  # takes anything, returns None


def add(module: Any, before: Hook, after: Hook) -> Callable[[], None]:
    """Call `before` before each call of a module, and `after` after it, also after an exception.

    Return what takes both out again.
    """
    first = module.register_forward_pre_hook(before, prepend=True)
    last = module.register_forward_hook(after, always_call=True)
    give_back = leave_out(type(module))

    def remove() -> None:
        first.remove()
        last.remove()
        give_back()

    return remove


def leave_out(kind: type) -> Callable[[], None]:
    """Have the hooks left out where modules of a class are reduced, until the result is called."""
    _hooked[kind] += 1
    if _hooked[kind] == 1:
        _reducers[kind] = copyreg.dispatch_table.get(kind)
        copyreg.pickle(kind, _reduced)

    def give_back() -> None:
        _hooked[kind] -= 1
        if _hooked[kind]:
            return
        before = _reducers.pop(kind)
        del _hooked[kind]
        if copyreg.dispatch_table.get(kind) is not _reduced:
            return  # another one has replaced it
        if before is None:
            del copyreg.dispatch_table[kind]
        else:
            copyreg.pickle(kind, before)

    return give_back


def _reduced(module: Any) -> Any:
    before = _reducers.get(type(module))
    found = module.__reduce_ex__(2) if before is None else before(module)
    return tuple(map(_without, found)) if isinstance(found, tuple) else found


def _without(part: Any) -> Any:
    """Return a part of what a module is reduced to without hooks of ours."""
    if type(part) is tuple:
        return tuple(map(_without, part))
    if type(part) is not dict or not any(name in part for name in _HOOKS):
        return part
    part = dict(part)
    for name in _HOOKS:
        hooks = part.get(name, {})
        ours = {number for number, hook in hooks.items() if isinstance(hook, Hook)}
        for each in (name, *_OPTIONS):
            if each in part and ours & part[each].keys():
                kept = part[each].items()
                part[each] = type(part[each])(pair for pair in kept if pair[0] not in ours)
    if isinstance(part.get(_COMPILED), Hook):
        del part[_COMPILED]
    return part
