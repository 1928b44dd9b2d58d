"""What is repeated: scopes and event pairs, each as a loop with its timing around it.

A loop is written out for each kind, so that nothing but `for` and the thing itself is inside. Loops
may be cut into bursts with an untimed wait between: a stream's queue then never fills up, and the
time is the host's alone.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from time import perf_counter_ns
from typing import Any

import gpuprof

Loop = Callable[[int], None]


class BenchmarkError(RuntimeError):
    """A measurement is not what its name says, so it must not be reported."""


def nothing() -> None:
    """Stand in for a wait or an end that a contender does not need."""


def timed(
    loop: Loop,
    *,
    finish: Callable[[], object] = nothing,
    wait: Callable[[], object] = nothing,
    burst: int | None = None,
) -> Callable[[int], int]:
    """Return a run: the loop in bursts with untimed waits between, then a timed `finish`."""

    def run(count: int) -> int:
        spent = 0
        size = burst or count
        for begin in range(0, count, size):
            if begin != 0:
                wait()
            begun = perf_counter_ns()
            loop(min(size, count - begin))
            spent += perf_counter_ns() - begun
        begun = perf_counter_ns()
        finish()
        spent += perf_counter_ns() - begun
        wait()
        return spent

    return run


def entered(manager: Any) -> Loop:
    """Enter and leave one reused context manager."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            with manager:
                pass

    return loop


def made(make: Callable[[], Any]) -> Loop:
    """Make a context manager for each turn, enter and leave it."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            with make():
                pass

    return loop


def null_contexts(count: int) -> None:
    """Enter and leave `contextlib.nullcontext()`, written as people write it."""
    for _ in repeat(None, count):
        with contextlib.nullcontext():
            pass


def called(first: Callable[..., object], second: Callable[..., object], *given: object) -> Loop:
    """Call two functions in turn: the two records of an event pair."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            first(*given)
            second(*given)

    return loop


def repeated(function: Callable[..., object], *given: object) -> Loop:
    """Call one function with the same arguments."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            function(*given)

    return loop


def answered(function: Callable[[int], object]) -> Loop:
    """Call a function of one number."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            function(1)

    return loop


def ran(function: Callable[[int], Any]) -> Loop:
    """Make a coroutine of one number that waits for nothing, and run it."""

    def loop(count: int) -> None:
        for _ in repeat(None, count):
            try:  # noqa: SIM105 (what suppresses costs more than what is measured)
                function(1).send(None)
            except StopIteration:
                pass

    return loop


def counted(run: Callable[[int], int], name: str) -> Callable[[int], int]:
    """Let `run` start with empty statistics, and refuse its time unless every scope counted."""

    def checked(count: int) -> int:
        gpuprof.reset()
        spent = run(count)
        row = gpuprof.stats()[name]
        summary = row.time
        if row.dropped != 0 or summary is None or summary.count != count:
            found = 0 if summary is None else summary.count
            raise BenchmarkError(f"{name}: {found} of {count} counted, {row.dropped} dropped")
        return spent

    return checked


def on_threads(each: Sequence[Loop], prepare: Callable[[], object]) -> Callable[[int], int]:
    """Share the count among loops, a thread each; from the first start to a flush at the end."""

    def run(count: int) -> int:
        if count % len(each) != 0:
            raise BenchmarkError(f"a count of {count} cannot be shared by {len(each)} threads")
        barrier = threading.Barrier(len(each))
        begun = [0] * len(each)

        def work(index: int) -> None:
            prepare()
            barrier.wait()
            begun[index] = perf_counter_ns()
            each[index](count // len(each))

        threads = [threading.Thread(target=work, args=(index,)) for index in range(len(each))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        gpuprof.flush()
        return perf_counter_ns() - min(begun)

    return run


@contextlib.contextmanager
def busy_thread() -> Iterator[None]:
    """Run a thread beside the body that computes in pure Python."""
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            for _ in range(1000):
                pass

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
