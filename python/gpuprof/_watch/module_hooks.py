"""What a watched module calls around its calls: hooks, and a wrapper of compiled calls."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from typing import Any

from gpuprof._frameworks import torch_hooks
from gpuprof._watch.hooks import Core
from gpuprof._watch.tree import ModuleEntry


class _Hook(torch_hooks.Hook):
    """A hook of a module. A copy of the module, and one from a pickle, is not watched."""

    def __init__(self, core: Core, entries: list[ModuleEntry]) -> None:
        self.core = core
        self.entries = entries
        self.is_compiling = core.is_compiling


class Before(_Hook):
    """The hook before a module's forward pass."""

    def __call__(self, _module: Any, _arguments: Any) -> None:
        if self.is_compiling() or self.core.closed:
            return  # no Python runs in a compiled region
        try:
            self.core.enter(self.entries, sys._getframe(1))
        except Exception as error:
            self.core.fail(error)


class After(_Hook):
    """The hook after a module's forward pass, also after one that raised."""

    def __call__(self, module: Any, _arguments: Any, result: Any) -> None:
        if self.is_compiling() or self.core.closed:
            return
        error = sys.exc_info()
        try:
            self.core.leave(self.entries, module, result, error)
        except Exception as failure:
            self.core.fail(failure)


class CompiledCall(_Hook):
    """Wraps the call of a module whose hooks would not run.

    After `module.compile()` they are a part of what is compiled; a `ScriptModule` can have none.
    """

    def __init__(self, core: Core, entries: list[ModuleEntry], before: Any) -> None:
        super().__init__(core, entries)
        self.before = before  # None for a ScriptModule

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy is not compiled

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module = self.entries[0].module()
        call = module._call_impl if self.before is None else self.before
        if self.is_compiling() or self.core.closed:
            return call(*arguments, **options)
        core = self.core
        with core.passive():
            core.enter(self.entries, sys._getframe())
        result = None
        try:
            result = call(*arguments, **options)
        finally:
            with core.passive():
                core.leave(self.entries, module, result, sys.exc_info())
        return result

    def remove_from(self, module: weakref.ref[Any], kind: type) -> Callable[[], None]:
        """Return what takes it out of the module of a class again; it holds neither of them."""
        itself = weakref.ref(self)
        give_back = torch_hooks.leave_out(kind)

        def remove() -> None:
            give_back()
            found, here = module(), itself()
            if found is None or found.__dict__.get("_compiled_call_impl") is not here:
                return  # another watch wraps this one, and will pass over it
            before = here.before
            while isinstance(before, CompiledCall) and before.core.closed:
                before = before.before
            if before is None:
                del found.__dict__["_compiled_call_impl"]
            else:
                found.__dict__["_compiled_call_impl"] = before

        return remove
