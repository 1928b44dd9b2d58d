"""Time GPU code from Python.

>>> import gpuprof
>>> with gpuprof.timer("load", backend="cpu"):
...     data = list(range(1000))
>>> gpuprof.stats()["load"].host.count >= 1
True

Importing this package calls no driver, starts no thread and reads no file of its own; the parts
are imported when their names are first used.

PYTEST_DONT_REWRITE: pytest loads a plugin from here, and no test is in it.
"""

from __future__ import annotations

import _thread
import importlib
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from gpuprof import errors as errors
    from gpuprof import nvtx as nvtx
    from gpuprof import torch as torch
    from gpuprof._benchmark.api import benchmark as benchmark
    from gpuprof._benchmark.compare import CompareResult as CompareResult
    from gpuprof._benchmark.compare import compare as compare
    from gpuprof._benchmark.sweep import SweepPoint as SweepPoint
    from gpuprof._benchmark.sweep import SweepResult as SweepResult
    from gpuprof._benchmark.sweep import sweep as sweep
    from gpuprof._callable.api import GraphedCallable as GraphedCallable
    from gpuprof._callable.api import make_graphed_callable as make_graphed_callable
    from gpuprof._callable.stats import GraphedStats as GraphedStats
    from gpuprof._callable.stats import GraphStats as GraphStats
    from gpuprof._cli.ipython import load_ipython_extension as load_ipython_extension
    from gpuprof._core import Annotation as Annotation
    from gpuprof._core import GraphNode as GraphNode
    from gpuprof._core import Sample as Sample
    from gpuprof._core import Scope as Scope
    from gpuprof._core import annotate as annotate
    from gpuprof._core import mark as mark
    from gpuprof._core import push as push
    from gpuprof._core import range_end as range_end
    from gpuprof._core import range_start as range_start
    from gpuprof._core import timer as timer
    from gpuprof._graphs.capture import CapturedGraph as CapturedGraph
    from gpuprof._graphs.capture import CaptureInfo as CaptureInfo
    from gpuprof._graphs.capture import CaptureMode as CaptureMode
    from gpuprof._graphs.capture import CaptureStatus as CaptureStatus
    from gpuprof._graphs.capture import GraphCaptureGuard as GraphCaptureGuard
    from gpuprof._graphs.capture import GraphMemory as GraphMemory
    from gpuprof._graphs.capture import GraphTimings as GraphTimings
    from gpuprof._graphs.capture import OpenCapture as OpenCapture
    from gpuprof._graphs.capture import SpanTiming as SpanTiming
    from gpuprof._graphs.capture import begin_capture as begin_capture
    from gpuprof._graphs.capture import capture as capture
    from gpuprof._graphs.capture import capture_info as capture_info
    from gpuprof._graphs.capture import capture_status as capture_status
    from gpuprof._graphs.capture import end_capture as end_capture
    from gpuprof._graphs.capture import is_stream_capturing as is_stream_capturing
    from gpuprof._graphs.device_scalar import DeviceScalar as DeviceScalar
    from gpuprof._graphs.pool import CapturePool as CapturePool
    from gpuprof._graphs.pool import GraphPoolHandle as GraphPoolHandle
    from gpuprof._graphs.pool import capture_pool_for_handle as capture_pool_for_handle
    from gpuprof._graphs.pool import graph_pool_handle as graph_pool_handle
    from gpuprof._graphs.pool import release_graph_pool_handle as release_graph_pool_handle
    from gpuprof._graphs.view import GraphDiff as GraphDiff
    from gpuprof._graphs.view import NodeChange as NodeChange
    from gpuprof._probes import finish_probe_timer as finish_probe_timer
    from gpuprof._probes import finish_probe_timer_traced as finish_probe_timer_traced
    from gpuprof._probes import start_probe_timer_if as start_probe_timer_if
    from gpuprof._pytest.fixture import GpuBenchmark as GpuBenchmark
    from gpuprof._results.comparison import CompareRow as CompareRow
    from gpuprof._results.decision import Decision as Decision
    from gpuprof._results.decision import Verdict as Verdict
    from gpuprof._results.result import BenchResult as BenchResult
    from gpuprof._timing.backends import Backend as Backend
    from gpuprof._timing.backends import SyncBackend as SyncBackend
    from gpuprof._timing.backends import backends as backends
    from gpuprof._timing.backends import cuda_available as cuda_available
    from gpuprof._timing.calibration import Calibration as Calibration
    from gpuprof._timing.calibration import calibrate as calibrate
    from gpuprof._timing.scope import disable as disable
    from gpuprof._timing.scope import enable as enable
    from gpuprof._timing.scope import flush as flush
    from gpuprof._timing.scope import reset as reset
    from gpuprof._timing.scope import stats as stats
    from gpuprof._timing.stats import Row as Row
    from gpuprof._timing.stats import Stats as Stats
    from gpuprof._timing.stats import Summary as Summary
    from gpuprof._timing.timer import Timer as Timer
    from gpuprof._trace.events import Counter as Counter
    from gpuprof._trace.events import counter as counter
    from gpuprof._trace.events import name_stream as name_stream
    from gpuprof._trace.writer import TraceWriter as TraceWriter
    from gpuprof._trace.writer import trace as trace
    from gpuprof.errors import BaselineError as BaselineError
    from gpuprof.errors import CapturedEventError as CapturedEventError
    from gpuprof.errors import CaptureError as CaptureError
    from gpuprof.errors import CaptureImplicitError as CaptureImplicitError
    from gpuprof.errors import CaptureInvalidatedError as CaptureInvalidatedError
    from gpuprof.errors import CaptureIsolationError as CaptureIsolationError
    from gpuprof.errors import CaptureMergeError as CaptureMergeError
    from gpuprof.errors import CaptureUnjoinedError as CaptureUnjoinedError
    from gpuprof.errors import CaptureUnmatchedError as CaptureUnmatchedError
    from gpuprof.errors import CaptureUnsupportedError as CaptureUnsupportedError
    from gpuprof.errors import CaptureWrongThreadError as CaptureWrongThreadError
    from gpuprof.errors import CudaError as CudaError
    from gpuprof.errors import CudaUnavailableError as CudaUnavailableError
    from gpuprof.errors import DriverGoneError as DriverGoneError
    from gpuprof.errors import EmptyGraphError as EmptyGraphError
    from gpuprof.errors import ForkedProcessError as ForkedProcessError
    from gpuprof.errors import GpuprofError as GpuprofError
    from gpuprof.errors import GraphUpdateError as GraphUpdateError
    from gpuprof.errors import InvalidStateError as InvalidStateError
    from gpuprof.errors import NotReplayedError as NotReplayedError
    from gpuprof.errors import StreamMismatchError as StreamMismatchError
    from gpuprof.errors import TraceError as TraceError
    from gpuprof.nvtx import RangeCatalog as RangeCatalog
    from gpuprof.nvtx import RangeSpec as RangeSpec

