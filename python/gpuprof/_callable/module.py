"""The graphed callable of a `torch.nn.Module`, which is a module itself.

It has the parameters, the state and the attributes of the original, because it asks that for all of
them: methods of `torch.nn.Module` are called on the original, and any other name is looked up there
unless the callable has it. Hooks of the forward and backward pass are its own.

The call is that of C++, as of every graphed callable, until the first hook is registered: then it
is torch's, which runs the hooks around the same call. So each callable has a class of its own.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

from gpuprof._frameworks import loaded

# Parts of the names of what `torch.nn.Module` has for calls and for hooks around them.
_OF_CALLS = ("forward", "backward", "call")
# Python looks these up in the class: `len(fast)` and `fast[0]` of a `Sequential`.
_OF_CONTAINERS = (
    *("__len__", "__iter__", "__reversed__", "__contains__"),
    *("__getitem__", "__setitem__", "__delitem__"),
)


def class_for(base: Any, original: Any) -> Any:
    """Return `base`, or for a module a class of it and of `torch.nn.Module`.

    `base` is called with what `forward` takes, and keeps the original as `_fn`, which it sets last.
    """
    if not loaded.is_module(original):
        return base
    names = [name for name in _OF_CONTAINERS if hasattr(type(original), name)]
    inner = {name: _asking(name) for name in names}
    return type(base.__name__, (_module_class(base),), {"__module__": "gpuprof", **inner})


def _asking(name: str) -> Callable[..., Any]:
    """Return a method that calls the original's; where that returns itself, this returns self."""

    def ask(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = getattr(self._fn, name)(*args, **kwargs)
        return self if result is self._fn else result

    return ask


def _with_hook(register: Callable[..., Any]) -> Callable[..., Any]:
    """Return a method that registers a hook, from which on calls of its object are torch's."""

    @functools.wraps(register)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        handle = register(self, *args, **kwargs)
        type(self).__call__ = loaded.torch().nn.Module.__call__
        return handle

    return method


@functools.cache
def _module_class(base: Any) -> Any:
    module: Any = loaded.torch().nn.Module
    own_hooks = {
        name: type(value)
        for name, value in vars(module()).items()
        if any(part in name for part in _OF_CALLS)
    }

    class ModuleCallable(base, module):  # type: ignore[misc]
        def __new__(cls) -> Any:
            self = super().__new__(cls)
            vars(self).update({name: kind() for name, kind in own_hooks.items()})
            return self

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return base.__call__(self, *args, **kwargs)

        def __getattr__(self, name: str) -> Any:
            # Of the original's special methods Python shall not find, say, how it is copied.
            if "_fn" not in vars(self) or (name.startswith("__") and name.endswith("__")):
                message = f"'{type(self).__name__}' object has no attribute '{name}'"
                raise AttributeError(message)
            return getattr(self._fn, name)

        def __setattr__(self, name: str, value: Any) -> None:
            if _is_own(self, name):
                object.__setattr__(self, name, value)
            else:
                setattr(self._fn, name, value)

        def __delattr__(self, name: str) -> None:
            if _is_own(self, name):
                object.__delattr__(self, name)
            else:
                delattr(self._fn, name)

        def __dir__(self) -> list[str]:
            return sorted({*object.__dir__(self), *dir(self._fn)})

    def _is_own(self: Any, name: str) -> bool:
        return "_fn" not in vars(self) or name in vars(self) or hasattr(base, name)

    for name, value in vars(module).items():
        if not isinstance(value, types.FunctionType) or name.startswith("__"):
            continue
        if not any(part in name for part in _OF_CALLS):
            setattr(ModuleCallable, name, _asking(name))
        elif name.startswith("register_"):
            setattr(ModuleCallable, name, _with_hook(value))
    return ModuleCallable
