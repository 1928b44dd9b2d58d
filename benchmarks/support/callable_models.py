"""The models whose calls are measured, with arguments for them; needs torch with CUDA.

All are for inference: no parameter wants a gradient. A result depends on the arguments of its call
alone, so that every way to call a model can be compared with the eager one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

_WIDTH = 256
_LENGTH = 128
_VOCABULARY = 1_000
_POSITION = 64
_ARGUMENTS = 64  # how many sets alternate, so that a call never meets the address of the last one

Arguments = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Model:
    """A module and arguments that alternate."""

    name: str
    module: nn.Module
    arguments: tuple[Arguments, ...]


class _Block(nn.Module):
    """A transformer's block that keeps the keys and values of earlier tokens."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.first_norm = nn.LayerNorm(_WIDTH)
        self.mixed = nn.Linear(_WIDTH, 3 * _WIDTH)
        self.joined = nn.Linear(_WIDTH, _WIDTH)
        self.second_norm = nn.LayerNorm(_WIDTH)
        self.wide = nn.Linear(_WIDTH, 4 * _WIDTH)
        self.narrow = nn.Linear(4 * _WIDTH, _WIDTH)
        kept = (1, heads, _LENGTH, _WIDTH // heads)
        self.register_buffer("keys", torch.zeros(kept))
        self.register_buffer("values", torch.zeros(kept))

    def forward(
        self, given: torch.Tensor, position: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the block's result for one token, and keep its key and value."""
        mixed = self.mixed(self.first_norm(given))
        parts = mixed.view(1, 1, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=mask
        )
        given = given + self.joined(attended.transpose(1, 2).reshape(1, 1, _WIDTH))
        return given + self.narrow(functional.gelu(self.wide(self.second_norm(given))))


class _Decoder(nn.Module):
    """A small transformer that takes one token and scores the next."""

    def __init__(self, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Embedding(_LENGTH, _WIDTH)
        self.blocks = nn.ModuleList(_Block(heads) for _ in range(layers))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)
        self.register_buffer("steps", torch.arange(_LENGTH))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return the scores of all tokens to follow this one."""
        hidden = self.tokens(token) + self.positions(position)
        mask = (self.steps <= position).view(1, 1, 1, _LENGTH)
        for block in self.blocks:
            hidden = block(hidden, position, mask)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


def _mlp(layers: int) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(_WIDTH, _WIDTH))


def _made(name: str, module: nn.Module, arguments: Callable[[], Arguments]) -> Model:
    module = module.to("cuda").eval().requires_grad_(False)
    return Model(name, module, tuple(arguments() for _ in range(_ARGUMENTS)))


def small_mlp() -> Model:
    """Two layers at batch 1: a graph that runs for a few microseconds."""
    return _made("2-layer MLP, batch 1", _mlp(2), lambda: (torch.randn(1, _WIDTH, device="cuda"),))


def deep_mlp() -> Model:
    """Sixteen layers at batch 32."""
    return _made(
        "16-layer MLP, batch 32", _mlp(16), lambda: (torch.randn(32, _WIDTH, device="cuda"),)
    )


def decoder() -> Model:
    """A transformer of four layers that decodes one token."""

    def arguments() -> Arguments:
        token = torch.randint(_VOCABULARY, (1, 1), device="cuda")
        return token, torch.full((1,), _POSITION, device="cuda")

    return _made("transformer, one token", _Decoder(), arguments)
