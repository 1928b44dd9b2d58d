"""Caches and results of registered classes, as models have them, beside eager calls."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays


class Cache:
    """Keys and values of layers, and how many of each are in use."""

    def __init__(self, keys: list[Any], values: list[Any], window: int = 4) -> None:
        self.keys, self.values, self.window = keys, values, window


@pytest.fixture(autouse=True)
def registered() -> None:
    pytree: Any = pytest.importorskip("torch.utils._pytree", reason="torch is not installed")
    if Cache in pytree.SUPPORTED_NODES:
        return
    pytree.register_pytree_node(
        Cache,
        lambda cache: ([cache.keys, cache.values], cache.window),
        lambda parts, window: Cache(*parts, window),
    )


def cache(torch: Any, seed: int, layers: int = 2, window: int = 4) -> Cache:
    generator = torch.Generator(device="cuda").manual_seed(seed)
    keys, values = (
        [torch.randn(4, 8, device="cuda", generator=generator) for _ in range(layers)]
        for _ in range(2)
    )
    return Cache(keys, values, window)


def step(cache: Cache, x: Any) -> tuple[Any, Cache]:
    """Write a row to each layer, and return another cache of what was read."""
    for keys, values in zip(cache.keys, cache.values, strict=True):
        keys[:1] = x
        values[: cache.window].add_(x)
        x = x + (keys * values).sum(0)
    return x, Cache([each * 2 for each in cache.keys], cache.values[:1], cache.window)


def state(torch: Any, given: Cache) -> Any:
    return torch.stack([*given.keys, *given.values])


def check(torch: Any, fast: Any, seed: int, **options: int) -> None:
    x = torch.full((8,), float(seed), device="cuda")
    mine, theirs = cache(torch, seed, **options), cache(torch, seed, **options)
    (found, made), (wanted, expected) = fast(mine, x), step(theirs, x)
    assert torch.equal(found, wanted)
    assert type(made) is Cache
    assert made.window == expected.window
    assert torch.equal(state(torch, made), state(torch, expected))
    assert torch.equal(state(torch, mine), state(torch, theirs))


def test_a_cache_is_written_and_another_returned(torch: Any) -> None:
    sample = cache(torch, 0), torch.zeros(8, device="cuda")
    fast = gpuprof.make_graphed_callable(step, sample)
    for seed in range(1, 5):
        check(torch, fast, seed)
    assert_replays(fast, 4)
    assert fast.stats().misses == 0


def test_another_context_or_number_of_layers_is_another_graph(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(step, (cache(torch, 0), torch.zeros(8, device="cuda")))
    for options in ({}, {"window": 2}, {"layers": 1}, {}, {"window": 2}):
        check(torch, fast, 3, **options)
    assert_replays(fast, 5, captures=3)


def test_gradients_flow_through_a_registered_argument_and_result(torch: Any) -> None:
    def body(given: Cache) -> Cache:
        return Cache([torch.tanh(given.keys[0])], [given.values[0] * 3], given.window)

    def trained(function: Any) -> list[Any]:
        given = cache(torch, 1, layers=1)
        leaves = [given.keys[0].requires_grad_(), given.values[0].requires_grad_()]
        out = function(given)
        (out.keys[0].sum() + (out.values[0] ** 2).sum()).backward()
        return [each.grad for each in leaves]

    sample = cache(torch, 0, layers=1)
    sample.keys[0].requires_grad_()
    sample.values[0].requires_grad_()
    fast = gpuprof.make_graphed_callable(body, (sample,))
    for found, wanted in zip(trained(fast), trained(body), strict=True):
        assert torch.equal(found, wanted)
