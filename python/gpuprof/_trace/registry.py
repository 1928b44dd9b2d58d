"""The traces of this process that are open: opened when first needed, closed at exit."""

from __future__ import annotations

import atexit
import sys
import threading
from contextlib import ExitStack
from typing import Protocol

import gpuprof._core as _core
from gpuprof._common.interrupts import held_back


class OpenTrace(Protocol):
    """What the registry asks of a `TraceWriter`."""

    _collect: bool

    def close(self) -> None: ...
    def _reopen_in_child(self) -> None: ...


# With its number each, also those that a forked child has from its parent. No lock: one would be in
# an unknown state in a child, and each step here is one operation on the dict.
_writers: dict[int, tuple[OpenTrace, int]] = {}  # by `id`
_exiting = False


def remember(writer: OpenTrace, number: int) -> None:
    """Take an open trace in, to be closed at exit, and give it what it collects."""
    if not _writers:
        close_at_exit()
    _writers[id(writer)] = writer, number
    process = sys.modules.get("multiprocessing.process")
    if process is not None and process.parent_process() is not None:
        from multiprocessing.util import Finalize

        Finalize(None, _close_all, exitpriority=-100)  # its children skip the exit handlers
    if writer._collect:
        _core._trace_wanted(True)
        name_threads()


def forget(writer: OpenTrace) -> None:
    """Take a trace out that is closed, or belongs to the parent."""
    _writers.pop(id(writer), None)


def reopen_in_child() -> bool:
    """Open the traces of the parent process anew; False if the process is about to end."""
    if _exiting:
        return False  # nobody would close them
    for writer, _ in list(_writers.values()):
        writer._reopen_in_child()
    return True


def collecting() -> list[int]:
    """Return the numbers of the open traces that take what the program does."""
    return [number for writer, number in list(_writers.values()) if writer._collect]


def close_at_exit() -> None:
    atexit.unregister(_close_at_exit)
    for _ in range(2):  # a Ctrl-C can end the first call before it has begun
        atexit.register(_close_at_exit)


def _close_at_exit() -> None:
    global _exiting  # noqa: PLW0603 (once for the process)
    _close_all()
    _exiting = True


def _close_all() -> None:
    # One that fails, as by a warning made an error, is not the last.
    with held_back(), ExitStack() as each:
        for writer, _ in list(_writers.values()):
            each.callback(writer.close)


def name_threads() -> None:
    for thread in threading.enumerate():
        if thread.native_id is not None:
            _core._trace_name_thread(thread.native_id, thread.name)


def name_this_thread() -> None:
    own = threading.get_native_id()
    for thread in threading.enumerate():
        if thread.native_id == own:
            _core._trace_name_thread(own, thread.name)
