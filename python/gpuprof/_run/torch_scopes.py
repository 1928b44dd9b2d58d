"""Scopes in a program that uses torch and does not know of gpuprof.

Calls of modules down to a depth, ``optimizer.step``, ``backward``, and ``dataloader``, which is the
time that the program waits for its next batch. They come with torch's import, through torch's hooks
for all modules and optimizers, and wrap two functions that have no hook. Nothing here
imports torch. A failure ends the scopes, not the program.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.imports import when_imported
from gpuprof._distributed.watch import CollectiveWatch
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._frameworks.torch_compile import keep_from_compiler
from gpuprof._frameworks.torch_modules import inside
from gpuprof._run import batches, waits
from gpuprof._run.steps import FORWARD, OPTIMIZER, Steps
from gpuprof._trace import path as trace_path

_NO_ERROR = (None, None, None)
_ENDED = (RuntimeError, None, None)  # how a scope that is still open is closed
_IN_MODULE = ("DataParallel", "DistributedDataParallel")  # call the one in their `module`
_CHECK_EVERY_NS = 10_000_000

_attached: list[TorchScopes] = []


class _Entry:
    """A scope that is open on this thread."""

    __slots__ = ("again", "frame", "handled", "inner", "level", "owner", "sample", "scope")

    def __init__(self, owner: Any, scope: Any, level: int, frame: Any, inner: Any) -> None:
        self.owner = owner
        self.inner = inner  # the module that a wrapper holds, else the owner
        self.scope = scope
        self.sample: Any = None
        self.level = level  # how many modules, with this one; 0 is an optimizer's step
        self.frame = frame
        self.again = 0  # calls of the same owner inside of it, which are a part of it
        self.handled = id(sys.exc_info()[1])  # the exception that is being handled around it


class _Local(threading.local):
    def __init__(self) -> None:
        self.stack: list[_Entry] = []
        self.checked_ns = 0  # when the stack was last compared with what runs


class TorchScopes:
    """What is hooked into torch, once it is imported; `steps` is told of what a step has."""

    def __init__(self, depth: int, steps: Steps | None = None) -> None:
        self.depth = depth
        self.steps = steps or Steps()  # which notes nothing until it is started
        self._is_noting = steps is not None
        self.is_on = True
        self._local = _Local()
        self._names = _Names()
        self._undo = contextlib.ExitStack()
        self._is_in_backward: Callable[[], bool] = lambda: False

    def attach(self) -> None:
        if loaded.whole_torch() is not None:
            self._attach()
        else:
            when_imported("torch", self._attach)

    def _attach(self) -> None:
        if not self.is_on:
            return
        try:
            torch = loaded.torch()
            if self.depth:
                self._is_in_backward = lambda: torch._C._current_graph_task_id() != -1
                keep_from_compiler(*_METHODS)
                hooks = self._hook(self._enter), self._hook(self._leave)
                self._undo.callback(torch_hooks.around_all_modules(*hooks))
            hooks = self._hook(self._begin_step), self._hook(self._end_step)
            self._undo.callback(torch_hooks.around_all_steps(*hooks))
            self._wrap_backward(torch)
            importlib.import_module("torch.utils.data.dataloader")  # as torch itself does by now
            self._undo.enter_context(batches.Hold(self._begin_wait))
            if self._is_noting:
                self._undo.callback(waits.replace(torch, self._begin_wait))
                # Where there is no other rank nobody waits, and torch.distributed stays as it is.
                if trace_path.world_size() > 1 and torch.distributed.is_available():
                    watch = CollectiveWatch(torch.distributed, gives_way=True)
                    self._undo.enter_context(watch)
                self.steps.start()
            _attached.append(self)
        except Exception as error:  # torch's own import must not fail for it
            self._fail(error)

    def detach(self) -> None:
        """Take everything out of torch again. Idempotent."""
        self.is_on = False
        if self in _attached:
            _attached.remove(self)
        self._undo.close()

    def _fail(self, error: Exception) -> None:
        self.detach()
        while self._local.stack:
            with contextlib.suppress(Exception):
                self._local.stack.pop().scope.__exit__(*_ENDED)
        checks.warn(f"gpuprof: torch has no scopes any more: {type(error).__name__}: {error}")

    def _hook(self, call: Callable[[Any, Any], None]) -> Callable[..., None]:
        """Return a hook that calls `call` with a module or optimizer, and its caller's frame."""
        is_compiling = loaded.torch().compiler.is_compiling

        # torch.compile traces it, and leaves it out of what it compiles.
        def hook(owner: Any, *_arguments: Any) -> None:
            if is_compiling():
                return
            try:
                call(owner, sys._getframe(1))
            except Exception as error:
                self._fail(error)

        keep_from_compiler(hook)
        return hook

    # Modules

    def _enter(self, module: Any, frame: Any) -> None:
        local = self._local
        stack = local.stack
        if batches.is_loading() or not self.is_on:  # transforms of data are a part of it
            return
        if not (
            stack
            and stack[-1].level >= self.depth
            and time.monotonic_ns() - local.checked_ns < _CHECK_EVERY_NS
            and not any(each.owner is module for each in stack)
        ):
            self._drop_ended(frame)
        top = stack[-1] if stack else None
        if top is None:
            if self._is_in_backward():
                return  # a checkpoint runs it again
        elif module is top.owner or module is top.inner:
            top.again += 1
            return
        elif top.level >= self.depth:
            return
        inner = _inside(module)
        name = self._names.of(inner, top.inner if top is not None and top.level else None)
        level = 1 if top is None else top.level + 1
        if top is None:
            self.steps.mark(FORWARD, name)
        self._open(_Entry(module, _core.timer(name), level, frame, inner))

    def _leave(self, module: Any, _frame: Any) -> None:
        stack = self._local.stack
        if not stack or batches.is_loading():
            return
        top = stack[-1]
        if module is not top.owner and module is not top.inner:
            return  # below the depth
        if top.again:
            top.again -= 1
            return
        self._close(sys.exc_info())

    # What is open

    def _look(self) -> None:
        if not self._local.stack:
            self.steps.begin()

    def _open(self, entry: _Entry) -> None:
        self._look()
        entry.sample = entry.scope.__enter__()
        self._local.stack.append(entry)

    def _close(self, error: tuple[Any, Any, Any]) -> None:
        entry = self._local.stack.pop()
        raised = error[1] is not None and id(error[1]) != entry.handled
        entry.scope.__exit__(*(error if raised else _NO_ERROR))
        self.steps.end(entry.sample)

    def _drop_ended(self, frame: Any) -> None:
        """Close what an exception has ended of which torch tells no hook, such as Ctrl-C."""
        self._local.checked_ns = time.monotonic_ns()
        stack = self._local.stack
        while stack and not torch_hooks.is_running(stack[-1].frame, frame):
            stack.pop().scope.__exit__(*_ENDED)  # as one that failed, it counts in no row

    # Optimizers

    def _begin_step(self, optimizer: Any, frame: Any) -> None:
        if not self.is_on:
            return
        self._drop_ended(frame)
        stack = self._local.stack
        if stack and stack[-1].level == 0:  # a wrapper calls the optimizer that it holds
            stack[-1].again += 1
            return
        self._open(_Entry(optimizer, _core.timer(OPTIMIZER), 0, frame, optimizer))

    def _end_step(self, optimizer: Any, _frame: Any) -> None:
        stack = self._local.stack
        if not stack or stack[-1].level:
            return
        if stack[-1].again:
            stack[-1].again -= 1
        elif stack[-1].owner is optimizer:
            self._close(_NO_ERROR)
            self.steps.mark(OPTIMIZER, str(id(optimizer)))

    # Functions without a hook

    def _begin_wait(self, frame: Any) -> None:
        try:
            self._drop_ended(frame)
            self._look()
        except Exception as error:
            self._fail(error)

    def _wrap_backward(self, torch: Any) -> None:
        original = torch.autograd.backward
        is_compiling = torch.compiler.is_compiling
        scope = _core.timer("backward")

        @functools.wraps(original)
        def backward(*arguments: Any, **options: Any) -> Any:
            if is_compiling() or not self.is_on or self._is_in_backward():
                return original(*arguments, **options)
            self._begin_wait(sys._getframe())
            with scope as sample:
                result = original(*arguments, **options)
            self.steps.end(sample)
            return result

        keep_from_compiler(backward)
        self._undo.callback(torch_hooks.replace(torch.autograd, "backward", backward))


