"""Random small networks that train, from a grammar of layers; needs torch, on any device."""

from __future__ import annotations

import random
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.utils.checkpoint import checkpoint

WIDTH, ROWS, STEPS = 4, 3, 5


class Recurrent(nn.Module):  # type: ignore[misc]
    """A recurrent layer over the rows."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.layer = kind(WIDTH, WIDTH, num_layers=2)

    def forward(self, values: Any) -> Any:
        return self.layer(values)[0]


class Tied(nn.Module):  # type: ignore[misc]
    """Two layers of one weight."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.second.weight = self.first.weight

    def forward(self, values: Any) -> Any:
        return self.second(self.first(values).tanh())


class Checkpointed(nn.Module):  # type: ignore[misc]
    """A layer whose activations the backward pass computes again."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())

    def forward(self, values: Any) -> Any:
        return checkpoint(self.layer, values, use_reentrant=False, preserve_rng_state=False)


class Unused(nn.Module):  # type: ignore[misc]
    """A layer with parameters that it does not use, reads without gradients, or multiplies by."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Parameter(torch.randn(WIDTH))
        self.unused = nn.Parameter(torch.randn(WIDTH))
        self.detached = nn.Parameter(torch.randn(WIDTH))
        self.listed = [nn.Parameter(torch.randn(WIDTH))]  # in no optimizer

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        self.listed = [nn.Parameter(fn(each.detach())) for each in self.listed]
        return super()._apply(fn, recurse)

    def forward(self, values: Any) -> Any:
        return values * self.used + self.detached.detach() * self.listed[0]


def _frozen() -> Any:
    return nn.Linear(WIDTH, WIDTH).requires_grad_(False)


LAYERS: dict[str, Any] = {
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "lstm": lambda: Recurrent(nn.LSTM),
    "gru": lambda: Recurrent(nn.GRU),
    "tied": Tied,
    "frozen": _frozen,
    "norm": lambda: nn.LayerNorm(WIDTH),
    "batch norm": lambda: nn.BatchNorm1d(WIDTH),
    "dropout": lambda: nn.Dropout(0.3),
    "checkpoint": Checkpointed,
    "weight norm": lambda: parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)),
    "spectral norm": lambda: parametrizations.spectral_norm(nn.Linear(WIDTH, WIDTH)),
    "in place": lambda: nn.ReLU(inplace=True),
    "unused": Unused,
}


class Network(nn.Module):  # type: ignore[misc]
    """Layers in a row, with results of several heads, of some layers, and of indices."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        choose = random.Random(seed)
        torch.manual_seed(seed)
        self.names = choose.sample(sorted(LAYERS), k=choose.randint(1, 4))
        self.layers = nn.ModuleList(LAYERS[name]() for name in self.names)
        self.heads = nn.ModuleList(nn.Linear(WIDTH, 2) for _ in range(choose.randint(1, 3)))
        self.shows_hidden = choose.random() < 0.5

    def forward(self, values: Any) -> Any:
        hidden = values + 0.0
        behind = None
        for layer in self.layers:
            # The backward pass of a recurrent layer reads its result.
            is_read = isinstance(behind, Recurrent) and isinstance(layer, nn.ReLU)
            hidden = layer(hidden + 0.0 if is_read else hidden)
            behind = layer
        results = {f"head {n}": head(hidden) for n, head in enumerate(self.heads)}
        if self.shows_hidden:
            results["hidden"] = hidden * 1.0
        return results, hidden.argmax(dim=1)


def loss_of(run: Any, values: Any, seed: int) -> Any:
    """Return the loss of some of the results."""
    results, _ = run(values)
    choose = random.Random(seed)
    trained = [name for name, result in results.items() if result.requires_grad]
    names = [name for name in trained if choose.random() < 0.5] or [choose.choice(trained)]
    return sum(results[name].square().sum() for name in names)


OPTIMIZERS: dict[str, Any] = {
    "SGD": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, weight_decay=0.1),
}
