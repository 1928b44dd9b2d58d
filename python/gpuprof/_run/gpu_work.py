"""What `gpuprof run` shows of the GPU on request: the lines that keep it idle."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from gpuprof._idle.api import Idle


class GpuWork:
    """Watches from `start` to `stop`. No failure in here is one of the program's."""

    def __init__(self, *, idle: bool) -> None:
        self._idle: Idle | None = None
        if idle:
            from gpuprof._idle.api import Idle

            self._idle = Idle()

    def start(self) -> None:
        """Begin before the program does: nothing in here initialises CUDA."""
        if self._idle is not None:
            self._idle._start()

    def stop(self) -> None:
        if self._idle is not None:
            self._idle._stop()

    def show(self, out: TextIO | None) -> None:
        """Print the tables; nowhere if nobody reads."""
        with suppress(OSError, ValueError):  # closed, or its reader is gone
            if self._idle is not None and out is not None:
                self._idle.print(out)
