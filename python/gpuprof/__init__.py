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
    from gpuprof import errors as errors
    from gpuprof._backends import Backend as Backend
    from gpuprof._backends import SyncBackend as SyncBackend
    from gpuprof._backends import backends as backends
    from gpuprof._backends import cuda_available as cuda_available
    from gpuprof._core import Sample as Sample
    from gpuprof._core import Scope as Scope
    from gpuprof._core import timer as timer
    from gpuprof._probes import finish_probe_timer as finish_probe_timer
    from gpuprof._probes import start_probe_timer_if as start_probe_timer_if
    from gpuprof._stats import Row as Row
    from gpuprof._stats import Stats as Stats
    from gpuprof._stats import Summary as Summary
    from gpuprof._timing import Calibration as Calibration
    from gpuprof._timing import Timer as Timer
    from gpuprof._timing import calibrate as calibrate
    from gpuprof._timing import disable as disable
    from gpuprof._timing import enable as enable
    from gpuprof._timing import flush as flush
    from gpuprof._timing import reset as reset
    from gpuprof._timing import stats as stats

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
