"""Traces as torch.profiler writes them, made up: steps of kernels, each with its launch call."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

Event = dict[str, Any]
HOST, GPU = 4000, 0  # pids, as torch has them


class TorchTrace:
    """Collects events; times are microseconds."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._correlation = 100

    def _slice(
        self, name: str, cat: str, begin: float, dur: float, *, track: tuple[int, int], **args: Any
    ) -> None:
        pid, tid = track
        labels = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid}
        self.events.append({**labels, "ts": begin, "dur": dur, "args": args})

    def scope(self, name: str, begin: float, dur: float, tid: int = 1, **args: Any) -> None:
        self._slice(name, "user_annotation", begin, dur, track=(HOST, tid), **args)

    def gpu_scope(self, name: str, begin: float, dur: float, **args: Any) -> None:
        self._slice(name, "gpu_user_annotation", begin, dur, track=(GPU, 7), stream=7, **args)

    def launch(
        self, at: float, *, name: str = "cudaLaunchKernel", tid: int = 1, took: float = 3
    ) -> int:
        """Add a launch call; return its correlation."""
        self._correlation += 1
        args = {"correlation": self._correlation, "cbid": 211}
        self._slice(name, "cuda_runtime", at, took, track=(HOST, tid), **args)
        return self._correlation

    def work(
        self,
        name: str,
        begin: float,
        dur: float,
        correlation: int | None,
        *,
        cat: str = "kernel",
        stream: int = 7,
        device: int = 0,
        **args: Any,
    ) -> None:
        if correlation is not None:
            args["correlation"] = correlation
        more = {"device": device, "stream": stream, **args}
        self._slice(name, cat, begin, dur, track=(device, stream), **more)

    def kernel(self, name: str, launch: float, begin: float, dur: float, **more: Any) -> None:
        """Add a kernel with its launch call."""
        self.work(name, begin, dur, self.launch(launch), **more)


def steps(count: int, kernels: Iterable[tuple[str, float]]) -> TorchTrace:
    """Return a trace of `count` steps, whose kernels run one after the other, launched in time."""
    trace, at = TorchTrace(), 100.0
    for number in range(count):
        host = number * 50.0
        trace.scope("step", host, 40)
        for place, (name, dur) in enumerate(kernels):
            trace.kernel(name, host + 5 + place, at, dur)
            at += dur + 2.0
    return trace
