"""Time GPU code from Python.

>>> import gpuprof
>>> with gpuprof.timer("load", backend="cpu"):
...     data = list(range(1000))
>>> gpuprof.stats()["load"].host.count >= 1
True

Importing this package calls no driver, starts no thread and reads no file of its own; the parts
are imported when their names are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuprof import errors
    from gpuprof._backends import Backend, SyncBackend, backends, cuda_available
    from gpuprof._core import Sample, Scope, timer
    from gpuprof._probes import finish_probe_timer, start_probe_timer_if
    from gpuprof._stats import Row, Stats, Summary
    from gpuprof._timing import (
        Calibration,
        Timer,
        calibrate,
        disable,
        enable,
        flush,
        reset,
        stats,
    )

__version__ = "0.1.0"

# The module of each public name. Those in `__all__` are the everyday ones, shown by `dir()`.
_MODULE_OF = {
    "Backend": "_backends",
    "Calibration": "_timing",
    "Row": "_stats",
    "Sample": "_core",
    "Scope": "_core",
    "Stats": "_stats",
    "Summary": "_stats",
    "SyncBackend": "_backends",
    "Timer": "_timing",
    "backends": "_backends",
    "calibrate": "_timing",
    "cuda_available": "_backends",
    "disable": "_timing",
    "enable": "_timing",
    "finish_probe_timer": "_probes",
    "flush": "_timing",
    "reset": "_timing",
    "start_probe_timer_if": "_probes",
    "stats": "_timing",
    "timer": "_core",
}

__all__ = [
    "SyncBackend",
    "Timer",
    "backends",
    "calibrate",
    "cuda_available",
    "disable",
    "enable",
    "errors",
    "flush",
    "reset",
    "stats",
    "timer",
]


def __getattr__(name: str) -> object:
    if name == "errors":
        return importlib.import_module("gpuprof.errors")
    module = _MODULE_OF.get(name)
    if module is None:
        message = f"module 'gpuprof' has no attribute {name!r}"
        raise AttributeError(message)
    if module == "_core":
        # The environment's switches are read where the Python side of timing is imported.
        importlib.import_module("gpuprof._timing")
    value: object = getattr(importlib.import_module(f"gpuprof.{module}"), name)
    globals()[name] = value  # the next look-up is a plain one
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
