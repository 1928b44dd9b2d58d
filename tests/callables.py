"""What tests of graphed callables share: functions that count their runs, and threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

US = 1_000


class Counted:
    """How often a function ran: no plain value, which a graphed callable would watch."""

    def __init__(self) -> None:
        self._runs: list[None] = []

    def note(self) -> None:
        self._runs.append(None)

    def __call__(self) -> int:
        return len(self._runs)


def twice(cupy: Any, runs: Counted | None = None, ns: int = US) -> Callable[[Any], Any]:
    """Return a function of an array that gives it twice, one after the other."""

    def body(x: Any) -> Any:
        if runs is not None:
            runs.note()
        size = x.shape[0]
        out = cupy.empty((2 * size, *x.shape[1:]), x.dtype)
        out[:size] = x
        cupy.launch("twice", ns)
        out[size:] = x
        return out

    return body


def in_threads(*works: Callable[[], object]) -> None:
    """Run all at once on threads of their own; raise the first error of one."""
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def run(work: Callable[[], object]) -> None:
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
