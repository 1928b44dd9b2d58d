"""State that changes between the calls of a graphed callable, beside eager calls, on the CPU."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.support.callables import step_of

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
from tests.support import read_objects  # noqa: E402 (needs torch)

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("tapes")]
nn = torch.nn


@pytest.mark.parametrize("change", read_objects.CHANGES.values(), ids=read_objects.CHANGES)
def test_a_change_is_in_the_next_result(change: Callable[[Any], object]) -> None:
    read_objects.assert_a_change_is_in_the_next_result(gpuprof.make_graphed_callable, change)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def rmsprop(parameters: Any) -> Any:
    return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5)


@pytest.mark.parametrize("make", [sgd, rmsprop])
@pytest.mark.parametrize("saved_at", [0, 6], ids=["empty", "full"])
@pytest.mark.parametrize("warmup", [0, 3])
def test_whole_steps_go_on_from_the_state_that_an_optimizer_loads(
    make: Any, saved_at: int, warmup: int
) -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 4)
    eager = copy.deepcopy(module)
    both = make(module.parameters()), make(eager.parameters())
    fast = gpuprof.make_graphed_callable(step_of(module, both[0]), warmup=warmup)
    plain = step_of(eager, both[1])
    saved: list[Any] = []
    for number in range(16):
        if number == saved_at:
            saved = [copy.deepcopy(each.state_dict()) for each in both]
        if number in {8, 12}:
            for optimizer, state in zip(both, saved, strict=True):
                optimizer.load_state_dict(copy.deepcopy(state))
        x = torch.randn(4, 4)
        assert torch.equal(fast(x), plain(x)), number
        assert torch.equal(module.weight, eager.weight), number
    assert fast.stats().captures == 3


def of_layout(is_transposed: bool) -> Any:
    x = torch.arange(12.0)
    return x.reshape(3, 4).t() if is_transposed else x.reshape(4, 3)


def test_each_layout_that_matters_is_warmed_up() -> None:
    tuned: dict[Any, float] = {}

    def body(x: Any) -> Any:
        if x.stride() not in tuned:
            tuned[x.stride()] = float(x.sum())  # waits, as what is tuned once does
        x.add_(1)
        return x.sum(1)

    fast = gpuprof.make_graphed_callable(body, warmup=1)
    for is_transposed in (False, False, True, True, False, True):
        x = of_layout(is_transposed)
        expected = (x + 1).sum(1)
        assert fast(x).equal(expected)
    assert (fast.stats().captures, fast.stats().failures) == (2, 0)


def test_a_layout_whose_capture_fails_leaves_others_their_graphs() -> None:
    module = nn.Linear(3, 3)

    def body(x: Any) -> Any:
        x.add_(0)
        if not x.is_contiguous():
            float(x.sum())
        with torch.no_grad():
            return module(x)

    fast = gpuprof.make_graphed_callable(body, warmup=0, on_capture_error="eager")
    fast(of_layout(False))
    with pytest.warns(RuntimeWarning, match="the capture failed"):
        fast(of_layout(True))
    module.weight.data = module.weight.data.clone()
    for is_transposed in (False, True, False):
        fast(of_layout(is_transposed))
    assert (fast.stats().captures, fast.stats().failures) == (2, 1)
    assert fast.stats().recaptures == 1
