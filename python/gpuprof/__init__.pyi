# Made by `python .ci/door_stub.py` from __init__.py: do not edit, run it again.
# ruff: noqa: I001

from gpuprof import compat as compat
from gpuprof import distributed as distributed
from gpuprof import errors as errors
from gpuprof import exporters as exporters
from gpuprof import integrations as integrations
from gpuprof import nvtx as nvtx
from gpuprof import torch as torch
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
from gpuprof.errors import BaselineError as BaselineError
from gpuprof.errors import CaptureError as CaptureError
from gpuprof.errors import CaptureImplicitError as CaptureImplicitError
from gpuprof.errors import CaptureInvalidatedError as CaptureInvalidatedError
from gpuprof.errors import CaptureIsolationError as CaptureIsolationError
from gpuprof.errors import CaptureMergeError as CaptureMergeError
from gpuprof.errors import CaptureUnjoinedError as CaptureUnjoinedError
from gpuprof.errors import CaptureUnmatchedError as CaptureUnmatchedError
from gpuprof.errors import CaptureUnsupportedError as CaptureUnsupportedError
from gpuprof.errors import CaptureWrongThreadError as CaptureWrongThreadError
from gpuprof.errors import CapturedEventError as CapturedEventError
from gpuprof.errors import CudaError as CudaError
from gpuprof.errors import CudaUnavailableError as CudaUnavailableError
from gpuprof.errors import DriverGoneError as DriverGoneError
from gpuprof.errors import EmptyGraphError as EmptyGraphError
from gpuprof.errors import ForkedProcessError as ForkedProcessError
from gpuprof.errors import GpuprofError as GpuprofError
from gpuprof.errors import GraphMismatchError as GraphMismatchError
from gpuprof.errors import GraphUpdateError as GraphUpdateError
from gpuprof.errors import InvalidStateError as InvalidStateError
from gpuprof.errors import NotReplayedError as NotReplayedError
from gpuprof.errors import StreamMismatchError as StreamMismatchError
from gpuprof.errors import TraceError as TraceError
from gpuprof.nvtx import RangeCatalog as RangeCatalog
from gpuprof.nvtx import RangeSpec as RangeSpec
from gpuprof._common.instructions import Instructions as Instructions
from gpuprof._common.launches import Launches as Launches
from gpuprof._common.peaks import Peaks as Peaks
from gpuprof._common.peaks import device_peaks as device_peaks
from gpuprof._common.peaks import set_peaks as set_peaks
from gpuprof._probes import finish_probe_timer as finish_probe_timer
from gpuprof._probes import finish_probe_timer_traced as finish_probe_timer_traced
from gpuprof._probes import start_probe_timer_if as start_probe_timer_if
from gpuprof._timing.backends import Backend as Backend
from gpuprof._timing.backends import SyncBackend as SyncBackend
from gpuprof._timing.backends import backends as backends
from gpuprof._timing.backends import cuda_available as cuda_available
from gpuprof._timing.calibration import Calibration as Calibration
from gpuprof._timing.calibration import calibrate as calibrate
from gpuprof._timing.memory import MemoryUse as MemoryUse
from gpuprof._timing.scope import disable as disable
from gpuprof._timing.scope import enable as enable
from gpuprof._timing.scope import flush as flush
from gpuprof._timing.scope import reset as reset
from gpuprof._timing.scope import stats as stats
from gpuprof._timing.listeners import Listener as Listener
from gpuprof._timing.listeners import on_sample as on_sample
from gpuprof._timing.rows import Row as Row
from gpuprof._timing.rows import Summary as Summary
from gpuprof._timing.stats import Stats as Stats
from gpuprof._timing.timer import Timer as Timer
from gpuprof._timing.work import Work as Work
from gpuprof._trace.events import Counter as Counter
from gpuprof._trace.events import counter as counter
from gpuprof._trace.events import name_stream as name_stream
from gpuprof._trace.diff import trace_diff as trace_diff
from gpuprof._trace.diff_results import TraceDiff as TraceDiff
from gpuprof._trace.api import trace as trace
from gpuprof._trace.flight_recorder import FlightRecorder as FlightRecorder
from gpuprof._trace.window import TraceWindows as TraceWindows
from gpuprof._trace.writer import TraceWriter as TraceWriter
from gpuprof._graphs.capture import begin_capture as begin_capture
from gpuprof._graphs.capture import capture as capture
from gpuprof._graphs.capture import capture_info as capture_info
from gpuprof._graphs.capture import capture_status as capture_status
from gpuprof._graphs.capture import end_capture as end_capture
from gpuprof._graphs.capture import is_stream_capturing as is_stream_capturing
from gpuprof._graphs.diff import GraphDiff as GraphDiff
from gpuprof._graphs.diff import NodeChange as NodeChange
from gpuprof._graphs.graph import CapturedGraph as CapturedGraph
from gpuprof._graphs.guard import GraphCaptureGuard as GraphCaptureGuard
from gpuprof._graphs.signature import GraphSignature as GraphSignature
from gpuprof._graphs.timings import GraphTimings as GraphTimings
from gpuprof._graphs.timings import SpanTiming as SpanTiming
from gpuprof._graphs.types import CaptureInfo as CaptureInfo
from gpuprof._graphs.types import CaptureMode as CaptureMode
from gpuprof._graphs.types import CaptureStatus as CaptureStatus
from gpuprof._graphs.types import GraphMemory as GraphMemory
from gpuprof._graphs.types import OpenCapture as OpenCapture
from gpuprof._graphs.device_scalar import DeviceScalar as DeviceScalar
from gpuprof._graphs.pool import CapturePool as CapturePool
from gpuprof._graphs.pool import GraphPoolHandle as GraphPoolHandle
from gpuprof._graphs.pool import capture_pool_for_handle as capture_pool_for_handle
from gpuprof._graphs.pool import graph_pool_handle as graph_pool_handle
from gpuprof._graphs.pool import release_graph_pool_handle as release_graph_pool_handle
from gpuprof._callable.api import GraphedCallable as GraphedCallable
from gpuprof._callable.api import make_graphed_callable as make_graphed_callable
from gpuprof._callable.stats import GraphStats as GraphStats
from gpuprof._callable.stats import GraphedStats as GraphedStats
from gpuprof._kernels.api import Kernels as Kernels
from gpuprof._kernels.api import kernels as kernels
from gpuprof._kernels.rows import KernelRecord as KernelRecord
from gpuprof._kernels.rows import KernelRow as KernelRow
from gpuprof._kernels.rows import KernelTotal as KernelTotal
from gpuprof._kernels.rows import KernelTotals as KernelTotals
from gpuprof._watch.api import ModuleWatch as ModuleWatch
from gpuprof._watch.api import watch as watch
from gpuprof._watch.tree import ModuleRow as ModuleRow
from gpuprof._watch.tree import ModuleTimes as ModuleTimes
from gpuprof._watch.tree import PassTimes as PassTimes
from gpuprof._benchmark.api import benchmark as benchmark
from gpuprof._benchmark.compare import compare as compare
from gpuprof._benchmark.sweep import SweepPoint as SweepPoint
from gpuprof._benchmark.sweep import SweepResult as SweepResult
from gpuprof._benchmark.sweep import sweep as sweep
from gpuprof._report.html import write_report as write_report
from gpuprof._results.comparison import CompareResult as CompareResult
from gpuprof._results.comparison import CompareRow as CompareRow
from gpuprof._results.change_point import HistoryChange as HistoryChange
from gpuprof._results.decision import Decision as Decision
from gpuprof._results.decision import InstructionDecision as InstructionDecision
from gpuprof._results.decision import LaunchDecision as LaunchDecision
from gpuprof._results.decision import MemoryDecision as MemoryDecision
from gpuprof._results.decision import Verdict as Verdict
from gpuprof._results.history import History as History
from gpuprof._results.history import history as history
from gpuprof._results.history_series import HistoryPoint as HistoryPoint
from gpuprof._results.history_series import HistorySeries as HistorySeries
from gpuprof._results.result import BenchResult as BenchResult
from gpuprof._pytest.fixture import GpuBenchmark as GpuBenchmark
from gpuprof._cli.ipython import load_ipython_extension as load_ipython_extension

__version__: str
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
    "exporters",
    "flush",
    "history",
    "kernels",
    "make_graphed_callable",
    "mark",
    "nvtx",
    "on_sample",
    "push",
    "range_end",
    "range_start",
    "reset",
    "stats",
    "sweep",
    "timer",
    "trace",
    "trace_diff",
    "watch",
    "write_report",
]

def __dir__() -> list[str]: ...
