"""What scripts for other packages call, with the signatures that they know.

A script moves by one import: ``from gpuprof.compat import do_bench`` in place of ``from
triton.testing import do_bench``. Each of the modules `triton`, `torch` and `nvtx` here stands
for one package, and is imported when a name of it is first used; the package itself is never
imported. See docs/compat.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)

if TYPE_CHECKING:
    from gpuprof.compat import nvtx, torch, triton
    from gpuprof.compat.nvtx import annotate
    from gpuprof.compat.torch import (
        CUDAGraph,
        Event,
        graph,
        graph_pool_handle,
        make_graphed_callables,
    )
    from gpuprof.compat.triton import do_bench, do_bench_cudagraph

__all__ = [
    "CUDAGraph",
    "Event",
    "annotate",
    "do_bench",
    "do_bench_cudagraph",
    "graph",
    "graph_pool_handle",
    "make_graphed_callables",
    "nvtx",
    "torch",
    "triton",
]

_MODULES = ("triton", "torch", "nvtx")


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return importlib.import_module(f"gpuprof.compat.{name}")
    if name not in __all__:
        message = f"module 'gpuprof.compat' has no attribute {name!r}; it has {', '.join(__all__)}"
        raise AttributeError(message)
    modules = (importlib.import_module(f"gpuprof.compat.{each}") for each in _MODULES)
    found = next(module for module in modules if name in module.__all__)
    return globals().setdefault(name, getattr(found, name))


def __dir__() -> list[str]:
    return __all__
