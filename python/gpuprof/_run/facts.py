"""What ran, on what, and how much of its time is known: scopes, and imports beside them."""

from __future__ import annotations

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
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._timing.stats import Stats


def describe(command: Sequence[str], *, is_over: bool = True) -> dict[str, Any]:
    """Return what runs. While it is not over, torch's version is that which it may import."""
    version = getattr(loaded.torch(), "__version__", None)
    torch = version if is_over else installed(FRAMEWORKS["torch"])
    return {
        "process": os.getpid(),
        "command": shlex.join(command),
        "machine": platform.node() or "an unknown machine",
        "python": platform.python_version(),
        **({"torch": str(torch)} if torch else {}),
    }


def in_words(about: dict[str, Any]) -> str:
    torch = f", torch {about['torch']}" if "torch" in about else ""
    return "process {process} on {machine}: {command}; Python {python}".format(**about) + torch


def coverage(stats: Stats, seconds: float, imports_s: float) -> str:
    """Say how much of the time outermost scopes cover: of several threads their sum."""
    known = {row.names for row in stats.rows}
    outer = [
        row.host.total_ms
        for row in stats.rows
        if not any(row.names[:depth] in known for depth in range(1, len(row.names)))
    ]
    imports = f"; imports {duration(imports_s * 1e3)}" if imports_s else ""
    return f"in scopes {duration(sum(outer))} of {duration(seconds * 1e3)}{imports}"


class ImportTimes:
    """How long the main thread has imported modules, each with those that it imports.

    Python calls a function of its own for a module that is not there yet. One that is put around
    it claims to be in the same file, so tracebacks leave it out with the others of that file.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._undo: torch_hooks.Undo = lambda: None

    def start(self) -> None:
        bootstrap: Any = importlib._bootstrap
        original = bootstrap._find_and_load
        main = threading.main_thread().ident
        is_open = False

        def timed(*arguments: Any) -> Any:
            nonlocal is_open
            if is_open or threading.get_ident() != main:
                return original(*arguments)
            is_open, begin = True, time.monotonic()
            try:
                return original(*arguments)
            finally:
                is_open = False
                self.seconds += time.monotonic() - begin

        timed.__code__ = timed.__code__.replace(co_filename=original.__code__.co_filename)
        self._undo = torch_hooks.replace(bootstrap, "_find_and_load", timed)

    def stop(self) -> None:
        self._undo()
