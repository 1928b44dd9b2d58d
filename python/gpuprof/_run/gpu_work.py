"""What `gpuprof run` shows of the GPU on request: all its work, and the lines that keep it idle."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, TextIO

from gpuprof._common.text import shown_text, write_text
from gpuprof._idle.api import Idle
from gpuprof._kernels.api import MAX_RECORDS, Kernels
from gpuprof._kernels.callers import callers_supported
from gpuprof._kernels.rows import KernelTotals

MOST_LINES = 30  # of a table on standard error; a report has all


class GpuWork:
    """Watches from `start` to `stop`. No failure of the end is one of the program's.

    Kernels cost memory for a million records; what a longer program runs after these is known by
    name alone.
    """

    def __init__(self, *, kernels: bool, idle: bool) -> None:
        has_callers = callers_supported()
        self._kernels = Kernels(MAX_RECORDS, callers=has_callers) if kernels else None
        self._idle = Idle() if idle else None
        self._failure = ""
        self.found: dict[str, Any] = {}  # what was found, by its heading in a report

    def start(self) -> None:
        """Begin before the program does; the errors of `gpuprof.kernels`, which needs CUDA."""
        if self._kernels is not None:
            self._kernels.__enter__()
        if self._idle is not None:
            self._idle._start()

    def stop(self, *, gpu_is_done: bool = True) -> None:
        """Wait for the GPU, and write what it did to the traces that are open."""
        if self._idle is not None:
            self._idle._stop()
        try:
            if self._kernels is not None and gpu_is_done:
                self._kernels.__exit__(None, None, None)
                self.found = {"by scope": self._kernels, "by name": self._kernels.by_kernel()}
                if callers_supported():
                    self.found["by caller"] = self._kernels.by_caller()
        except Exception as error:
            self._failure = f"gpuprof: no kernels: {type(error).__name__}: {error}"
        finally:
            if self._idle is not None:
                self.found["idle lines"] = self._idle

    def show(self, out: TextIO | None) -> None:
        if out is None:
            return
        with suppress(OSError, ValueError):  # closed, or its reader is gone
            if self._failure:
                write_text(out, shown_text(self._failure) + "\n")
            for each in self.found.values():
                each.print(out, **({"most": MOST_LINES} if isinstance(each, KernelTotals) else {}))
