"""The ways to train one model: eagerly, and with the forward pass or a whole step in a graph.

Each trains a copy of the module of its own with an optimizer of its own, first for a number of
steps whose last loss is kept, and is measured afterwards. Needs torch.
"""

from __future__ import annotations

import copy
import gc
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import torch

import gpuprof
from support.callable_peers import ReplaysOnly
from support.calls import first_line
from support.training_models import Task

EAGER = "eager"
TORCH = "torch's graphed callable"
REDUCE_OVERHEAD = 'torch.compile(mode="reduce-overhead")'
PLAIN = "gpuprof"
ACCUMULATE = 'gpuprof, param_grads="accumulate"'
OWN_COMPILED = "gpuprof, compile=True"
WHOLE = "gpuprof, whole step"
WHOLE_COMPILED = "gpuprof, whole step, model compiled"

_COMPILING = (REDUCE_OVERHEAD, OWN_COMPILED, WHOLE_COMPILED)

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
Forward = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Trainer:
    """One way to train a module."""

    step: Step
    forward: Forward | None = None  # where the forward pass alone can be called
    graphed: gpuprof.GraphedCallable | None = None


class TrainingWays:
    """Every way to train one model that works here, and why the others are left out."""

    def __init__(self, task: Task, steps: int, *, compiled: bool = True) -> None:
        self.task = task
        self.missing: list[str] = []
        self.trainers: dict[str, Trainer] = {}
        self.losses: dict[str, float] = {}
        self._steps = steps
        self._counted: list[ReplaysOnly] = []
        # A graph of another library that is freed in a capture would break it.
        gc.collect()
        torch.compiler.reset()
        makers: dict[str, Callable[[], Trainer]] = {
            EAGER: self._eager,
            TORCH: self._torch,
            REDUCE_OVERHEAD: self._reduce_overhead,
            PLAIN: self._plain,
            ACCUMULATE: self._accumulate,
            OWN_COMPILED: self._own_compiled,
            WHOLE: self._whole,
            WHOLE_COMPILED: self._whole_compiled,
        }
        wanted = [name for name in makers if compiled or name not in _COMPILING]
        for name in wanted:
            self._add(name, makers[name])
        self.complete = all(name in self.trainers for name in wanted if name.startswith("gpuprof"))
        # Eager training that is repeated says how far two equal runs are apart.
        self.repeated_loss = self._train(self._eager())

    def check(self) -> None:
        """Refuse the measurement if a call of gpuprof's was not the replay of a ready graph."""
        for each in self._counted:
            each.check()

    def _add(self, name: str, make: Callable[[], Trainer]) -> None:
        # A way may fail in ways of its own; the others are still worth measuring.
        try:
            trainer = make()
            loss = self._train(trainer)
        except Exception as error:
            if name.startswith("gpuprof"):
                traceback.print_exc(file=sys.stderr)
            self.missing.append(f"{self.task.name}: {name} is left out: {first_line(error)}")
            return
        self.trainers[name], self.losses[name] = trainer, loss
        if trainer.graphed is not None:
            self._counted.append(ReplaysOnly(f"{self.task.name}: {name}", trainer.graphed))

    def _train(self, trainer: Trainer) -> float:
        for given, wanted in islice(cycle(self.task.batches), self._steps):
            loss = trainer.step(given, wanted)
        return float(loss)

    def _module(self) -> tuple[torch.nn.Module, torch.optim.Optimizer]:
        module = copy.deepcopy(self.task.module)
        optimizer = torch.optim.Adam(
            module.parameters(), lr=self.task.rate, fused=True, capturable=True
        )
        return module, optimizer

    def _sample(self) -> tuple[torch.Tensor]:
        return (self.task.batches[0][0].clone(),)

    def _step(
        self, forward: Forward, optimizer: torch.optim.Optimizer, *, to_none: bool = True
    ) -> Step:
        loss_of = self.task.loss

        def step(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            optimizer.zero_grad(set_to_none=to_none)
            loss = loss_of(forward(given), wanted)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def _eager(self) -> Trainer:
        module, optimizer = self._module()
        return Trainer(self._step(module, optimizer), module)

    def _torch(self) -> Trainer:
        module, optimizer = self._module()
        graphed = torch.cuda.make_graphed_callables(module, self._sample())
        return Trainer(self._step(graphed, optimizer), graphed)

    def _reduce_overhead(self) -> Trainer:
        module, optimizer = self._module()
        step = self._step(torch.compile(module, mode="reduce-overhead"), optimizer)

        def marked(given: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            return step(given, wanted)

        return Trainer(marked)

    def _plain(self) -> Trainer:
        return self._graphed_forward()

    def _accumulate(self) -> Trainer:
        # The backward graph adds to gradients that stay where they are.
        return self._graphed_forward(to_none=False, param_grads="accumulate")

    def _own_compiled(self) -> Trainer:
        return self._graphed_forward(compile=True)

    def _graphed_forward(self, *, to_none: bool = True, **settings: Any) -> Trainer:
        module, optimizer = self._module()
        fast = gpuprof.make_graphed_callable(module, self._sample(), verify="off", **settings)
        return Trainer(self._step(fast, optimizer, to_none=to_none), fast, fast)

    def _whole(self) -> Trainer:
        module, optimizer = self._module()
        return self._graphed_step(module, optimizer)

    def _whole_compiled(self) -> Trainer:
        module, optimizer = self._module()
        return self._graphed_step(torch.compile(module), optimizer)

    def _graphed_step(self, forward: Forward, optimizer: torch.optim.Optimizer) -> Trainer:
        # Without sample arguments, the calls before the capture are steps like any other.
        fast = gpuprof.make_graphed_callable(self._step(forward, optimizer), verify="off")
        return Trainer(fast, graphed=fast)
