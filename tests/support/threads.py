"""Running pieces of a test on threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

PATIENCE_S = 30.0  # for what other threads do at once, unless the machine is overloaded


def in_threads(*works: Callable[[], object], limit_s: float | None = None) -> None:
    """Run each in a thread of its own, all at once, and let the first exception out.

    A thread that takes longer than the limit is taken for stuck.
    """
    errors: list[BaseException] = []
    barrier = threading.Barrier(len(works))

    def caught(work: Callable[[], object]) -> None:
        try:
            barrier.wait(PATIENCE_S)
            work()
        except BaseException as error:
            errors.append(error)

    daemon = limit_s is not None
    threads = [threading.Thread(target=caught, args=(work,), daemon=daemon) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(limit_s)
        assert not thread.is_alive(), "threads wait for each other"
    if errors:
        raise errors[0]


@contextmanager
def beside(work: Callable[[], object], count: int = 2) -> Iterator[None]:
    """Call `work` on so many threads, again and again until the block is over."""
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            work()

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()