def _inside(module: Any) -> Any:
    """Return the module that a wrapper of torch's holds, else the same one."""
    for _ in range(8):
        found = inside(module)
        if found is module and type(module).__name__ in _IN_MODULE:
            found = module._modules.get("module", module)
        if found is module:
            break
        module = found
    return module


class Parts(contextlib.AbstractContextManager["Parts"]):
    """The scopes that need no hooks of modules, until the last one who asked for them closes.

    No lock: a forked worker would find it in an unknown state.
    """

    _shared: TorchScopes | None = None
    _holds: ClassVar[list[Parts]] = []

    def __init__(self) -> None:
        if not _attached:  # else those of `gpuprof run` are there
            Parts._shared = TorchScopes(0)
            Parts._shared.attach()
        Parts._holds.append(self)

    def __exit__(self, *_exception: object) -> None:
        if self in Parts._holds:
            Parts._holds.remove(self)
        if not Parts._holds and Parts._shared is not None:
            Parts._shared.detach()
            Parts._shared = None


def in_whole_program() -> bool:
    """Whether `gpuprof run` makes scopes of all modules, backward passes and optimizers."""
    return any(each is not Parts._shared for each in _attached)


class _Names:
    """Names of modules: the class at the top, the attribute of the module around it below."""

    def __init__(self) -> None:
        self._tops: dict[int, tuple[Any, str]] = {}
        self._of_class: dict[str, list[Any]] = {}
        self._children: dict[int, tuple[Any, dict[int, tuple[Any, str]]]] = {}

    def of(self, module: Any, parent: Any) -> str:
        """Return the name of a module that `parent` has called, or nobody."""
        if parent is None:
            return self._of_top(module)
        found = self._children.get(id(parent))
        names = {} if found is None or found[0]() is not parent else found[1]
        known = names.get(id(module))
        if known is None or known[0]() is not module:
            names = {
                id(child): (weakref.ref(child), path)
                for path, child in parent.named_modules()
                if path
            }
            self._children[id(parent)] = weakref.ref(parent), names
            known = names.get(id(module))
        return type(module).__name__ if known is None else known[1]

    def _of_top(self, module: Any) -> str:
        known = self._tops.get(id(module))
        if known is not None and known[0]() is module:
            return known[1]
        kind = type(module).__name__
        alive = self._of_class.setdefault(kind, [])
        reference = weakref.ref(module)
        # The number of one that is gone, so that a module that is made in each step has one name.
        place = next((i for i, each in enumerate(alive) if each() is None), len(alive))
        alive[place : place + 1] = [reference]
        name = kind if place == 0 else f"{kind}#{place + 1}"
        self._tops[id(module)] = reference, name
        return name


_METHODS: tuple[Any, ...] = (
    _inside,
    torch_hooks.is_running,
    *(
        function
        for owner in (_Entry, _Names, TorchScopes)
        for function in vars(owner).values()
        if hasattr(function, "__code__")
    ),
)
