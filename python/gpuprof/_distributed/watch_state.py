"""What a watch of collectives knows: if it measures, the scopes, where backward passes run."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._frameworks import loaded, torch_hooks


class WatchState:
    """Whether collectives are measured, and what is known of the works that they returned.

    A wrapper that somebody has wrapped once more stays where it is when the watch is closed, so
    each of them asks.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        self.is_open = True
        self.works: WeakKeyDictionary[Any, tuple[str, bool]] = WeakKeyDictionary()
        self.paths = BackwardPaths()
        self.tasks: set[int] = set()  # backward passes of autograd with a callback that waits
        self._is_compiling: Callable[[], bool] = loaded.torch().compiler.is_compiling
        self._close = close

    def measures(self) -> bool:
        """Whether a call is measured now: inside of a compiled region nothing is."""
        return self.is_open and not self._is_compiling()

    def passive(self) -> torch_hooks.Passive:
        """A block whose failure ends the watch and not the program that it watches."""
        return torch_hooks.Passive(self._fail)

    def _fail(self, error: Exception) -> None:
        self._close()
        checks.warn(
            "gpuprof.distributed.time_collectives has stopped watching collectives, because of "
            f"{type(error).__name__}: {error}"
        )


@functools.lru_cache(maxsize=256)
def scope(name: str, on_cpu: bool, path: str = "") -> Any:
    """Return the scope of a collective, with the path in its name on a thread without scopes."""
    return _core.timer(f"{path}{COLLECTIVE}{name}", backend="cpu" if on_cpu else "auto")


class BackwardPaths:
    """The paths in which backward passes run: autograd's callbacks are on threads without any."""

    def __init__(self) -> None:
        self._running: list[tuple[int, tuple[str, ...]]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        with _core.timer(None, backend="cpu") as sample:  # unnamed: only its path is used
            names = sample.names
        entry = threading.get_ident(), names
        self._running.append(entry)
        try:
            yield
        finally:
            self._running.remove(entry)

    def prefix(self) -> str:
        """Return what stands before a scope's name on this thread: the last caller's path."""
        own = threading.get_ident()
        running = list(self._running)
        if not running or any(thread == own for thread, _ in running):
            return ""
        return "".join(f"{name}/" for name in running[-1][1])
