"""What a function reads of objects besides its arguments, and changes of it between its calls.

Needs torch, so tests import it where they run.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

WIDTH = 4


def frozen_linear(device: Any = None) -> Any:
    """Return a linear layer that does not train."""
    return nn.Linear(WIDTH, WIDTH, device=device).requires_grad_(False)


class Lora(nn.Module):
    """What there is of a LoRA layer besides its matrices."""

    def __init__(self, device: Any) -> None:
        super().__init__()
        self.base = frozen_linear(device)
        self.scaling = {"default": 2.0}
        self.disabled: set[str] = set()
        self.merged: list[str] = []

    def forward(self, x: Any) -> Any:
        names = [name for name in self.scaling if name not in (*self.disabled, *self.merged)]
        return self.base(x) * sum(self.scaling[name] for name in names)


def state_and_function(device: Any = None) -> tuple[Any, Callable[[Any], Any]]:
    """Return objects that a function reads, and the function."""
    torch.manual_seed(0)
    blocks = nn.ModuleDict({"a": frozen_linear(device)})
    state = types.SimpleNamespace(lora=Lora(device), net=frozen_linear(device), blocks=blocks)

    def function(x: Any) -> Any:
        return state.lora(x) + state.net.bias + sum(each(x) for each in state.blocks.values())

    return state, function


def _other_bias(state: Any) -> None:
    bias = torch.ones_like(state.net.bias)
    state.net.bias = nn.Parameter(bias, requires_grad=False)


def _other_attributes(state: Any) -> None:
    state.lora.__dict__ = {**vars(state.lora), "scaling": {"default": 3.0}}


def _block(state: Any, name: str) -> None:
    state.blocks[name] = frozen_linear(state.net.bias.device)


CHANGES: dict[str, Callable[[Any], object]] = {
    "a value of a dict": lambda state: state.lora.scaling.update(default=4.0),
    "a key of a dict": lambda state: state.lora.scaling.update(more=1.0),
    "a set": lambda state: state.lora.disabled.add("default"),
    "a list": lambda state: state.lora.merged.append("default"),
    "all attributes": _other_attributes,
    "a parameter that is only read": _other_bias,
    "a module in a container": lambda state: _block(state, "a"),
    "one more module in a container": lambda state: _block(state, "b"),
}


def assert_a_change_is_in_the_next_result(
    make: Callable[..., Any], change: Callable[[Any], object], device: Any = None
) -> None:
    """Fail unless a graphed function follows a change of what it reads, by a graph of its own."""
    state, function = state_and_function(device)
    x = torch.randn(2, WIDTH, device=device)
    fast = make(function, (x,))
    before = fast(x).clone()
    assert torch.equal(before, function(x))
    change(state)
    assert not torch.equal(before, function(x))
    for _ in range(2):
        assert torch.equal(fast(x), function(x))
    assert (fast.stats().captures, fast.stats().eager_calls) == (2, 0)
