"""The state of a watch, and what DistributedDataParallel waits for at the end of a backward pass.

Its all-reduces begin in C++ and are waited for in a callback that it leaves to autograd. Autograd
runs callbacks in the order in which they were left: one that is left before, by a hook on a result
of the forward pass, begins the scope, and leaves another one, which ends it.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

import gpuprof._core as _core
from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._frameworks import loaded, torch_hooks

UNNAMED_WAIT = "wait"
DDP_WAIT = "ddp"
MOST_OUTPUTS = 1_000  # that are looked through for a tensor in the result of a model
MOST_TASKS = 1_000  # backward passes that have failed leave their number


class WatchState:
    """Whether collectives are measured, and what is known of the works that they returned.

    A wrapper that somebody has wrapped once more stays where it is when the watch is closed, so
    each of them asks.
    """

    def __init__(self, close: Callable[[], None]) -> None:
        self.is_open = True
        self.works: WeakKeyDictionary[Any, tuple[str, bool]] = WeakKeyDictionary()
        self.tasks: set[int] = set()  # backward passes of autograd with a callback that waits
        self._is_compiling: Callable[[], bool] = loaded.torch().compiler.is_compiling
        self._close = close

    def measures(self) -> bool:
        """Whether a call is measured now: inside of a compiled region nothing is."""
        return self.is_open and not self._is_compiling()

    def passive(self) -> torch_hooks.Passive:
        """A block whose failure ends the watch and not the program that it watches."""
        return torch_hooks.Passive(self._fail)

    def _fail(self, error: Exception) -> None:
        self._close()
        with suppress(RuntimeWarning):  # where warnings are errors
            warnings.warn(
                "gpuprof.distributed.time_collectives has stopped watching collectives, because of "
                f"{type(error).__name__}: {error}",
                RuntimeWarning,
                stacklevel=3,
            )


@functools.lru_cache(maxsize=256)
def scope(name: str, on_cpu: bool, path: str = "") -> Any:
    """Return the scope of a collective, on the host's clock or on the GPU's where it is in use.

    For a thread without open scopes its name begins with the text of a path.
    """
    return _core.timer(f"{path}{COLLECTIVE}{name}", backend="cpu" if on_cpu else "auto")


class BackwardPaths:
    """The paths of scopes in which backward passes run now, by the threads that called them.

    Autograd runs the callbacks of a pass on CUDA on a thread of its own, which has no scopes open.
    """

    def __init__(self) -> None:
        self._running: list[tuple[int, tuple[str, ...]]] = []

    @contextmanager
    def noted(self) -> Iterator[None]:
        """A block in which this thread runs a backward pass."""
        with _core.timer(None, backend="cpu") as sample:  # unnamed: only its path is used
            names = sample.names
        entry = threading.get_ident(), names
        self._running.append(entry)
        try:
            yield
        finally:
            self._running.remove(entry)

    def prefix(self) -> str:
        """Return what stands before a scope's name on this thread: the caller's path, or nothing.

        Of several backward passes at once the last one counts.
        """
        own = threading.get_ident()
        running = list(self._running)
        if not running or any(thread == own for thread, _ in running):
            return ""
        return "".join(f"{name}/" for name in running[-1][1])


def first_with_gradient(result: Any) -> Any:
    """Return a tensor of a model's result through which the backward pass comes, or None."""
    left = [result]
    for _ in range(MOST_OUTPUTS):
        if not left:
            return None
        value = left.pop()
        if loaded.is_tensor(value):
            if value.requires_grad:
                return value
        elif isinstance(value, dict):
            left += reversed([*value.values()])
        elif isinstance(value, (list, tuple)):
            left += reversed(value)
        elif hasattr(value, "__dataclass_fields__"):
            left += [getattr(value, name, None) for name in value.__dataclass_fields__]
    return None


class DdpWait:
    """The hook on a result of the forward pass, and the callbacks that it leaves."""

    def __init__(self, state: WatchState, paths: BackwardPaths) -> None:
        self._state = state
        self._paths = paths
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
            self._opened = scope(DDP_WAIT, self._on_cpu, self._paths.prefix())
            self._opened.__enter__()

    def _end(self) -> None:
        self._state.tasks.discard(self._task)
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.__exit__(None, None, None)


def _queue(callback: Callable[[], None]) -> None:
    """Have autograd run a callback at the end of the backward pass that runs now."""
    loaded.torch().autograd.Variable._execution_engine.queue_callback(callback)
