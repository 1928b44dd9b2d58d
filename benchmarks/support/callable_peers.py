"""The ways to call one model: eagerly, and through each library's graph of it.

Each works on a copy of the module of its own, because torch's graphed callables change the module
that they are given. All are compared with the eager result before they are measured. Needs torch.
"""

from __future__ import annotations

import copy
import gc
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

import gpuprof
from support.callable_models import Arguments, Model
from support.calls import first_line
from support.loops import BenchmarkError

EAGER = "eager"
TORCH = "torch's graphed callable"
TORCH_FUNCTION = "torch's graphed callable, of a function"
REDUCE_OVERHEAD = 'torch.compile(mode="reduce-overhead")'
DEFAULT = "gpuprof"
STATIC = 'gpuprof, outputs="static"'
OWN_COMPILED = "gpuprof, compile=True"
OWN_COMPILED_STATIC = 'gpuprof, compile=True, outputs="static"'

GUARDED = "gpuprof"
GUARDED_STATIC = STATIC
NO_GUARDS = "gpuprof, no guards"
NO_GUARDS_STATIC = 'gpuprof, no guards, outputs="static"'

_WARM_CALLS = 8
# Of the largest value of a result. Compiled kernels add up in another order, and convolutions may
# use TF32; the result of another call's arguments is off by far more.
_CLOSE = 1e-2

Call = Callable[..., Any]
Make = Callable[[torch.nn.Module, Arguments], Call]


class Ways:
    """Every way to call one model that works here, and why the others are left out.

    `set_up_s` has what making each took, until its first replay could begin.
    """

    def __init__(self, model: Model, makers: Mapping[str, Make]) -> None:
        self.model = model
        self.missing: list[str] = []
        self.calls: dict[str, Call] = {}
        self.set_up_s: dict[str, float] = {}
        self._counted: list[ReplaysOnly] = []
        # A graph of another library that is freed in a capture would break it.
        gc.collect()
        torch.compiler.reset()
        # What one way has compiled, the next one shall compile as well.
        torch._inductor.config.force_disable_caches = True
        for name, make in makers.items():
            self._add(name, make)
        self.complete = all(name in self.calls for name in makers if name.startswith("gpuprof"))

    def check(self) -> None:
        """Refuse the measurement if a call of gpuprof's was not the replay of a ready graph."""
        for each in self._counted:
            each.check()

    def _add(self, name: str, make: Make) -> None:
        # A way may fail in ways of its own; the others are still worth measuring.
        try:
            given = tuple(each.clone() for each in self.model.arguments[0])
            module = copy.deepcopy(self.model.module)
            torch.cuda.synchronize()
            begun = time.perf_counter()
            call = make(module, given)
            torch.cuda.synchronize()
            seconds = time.perf_counter() - begun
            self._compare(name, call)
        except Exception as error:
            if name.startswith("gpuprof"):
                traceback.print_exc(file=sys.stderr)
            self.missing.append(f"{self.model.name}: {name} is left out: {first_line(error)}")
            return
        self.calls[name], self.set_up_s[name] = call, seconds
        if isinstance(call, gpuprof.GraphedCallable):
            self._counted.append(ReplaysOnly(f"{self.model.name}: {name}", call))

    def _compare(self, name: str, call: Call) -> None:
        eager = copy.deepcopy(self.model.module)
        for given in self.model.arguments[:_WARM_CALLS]:
            found, wanted = call(*given), eager(*given)
            worst = (found - wanted).abs().max().item()
            if not worst <= _CLOSE * wanted.abs().max().item():
                raise BenchmarkError(f"the result of {name} is wrong, by up to {worst:g}")
        torch.cuda.synchronize()


class ReplaysOnly:
    """Tells whether all calls of a graphed callable from now on are replays of ready graphs."""

    def __init__(self, name: str, fast: gpuprof.GraphedCallable) -> None:
        self._name = name
        self._fast = fast
        self._before = fast.stats()

    def check(self) -> None:
        """Raise BenchmarkError if some were not."""
        before, now = self._before, self._fast.stats()
        same = all(
            getattr(before, each) == getattr(now, each)
            for each in ("captures", "eager_calls", "failures")
        )
        if not same:
            raise BenchmarkError(f"{self._name}: not every call was a replay: {now}")


def whole_ways(model: Model, *, compiled: bool = True) -> Ways:
    """Return the ways whose whole calls are compared, those that compile on request."""
    compiling: dict[str, Make] = {
        REDUCE_OVERHEAD: _reduce_overhead,
        OWN_COMPILED: lambda module, given: _graphed(module, given, compile=True),
        OWN_COMPILED_STATIC: lambda module, given: _graphed(
            module, given, compile=True, outputs="static"
        ),
    }
    return Ways(
        model,
        {
            EAGER: lambda module, _given: module,
            TORCH: torch.cuda.make_graphed_callables,
            TORCH_FUNCTION: _torch_function,
            DEFAULT: _graphed,
            STATIC: lambda module, given: _graphed(module, given, outputs="static"),
            **(compiling if compiled else {}),
        },
    )


def guard_ways(model: Model) -> Ways:
    """Return a guarded module and the same work with nothing to guard."""
    return Ways(
        model,
        {
            NO_GUARDS: lambda module, given: _graphed(_flat(module), given, check="sweep"),
            GUARDED: lambda module, given: _graphed(module, given, check="strict"),
            NO_GUARDS_STATIC: lambda module, given: _graphed(
                _flat(module), given, check="sweep", outputs="static"
            ),
            GUARDED_STATIC: lambda module, given: _graphed(
                module, given, check="strict", outputs="static"
            ),
        },
    )


def skipped_graphs() -> int:
    """Return how often torch.compile ran a region without the graph that it was asked for."""
    counters = torch._dynamo.utils.counters
    return int(counters["inductor"]["cudagraph_skips"])


def _graphed(function: Call, given: Arguments, **settings: Any) -> Call:
    call: Call = gpuprof.make_graphed_callable(function, given, verify="off", **settings)
    return call


def _flat(module: torch.nn.Module) -> Call:
    """Return a function that does the work of an MLP of `nn.Sequential`, over plain tensors."""
    linear = [each for each in module.modules() if isinstance(each, torch.nn.Linear)]
    layers = [(each.weight.detach(), each.bias.detach()) for each in linear]

    def forward(given: torch.Tensor) -> torch.Tensor:
        for weight, bias in layers[:-1]:
            given = functional.relu(functional.linear(given, weight, bias))
        return functional.linear(given, *layers[-1])

    return forward


def _torch_function(module: torch.nn.Module, given: Arguments) -> Call:
    def forward(*arguments: torch.Tensor) -> Any:
        return module(*arguments)

    call: Call = torch.cuda.make_graphed_callables(forward, given)
    return call


def _reduce_overhead(module: torch.nn.Module, given: Arguments) -> Call:
    call: Call = torch.compile(module, mode="reduce-overhead")
    for _ in range(_WARM_CALLS):  # it compiles, then warms up, then captures
        call(*given)
    torch.cuda.synchronize()
    return call
