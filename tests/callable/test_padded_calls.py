"""Padded calls, one after the other: each is as if nothing were known of the ones before."""

from __future__ import annotations

import random
from typing import Any

import pytest

import gpuprof
from tests.support.callables import Counted, on_streams

SIZES = (2, 4, 8)


def make(fn: Any, *args: Any, **options: Any) -> gpuprof.GraphedCallable:
    return gpuprof.make_graphed_callable(fn, args, **{"verify": "off", "warmup": 0, **options})


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Counted:
    """Counts the keys that are made."""
    counted = Counted()
    make_key = gpuprof.GraphedCallable._kind_of

    def counting(self: Any, *args: Any) -> Any:
        counted.note()
        return make_key(self, *args)

    monkeypatch.setattr(gpuprof.GraphedCallable, "_kind_of", counting)
    return counted


class Chooser:
    """A function of two arrays that copies one of them, by a setting that its graphs are told."""

    def __init__(self, cupy: Any) -> None:
        self.cupy = cupy
        self.setting = 0

    def __call__(self, x: Any, y: Any, flag: Any = None) -> Any:
        self.cupy.launch("choose")
        if self.setting:
            x[:1] = y[:1]  # which the caller sees, in y as well if they overlap
        chosen = (y if self.setting == 2 else x).copy()
        return (chosen, flag) if flag is not None else chosen


def shown(found: Any) -> str:
    """Write a result so that 1, True and 1.0 differ."""
    chosen, *flags = found if isinstance(found, tuple) else (found,)
    return f"{chosen.tolist()} {flags}"


@pytest.mark.filterwarnings("ignore:.*graphs were captured and dropped again:RuntimeWarning")
@pytest.mark.parametrize("seed", range(40))
def test_random_calls_are_those_of_the_function(cupy: Any, seed: int) -> None:
    """Two worlds, equal after each step: sizes, constants, guards, resets, shared memory."""
    rng = random.Random(seed)
    body = Chooser(cupy)
    fast = make(
        body,
        *(cupy.empty((8,)), cupy.empty((8,))),
        buckets={0: SIZES},
        guards=lambda: body.setting,
        max_graphs=rng.choice((2, 12)),
    )
    flags = (None, 1, True, 1.0, 0.0, -0.0)
    size, flag = 3, None
    for _ in range(60):
        change = rng.random()
        if change < 0.3:
            size = rng.randint(1, 9)
        elif change < 0.4:
            flag = rng.choice(flags)
        elif change < 0.5:
            body.setting = rng.randrange(3)
        elif change < 0.53:
            fast.reset()
        values = [float(rng.randrange(100)) for _ in range(2 * size)]
        shares = rng.choice(("nothing", "nothing", "all", "some")) if size > 1 else "nothing"
        worlds = []
        for function in (fast, body):
            whole = cupy.array(values)
            y = whole[:size]
            x = {"all": y, "some": whole[1 : size + 1], "nothing": whole[size:]}[shares]
            given = (x, y) if flag is None else (x, y, flag)
            found = function(*given)
            worlds.append((shown(found), whole.tolist()))
        assert worlds[0] == worlds[1]
    assert fast.stats().padded_calls > 0


def test_a_call_like_an_earlier_one_needs_no_key(cupy: Any, keys: Counted) -> None:
    fast = make(lambda x: x.copy(), cupy.empty((8,)), buckets={0: SIZES})
    for size in (3, 5, 7):  # the first one of a bucket shows how results are cut
        for _ in range(2):
            fast(cupy.array([1.0] * size))
    before = keys()
    for size in (3, 5, 7, 3):
        assert fast(cupy.array([2.0] * size)).tolist() == [2.0] * size
    fast(cupy.array([2.0] * 6))  # another size that is padded to the same one
    assert keys() == before
    stats = fast.stats()
    assert (stats.hits, stats.misses) == (10, 1), stats
    assert (stats.padded_calls, stats.eager_calls) == (9, 2), stats


def test_a_dropped_graph_is_not_kept_for_padded_calls(cupy: Any) -> None:
    fast = make(lambda x: x.copy(), cupy.empty((8,)), buckets={0: SIZES})
    for _ in range(3):
        fast(cupy.array([1.0] * 3))
    gpuprof.flush()
    cupy.fake.stream_synchronize(0)
    fast.reset()
    gpuprof._core._release_idle()
    nothing = cupy.fake.live()
    for _ in range(2):
        for _ in range(3):
            assert fast(cupy.array([5.0] * 3)).tolist() == [5] * 3
        fast.reset()
        cupy.fake.stream_synchronize(0)
        gpuprof._core._release_idle()
        assert cupy.fake.live() == nothing
    assert fast.stats().captures == 4


def test_arrays_that_lie_otherwise_get_the_graph_of_their_layout(cupy: Any) -> None:
    def body(x: Any) -> Any:
        cupy.launch("foreign")  # so strides matter
        return x.copy()

    fast = make(body, cupy.empty((4, 4)), buckets={0: (4,)}, writes=())
    values = [float(value) for value in range(12)]
    for _ in range(3):
        for whole in (cupy.array(values, shape=(3, 4)), cupy.array(values, shape=(4, 3)).T):
            assert fast(whole).tolist() == whole.tolist()


@pytest.mark.torch
def test_a_module_that_is_switched_is_followed(cupy: Any, torch: Any) -> None:
    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def forward(self, x: Any) -> Any:
            return x.copy(), self.training, torch.is_grad_enabled()

    model = Model()
    fast = make(model, cupy.empty((8,)), buckets={0: SIZES})
    for step in range(24):
        model.train(bool(step // 3 % 2))
        with torch.set_grad_enabled(bool(step // 6 % 2)):
            found, *modes = fast(cupy.array([float(step)] * 3))
        assert found.tolist() == [step] * 3
        assert modes == [bool(step // 3 % 2), bool(step // 6 % 2)]
    assert fast.stats().padded_calls >= 12


@pytest.mark.filterwarnings("ignore:.*graphs were captured and dropped again:RuntimeWarning")
def test_threads_make_padded_calls_while_graphs_are_dropped(cupy: Any) -> None:
    fast = make(lambda x: x.copy(), cupy.empty((8,)), buckets={0: SIZES}, max_graphs=2)

    def work(first: int) -> None:
        for step in range(60):
            size = 1 + (first + step) % 8
            assert fast(cupy.array([float(step)] * size)).tolist() == [step] * size
            if first == 0 and step % 20 == 19:
                fast.reset()

    on_streams(cupy, *(lambda first=first: work(first) for first in range(3)))
    assert fast.stats().padded_calls > 0
