"""The classes of what gpuprof returns. A program reads them and makes none.

`gpuprof.stats()["step"]` is a `Row`, for example. The classes are here for annotations and for
`isinstance`.
"""

from __future__ import annotations

import gpuprof._startup  # noqa: F401 (a program may import nothing but this module)
from gpuprof._benchmark.sweep import SweepPoint
from gpuprof._callable.stats import GraphCounts, GraphedCallableStats
from gpuprof._common.launches import Launches
from gpuprof._common.peaks import Peaks
from gpuprof._graphs.diff import NodeChange
from gpuprof._graphs.signature import GraphSignature
from gpuprof._graphs.timings import SpanTiming
from gpuprof._graphs.types import CaptureInfo, GraphMemory, OpenCapture
from gpuprof._idle.rows import IdleRow
from gpuprof._kernels.rows import KernelRecord, KernelRow, KernelTotal, KernelTotals
from gpuprof._results.change_point import HistoryChange
from gpuprof._results.comparison import CompareRow
from gpuprof._results.decision import Decision
from gpuprof._results.history import HistoryPoint, HistorySeries
from gpuprof._timing.calibration import Calibration
from gpuprof._timing.memory import MemoryUse
from gpuprof._timing.rows import Row, Summary
from gpuprof._timing.work import Work
from gpuprof._trace.flight_recorder import FlightRecorder
from gpuprof._trace.window import TraceWindows
from gpuprof._watch.tree import ModuleRow, PassTimes

__all__ = [
    "Calibration",
    "CaptureInfo",
    "CompareRow",
    "Decision",
    "FlightRecorder",
    "GraphCounts",
    "GraphMemory",
    "GraphSignature",
    "GraphedCallableStats",
    "HistoryChange",
    "HistoryPoint",
    "HistorySeries",
    "IdleRow",
    "KernelRecord",
    "KernelRow",
    "KernelTotal",
    "KernelTotals",
    "Launches",
    "MemoryUse",
    "ModuleRow",
    "NodeChange",
    "OpenCapture",
    "PassTimes",
    "Peaks",
    "Row",
    "SpanTiming",
    "Summary",
    "SweepPoint",
    "TraceWindows",
    "Work",
]
