"""What a watch does at hooks of modules. What is done in each call is done by `gpuprof._core`.

Hooks hold a `Core`, which holds the model's modules weakly, and no node of autograd after a call.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._frameworks import loaded, torch_hooks
from gpuprof._graphs.types import CaptureStatus
from gpuprof._watch.tree import ModuleEntry

_roots: Counter[str] = Counter()  # how many models of a class were watched


class Core(_core._Watch):
    """What the hooks of one watch share: it makes scopes and adds up what they measure."""

    def __init__(self, model: Any) -> None:
        torch = loaded.torch()
        super().__init__(
            tensor_type=torch.Tensor,
            is_compiling=torch.compiler.is_compiling,
            is_grad_enabled=torch.is_grad_enabled,
            task_number=torch._C._current_graph_task_id,
            frame_callback=getattr(
                torch._C._dynamo.eval_frame, "get_eval_frame_callback", lambda: None
            ),
            node_number=getattr(torch._C._autograd, "_get_sequence_nr", None),
            queue_callback=torch.autograd.Variable._execution_engine.queue_callback,
            thread_local_data=threading.local(),
            allocated=_allocated,
            tensors_in=lambda result: [*loaded.tensors_in(result)],
        )
        self.error: str | None = None
        self.undo = contextlib.ExitStack()
        name = type(model).__name__
        _roots[name] += 1
        self.name = name if _roots[name] == 1 else f"{name}#{_roots[name]}"

    def detach(self) -> None:
        """Take all hooks out of the model. Idempotent."""
        self.end()
        self.undo.close()

    def fail(self, error: Exception) -> None:
        """End the watch and warn once why; the program goes on."""
        self.error = f"{type(error).__name__}: {error}"
        self.detach()
        text = f"gpuprof.watch has stopped watching the model, because of {self.error}"
        checks.warn(text, level=2)

    def scope(self, entry: ModuleEntry, direction: str) -> Any:
        """Return a scope that is not open; in a capture of gpuprof's one with a name."""
        if _core._open_captures():
            handle, ordinal, _ = _core._current_stream()
            if _core._capture_status(handle, ordinal) == CaptureStatus.ACTIVE:
                path = f".{entry.path}" if entry.path else ""
                # With an option it is a scope of its own, which goes when it was left: one that is
                # found by its name would hold the graph's events.
                return _core.timer(f"{self.name}{path} {direction}", in_capture="skip")
        try:
            return self.scopes.pop()
        except IndexError:
            return _core.timer()


class ModuleHook(_core._WatchHook, torch_hooks.Hook):
    """The hook of a module, before and after its calls.

    A copy of the module, and one from a pickle, is not watched.
    """

    def __init__(self, core: Core, entries: list[ModuleEntry]) -> None:
        self._bind(core, entries)

    def __call__(self, *_arguments: Any) -> None:
        """Do nothing: `torch.compile` traces this. All others call the code of the base."""


_core._keep_vectorcall(ModuleHook)


class CompiledCall(torch_hooks.Hook):
    """Wraps the call of a module whose hooks would not run.

    After `module.compile()` they are a part of what is compiled; a `ScriptModule` can have none.
    """

    def __init__(self, core: Core, entries: list[ModuleEntry], before: Any) -> None:
        self.core = core
        self.entries = entries
        self.before = before  # None for a ScriptModule
        self.is_compiling = loaded.torch().compiler.is_compiling

    def __reduce__(self) -> Any:
        return type(None), ()  # a copy is not compiled

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        module = self.entries[0].module()
        call = module._call_impl if self.before is None else self.before
        if self.is_compiling() or self.core.closed:  # a compiled region reads nothing of a watch
            return call(*arguments, **options)
        core = self.core
        with torch_hooks.Passive(core.fail):
            core.enter(self.entries, sys._getframe())
        result = None
        try:
            result = call(*arguments, **options)
        finally:
            with torch_hooks.Passive(core.fail):
                core.leave(self.entries, module, result, sys.exc_info()[1])
        return result

    def remove_from(self, module: weakref.ref[Any], kind: type) -> Callable[[], None]:
        """Return what takes it out of the module of a class again; it holds neither of them."""
        itself = weakref.ref(self)
        give_back = torch_hooks.leave_out(kind)

        def remove() -> None:
            give_back()
            found, here = module(), itself()
            if found is None or found.__dict__.get("_compiled_call_impl") is not here:
                return  # another watch wraps this one, and will pass over it
            before = here.before
            while isinstance(before, CompiledCall) and before.core.closed:
                before = before.before
            if before is None:
                del found.__dict__["_compiled_call_impl"]
            else:
                found.__dict__["_compiled_call_impl"] = before

        return remove


def _allocated() -> int | None:
    """Return how many bytes torch has allocated on the current GPU; None without CUDA."""
    cuda = loaded.torch_cuda()
    if cuda is None:
        return None
    found = cuda.memory_stats_as_nested_dict()["allocated_bytes"]["all"]["current"]
    return int(found)
