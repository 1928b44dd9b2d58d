"""Importing what the user installs, and acting once another package is imported.

`when_imported` never imports the package. A finder at the head of `sys.meta_path` lets the others
find the module, and gives its loader one more thing to do after it has executed the module. It is
there only while a module is waited for.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

_waiting: dict[str, list[Callable[[], None]]] = {}
_served: set[tuple[str, Callable[[], None]]] = set()


def need(module: str, what: str, install: str = "") -> Any:
    """Import a module of the user's; a ModuleNotFoundError says `what` needs it, and how to get it.

    A package that it needs itself is named by the import system's own text.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name not in {module, module.partition(".")[0]}:
            raise
        package = install or module.partition(".")[0]
        message = f"{what} needs {module}, which is not installed: pip install {package}"
        raise ModuleNotFoundError(message, name=module.partition(".")[0]) from error


def when_imported(name: str, call: Callable[[], None]) -> None:
    """Call `call` once: now, if the module `name` is there, else right after it was imported.

    The same function is ignored a second time. An exception of `call` ends the module's import.
    """
    waiting = _waiting.get(name, [])
    if (name, call) in _served or call in waiting:
        return
    if name in sys.modules:
        _served.add((name, call))
        call()
        return
    _waiting[name] = [*waiting, call]
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def _serve(name: str) -> None:
    calls = _waiting.pop(name, [])
    if not _waiting:
        # A new list, because another thread may be walking through the old one: in a list that
        # gets shorter it would pass over a finder.
        sys.meta_path = [finder for finder in sys.meta_path if not isinstance(finder, _Finder)]
    for call in calls:
        _served.add((name, call))
        call()


class _Finder:
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _waiting:
            return None
        # Finders before this one were asked already; asking them again could recurse without end.
        finders = list(sys.meta_path)
        after = finders.index(self) + 1 if self in finders else 0
        for finder in finders[after:]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader)  # type: ignore[assignment]
                return spec
        return None


class _Loader:
    """Another loader that also calls what waits once it has executed the module."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _serve(module.__name__)
