"""torch's profiler, which has to have CUPTI for itself: whether it runs, and when it starts.

Nothing here imports torch.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

from gpuprof._frameworks import loaded, torch_hooks

MODULE = "torch.autograd.profiler"  # what starts each of torch's profilers


def running() -> str | None:
    """Name the torch profiler that runs, or that is in the warm-up of its schedule, or None."""
    profiler, autograd = loaded.torch_part("profiler"), loaded.torch_part("autograd")
    if profiler is None or autograd is None:
        return None
    for each in gc.get_objects():
        if issubclass(type(each), profiler.profile):
            inner = getattr(each, "profiler", None)
            action = getattr(getattr(each, "current_action", None), "name", "NONE")
            if action != "NONE" and inner is not None and inner.kineto_results is None:
                return f"torch.profiler.{type(each).__name__}"
    enabled = getattr(autograd, "_profiler_enabled", None)
    if enabled is not None and enabled():
        return "torch.autograd.profiler"
    if getattr(loaded.torch_part("autograd.profiler"), "_is_profiler_enabled", False):
        return "torch.autograd.profiler, on another thread"
    return None


def before_start(call: Callable[[], None]) -> torch_hooks.Undo:
    """Call `call` whenever one of torch's profilers starts, before it does; returns the undo."""
    module = loaded.torch_part("autograd.profiler")
    prepare = getattr(module, "_prepare_profiler", None)
    if prepare is None:
        return lambda: None

    def prepare_profiler(*arguments: Any, **options: Any) -> Any:
        call()
        return prepare(*arguments, **options)

    return torch_hooks.replace(module, "_prepare_profiler", prepare_profiler)
