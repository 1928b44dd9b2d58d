"""What DistributedDataParallel waits for at the end of a backward pass, as a scope.

Its all-reduces begin in C++ and are waited for in a callback that it leaves to autograd. Autograd
runs callbacks in the order in which they were left: one that is left before, by a hook on a result
of the forward pass, begins the scope, and leaves another one, which ends it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gpuprof._distributed.watch_state import WatchState, scope
from gpuprof._frameworks import loaded

DDP_WAIT = "ddp"
MOST_OUTPUTS = 1_000  # that are looked through for a tensor in the result of a model
MOST_TASKS = 1_000  # backward passes that have failed leave their number


def first_with_gradient(result: Any) -> Any:
    """Return a tensor of a model's result through which the backward pass comes, or None."""
    found = loaded.tensors_in(result, MOST_OUTPUTS)
    return next((tensor for tensor in found if tensor.requires_grad), None)


class DdpWait:
    """The hook on a result of the forward pass, and the callbacks that it leaves."""

    def __init__(self, state: WatchState) -> None:
        self._state = state
        self._task = -1
        self._on_cpu = False
        self._opened: Any = None

    def __call__(self, gradient: Any) -> None:
        """Leave the first callback; once in a pass, however many results come to it."""
        if not self._state.measures():
            return
        with self._state.passive():
            self._task = loaded.torch()._C._current_graph_task_id()
            tasks = self._state.tasks
            if self._task in tasks:
                return
            if len(tasks) >= MOST_TASKS:
                tasks.clear()
            tasks.add(self._task)
            self._on_cpu = gradient.device.type == "cpu"
            _queue(self._begin)

    def _begin(self) -> None:
        with self._state.passive():
            _queue(self._end)
            self._opened = scope(DDP_WAIT, self._on_cpu, self._state.paths.prefix())
            self._opened.__enter__()

    def _end(self) -> None:
        self._state.tasks.discard(self._task)
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.__exit__(None, None, None)


def _queue(callback: Callable[[], None]) -> None:
    """Have autograd run a callback at the end of the backward pass that runs now."""
    loaded.torch().autograd.Variable._execution_engine.queue_callback(callback)
