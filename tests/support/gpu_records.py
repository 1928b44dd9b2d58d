"""Records of GPU work as CUPTI would give them, for `gpuprof.kernels` without a GPU.

A `Recording` stands in for the functions of `gpuprof._core` that start and stop CUPTI. What the
"GPU" did is added to it, in the block or before: `run` launches work now, on this thread.
"""

from __future__ import annotations

import threading
import time
from array import array
from typing import TYPE_CHECKING, Any

from gpuprof.errors import InvalidStateError
from tests.support.cupti import ACTIVITY_CODES, LAUNCH_CODES

if TYPE_CHECKING:
    import pytest

KERNEL, COPY, PEER_COPY, MEMSET = range(4)


class Recording:
    """The records of one collection, and how often CUPTI was asked for them."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.stops = 0
        self.error: Exception | None = None
        self.on_start: Exception | None = None
        self.extra: dict[str, Any] = {}
        self.activities: list[dict[str, int]] = []
        self.launches: list[dict[str, int]] = []
        self.names: list[str] = []
        self._correlation = 0

    def name(self, text: str) -> int:
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def call(
        self,
        name: str = "cudaLaunchKernel",
        *,
        begin: int | None = None,
        ns: int = 3_000,
        thread: int | None = None,
    ) -> int:
        """Note a call of CUDA's; returns its correlation."""
        self._correlation += 1
        at = time.monotonic_ns() if begin is None else begin
        self.launches.append(
            {
                "name": self.name(name),
                "begin_ns": at,
                "end_ns": at + ns,
                "thread_id": threading.get_native_id() if thread is None else thread,
                "correlation": self._correlation,
            }
        )
        return self._correlation

    def work(self, name: str, correlation: int, begin: int, ns: int, **more: int) -> None:
        """Note work of the GPU."""
        activity = dict.fromkeys(ACTIVITY_CODES, 0) | {"stream": 7}
        activity |= {
            "name": self.name(name),
            "correlation": correlation,
            "begin_ns": begin,
            "end_ns": begin + ns,
        }
        self.activities.append(activity | more)

    def run(self, name: str, ns: int = 10_000, *, delay: int = 5_000, **more: int) -> None:
        """Launch work now on this thread; it begins `delay` after its call."""
        correlation = self.call()
        self.work(name, correlation, self.launches[-1]["begin_ns"] + delay, ns, **more)

    # --- what stands in for gpuprof._core ----------------------------------------------------

    def load(self, candidates: list[str]) -> dict[str, Any]:
        if self.error is not None:
            raise self.error
        return {"version": 130001, "path": "/lib/libcupti.so.13", "tried": list(candidates)}

    def start(self, max_records: int, _candidates: list[str]) -> None:
        if self.on_start is not None:
            raise self.on_start
        self.starts.append(max_records)

    def stop(self) -> dict[str, Any]:
        if self.stops == len(self.starts):
            raise InvalidStateError("no kernels are being collected")
        self.stops += 1
        limit = self.starts[-1]
        totals: dict[tuple[int, str], tuple[int, int]] = {}
        for each in self.activities:
            key = (each["kind"], self.names[each["name"]])
            count, ns = totals.get(key, (0, 0))
            totals[key] = (count + 1, ns + each["end_ns"] - each["begin_ns"])
        return {
            "version": 130001,
            "path": "/lib/libcupti.so.13",
            "activities": _columns(self.activities[:limit], ACTIVITY_CODES),
            "launches": _columns(self.launches[: 2 * limit], LAUNCH_CODES),
            "names": self.names,
            "totals": totals,
            "count": len(self.activities),
            "dropped": max(0, len(self.activities) - limit),
            "launches_dropped": max(0, len(self.launches) - 2 * limit),
            "problem": None,
            "cupti_dropped": 0,
            "incomplete": 0,
            "unknown": 0,
            "displaced": False,
            "clock_error_ns": 120,
            **self.extra,
        }

    def install(self, monkeypatch: pytest.MonkeyPatch) -> Recording:
        for name, function in (("load", self.load), ("start", self.start), ("stop", self.stop)):
            monkeypatch.setattr(f"gpuprof._core._cupti_{name}", function, raising=False)
        return self


def _columns(records: list[dict[str, int]], codes: dict[str, str]) -> dict[str, bytes]:
    return {
        name: array(code, [each[name] for each in records]).tobytes()
        for name, code in codes.items()
    }
