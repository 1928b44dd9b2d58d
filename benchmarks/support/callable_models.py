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

from support.transformer import TransformerBlock

DEVICE = "cuda"

_WIDTH = 256
_NARROW = 64  # of the model whose guards are measured: its graph has to be short
_MODEL_WIDTH = 512  # of the decoder
_HEADS = 8
_CACHE = 256
_POSITION = 128
_VOCABULARY = 1_000
_CHANNELS = 64
_PIXELS = 56
_ARGUMENTS = 64  # how many sets alternate, so that a call never meets the address of the last one

Arguments = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Model:
    """A module and arguments that alternate."""

    name: str
    module: nn.Module
    arguments: tuple[Arguments, ...]
    judged_compiled: bool = True  # whether compile=True has a target beside reduce-overhead


class _Block(TransformerBlock):
    """A transformer's block that keeps the keys and values of earlier tokens."""

    def __init__(self) -> None:
        super().__init__(_MODEL_WIDTH)
        kept = (1, _HEADS, _CACHE, _MODEL_WIDTH // _HEADS)
        self.register_buffer("keys", torch.zeros(kept))
        self.register_buffer("values", torch.zeros(kept))

    def forward(
        self, given: torch.Tensor, position: torch.Tensor, mask: torch.Tensor
    ) -> torch.Tensor:
        """Return the block's result for one token, and keep its key and value."""
        mixed = self.mixed(self.first_norm(given))
        parts = mixed.view(1, 1, 3, _HEADS, -1).permute(2, 0, 3, 1, 4)
        query, key, value = parts.unbind(0)
        self.keys.index_copy_(2, position, key)
        self.values.index_copy_(2, position, value)
        attended = functional.scaled_dot_product_attention(
            query, self.keys, self.values, attn_mask=mask
        )
        return self.after(given, attended.transpose(1, 2).reshape(1, 1, _MODEL_WIDTH))


class _Decoder(nn.Module):
    """A small transformer that takes one token and scores the next."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _MODEL_WIDTH)
        self.positions = nn.Embedding(_CACHE, _MODEL_WIDTH)
        self.blocks = nn.ModuleList(_Block() for _ in range(layers))
        self.norm = nn.LayerNorm(_MODEL_WIDTH)
        self.head = nn.Linear(_MODEL_WIDTH, _VOCABULARY)
        self.register_buffer("steps", torch.arange(_CACHE))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> torch.Tensor:
        """Return the scores of all tokens to follow this one."""
        hidden = self.tokens(token) + self.positions(position)
        mask = (self.steps <= position).view(1, 1, 1, _CACHE)
        for block in self.blocks:
            hidden = block(hidden, position, mask)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


class _Residual(nn.Module):
    """Two convolutions around which the input is added."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(_CHANNELS)
        self.second = nn.Conv2d(_CHANNELS, _CHANNELS, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(_CHANNELS)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return the block's result, of the shape of its input."""
        hidden = functional.relu(self.first_norm(self.first(given)))
        return functional.relu(given + self.second_norm(self.second(hidden)))


def _mlp(layers: int, width: int = _WIDTH) -> nn.Module:
    parts: list[nn.Module] = []
    for _ in range(layers - 1):
        parts += [nn.Linear(width, width), nn.ReLU()]
    return nn.Sequential(*parts, nn.Linear(width, width))


def _made(
    name: str, module: nn.Module, arguments: Callable[[], Arguments], *, judged: bool = True
) -> Model:
    module = module.to(DEVICE).eval().requires_grad_(False)
    return Model(name, module, tuple(arguments() for _ in range(_ARGUMENTS)), judged)


def guarded_mlp() -> Model:
    """32 layers, which are 64 parameters, at batch 1."""
    return _made(
        "64 parameters, batch 1",
        _mlp(32, _NARROW),
        lambda: (torch.randn(1, _NARROW, device=DEVICE),),
    )


def small_mlp() -> Model:
    """Two layers at batch 1: a graph that runs for a few microseconds."""
    return _made(
        "2-layer MLP, batch 1",
        _mlp(2),
        lambda: (torch.randn(1, _WIDTH, device=DEVICE),),
        judged=False,
    )


def deep_mlp() -> Model:
    """Sixteen layers at batch 32."""
    return _made(
        "16-layer MLP, batch 32", _mlp(16), lambda: (torch.randn(32, _WIDTH, device=DEVICE),)
    )


def decoder() -> Model:
    """A transformer of four layers that decodes one token with a cache of 256."""

    def arguments() -> Arguments:
        token = torch.randint(_VOCABULARY, (1, 1), device=DEVICE)
        return token, torch.full((1,), _POSITION, device=DEVICE)

    return _made("decoder step, 4 layers", _Decoder(), arguments)


def conv_net() -> Model:
    """Eight residual blocks at batch 1: about 100 parameters and buffers."""
    module = nn.Sequential(
        nn.Conv2d(3, _CHANNELS, 3, padding=1, bias=False),
        nn.BatchNorm2d(_CHANNELS),
        nn.ReLU(),
        *(_Residual() for _ in range(8)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(_CHANNELS, 10),
    )
    return _made(
        "conv net, 8 blocks, batch 1",
        module,
        lambda: (torch.randn(1, 3, _PIXELS, _PIXELS, device=DEVICE),),
    )