__version__ = "0.1.0"

# The module of each public name. Those in `__all__` are the everyday ones, shown by `dir()`.
_MODULE_OF = {
    "Annotation": "_core",
    "Backend": "_timing.backends",
    "BaselineError": "errors",
    "BenchResult": "_results.result",
    "Calibration": "_timing.calibration",
    "CaptureError": "errors",
    "CaptureImplicitError": "errors",
    "CaptureInfo": "_graphs.capture",
    "CaptureInvalidatedError": "errors",
    "CaptureIsolationError": "errors",
    "CaptureMergeError": "errors",
    "CaptureMode": "_graphs.capture",
    "CapturePool": "_graphs.pool",
    "CaptureStatus": "_graphs.capture",
    "CaptureUnjoinedError": "errors",
    "CaptureUnmatchedError": "errors",
    "CaptureUnsupportedError": "errors",
    "CaptureWrongThreadError": "errors",
    "CapturedEventError": "errors",
    "CapturedGraph": "_graphs.capture",
    "CompareResult": "_benchmark.compare",
    "CompareRow": "_results.comparison",
    "Counter": "_trace.events",
    "CudaError": "errors",
    "CudaUnavailableError": "errors",
    "Decision": "_results.decision",
    "DeviceScalar": "_graphs.device_scalar",
    "DriverGoneError": "errors",
    "EmptyGraphError": "errors",
    "ForkedProcessError": "errors",
    "GpuBenchmark": "_pytest.fixture",
    "GpuprofError": "errors",
    "GraphCaptureGuard": "_graphs.capture",
    "GraphDiff": "_graphs.view",
    "GraphMemory": "_graphs.capture",
    "GraphNode": "_core",
    "GraphPoolHandle": "_graphs.pool",
    "GraphStats": "_callable.stats",
    "GraphTimings": "_graphs.capture",
    "GraphUpdateError": "errors",
    "GraphedCallable": "_callable.api",
    "GraphedStats": "_callable.stats",
    "InvalidStateError": "errors",
    "NodeChange": "_graphs.view",
    "NotReplayedError": "errors",
    "OpenCapture": "_graphs.capture",
    "RangeCatalog": "nvtx",
    "RangeSpec": "nvtx",
    "Row": "_timing.stats",
    "Sample": "_core",
    "Scope": "_core",
    "SpanTiming": "_graphs.capture",
    "Stats": "_timing.stats",
    "StreamMismatchError": "errors",
    "Summary": "_timing.stats",
    "SweepPoint": "_benchmark.sweep",
    "SweepResult": "_benchmark.sweep",
    "SyncBackend": "_timing.backends",
    "Timer": "_timing.timer",
    "TraceError": "errors",
    "TraceWriter": "_trace.writer",
    "Verdict": "_results.decision",
    "annotate": "_core",
    "backends": "_timing.backends",
    "begin_capture": "_graphs.capture",
    "benchmark": "_benchmark.api",
    "calibrate": "_timing.calibration",
    "capture": "_graphs.capture",
    "capture_info": "_graphs.capture",
    "capture_pool_for_handle": "_graphs.pool",
    "capture_status": "_graphs.capture",
    "compare": "_benchmark.compare",
    "counter": "_trace.events",
    "cuda_available": "_timing.backends",
    "disable": "_timing.scope",
    "enable": "_timing.scope",
    "end_capture": "_graphs.capture",
    "finish_probe_timer": "_probes",
    "finish_probe_timer_traced": "_probes",
    "flush": "_timing.scope",
    "graph_pool_handle": "_graphs.pool",
    "is_stream_capturing": "_graphs.capture",
    "load_ipython_extension": "_cli.ipython",
    "make_graphed_callable": "_callable.api",
    "mark": "_core",
    "name_stream": "_trace.events",
    "push": "_core",
    "range_end": "_core",
    "range_start": "_core",
    "release_graph_pool_handle": "_graphs.pool",
    "reset": "_timing.scope",
    "start_probe_timer_if": "_probes",
    "stats": "_timing.scope",
    "sweep": "_benchmark.sweep",
    "timer": "_core",
    "trace": "_trace.writer",
}

