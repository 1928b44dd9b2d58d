"""What the tests of graphed training share: models, the steps of a test, gradients beside others.

Needs torch, so tests import it where they run.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

import gpuprof

WIDTH = 32
# Relative to the largest gradient of a tensor: bfloat16 rounds to 2 ** -8.
TOLERANCES = {torch.float32: 1e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}


def mlp(dtype: torch.dtype = torch.float32, *, dropout: float = 0.0, norm: bool = False) -> Any:
    """Return three linear layers from a fixed seed, in training mode."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(WIDTH, 64),
        nn.BatchNorm1d(64) if norm else nn.Identity(),
        nn.Tanh(),
        nn.Dropout(dropout),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, WIDTH),
    ).to("cuda", dtype)


def pair(**options: Any) -> tuple[Any, Any]:
    """Return a module and an equal one of its own memory."""
    module = mlp(**options)
    return module, copy.deepcopy(module)


def graphed(**options: Any) -> tuple[Any, Any, Any]:
    """Return a module, an equal one, and a graphed callable of the first."""
    module, eager = pair()
    return module, eager, gpuprof.make_graphed_callable(module, (batch(0),), **options)


def data_parallel(module: Any) -> DistributedDataParallel:
    """Return the module as one of DDP, on this process's GPU."""
    return DistributedDataParallel(module, device_ids=[torch.cuda.current_device()])


def batch(seed: int, rows: int = 8, dtype: torch.dtype = torch.float32) -> Any:
    """Return a new batch."""
    device = torch.device("cuda", torch.cuda.current_device())
    generator = torch.Generator(device=device).manual_seed(seed + 1)
    return torch.randn(rows, WIDTH, device=device, generator=generator).to(dtype)


def loss_of(run: Callable[[Any], Any], seed: int, rows: int = 8) -> Any:
    """Return the loss of a model for the batch of a seed."""
    return functional.mse_loss(run(batch(seed, rows)), batch(seed + 1000, rows))


def backward(runs: Iterable[Callable[[Any], Any]], seed: int, rows: int = 8) -> None:
    """Run the backward pass of each model for the batch of a seed."""
    for run in runs:
        loss_of(run, seed, rows).backward()


def assert_close(
    found: Any, wanted: Any, *, computed: torch.dtype | None = None, name: str = ""
) -> None:
    """Fail unless two gradients agree to the rounding of what they were computed in."""
    if wanted is None:
        assert found is None, name
        return
    assert found is not None, name
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), name
    tolerance = TOLERANCES[computed or wanted.dtype]
    wanted = wanted.double()
    error = (found.double() - wanted).abs().max().item()
    assert error <= tolerance * wanted.abs().max().item() + 1e-12, (name, error)


def assert_same_gradients(module: Any, other: Any, computed: torch.dtype | None = None) -> None:
    """Fail unless the parameters of two modules have the same gradients."""
    for (name, mine), theirs in zip(module.named_parameters(), other.parameters(), strict=True):
        assert_close(mine.grad, theirs.grad, computed=computed, name=name)


def assert_same_state(module: Any, other: Any, computed: torch.dtype | None = None) -> None:
    """Fail unless the parameters and buffers of two modules are the same."""
    theirs = other.state_dict()
    for name, mine in module.state_dict().items():
        if mine.is_floating_point():
            assert_close(mine, theirs[name], computed=computed, name=name)
        else:
            assert torch.equal(mine, theirs[name]), name


def clear(modules: Iterable[Any], *, set_to_none: bool = True) -> None:
    """Clear the gradients of modules."""
    for module in modules:
        module.zero_grad(set_to_none)
