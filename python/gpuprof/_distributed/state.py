"""What the wrapped functions of one watch share, and the scopes that they open."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

import gpuprof._core as _core
from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._frameworks import loaded, torch_hooks

UNNAMED_WAIT = "wait"
DDP_WAIT = "ddp"


class WatchState:
    """Whether collectives are measured, and what is known of the works that they returned.

    A wrapper that somebody has wrapped once more stays where it is when the watch is closed, so
    each of them asks.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        self.is_open = True
        self.works: WeakKeyDictionary[Any, tuple[str, bool]] = WeakKeyDictionary()
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
        with suppress(RuntimeWarning):  # where warnings are errors
            warnings.warn(
                "gpuprof.distributed.time_collectives has stopped watching collectives, because of "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=3,
            )


@functools.lru_cache(maxsize=256)
def scope(name: str, on_cpu: bool) -> Any:
    """Return the scope of a collective, on the host's clock or on the GPU's where it is in use."""
    return _core.timer(f"{COLLECTIVE}{name}", backend="cpu" if on_cpu else "auto")


def scope_below(path: str, name: str, on_cpu: bool) -> Any:
    """Return one whose name begins with the text of a path, for a thread without open scopes."""
    return _core.timer(f"{path}{COLLECTIVE}{name}", backend="cpu" if on_cpu else "auto")
