"""What ran, on what, and how much of its time is known: scopes, and imports beside them."""

from __future__ import annotations

import contextlib
import importlib
import os
import platform
import shlex
import threading
import time
from collections.abc import Sequence
from typing import Any

from gpuprof._common.machine import FRAMEWORKS, installed
from gpuprof._common.units import duration
from gpuprof._display.table import tree_lines
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._timing.stats import Stats
from gpuprof._trace import path


def describe(command: Sequence[str], *, is_over: bool = True) -> dict[str, Any]:
    """Return what runs. While it is not over, torch's version is that which it may import."""
    version = getattr(loaded.torch(), "__version__", None)
    torch = version if is_over else installed(FRAMEWORKS["torch"])
    return {
        "process": os.getpid(),
        **({"rank": f"{path.rank()} of {path.world_size()}"} if path.world_size() > 1 else {}),
        "command": shlex.join(command),
        "machine": platform.node() or "an unknown machine",
        "python": platform.python_version(),
        **({"torch": str(torch)} if torch else {}),
    }


def in_words(about: dict[str, Any]) -> str:
    torch = f", torch {about['torch']}" if "torch" in about else ""
    rank = f", rank {about['rank']}" if "rank" in about else ""
    who = f"process {about['process']}{rank} on {about['machine']}"
    return f"{who}: {about['command']}; Python {about['python']}{torch}"


def coverage(stats: Stats, seconds: float, imports_s: float) -> str:
    """Say how much of the time outermost scopes cover: of several threads their sum."""
    outer = (line.row.host.total_ms for line in tree_lines(stats.rows) if not line.depth)
    imports = f"; imports {duration(imports_s * 1e3)}" if imports_s else ""
    return f"in scopes {duration(sum(outer))} of {duration(seconds * 1e3)}{imports}"


class ImportTimes:
    """How long the main thread has imported modules, each with those that it imports.

    Python holds a lock of a module while it imports it. What is put around taking and releasing
    it is in no traceback.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._begin = 0.0
        self._undo = contextlib.ExitStack()

    def start(self) -> None:
        bootstrap: Any = importlib._bootstrap
        lock = bootstrap._ModuleLockManager
        take, release, main = lock.__enter__, lock.__exit__, threading.main_thread().ident

        def enter(held: Any) -> None:
            take(held)
            if threading.get_ident() == main:
                self._depth += 1
                if self._depth == 1:
                    self._begin = time.monotonic()

        def leave(held: Any, *error: Any) -> None:
            release(held, *error)
            if threading.get_ident() == main and self._depth:
                self._depth -= 1
                if not self._depth:
                    self.seconds += time.monotonic() - self._begin

        for name, function in (("__enter__", enter), ("__exit__", leave)):
            self._undo.callback(torch_hooks.replace(lock, name, function))

    def stop(self) -> None:
        self._undo.close()
