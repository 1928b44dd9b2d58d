"""What tests of graphed callables share: functions that count their runs, calls at odd moments."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof
from tests.support.threads import PATIENCE_S, in_threads

US = 1_000
BRIEF_S = 0.3  # for what another thread must not do


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


def make(fn: Any, *args: Any, **options: Any) -> gpuprof.GraphedCallable:
    """Return a callable whose runs and replays are those of its calls alone."""
    return gpuprof.make_graphed_callable(fn, args, **{"verify": "off", **options})


def counts(fast: gpuprof.GraphedCallable, *names: str) -> tuple[int, ...]:
    """Return figures of its statistics."""
    stats = fast.stats()
    return tuple(getattr(stats, name) for name in names)


def step_of(run: Any, optimizer: Any, *, detaches: bool = True) -> Callable[[Any], Any]:
    """Return a whole training step, which gives its loss."""

    def step(values: Any) -> Any:
        optimizer.zero_grad()
        loss = run(values).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach() if detaches else loss

    return step


def on_streams(cupy: Any, *works: Callable[[], object]) -> None:
    """Run each on a thread and a stream of its own, as `in_threads`; none may wait for ever."""
    context = cupy.fake.current_context()

    def on_stream(work: Callable[[], object]) -> None:
        cupy.fake.set_current(context)
        with cupy.cuda.Stream(non_blocking=True) as stream:
            work()
            stream.synchronize()

    in_threads(*(functools.partial(on_stream, work) for work in works), limit_s=PATIENCE_S)


@contextlib.contextmanager
def called_before_a_copy(
    monkeypatch: pytest.MonkeyPatch,
    library: type[Any],
    into: Callable[[Any], bool],
    other: Callable[[], None],
) -> Iterator[None]:
    """Call `other` on a thread, with time to end, before a library's first copy into some array."""
    fill = library.fill
    threads: list[threading.Thread] = []

    def fill_late(self: Any, static: Any, array: Any) -> None:
        if into(static) and not threads:
            threads.append(threading.Thread(target=other))
            threads[0].start()
            threads[0].join(BRIEF_S)
        fill(self, static, array)

    with monkeypatch.context() as patch:
        patch.setattr(library, "fill", fill_late)
        yield
    (thread,) = threads
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
