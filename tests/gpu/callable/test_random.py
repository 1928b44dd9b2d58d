"""Random operators in graphed calls: drawn anew in each, and the same as eagerly from one seed."""

from __future__ import annotations

from typing import Any

import pytest

import gpuprof
from tests.gpu.support.callables import assert_replays

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]

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
def test_draws_differ_from_call_to_call(torch: Any, kind: str) -> None:
    values = torch.ones(4096, device="cuda")
    fast = gpuprof.make_graphed_callable(drawing(torch, kind), (values,))
    seen = [fast(values) for _ in range(6)]
    for index, one in enumerate(seen):
        assert not any(torch.equal(one, other) for other in seen[index + 1 :])
    assert_replays(fast, 6)


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


def test_draws_with_arguments_that_change_and_results_that_are_kept(torch: Any) -> None:
    def noisy(values: Any) -> tuple[Any, Any]:
        noise = torch.rand_like(values)
        return values + noise, noise

    fast = gpuprof.make_graphed_callable(noisy, (torch.ones(512, device="cuda"),))
    given = [torch.full((512,), float(step), device="cuda") for step in range(50)]
    found = [fast(values) for values in given]
    for values, (total, noise) in zip(given, found, strict=True):
        assert torch.equal(total, values + noise)
    assert len({float(noise[0]) for _, noise in found}) > 40
    assert_replays(fast, 50)


def test_draws_with_an_argument_of_another_layout(torch: Any) -> None:
    fast = gpuprof.make_graphed_callable(
        drawing(torch, "rand"), (torch.ones(32, 16, device="cuda"),)
    )
    given = torch.arange(512.0, device="cuda").view(16, 32).t()
    torch.manual_seed(1)
    found = [fast(given) for _ in range(2)]
    for result in found:
        assert torch.all((result - given).sub(0.5).abs() <= 0.501)
    assert not torch.equal(*found)
    assert_replays(fast, 2, captures=2)


def test_switching_to_inference_mode_and_back(torch: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Dropout(0.5)).to("cuda")
    module.requires_grad_(False)
    values = torch.randn(8, 64, device="cuda")
    fast = gpuprof.make_graphed_callable(module, (values,))
    dropped = fast(values)
    assert int((dropped == 0).sum()) > 100
    module.eval()
    whole = [fast(values) for _ in range(3)]
    for result in whole:
        torch.testing.assert_close(result, module(values))
    module.train()
    again = fast(values)
    assert int((again == 0).sum()) > 100
    assert not torch.equal(again, dropped)
    assert_replays(fast, 5, captures=2)