__all__ = [
    "CapturePool",
    "CapturedGraph",
    "DeviceScalar",
    "RangeCatalog",
    "RangeSpec",
    "SyncBackend",
    "Timer",
    "TraceWriter",
    "annotate",
    "backends",
    "benchmark",
    "calibrate",
    "capture",
    "compare",
    "counter",
    "cuda_available",
    "disable",
    "enable",
    "errors",
    "flush",
    "make_graphed_callable",
    "mark",
    "nvtx",
    "push",
    "range_end",
    "range_start",
    "reset",
    "stats",
    "sweep",
    "timer",
    "trace",
]


def __getattr__(name: str) -> object:
    module = name if name in {"errors", "nvtx", "torch"} else _MODULE_OF.get(name)
    if module is None:
        message = f"module 'gpuprof' has no attribute {name!r}"
        raise AttributeError(message)
    core = None if module == "errors" else _load_core()
    if module == name:
        return _load(module)
    try:
        if module == "_core":
            # A signal handler in what follows finds it there.
            globals()[name] = getattr(core, name)
            _load("_timing.scope")
        if core is not None and os.environ.get("GPUPROF_NVTX"):
            _load("nvtx")
        value: object = getattr(core if module == "_core" else _load(module), name)
        globals()[name] = value  # the next look-up is a plain one
    except BaseException:
        globals().pop(name, None)
        raise
    return value


def _load_core() -> ModuleType:
    """Import the compiled part without the import system's locks.

    Two calls into C do it, and what is between them can be done twice: so a signal handler in the
    middle of it, or a child forked there, imports it for itself.
    """
    name = "gpuprof._core"
    core = sys.modules.get(name)
    if core is not None and hasattr(core, "timer"):
        return core
    spec = _find_spec(name) if core is None else core.__spec__
    if spec is None or spec.loader is None:
        return importlib.import_module(name)
    if core is None:
        core = spec.loader.create_module(spec)
    if core is None:
        return importlib.import_module(name)
    core.__spec__, core.__loader__, core.__package__ = spec, spec.loader, __name__
    core.__file__ = spec.origin
    spec.loader.exec_module(core)
    core = globals()["_core"] = sys.modules.setdefault(name, core)
    return core


def _find_spec(name: str) -> ModuleSpec | None:
    for finder in sys.meta_path:
        spec = finder.find_spec(name, __path__)
        if spec is not None:
            return spec
    return None


# A child that is forked while another thread imports would have locks that nobody gives back.
_FORK_WAITS_S = 5.0
_importing: list[int] = []  # the threads that import a part now
_no_new_import = _thread.RLock()


def _load(module: str) -> ModuleType:
    thread = _thread.get_ident()
    with _no_new_import:
        _importing.append(thread)
    try:
        return importlib.import_module(f"gpuprof.{module}")
    finally:
        _importing.remove(thread)


def _before_fork() -> None:
    _no_new_import.acquire()
    until = time.monotonic() + _FORK_WAITS_S
    while set(_importing) - {_thread.get_ident()} and time.monotonic() < until:
        time.sleep(0.001)


def _after_fork_in_child() -> None:
    _no_new_import.release()
    _importing[:] = [thread for thread in _importing if thread == _thread.get_ident()]


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_no_new_import.release,
    after_in_child=_after_fork_in_child,
)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
