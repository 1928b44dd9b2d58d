"""Threads that call, capture and call each other's callables: none waits for ever."""

from __future__ import annotations

import contextlib
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.support.callables import Counted, on_streams
from tests.support.threads import PATIENCE_S


def ask(fast: gpuprof.GraphedCallable) -> None:
    """Call a method that needs the callable's lock on another thread."""
    asked = threading.Thread(target=fast.stats)
    asked.start()
    asked.join(PATIENCE_S)
    assert not asked.is_alive(), "code of the user's runs with the callable's lock"


class Meeting:
    """Has two threads meet once, or go on after a moment if the other cannot come."""

    def __init__(self) -> None:
        self._barrier = threading.Barrier(2)

    def __call__(self) -> None:
        with contextlib.suppress(threading.BrokenBarrierError):
            self._barrier.wait(0.2)


def test_two_callables_that_call_each_other_capture_on_two_threads(cupy: Any) -> None:
    meeting, runs = Meeting(), Counted()
    made: dict[str, Any] = {}

    def calling(other: str) -> Callable[[Any], Any]:
        def body(x: Any) -> Any:
            runs.note()
            meeting()  # each thread is inside of its own callable now
            return made[other](x[:1]) if x.shape[0] > 1 else x.copy()

        return body

    for name, other in (("one", "two"), ("two", "one")):
        made[name] = gpuprof.make_graphed_callable(calling(other), warmup=0)
    found: dict[str, Any] = {}

    def call(name: str, value: float) -> Callable[[], None]:
        def work() -> None:
            for _ in range(3):
                found[name] = made[name](cupy.array([value, value])).tolist()

        return work

    on_streams(cupy, call("one", 1.0), call("two", 2.0))
    assert found == {"one": [1], "two": [2]}
    assert runs() > 0
    assert [made[name].stats().captures for name in made] == [1, 1]


def test_a_guard_of_the_callers_own_may_call_the_callable_s_methods(cupy: Any) -> None:
    made: list[gpuprof.GraphedCallable] = []

    def key() -> int:
        for each in made:
            ask(each)
        return 0

    fast = gpuprof.make_graphed_callable(lambda x: x.copy(), (cupy.array([1.0]),), guards=key)
    made.append(fast)
    try:
        assert fast(cupy.array([2.0])).tolist() == [2]
        assert fast(cupy.array([2.0, 3.0])).tolist() == [2, 3]
    finally:
        made.clear()


class AsksStats:
    """A value whose hash and comparison need the callable's lock on another thread."""

    def __init__(self, made: list[gpuprof.GraphedCallable]) -> None:
        self._made = made

    def _ask(self) -> None:
        for each in self._made:
            ask(each)

    def __hash__(self) -> int:
        self._ask()
        return 1

    def __eq__(self, other: object) -> bool:
        self._ask()
        return isinstance(other, AsksStats)


def test_hashes_and_comparisons_of_constants_may_use_the_callable(cupy: Any) -> None:
    made: list[gpuprof.GraphedCallable] = []
    fast = gpuprof.make_graphed_callable(lambda x, _: x.copy(), warmup=1, max_graphs=1)
    made.append(fast)
    try:
        for size in (1, 1, 2, 2, 1):
            x = cupy.array([1.0] * size)
            assert fast(x, AsksStats(made)).tolist() == [1] * size
        fast.reset()
    finally:
        made.clear()


def test_warnings_may_use_the_callable(cupy: Any) -> None:
    fast = gpuprof.make_graphed_callable(lambda x: x.copy(), warmup=0, max_graphs=1)
    told: list[str] = []

    def warn(message: str, *_: object, **_options: object) -> None:
        ask(fast)
        told.append(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warnings, "warn", warn)
        for size in range(1, 7):
            fast(cupy.array([1.0] * size))
    assert len(told) == 1
    assert "graphs were captured and dropped again" in told[0]


def test_other_threads_reset_while_one_is_in_a_function(cupy: Any) -> None:
    inside, let_go = threading.Event(), threading.Event()

    def body(x: Any) -> Any:
        inside.set()
        assert let_go.wait(PATIENCE_S)
        return x.copy()

    fast = gpuprof.make_graphed_callable(body, warmup=1)

    def reset() -> None:
        assert inside.wait(PATIENCE_S)
        fast.reset()
        let_go.set()

    x = cupy.array([1.0])
    cupy.cuda.get_current_stream().synchronize()
    on_streams(cupy, lambda: fast(x), reset)
    for _ in range(2):
        assert fast(x).tolist() == [1]
    assert fast.stats().captures == 1
