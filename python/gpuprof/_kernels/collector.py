"""One collection of GPU work through CUPTI, which torch's profiler may use before and after it.

What was collected are columns: work of the GPU, and the host's calls that launched it. Times are
nanoseconds of the host's monotonic clock. A million records take 70 MB, and to evaluate them takes
as much again and more.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

import gpuprof._core as _core
from gpuprof._common.imports import when_imported
from gpuprof._frameworks import torch_hooks
from gpuprof.errors import InvalidStateError

_WHEELS = (
    "nvidia/cu13/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.12",
)

Column: TypeAlias = "array[int]"

KERNEL, _COPY, _PEER_COPY, MEMSET = range(4)
KINDS = ("kernel", "memcpy", "memcpy", "memset")

_WORK = {  # kernels, copies and memsets, on the GPU
    "kind": "B",
    "name": "I",
    "begin_ns": "q",
    "end_ns": "q",
    "device": "I",
    "stream": "I",
    "correlation": "I",
    "graph_id": "I",
    "node_id": "Q",
    "nbytes": "Q",
}
# Calls of the CUDA runtime or driver, on the host.
_LAUNCHES = {"name": "I", "begin_ns": "q", "end_ns": "q", "thread_id": "I", "correlation": "I"}


class Columns:
    """Records of one kind, a column for each field, all of one length."""

    def __init__(self, codes: Mapping[str, str]) -> None:
        self._codes = codes
        for name, code in codes.items():
            setattr(self, name, array(code))

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Column: ...

    def __len__(self) -> int:
        return len(self.begin_ns)

    def fill(self, columns: Mapping[str, bytes]) -> None:
        """Take columns as the bytes of arrays, in the order in which the records began."""
        for name in self._codes:
            getattr(self, name).frombytes(columns[name])
        begins = self.begin_ns
        if all(map(int.__le__, begins, begins[1:])):
            return
        order = sorted(range(len(begins)), key=begins.__getitem__)
        for name, code in self._codes.items():
            column = getattr(self, name)
            column[:] = array(code, map(column.__getitem__, order))


@dataclass
class Collected:
    """All that was collected, in the order of time."""

    names: Sequence[str]
    work: Columns = field(default_factory=partial(Columns, _WORK))
    launches: Columns = field(default_factory=partial(Columns, _LAUNCHES))
    # How often and how many ns, by (kind, index of the name), also of what has no room in `work`.
    totals: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    dropped: int = 0
    until_ns: int = 0  # nobody knows when the GPU worked after that
    clock_error_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def streams(self) -> dict[tuple[int, int], list[int]]:
        """Return the records of each stream, by its device and its number."""
        found: dict[tuple[int, int], list[int]] = {}
        for record, key in enumerate(zip(self.work.device, self.work.stream, strict=True)):
            found.setdefault(key, []).append(record)
        return found

    def not_kept(self) -> dict[tuple[int, int], tuple[int, int]]:
        """Return the totals of the work that is not among the records."""
        left = dict(self.totals)
        work = self.work
        for kind, name, begin, end in zip(
            work.kind, work.name, work.begin_ns, work.end_ns, strict=True
        ):
            count, ns = left[kind, name]
            left[kind, name] = count - 1, ns - (end - begin)
        return {key: total for key, total in left.items() if total[0] > 0}


class Collector:
    """Collects from `start` to `stop`; then `collected` has it all. Any thread.

    CUPTI has one pair of buffer callbacks, so a torch profiler that starts meanwhile ends the
    collection first, and then works as it would alone.
    """

    _current: ClassVar[Collector | None] = None  # the one that collects

    def __init__(self, max_records: int) -> None:
        """Load CUPTI; CudaUnavailableError without it, or without a driver with a device."""
        _core.require_cuda()
        version = _core._cupti_load(candidates())["version"]
        self.name = f"CUPTI {cupti_version(version)}"
        self._max_records = max_records
        self._found: dict[str, Any] = {}
        self._notes: list[str] = []
        self._end_ns = 0
        self._process = os.getpid()
        self._lock = threading.RLock()  # of start and end: a torch profiler waits for them
        self._put_back: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Begin to collect; InvalidStateError if one of torch's profilers runs already.

        Other errors are those of `gpuprof._core._cupti_start`.
        """
        with self._lock:
            Collector._current = self  # first, as Ctrl-C may come as soon as it has started
            try:
                when_imported(torch_hooks.PROFILERS, _make_way)
                self._make_way()
                if other := torch_hooks.running_profiler():
                    message = (
                        f"kernels(): {other} is running, and CUPTI serves one profiler at a time; "
                        "stop it first, or read the kernels from its trace: gpuprof trace summary "
                        "FILE"
                    )
                    raise InvalidStateError(message)
                _core._cupti_start(self._max_records, candidates())
            except Exception:
                Collector._current = None
                self._put_back()
                raise

    def stop(self) -> None:
        """Wait for the GPU and end the collection, unless a torch profiler has ended it."""
        if os.getpid() != self._process:
            _core._cupti_stop()  # refuses: a child of fork has no collection, and maybe a lost lock
            return
        with self._lock:
            if Collector._current is not self:
                return
            self._end_ns = time.monotonic_ns()
            try:
                self._found = _core._cupti_stop()
            finally:
                Collector._current = None
                self._put_back()

    def _make_way(self) -> None:
        """End the collection before the next start of one of torch's profilers."""
        with self._lock:
            if Collector._current is self:
                self._put_back()
                self._put_back = torch_hooks.before_profiler(self._end_early)

    def _end_early(self) -> None:
        if os.getpid() != self._process:
            return
        with self._lock:
            if Collector._current is not self:
                return
            self._notes.append("ended early by a torch profiler that was started inside the block")
            try:
                self.stop()
            except Exception as error:  # that profiler must not fail for it
                self._notes.append(f"the collection failed: {error}")

    def collected(self) -> Collected:
        """Return what came, once."""
        raw, self._found = self._found, {}
        if not raw:
            return Collected([], notes=self._notes)
        found = Collected(raw["names"], notes=self._notes)
        found.work.fill(raw["activities"])
        found.launches.fill(raw["launches"])
        names = {text: number for number, text in enumerate(found.names)}
        found.totals = {(kind, names[name]): sums for (kind, name), sums in raw["totals"].items()}
        found.dropped = raw["dropped"]
        is_whole = not (found.dropped or raw["cupti_dropped"] or raw["displaced"])
        found.until_ns = self._end_ns if is_whole else max(found.work.end_ns, default=0)
        found.clock_error_ns = raw["clock_error_ns"]
        if raw["displaced"]:
            found.notes.append(
                "another tool took CUPTI during the block, so records are missing: run one "
                "profiler at a time"
            )
        for key, what in (
            ("cupti_dropped", "records lost by CUPTI, which had no buffer: they are in no figure"),
            ("incomplete", "records without times: they are in no figure"),
            ("launches_dropped", "calls past the limit were not kept"),
        ):
            if raw[key]:
                found.notes.append(f"{raw[key]:,} {what}")
        if raw["problem"]:
            found.notes.append(f"CUPTI could not be stopped as it should be: {raw['problem']}")
        return found


def _make_way() -> None:
    if (current := Collector._current) is not None:
        current._make_way()


def candidates() -> list[str]:
    """Return where wheels of NVIDIA's put CUPTI, as far as they are installed."""
    places = (Path(folder) / wheel for wheel in _WHEELS for folder in sys.path if folder)
    return [str(place) for place in dict.fromkeys(places) if place.is_file()]


def cupti_version(number: int) -> str:
    """Write the number that CUPTI has for its version as that of the toolkit it came with."""
    if number >= 100_000:
        return f"{number // 10_000}.{number // 100 % 100}"
    return f"12.{number - 18}" if 18 <= number < 30 else str(number)
