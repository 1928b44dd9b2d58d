"""Small models of the usual kinds with inputs for them, and their graphed calls beside eager ones.

Needs torch, so tests import it where they run. Everything is made on the GPU from a fixed seed. A
module is in inference mode, without gradients, unless its kind says otherwise: the embedding is in
training mode, so that its dropout draws.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import gpuprof
from tests.gpu.support.callables import assert_replays

# The relative and absolute distance from the eager result. A convolution in float32 computes with
# the ten bits of TF32.
_TOLERANCES = {torch.float32: (1.3e-6, 1e-5), torch.bfloat16: (1.6e-2, 1e-2)}
_TF32 = (1e-3, 1e-3)


class Residual(nn.Module):
    """Two convolutions with a path around them, as a ResNet has them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return the block's result, of the size of `given`."""
        inner = functional.relu(self.first_norm(self.first(given)), inplace=True)
        return functional.relu(self.second_norm(self.second(inner)) + given)


class Attention(nn.Module):
    """A transformer's block: causal attention, then two linear layers."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return the block's result, of the size of `given`."""
        batch, length, width = given.shape
        mixed = self.mixed(self.first_norm(given))
        shape = (batch, length, 3, self.heads, width // self.heads)
        query, key, value = mixed.view(shape).permute(2, 0, 3, 1, 4).unbind(0)
        heads = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        given = given + self.joined(heads.transpose(1, 2).reshape(batch, length, width))
        return given + self.narrow(functional.gelu(self.wide(self.second_norm(given))))


def _mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 32)
    )


def _convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        Residual(16),
        Residual(16),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 10),
    )


def _embedding() -> nn.Module:
    return nn.Sequential(nn.Embedding(100, 64), nn.Dropout(0.3), nn.Linear(64, 32))


_KINDS = {
    "mlp": _mlp,
    "convolutions": _convolutions,
    "attention": lambda: Attention(64, 4),
    "embedding": _embedding,
}
_SHAPES = {"mlp": (16, 64), "convolutions": (4, 3, 32, 32), "attention": (2, 16, 64)}


def make(name: str, dtype: torch.dtype = torch.float32, *, trainable: bool = False) -> nn.Module:
    """Return the model of this name."""
    torch.manual_seed(0)
    module = _KINDS[name]().to("cuda", dtype).train(name == "embedding")
    return module.requires_grad_(trainable)


def inputs(name: str, seed: int, dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """Return new arguments for the model of this name."""
    generator = torch.Generator(device="cuda").manual_seed(seed)
    if name == "embedding":
        return (torch.randint(100, (4, 7), device="cuda", generator=generator),)
    return (torch.randn(_SHAPES[name], device="cuda", generator=generator).to(dtype),)


def assert_same(
    name: str, found: torch.Tensor, wanted: torch.Tensor, *, computed: torch.dtype | None = None
) -> None:
    """Fail unless a model's graphed result is its eager one, `computed` in its type or another."""
    assert found.stride() == wanted.stride()
    computed = computed or wanted.dtype
    relative, absolute = _TOLERANCES[computed]
    if name == "convolutions" and computed == torch.float32:
        relative, absolute = _TF32
    torch.testing.assert_close(found, wanted, rtol=relative, atol=absolute)


def check_same_seed(
    name: str,
    module: Any,
    fast: Any,
    given: tuple[Any, ...],
    seed: int,
    *,
    computed: torch.dtype | None = None,
) -> None:
    """Call both with the same random numbers; fail unless the results are the same."""
    torch.manual_seed(seed)
    wanted = module(*given)
    torch.manual_seed(seed)
    assert_same(name, fast(*given), wanted, computed=computed)


def check_parity(name: str, dtype: torch.dtype = torch.float32, **options: Any) -> None:
    """Graph the model of this name and compare a few calls with eager ones."""
    module = make(name, dtype)
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(module, inputs(name, 0, dtype), **options)
        for step in range(4):
            check_same_seed(name, module, fast, inputs(name, step, dtype), step)
    assert_replays(fast, 4)


def check_kept_results(calls: int) -> None:
    """Make calls without a wait, keep all results, and compare them in the end."""
    module = make("mlp")
    with torch.no_grad():
        fast = gpuprof.make_graphed_callable(module, inputs("mlp", 0))
        found = [fast(*inputs("mlp", step)) for step in range(calls)]
        for step, result in enumerate(found):
            assert_same("mlp", result, module(*inputs("mlp", step)))
    assert_replays(fast, calls)
