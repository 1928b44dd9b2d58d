"""What may come between any two instructions of Python's, put off: Ctrl-C, garbage collection.

Python runs signal handlers on the main thread only, between any two of its instructions. A block
of `held_back` notes SIGINT and has the program's own handler run after it. On other threads, and
where SIGINT has no handler of Python's, there is nothing to hold back.
"""

from __future__ import annotations

import gc
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any, TypeVar

_Result = TypeVar("_Result")


_came: list[int] = []  # the signals that are held back
_waiting: list[object] = []  # the call that one may end


def _note(number: int, _frame: FrameType | None) -> None:
    _came.append(number)
    if _waiting:
        _waiting.clear()
        raise KeyboardInterrupt


class held_back:
    """A block in which SIGINT is only noted; `wait` in it still ends. One inside another is it."""

    __slots__ = ("_handler",)

    def __enter__(self) -> None:
        self._handler: Any = None
        found = signal.getsignal(signal.SIGINT)
        if not callable(found) or found is _note:
            return
        with suppress(ValueError):  # another thread
            # Only now is anything noted, and only what comes from now on.
            _came.clear()
            self._handler = signal.signal(signal.SIGINT, _note) and found

    def __exit__(self, *_: object) -> None:
        handler = self._handler
        if handler is None:
            return
        if signal.getsignal(signal.SIGINT) is _note:
            signal.signal(signal.SIGINT, handler)
        if _came:
            _came.clear()
            handler(signal.SIGINT, sys._getframe(1))


def wait(call: Callable[[], _Result]) -> _Result | None:
    """Return what a long `call` does; None where a Ctrl-C in a block of `held_back` ends it."""
    on_main = threading.current_thread() is threading.main_thread()
    if not on_main or signal.getsignal(signal.SIGINT) is not _note:
        return call()
    if _came:
        return None
    try:
        _waiting.append(call)
        return call()
    except KeyboardInterrupt:
        if not _came:
            raise
        return None
    finally:
        _waiting.clear()


@contextmanager
def collector_off() -> Iterator[None]:
    """Put cyclic garbage collection off, and leave it as it was found.

    Where it is off already, another thread's sample may turn it on again at any time.
    """
    was_on = gc.isenabled()
    try:
        if was_on:
            gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()
