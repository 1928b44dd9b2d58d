"""Random operators in graphed calls: drawn anew in each, and the same as eagerly from one seed."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays

KINDS = ["dropout", "rand", "normal in place", "bernoulli", "two of them"]
kinds = pytest.mark.parametrize("kind", KINDS)


def drawing(torch: Any, kind: str) -> Any:
    """Return a function with a random operator."""
    functional = torch.nn.functional
    return {
        "dropout": lambda values: functional.dropout(values, 0.4),
        "rand": lambda values: torch.rand_like(values) + values,
        "normal in place": lambda values: values.clone().normal_(),
        "bernoulli": lambda values: torch.bernoulli(torch.full_like(values, 0.5)) * values,
        "two of them": lambda values: functional.dropout(torch.rand_like(values), 0.1),
    }[kind]


@kinds
def test_draws_are_those_of_eager_calls_from_the_same_seed(torch: Any, kind: str) -> None:
    draw = drawing(torch, kind)
    values = torch.rand(4096, device="cuda")
    fast = gpuprof.make_graphed_callable(draw, (values.clone(),))
    for seed in (3, 4):
        torch.manual_seed(seed)
        wanted = [draw(values), draw(values), torch.rand(16, device="cuda"), draw(values)]
        torch.manual_seed(seed)
        found = [fast(values), fast(values), torch.rand(16, device="cuda"), fast(values)]
        assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert_replays(fast, 6)


@kinds
def test_draws_for_a_transposed_argument_are_those_of_eager_calls(torch: Any, kind: str) -> None:
    draw = drawing(torch, kind)
    values = torch.rand(32, 48, device="cuda")
    layouts = values, values.t().contiguous().t(), torch.rand(32, 96, device="cuda")[:, ::2]
    fast = gpuprof.make_graphed_callable(draw, (values.clone(),))
    for given in (*layouts, *layouts):
        torch.manual_seed(3)
        wanted = draw(given)
        torch.manual_seed(3)
        assert torch.equal(fast(given), wanted)
    assert_replays(fast, 6, captures=3)


def test_two_functions_draw_from_one_generator(torch: Any) -> None:
    values = torch.ones(256, device="cuda")
    first, second = (
        gpuprof.make_graphed_callable(drawing(torch, kind), (values,))
        for kind in ("rand", "dropout")
    )
    torch.manual_seed(9)
    wanted = [drawing(torch, kind)(values) for kind in ("rand", "dropout", "rand")]
    torch.manual_seed(9)
    found = [first(values), second(values), first(values)]
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert_replays(first, 2)
    assert_replays(second, 1)
