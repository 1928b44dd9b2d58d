"""Calls with arguments and results of classes that ``torch.utils._pytree`` knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.support.callables import Counted
from tests.support.structures import Cache, Point, Register


def step(cupy: Any, runs: Counted) -> Callable[[Any, Any], Any]:
    """Return a function that writes to a cache and returns another one."""

    def body(cache: Any, x: Any) -> Any:
        runs.note()
        assert type(cache) is Cache
        cache.keys[0][:1] = x
        both = cupy.empty((2,))
        both[:1] = cache.values[0]
        both[1:] = x
        return Cache([both], [x], window=cache.window)

    return body


@pytest.mark.usefixtures("register")
def test_a_graph_answers_and_writes_come_back(cupy: Any) -> None:
    def cache(value: float, window: Any = 2) -> Cache:
        return Cache([cupy.array([0.0])], [cupy.array([value])], window)

    runs = Counted()
    fast = gpuprof.make_graphed_callable(step(cupy, runs), (cache(0.0), cupy.array([0.0])))
    ran = runs()
    for value in (1.0, 2.0):
        given = cache(value)
        keys = given.keys[0]
        result = fast(given, cupy.array([5.0]))
        assert type(result) is Cache
        assert (result.keys[0].tolist(), result.window) == ([value, 5.0], 2)
        assert given.keys[0] is keys
        assert keys.tolist() == [5.0]
    stats = fast.stats()
    assert runs() == ran
    assert (stats.replays, stats.hits, stats.misses, stats.captures) == (2, 2, 0, 1)
    assert fast(cache(3.0, window=3), cupy.array([1.0])).window == 3
    assert fast.stats().captures == 2


def test_an_object_that_is_made_around_copies_is_refused(cupy: Any, register: Register) -> None:
    def copying(parts: Any, context: Any) -> Cache:
        keys, values = ([each.copy() for each in part] for part in parts)
        return Cache(keys, values, context)

    register(Cache, lambda each: ([each.keys, each.values], each.window), copying)
    cache = Cache([cupy.array([0.0])], [cupy.array([0.0])])
    with pytest.raises(TypeError, match=r"^args\[0\]\[0\]\[0\]: another array.*must keep arrays"):
        gpuprof.make_graphed_callable(step(cupy, Counted()), (cache, cupy.array([0.0])))


def test_a_class_that_fails_to_be_taken_apart_says_so(cupy: Any, register: Register) -> None:
    fast = gpuprof.make_graphed_callable(lambda each: each.x.copy(), (Point(cupy.array([1.0])),))

    def failing(_: Any) -> Any:
        raise KeyError("mine")

    register(Point, failing, None)
    assert fast(Point(cupy.array([2.0]))).tolist() == [2.0]  # as it was registered at the capture
    with pytest.raises(KeyError, match="mine"):
        fast(Point(cupy.array([2.0, 3.0])))
