"""Scopes around what makes the host wait for the GPU: ``Tensor.item()`` and `synchronize`.

Torch has no hook for these, so its functions are replaced by some that call them. A program must
not notice: only a plain tensor is looked at, where no mode of functions is active, and
torch.compile gets the call that it knows. Other waits are not seen: to replace ``to``, ``cpu`` or
``__bool__`` changes what lazy modules, subclasses and compiled code do.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable
from typing import Any

import gpuprof._core as _core
from gpuprof._frameworks import torch_hooks
from gpuprof._frameworks.torch_compile import keep_from_compiler

NAME = "waiting/"

Begin = Callable[[Any], None]


def replace(torch: Any, begin: Begin) -> torch_hooks.Undo:
    """Replace the functions; `begin` is called before each wait, with a frame that runs.

    What a method's replacement does not look at goes to torch's own at once, with all arguments,
    so that a wrong call fails as it does without. A function of a subclass or a mode gets the
    replacement as its `func`, and what it calls then is looked at in turn.
    """
    undo, is_compiling = contextlib.ExitStack(), torch.compiler.is_compiling
    is_traced, plain = torch.compiler.is_dynamo_compiling, torch.Tensor
    has_override = torch.overrides.has_torch_function_unary

    def put(owner: Any, name: str) -> None:
        original, is_method = getattr(owner, name), owner is plain
        scope = _core.timer(f"{NAME}{name}", backend="cpu")

        @functools.wraps(original)
        def wait(*arguments: Any, **options: Any) -> Any:
            if is_method:
                if is_traced():  # an unbound call, which breaks the graph as a function's
                    return arguments[0].item(*arguments[1:], **options)
                tensor: Any = arguments[0] if arguments else None
                if type(tensor) is not plain or has_override(tensor) or not tensor.is_cuda:
                    return original(*arguments, **options)
            if is_compiling():
                return original(*arguments, **options)
            begin(sys._getframe())
            with scope:
                return original(*arguments, **options)

        if is_method:  # a pickle finds it by its name
            wait.__module__, wait.__qualname__ = "torch", f"Tensor.{name}"
        keep_from_compiler(wait)
        undo.callback(torch_hooks.replace(owner, name, wait))

    put(plain, "item")
    for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
        put(owner, "synchronize")
    return undo.close
