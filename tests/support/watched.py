"""Modules of torch for the tests of `gpuprof.watch`: with known times, and of unusual kinds."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

torch: Any = pytest.importorskip("torch", reason="torch is not installed")
checkpoint: Any = pytest.importorskip("torch.utils.checkpoint", reason="torch is not installed")
nn = torch.nn


class _Slow(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, forward_s: float, backward_s: float) -> Any:
        ctx.seconds = backward_s
        time.sleep(forward_s)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        time.sleep(ctx.seconds)
        return gradient * 2, None, None


class Slow(nn.Module):  # type: ignore[misc, name-defined]
    """Doubles, and sleeps for so many seconds in each direction."""

    def __init__(self, forward_s: float, backward_s: float) -> None:
        super().__init__()
        self.seconds = forward_s, backward_s
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Any) -> Any:
        return _Slow.apply(x, *self.seconds) * self.weight


class Pair(NamedTuple):
    first: Any
    second: Any


@dataclasses.dataclass
class Output:
    value: Any
    extra: Any = None


class Structured(nn.Module):  # type: ignore[misc, name-defined]
    """Returns its result inside of one of several structures."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.inner = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = self.inner(x)
        wrap: Callable[[Any], Any] = {
            "tuple": lambda y: (y, None, y + 1),
            "dict": lambda y: {"a": [y], "b": None},
            "named": lambda y: Pair(None, {"deep": y}),
            "dataclass": Output,
        }[self.kind]
        return wrap(y)


class Unwrapping(nn.Module):  # type: ignore[misc, name-defined]
    """Uses what `Structured` returns."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.part = Structured(kind)

    def forward(self, x: Any) -> Any:
        found = self.part(x)
        if isinstance(found, dict):
            return found["a"][0].sum()
        if isinstance(found, Pair):
            return found.second["deep"].sum()
        return found.value.sum() if isinstance(found, Output) else (found[0] * found[2]).sum()


class Residual(nn.Module):  # type: ignore[misc, name-defined]
    """Works in place on views: the result of a linear layer with three dimensions is one."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.up = nn.Linear(4, 8)
        self.act = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.5)
        self.down = nn.Linear(8, 4)

    def forward(self, x: Any) -> Any:
        return x + self.down(self.drop(self.act(self.up(self.norm(x)))))


class InPlaceOnViews(nn.Module):  # type: ignore[misc, name-defined]
    """Changes its argument, a view, and a part of its result."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = nn.Flatten()
        self.conv = nn.Conv1d(2, 2, 1)
        self.act = nn.ReLU(inplace=True)

    def forward(self, x: Any) -> Any:
        y = self.flat(self.conv(x.view(-1, 2, 2)))
        y[:, 0].mul_(2)
        return self.act(y).view(x.shape[0], -1).sin()


class Shared(nn.Module):  # type: ignore[misc, name-defined]
    """One module in two places, and called several times."""

    def __init__(self) -> None:
        super().__init__()
        inner = nn.Linear(4, 4)
        self.left = nn.Sequential(inner, nn.Tanh())
        self.right = nn.Sequential(inner, nn.Sigmoid())
        self.layers = nn.ModuleList([inner, inner])

    def forward(self, x: Any) -> Any:
        y = self.left(x) + self.right(x) + self.left(x)
        for layer in self.layers:
            y = layer(y)
        return y


class Recursive(nn.Module):  # type: ignore[misc, name-defined]
    """Calls itself."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)

    def forward(self, x: Any, times: int = 3) -> Any:
        y = torch.tanh(self.fc(x))
        return y if times == 1 else self(y, times - 1) + y


class Checkpointed(nn.Module):  # type: ignore[misc, name-defined]
    """Runs its layers again in the backward pass."""

    def __init__(self, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.layers = nn.ModuleList([Residual(), Residual()])
        self.head = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = checkpoint.checkpoint(layer, x, use_reentrant=self.reentrant)
        return self.head(x)


class Branches(nn.Module):  # type: ignore[misc, name-defined]
    """Has a result that is not used, a part under no_grad, and one that returns its argument."""

    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.unused = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.same = nn.Identity()
        self.rnn = nn.GRU(4, 4, batch_first=True)

    def forward(self, x: Any) -> Any:
        with torch.no_grad():
            bias = self.frozen(x)
        self.unused(x)
        y, _ = self.rnn(self.same(self.used(x) + bias))
        return y


MODELS: dict[str, tuple[Callable[[], Any], tuple[int, ...]]] = {
    "residual": (lambda: nn.Sequential(*(Residual() for _ in range(3))), (2, 3, 4)),
    "views in place": (lambda: nn.Sequential(InPlaceOnViews(), nn.Linear(4, 4)), (2, 4)),
    "shared": (Shared, (2, 4)),
    "recursive": (Recursive, (2, 4)),
    "checkpoint": (lambda: Checkpointed(reentrant=False), (2, 3, 4)),
    "reentrant checkpoint": (lambda: Checkpointed(reentrant=True), (2, 3, 4)),
    "branches": (Branches, (2, 3, 4)),
    "transformer": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(4, 2, 8, dropout=0.3, batch_first=True), 2
        ),
        (2, 3, 4),
    ),
    "batch norm": (
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(inplace=True), nn.Flatten()
        ),
        (2, 1, 4, 4),
    ),
    **{
        kind: (lambda kind=kind: Unwrapping(kind), (2, 4))  # type: ignore[misc]
        for kind in ("tuple", "dict", "named", "dataclass")
    },
}
