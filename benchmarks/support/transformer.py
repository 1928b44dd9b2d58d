"""A transformer's block without its attention, which each measured model has another of."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


class TransformerBlock(nn.Module):
    """Norms and linear layers; the subclass computes the attention, and calls `after` with it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first_norm = nn.LayerNorm(width)
        self.mixed = nn.Linear(width, 3 * width)
        self.joined = nn.Linear(width, width)
        self.second_norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.narrow = nn.Linear(4 * width, width)

    def after(self, given: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """Return the block's result; `attended` has the shape of what the block was given."""
        given = given + self.joined(attended)
        result: torch.Tensor = self.narrow(functional.gelu(self.wide(self.second_norm(given))))
        return given + result
