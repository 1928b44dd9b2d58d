"""The ways to call one model: eagerly, and through each library's graph of it.

Each works on a copy of the module of its own, because torch's graphed callables change the module
that they are given. All are compared with the eager result before they are measured. Needs torch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

import gpuprof
from support.callable_models import Arguments, Model
from support.loops import BenchmarkError

EAGER = "eager"
TORCH = "torch's graphed callable"
TORCH_FUNCTION = "torch's graphed callable, of a function"
COMPILED = 'torch.compile(mode="reduce-overhead")'
DEFAULT = "gpuprof"
STATIC = 'gpuprof, outputs="static"'

_WARM_CALLS = 8
_CLOSE = 1e-3  # compiled kernels add up in another order

Call = Callable[..., Any]


class Ways:
    """Every way to call one model that works here, and why the others are left out."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.missing: list[str] = []
        self.calls: dict[str, Call] = {}
        self._graphed: list[Any] = []
        makers: dict[str, Callable[[torch.nn.Module, Arguments], Call]] = {
            EAGER: lambda module, _given: module,
            TORCH: torch.cuda.make_graphed_callables,
            TORCH_FUNCTION: _torch_function,
            COMPILED: _compiled,
            DEFAULT: self._default,
            STATIC: self._static,
        }
        for name, make in makers.items():
            self._add(name, make)

    def check(self) -> None:
        """Refuse the measurement if a call of gpuprof's was not the replay of one graph."""
        for fast in self._graphed:
            seen = fast.stats()
            if (seen.captures, seen.eager_calls, seen.failures) != (1, 0, 0):
                raise BenchmarkError(f"{self.model.name}: not every call was a replay: {seen}")

    def _add(self, name: str, make: Callable[[torch.nn.Module, Arguments], Call]) -> None:
        # A peer may fail in ways of its own; the others are still worth measuring.
        try:
            given = tuple(each.clone() for each in self.model.arguments[0])
            call = make(copy.deepcopy(self.model.module), given)
            self._compare(name, call)
        except Exception as error:
            if name in (EAGER, DEFAULT, STATIC):
                raise
            first = str(error).partition("\n")[0]
            self.missing.append(
                f"{self.model.name}: {name} is left out: {type(error).__name__}: {first}"
            )
            return
        self.calls[name] = call

    def _compare(self, name: str, call: Call) -> None:
        eager = copy.deepcopy(self.model.module)
        for given in self.model.arguments[:_WARM_CALLS]:
            found, wanted = call(*given), eager(*given)
            if not torch.allclose(found, wanted, rtol=_CLOSE, atol=_CLOSE):
                raise BenchmarkError(f"{self.model.name}: the result of {name} is wrong")
        torch.cuda.synchronize()

    def _default(self, module: torch.nn.Module, given: Arguments) -> Call:
        fast = gpuprof.make_graphed_callable(module, given)
        self._graphed.append(fast)
        return fast

    def _static(self, module: torch.nn.Module, given: Arguments) -> Call:
        fast = gpuprof.make_graphed_callable(module, given, outputs="static")
        self._graphed.append(fast)
        return fast


def skipped_graphs() -> int:
    """Return how often torch.compile ran a region without the graph that it was asked for."""
    counters = torch._dynamo.utils.counters
    return int(counters["inductor"]["cudagraph_skips"])


def _torch_function(module: torch.nn.Module, given: Arguments) -> Call:
    def forward(*arguments: torch.Tensor) -> Any:
        return module(*arguments)

    call: Call = torch.cuda.make_graphed_callables(forward, given)
    return call


def _compiled(module: torch.nn.Module, given: Arguments) -> Call:
    call: Call = torch.compile(module, mode="reduce-overhead")
    for _ in range(_WARM_CALLS):  # it compiles, then warms up, then captures
        call(*given)
    torch.cuda.synchronize()
    return call
