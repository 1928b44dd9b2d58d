"""What a writer, windows of steps and a flight recorder have in common."""

from __future__ import annotations

import os
import warnings
from abc import abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import finalize

from gpuprof._display.shown import ShownAsCode
from gpuprof._trace.checks import checked_args, checked_buffer

if TYPE_CHECKING:
    from typing_extensions import Self


class TraceBlock(ShownAsCode):
    """A trace that is begun once and closed once, as a context manager, also for ``async with``.

    There it does the same: the end of a trace waits for the GPU, and the event loop with it. Not an
    `abc.ABC`: `TraceWriter` has the metaclass of pybind11's classes.
    """

    def __init__(
        self, path: str, args: Mapping[str, object] | None, buffer_mib: int | None
    ) -> None:
        super().__init__()
        self._args = checked_args(args)
        self._buffer_mib = checked_buffer(buffer_mib)
        self._process = os.getpid()
        self._open = self._closed = False
        # Who only makes one, and leaves the with statement out, would find no file.
        self._say_unused = finalize(self, _warn_of_unused, path, self._process)

    @abstractmethod
    def start(self) -> Self:
        """Begin."""

    @abstractmethod
    def close(self) -> None:
        """End."""

    @property
    def closed(self) -> bool:
        """Whether `close` was called, and it was not begun again."""
        return self._closed

    @property
    def _state(self) -> str:
        return "closed" if self._closed else "not begun"

    def __enter__(self) -> Self:
        if not self._open:
            self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exception: object) -> None:
        self.__exit__(*exception)

    def __reduce__(self) -> str | tuple[Any, ...]:
        message = (
            f"a {type(self).__name__} holds open files and cannot be pickled or copied; "
            "make a new one"
        )
        raise TypeError(message)


def _warn_of_unused(path: str, process: int) -> None:
    if process == os.getpid():  # else a forked child
        warnings.warn(
            f"gpuprof: the trace {path} was never begun, so there is no file: use it in a with "
            "statement, or call its start()",
            RuntimeWarning,
            stacklevel=2,
        )
