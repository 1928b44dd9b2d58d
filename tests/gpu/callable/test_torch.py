"""Graphed calls of torch functions: arguments and results of every structure."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_counts, assert_replays


def test_results_that_share_memory_or_are_the_argument(torch: Any) -> None:
    def parts(values: Any) -> Any:
        result = values * 2
        return result[:4], result[4:], result.view(2, 4).t(), values, values[1:3]

    values = torch.randn(8, device="cuda")
    fast = gpuprof.make_graphed_callable(parts, (values,))
    for _ in range(3):
        values = torch.randn(8, device="cuda")
        for found, wanted in zip(fast(values), parts(values), strict=True):
            assert torch.equal(found, wanted)
    assert_replays(fast, 3)


def test_empty_and_scalar_arrays(torch: Any) -> None:
    def total(values: Any, scale: Any, empty: Any) -> Any:
        return values.sum() * scale, empty * 2

    values, scale = torch.arange(8.0, device="cuda"), torch.tensor(2.0, device="cuda")
    empty = torch.empty(0, 4, device="cuda")
    fast = gpuprof.make_graphed_callable(total, (values, scale, empty))
    for _ in range(2):
        scale = scale + 1
        found, nothing = fast(values, scale, empty)
        assert found.shape == ()
        assert found.item() == 28.0 * scale.item()
        assert nothing.shape == (0, 4)
    assert_replays(fast, 2)


@pytest.mark.parametrize(
    "dtype", ["bool", "uint8", "int16", "int64", "float16", "float64", "complex64", "float8_e4m3fn"]
)
def test_arrays_of_every_type_pass(torch: Any, dtype: str) -> None:
    kind = getattr(torch, dtype)
    given = [torch.arange(5, device="cuda").add(step).remainder(2).to(kind) for step in range(3)]
    fast = gpuprof.make_graphed_callable(lambda values: values.clone(), (given[0],))
    for values in given:
        found = fast(values)
        assert found.dtype == kind
        assert torch.equal(found.view(torch.uint8), values.view(torch.uint8))
    assert_replays(fast, 3)


def test_gradients_flow_back_through_padded_calls(torch: Any) -> None:
    layer = torch.nn.Linear(4, 4, device="cuda")

    def body(values: Any) -> Any:
        return layer(values).tanh() * values

    sample = torch.randn(8, 4, device="cuda", requires_grad=True)
    fast = gpuprof.make_graphed_callable(body, (sample,), buckets={0: (4, 8)})
    for count in (3, 5, 2, 4, 7):
        values = torch.randn(count, 4, device="cuda")
        worlds = []
        for function in (fast, body):
            given = values.clone().requires_grad_()
            layer.zero_grad()
            (function(given * 2).square().sum() / count).backward()
            worlds.append([given.grad, layer.weight.grad.clone(), layer.bias.grad.clone()])
        for found, expected in zip(*worlds, strict=True):
            torch.testing.assert_close(found, expected)
    assert fast.stats().padded_calls == 2, fast.stats()


@pytest.mark.parametrize("of", ["argument", "parameter"])
def test_a_call_that_needs_gradients_has_a_graph_of_its_own(torch: Any, of: str) -> None:
    layer = torch.nn.Linear(4, 4, device="cuda").requires_grad_(of == "parameter")
    given = torch.ones(2, 4, device="cuda", requires_grad=of == "argument")
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(layer, (torch.ones(2, 4, device="cuda"),))
        assert not fast(given).requires_grad
    found = fast(given)
    assert found.requires_grad
    tensor = given if of == "argument" else layer.weight
    (mine,) = torch.autograd.grad(found.sum(), tensor)
    (wanted,) = torch.autograd.grad(layer(given).sum(), tensor)
    torch.testing.assert_close(mine, wanted)
    with torch.no_grad():
        torch.testing.assert_close(fast(given), layer(given))
    assert_counts(fast, captures=2, eager_calls=0, failures=0)


def test_a_call_in_somebodys_capture_becomes_part_of_it(torch: Any) -> None:
    given = torch.ones(8, device="cuda")
    fast = gpuprof.make_graphed_callable(lambda values: values * 2 + 1, (given,))
    fast(given)
    with gpuprof.capture() as cap:
        result = fast(given)
    assert cap.graph.num_nodes >= 2
    for step in range(3):
        given.fill_(step)
        cap.graph.launch()
        assert torch.equal(result, given * 2 + 1)
    assert_counts(fast, replays=1, eager_calls=1, captures=1)
