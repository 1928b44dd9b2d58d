"""The models whose training is measured, with the batches that they learn from. Needs torch.

Every way to train a model starts from a copy of the same weights and sees the same batches in the
same order, so that the losses can be compared. Nothing in them is random: no dropout.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional

from support.transformer import TransformerBlock

DEVICE = "cuda"

_SEED = 0
_WIDTH = 256
_ROWS = 32
_BATCHES = 32  # how many alternate
_VOCABULARY = 256
_SEQUENCES = 8
_LENGTH = 64
_HEADS = 4

Batch = tuple[torch.Tensor, torch.Tensor]
Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Task:
    """A module with its first weights, what it learns from, and how its results are judged."""

    name: str
    module: nn.Module
    loss: Loss
    batches: tuple[Batch, ...]
    rate: float  # of Adam


class _Layer(TransformerBlock):
    """A transformer's block with causal attention."""

    def __init__(self) -> None:
        super().__init__(_WIDTH)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        """Return the block's result, of the shape of its input."""
        rows, length, width = given.shape
        mixed = self.mixed(self.first_norm(given)).view(rows, length, 3, _HEADS, -1)
        query, key, value = mixed.permute(2, 0, 3, 1, 4).unbind(0)
        attended = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.after(given, attended.transpose(1, 2).reshape(rows, length, width))


class _Transformer(nn.Module):
    """A small language model."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.tokens = nn.Embedding(_VOCABULARY, _WIDTH)
        self.positions = nn.Parameter(0.02 * torch.randn(_LENGTH, _WIDTH))
        self.layers = nn.Sequential(*(_Layer() for _ in range(layers)))
        self.norm = nn.LayerNorm(_WIDTH)
        self.head = nn.Linear(_WIDTH, _VOCABULARY)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Return the scores of the token that follows each one."""
        hidden = self.layers(self.tokens(tokens) + self.positions)
        scores: torch.Tensor = self.head(self.norm(hidden))
        return scores


def deep_mlp() -> Task:
    """Sixteen layers at batch 32 that learn a function of their input."""
    torch.manual_seed(_SEED)
    parts: list[nn.Module] = []
    for _ in range(15):
        parts += [nn.Linear(_WIDTH, _WIDTH), nn.ReLU()]
    module = nn.Sequential(*parts, nn.Linear(_WIDTH, _WIDTH))
    # With torch's own first weights, the input hardly reaches the end of so many layers, and the
    # loss would be that of a constant.
    for parameter in module.parameters():
        if parameter.dim() == 2:
            nn.init.kaiming_normal_(parameter, nonlinearity="relu")
    mixed = torch.randn(_WIDTH, _WIDTH) / _WIDTH**0.5

    def batch() -> Batch:
        given = torch.randn(_ROWS, _WIDTH)
        return given.to(DEVICE), torch.tanh(given @ mixed).to(DEVICE)

    return _task("16-layer MLP, batch 32", module, functional.mse_loss, batch, 1e-4)


def transformer() -> Task:
    """Four layers, eight sequences of 64 tokens, each of which follows from the one before."""
    torch.manual_seed(_SEED)
    module = _Transformer()

    def batch() -> Batch:
        tokens = [torch.randint(_VOCABULARY, (_SEQUENCES, 1))]
        for _ in range(_LENGTH):
            tokens.append((5 * tokens[-1] + 3) % _VOCABULARY)
        whole = torch.cat(tokens, dim=1).to(DEVICE)
        return whole[:, :-1].contiguous(), whole[:, 1:].contiguous()

    return _task("small transformer, 8 x 64 tokens", module, _cross_entropy, batch, 3e-4)


def _cross_entropy(scores: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores.flatten(0, 1), wanted.flatten())


def _task(
    name: str, module: nn.Module, loss: Loss, batch: Callable[[], Batch], rate: float
) -> Task:
    module = module.to(DEVICE).train()
    return Task(name, module, loss, tuple(batch() for _ in range(_BATCHES)), rate)
