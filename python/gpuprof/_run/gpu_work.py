"""What `gpuprof run` shows of the GPU on request: all its work, and the lines that keep it idle."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, TextIO

from gpuprof._common.text import shown_text, write_text

if TYPE_CHECKING:
    from gpuprof._idle.api import Idle
    from gpuprof._kernels.api import Kernels
    from gpuprof._kernels.rows import KernelTotals

MOST_LINES = 30  # of a table on standard error; a report has all


class GpuWork:
    """Watches from `start` to `stop`. No failure of the end is one of the program's."""

    def __init__(self, *, kernels: bool, idle: bool) -> None:
        self.kernels: Kernels | None = None
        self.idle: Idle | None = None
        self._failure = ""
        if kernels:
            from gpuprof._kernels.api import MAX_RECORDS, Kernels
            from gpuprof._kernels.callers import callers_supported

            self.kernels = Kernels(MAX_RECORDS, callers=callers_supported())
        if idle:
            from gpuprof._idle.api import Idle

            self.idle = Idle()

    def start(self) -> None:
        """Begin before the program does; the errors of `gpuprof.kernels`, which needs CUDA."""
        if self.kernels is not None:
            self.kernels.__enter__()
        if self.idle is not None:
            self.idle._start()

    def stop(self) -> None:
        """Wait for the GPU, and write what it did to the traces that are open."""
        if self.idle is not None:
            self.idle._stop()
        if self.kernels is not None:
            try:
                self.kernels.__exit__(None, None, None)
            except Exception as error:
                self._failure = f"gpuprof: no kernels: {type(error).__name__}: {error}"
                self.kernels = None

    def totals(self) -> list[KernelTotals]:
        """Return the work by name and, where lines are told of, by caller."""
        if self.kernels is None:
            return []
        found = [self.kernels.by_kernel()]
        if self.kernels.has_callers:
            found.append(self.kernels.by_caller())
        return found

    def parts(self) -> list[tuple[str, str]]:
        """Return what a report shows: headings, and their HTML."""
        found: dict[str, Any] = {"GPU work by scope": self.kernels}
        found |= zip(("GPU work by name", "GPU work by caller"), self.totals(), strict=False)
        found["Idle lines"] = self.idle
        return [(name, each._repr_html_()) for name, each in found.items() if each is not None]

    def show(self, out: TextIO | None) -> None:
        """Print the tables; nowhere if nobody reads."""
        if out is None:
            return
        with suppress(OSError, ValueError):  # closed, or its reader is gone
            if self._failure:
                write_text(out, shown_text(self._failure) + "\n")
            if self.kernels is not None:
                self.kernels.print(out)
            for each in self.totals():
                each.first(MOST_LINES).print(out)
            if self.idle is not None:
                self.idle.print(out)
