"""State that changes between the calls of a graphed callable, beside eager calls, on the CPU."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from tests.support import cpu_graphs

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch
nn = torch.nn


@pytest.fixture(autouse=True)
def tapes(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu_graphs.install(monkeypatch)


def frozen_linear() -> Any:
    return nn.Linear(4, 4).requires_grad_(False)


class Lora(nn.Module):  # type: ignore[misc, name-defined]
    """What there is of a LoRA layer besides its matrices."""

    def __init__(self) -> None:
        super().__init__()
        self.base = frozen_linear()
        self.scaling = {"default": 2.0}
        self.disabled: set[str] = set()
        self.merged: list[str] = []

    def forward(self, x: Any) -> Any:
        names = [name for name in self.scaling if name not in (*self.disabled, *self.merged)]
        return self.base(x) * sum(self.scaling[name] for name in names)


def other_bias(state: Any) -> None:
    state.net.bias = nn.Parameter(torch.ones(4), requires_grad=False)


def other_attributes(state: Any) -> None:
    state.lora.__dict__ = {**vars(state.lora), "scaling": {"default": 3.0}}


CHANGES: dict[str, Callable[[Any], object]] = {
    "a value of a dict": lambda state: state.lora.scaling.update(default=4.0),
    "a key of a dict": lambda state: state.lora.scaling.update(more=1.0),
    "a set": lambda state: state.lora.disabled.add("default"),
    "a list": lambda state: state.lora.merged.append("default"),
    "all attributes": other_attributes,
    "a parameter that is only read": other_bias,
    "a module in a container": lambda state: state.blocks.update({"a": frozen_linear()}),
    "one more module in a container": lambda state: state.blocks.update({"b": frozen_linear()}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_in_the_next_result(change: Callable[[Any], object]) -> None:
    torch.manual_seed(0)
    blocks = nn.ModuleDict({"a": frozen_linear()})
    state = types.SimpleNamespace(lora=Lora(), net=frozen_linear(), blocks=blocks)

    def function(x: Any) -> Any:
        return state.lora(x) + state.net.bias + sum(each(x) for each in state.blocks.values())

    x = torch.randn(2, 4)
    fast = gpuprof.make_graphed_callable(function, (x,))
    before = fast(x)
    assert torch.equal(before, function(x))
    change(state)
    assert not torch.equal(before, function(x))
    for _ in range(2):
        assert torch.equal(fast(x), function(x))
    assert (fast.stats().captures, fast.stats().eager_calls) == (2, 0)


def sgd(parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def rmsprop(parameters: Any) -> Any:
    return torch.optim.RMSprop(parameters, lr=0.01, momentum=0.5)


def step_of(module: Any, optimizer: Any) -> Callable[[Any], Any]:
    def step(x: Any) -> Any:
        optimizer.zero_grad()
        loss = module(x).square().sum()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


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
