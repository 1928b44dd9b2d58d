"""Other tools that time a GPU function; a missing library is reported, not fatal.

Each returns the microseconds of one call, by the median where the tool offers it. The function is
called on torch's current stream.
"""

from __future__ import annotations

import importlib
import statistics
from collections.abc import Callable
from typing import Any

from support.peers import Peers

DO_BENCH = "triton do_bench"
DO_BENCH_CUDAGRAPH = "triton do_bench_cudagraph"
TORCH_EVENTS = "torch events"
CUPY_BENCHMARK = "CuPy benchmark"

_PAIRS = 200
_WARM_CALLS = 20

Call = Callable[[], object]


class BenchmarkPeers(Peers):
    """The libraries that are installed, and one reading by each of their tools."""

    def __init__(self) -> None:
        super().__init__()
        self._testing = self._use("triton", lambda: importlib.import_module("triton.testing"))
        self._profiler = None
        if self.cupy is not None:
            self._profiler = self._use(
                "cupyx.profiler", lambda: importlib.import_module("cupyx.profiler")
            )

    @property
    def triton_version(self) -> str | None:
        """Triton's version, or None if it is not installed."""
        if self._testing is None:
            return None
        return str(importlib.import_module("triton").__version__)

    def reading(self, name: str, call: Call) -> float | None:
        """Return the reading of a tool; None, and a note, if it fails."""
        tools: dict[str, tuple[Any, Callable[[Call], float]]] = {
            DO_BENCH: (self._testing, self._do_bench),
            DO_BENCH_CUDAGRAPH: (self._testing, self._do_bench_cudagraph),
            TORCH_EVENTS: (self.torch, self._torch_events),
            CUPY_BENCHMARK: (self._profiler, self._cupy_benchmark),
        }
        library, read = tools[name]
        if library is None:
            return None
        found: float | None = self._use(name, lambda: read(call))
        return found

    def _do_bench(self, call: Call) -> float:
        return float(self._testing.do_bench(call, return_mode="median")) * 1e3

    def _do_bench_cudagraph(self, call: Call) -> float:
        with self.torch.cuda.stream(self.torch.cuda.Stream()):  # older ones refuse the default one
            return float(self._testing.do_bench_cudagraph(call, return_mode="median")) * 1e3

    def _torch_events(self, call: Call) -> float:
        event = self.torch.cuda.Event
        pairs = [(event(enable_timing=True), event(enable_timing=True)) for _ in range(_PAIRS)]
        for _ in range(_WARM_CALLS):
            call()
        self.torch.cuda.synchronize()
        for begin, end in pairs:
            begin.record()
            call()
            end.record()
        self.torch.cuda.synchronize()
        return statistics.median(begin.elapsed_time(end) for begin, end in pairs) * 1e3

    def _cupy_benchmark(self, call: Call) -> float:
        found = self._profiler.benchmark(call, n_repeat=_PAIRS, n_warmup=_WARM_CALLS, name="a call")
        return statistics.median(map(float, found.gpu_times[0])) * 1e6
