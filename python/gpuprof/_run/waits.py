"""Scopes around what makes the host wait for the GPU: ``.item()``, copies, `synchronize`.

Torch has no hook for these, so functions of `torch.Tensor` and `torch.cuda` are replaced by some
that call them. A tensor that is not on a GPU costs a look at it. What waits without being called by
a name, such as a mask as an index, is not seen.
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
COPIES = ("to", "cuda")
_READS = ("item", "tolist", "cpu", "__bool__", "__float__", "__int__")

Begin = Callable[[Any], None]


def _is_on_gpu(tensor: Any, *_arguments: Any, **_options: Any) -> bool:
    return bool(tensor.is_cuda)


def _comes_to_gpu(tensor: Any, *more: Any, **options: Any) -> bool:
    return not (tensor.is_cuda or options.get("non_blocking") or any(each is True for each in more))


def _changes_device(tensor: Any, target: Any = None, *more: Any, **options: Any) -> bool:
    """Whether ``tensor.to(...)`` copies between the host and a GPU."""
    target = options.get("device", target)
    target = getattr(target, "device", target)  # of another tensor
    target = getattr(target, "type", target)
    if not isinstance(target, (str, int)):  # a type of numbers
        return False
    if options.get("non_blocking") or any(each is True for each in more):
        return False
    goes_to_gpu = isinstance(target, int) or target.startswith("cuda")
    return goes_to_gpu != bool(tensor.is_cuda)


def replace(torch: Any, begin: Begin) -> torch_hooks.Undo:
    """Replace the functions; `begin` is called before each wait, with a frame that runs."""
    undo, is_compiling = contextlib.ExitStack(), torch.compiler.is_compiling

    def put(owner: Any, name: str, waits: Callable[..., bool] | None = None) -> None:
        original = getattr(owner, name)
        scope = _core.timer(f"{NAME}{name.strip('_')}", backend="cpu")

        @functools.wraps(original)
        def wait(*arguments: Any, **options: Any) -> Any:
            if (waits and not waits(*arguments, **options)) or is_compiling():
                return original(*arguments, **options)
            begin(sys._getframe())
            with scope:
                return original(*arguments, **options)

        if owner is torch.Tensor:  # a pickle finds it by its name
            wait.__module__, wait.__qualname__ = "torch", f"Tensor.{name}"
        keep_from_compiler(wait)
        undo.callback(torch_hooks.replace(owner, name, wait))

    for name in _READS:
        put(torch.Tensor, name, _is_on_gpu)
    put(torch.Tensor, "to", _changes_device)
    put(torch.Tensor, "cuda", _comes_to_gpu)
    for owner in (torch.cuda, torch.cuda.Stream, torch.cuda.Event):
        put(owner, "synchronize")
    keep_from_compiler(_is_on_gpu, _comes_to_gpu, _changes_device)
    return undo.close
