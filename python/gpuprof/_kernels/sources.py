"""Where records come from: torch's profiler where torch is loaded, else CUPTI itself."""

from __future__ import annotations

import re
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Protocol

import gpuprof._core as _core
from gpuprof._common.imports import when_imported
from gpuprof._frameworks import loaded, torch_profiler
from gpuprof._frameworks.torch_profiler import Event
from gpuprof._kernels.records import (
    COPY,
    KERNEL,
    MEMSET,
    PEER_COPY,
    Collected,
    Names,
)
from gpuprof._kernels.spans import NO_SCOPE, Span, Spans
from gpuprof.errors import InvalidStateError

# Calls that put nothing on the GPU, of which there may be many more than launches.
_NO_LAUNCH = re.compile(
    r"Synchronize|Query|Get|Set(?!D)|EventRecord|WaitEvent|Create|Destroy|Capturing|Malloc|Free"
    r"|Alloc|Instantiate|Load|Occupancy|Attribute|Push|Pop|Register|Capture|Elapsed"
)
_LAUNCH = re.compile(r"Launch|Memcpy|Memset")
_GRAPH_IDS = re.compile(r'"graph (node )?id"\s*:\s*(\d+)')
_BYTES = re.compile(r'"bytes"\s*:\s*(\d+)')
GRAPH_LAUNCH = "cuGraphLaunch"
_WHEELS = (
    "nvidia/cu13/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.13",
    "nvidia/cuda_cupti/lib/libcupti.so.12",
)


class Source(Protocol):
    """Something that collects from `start` to `stop`; then `collected` has it all."""

    name: str

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def collected(self) -> Collected: ...


def choose(max_records: int) -> Source:
    """Return the source to use here; CudaUnavailableError without a CUDA driver with a device."""
    _core.require_cuda()
    if torch_profiler.has_gpu_profiler():
        return TorchSource(max_records)
    return CuptiSource(max_records)


NotedLaunch = tuple[int, int, int, int]  # begin and end in ns, thread, executable graph


class TorchSource:
    def __init__(self, max_records: int) -> None:
        self.name = f"torch.profiler {loaded.torch().__version__}"
        self._max_records = max_records
        self._collection: Any = None
        self._offsets: list[tuple[int, int]] = []
        self._noted: list[NotedLaunch] = []

    def start(self) -> None:
        """Begin to collect; InvalidStateError if one of torch's profilers runs already."""
        other = torch_profiler.running()
        if other is not None:
            message = (
                f"kernels(): {other} is running, and torch has room for one profiler at a time; "
                "stop it first, or read the kernels from its trace: gpuprof trace summary FILE"
            )
            raise InvalidStateError(message)
        self._offsets = [wall_clock_offset()]
        collection = torch_profiler.Collection()
        _core._note_graph_launches(self._max_records)
        try:
            collection.start()
        except BaseException:
            _core._noted_graph_launches()
            raise
        self._collection = collection

    def stop(self) -> None:
        try:
            self._collection.stop()
        finally:
            self._noted = _core._noted_graph_launches()
        self._offsets.append(wall_clock_offset())

    def collected(self) -> Collected:
        collection = self._collection
        names = Names()
        found = Collected(self.name, [])
        offsets, errors = zip(*self._offsets, strict=True)
        low, high = min(offsets), max(offsets)
        shift = (low + high) // 2
        found.clock_error_ns = (high - low + 1) // 2 + max(errors)
        ranges: dict[int, Span] = {}
        on_gpu: list[Span] = []
        calls: list[tuple[int, ...]] = []
        work: list[Event] = []
        launches_one: set[int] = set()  # correlations of calls that launch one kernel
        for event in collection.events():
            is_gpu, is_range, text, begin, duration, correlation, device, resource, _ = event
            if is_gpu and not is_range:
                work.append(event)
                continue
            begin -= shift
            end = begin + duration
            if is_gpu:
                on_gpu.append(Span((str(correlation),), begin, end, _track(device, resource)))
            elif is_range:
                ranges[correlation] = Span((text,), begin, end, resource)
            elif is_launch(text) and len(calls) < self._max_records:
                calls.append((names[text], begin, end, resource, correlation))
                if not is_graph_launch(text):
                    launches_one.add(correlation)
        found.launches.add(calls)
        self._add_work(found, names, work, shift, launches_one)
        ended_ns = collection.stopped_ns - shift
        noted = [each for each in self._noted if each[0] < ended_ns]
        number = names[GRAPH_LAUNCH]
        found.names = [*names]
        for correlation, (begin, end, thread, exec_) in launches_without_record(found, noted):
            found.launches.add([(number, begin, end, thread, correlation)])
            found.replayed[correlation] = exec_
        found.annotations = ranges_of_unrecorded(found, Spans(on_gpu), ranges)
        early = collection.ended_by and f"ended early by {collection.ended_by}"
        found.notes += filter(None, (early, collection.error, collection.stopped_early()))
        return found

    def _add_work(
        self,
        found: Collected,
        names: Names,
        work: Iterable[Event],
        shift: int,
        launches_one: set[int],
    ) -> None:
        """Add the work of the GPU; what a call of `launches_one` launched is of no graph."""
        records: list[tuple[int, ...]] = []
        totals = found.totals
        for _, _, text, begin, duration, correlation, device, stream, read_metadata in work:
            number, kind = names[text], kind_of(text)
            count, ns = totals.get((kind, number), (0, 0))
            totals[kind, number] = count + 1, ns + duration
            if len(records) >= self._max_records:
                found.dropped += 1
                continue
            is_plain = kind == KERNEL and correlation in launches_one
            more = (0, 0, 0) if is_plain else _read_metadata(read_metadata())
            first, last = begin - shift, begin - shift + duration
            records.append((kind, number, first, last, device, stream, correlation, *more))
        found.work.add(records)


def ranges_of_unrecorded(
    found: Collected, on_gpu: Spans, ranges: Mapping[int, Span]
) -> dict[int, Span]:
    """Return the range in which the call of work was made that has no record, by its correlation.

    torch's profiler records few of the driver's calls, but draws each range on the GPU too, in the
    stream of its work and with the correlation that it has on the host.
    """
    work, known = found.work, set(found.launches.correlation)
    unrecorded: dict[int, list[tuple[int, int]]] = {}
    for begin, device, stream, correlation in zip(
        work.begin_ns, work.device, work.stream, work.correlation, strict=True
    ):
        if correlation not in known:
            unrecorded.setdefault(_track(device, stream), []).append((begin, correlation))
    found_ranges: dict[int, Span] = {}
    for track, works in unrecorded.items():
        works.sort()
        places = on_gpu.innermost(track, [begin for begin, _ in works])
        for (_, correlation), place in zip(works, places, strict=True):
            around = ranges.get(int(on_gpu.all[place].names[0])) if place != NO_SCOPE else None
            if around is not None:
                found_ranges[correlation] = around
    return found_ranges


def _track(device: int, stream: int) -> int:
    return device << 32 | stream


def launches_without_record(
    found: Collected, noted: Sequence[NotedLaunch]
) -> list[tuple[int, NotedLaunch]]:
    """Join work whose call has no record with the launches of graphs that gpuprof noted.

    torch's profiler does not record the driver's function that launches a graph. Correlations
    count up from call to call, so in their order they are the noted launches in the order of time:
    if there are as many. Launches that torch did record, as of its own graphs, are left out.
    """
    launches = found.launches
    recorded = sorted(
        (launches.begin_ns[number], launches.thread_id[number])
        for number, name in enumerate(launches.name)
        if is_graph_launch(found.names[name])
    )
    own = sorted(
        each
        for each in noted
        if (at := bisect_left(recorded, (each[0], 0))) == len(recorded) or recorded[at][0] > each[1]
    )
    known = set(launches.correlation)
    orphans: dict[int, bool] = {}  # whether there is a kernel among the work
    for correlation, kind in zip(found.work.correlation, found.work.kind, strict=True):
        if correlation not in known:
            orphans[correlation] = orphans.get(correlation, False) or kind == KERNEL
    numbers = sorted(orphans)
    if len(numbers) != len(own):  # single copies and memsets have other calls
        numbers = [number for number in numbers if orphans[number]]
    return list(zip(numbers, own, strict=True)) if len(numbers) == len(own) else []


class CuptiSource:
    """CUPTI, where torch is not loaded or has no profiler of GPUs."""

    _collecting: ClassVar[CuptiSource | None] = None

    def __init__(self, max_records: int) -> None:
        version = _core._cupti_load(candidates())["version"]
        self.name = f"CUPTI {cupti_version(version)}"
        self._max_records = max_records
        self._found: dict[str, Any] = {}
        self._notes: list[str] = []

    def start(self) -> None:
        """Begin to collect; errors as of `gpuprof._core._cupti_start`."""
        _core._cupti_start(self._max_records, candidates())
        CuptiSource._collecting = self
        if loaded.whole_torch() is None:
            when_imported("torch.profiler", CuptiSource._leave_cupti_to_torch)

    def stop(self) -> None:
        """Wait for the GPU and end the collection, unless torch's import has ended it."""
        if CuptiSource._collecting is not self:
            return
        CuptiSource._collecting = None
        # A profiler of torch's, which was imported meanwhile, has CUPTI's buffers now.
        taken = torch_profiler.has_gpu_profiler() and torch_profiler.running() is not None
        self._found = _core._cupti_stop(not taken)

    @staticmethod
    def _leave_cupti_to_torch() -> None:
        """End the collection: torch's profiler would get none of the kernels beside it."""
        source = CuptiSource._collecting
        if source is None:
            return
        source._notes.append(
            "the collection ended where torch was imported, because torch's profiler finds no "
            "kernels beside it: import torch before the block"
        )
        try:
            source.stop()
        except Exception as error:  # torch's import must not fail for it
            source._notes.append(f"the collection failed: {error}")

    def collected(self) -> Collected:
        raw = self._found
        if not raw:
            return Collected(self.name, [], notes=self._notes)
        found = Collected(self.name, raw["names"], notes=self._notes)
        found.work.extend(raw["activities"])
        found.launches.extend(raw["launches"])
        names = {text: number for number, text in enumerate(found.names)}
        found.totals = {(kind, names[name]): sums for (kind, name), sums in raw["totals"].items()}
        found.dropped = raw["dropped"]
        found.clock_error_ns = raw["clock_error_ns"]
        if raw["displaced"]:
            found.notes.append(
                "another tool took CUPTI during the block, so records are missing: run one "
                "profiler at a time"
            )
        for key, what in (
            ("cupti_dropped", "lost by CUPTI, which had no buffer"),
            ("incomplete", "without times"),
        ):
            if raw[key]:
                found.notes.append(f"{raw[key]:,} records {what}: they are in no figure")
        return found


@lru_cache(maxsize=4096)
def kind_of(name: str) -> int:
    """Tell what GPU work is, by the name that torch gives it."""
    if name.startswith("Memcpy "):
        return PEER_COPY if name.startswith("Memcpy PtoP") else COPY
    return MEMSET if name.startswith("Memset") else KERNEL


@lru_cache(maxsize=4096)
def is_launch(name: str) -> bool:
    """Return whether a function of CUDA's may put work on the GPU."""
    return _LAUNCH.search(name) is not None or _NO_LAUNCH.search(name) is None


def is_graph_launch(name: str) -> bool:
    return "GraphLaunch" in name


def _read_metadata(metadata: str) -> tuple[int, int, int]:
    """Return the graph's id, the node's, and the bytes; 0 for what is not there."""
    if not metadata:
        return 0, 0, 0
    ids = {is_node: int(digits) for is_node, digits in _GRAPH_IDS.findall(metadata)}
    size = _BYTES.search(metadata)
    return ids.get("", 0), ids.get("node ", 0), int(size[1]) if size else 0


def wall_clock_offset() -> tuple[int, int]:
    """Return the wall clock minus the monotonic one, and the error of that, in nanoseconds."""
    best = (0, 1 << 62)
    for _ in range(5):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        if after - before < best[1]:
            best = (wall - (before + after) // 2, after - before)
    return best


def candidates() -> list[str]:
    """Return where wheels of NVIDIA's put CUPTI, as far as they are installed."""
    places = (Path(folder) / wheel for wheel in _WHEELS for folder in sys.path if folder)
    return [str(place) for place in dict.fromkeys(places) if place.is_file()]


def cupti_version(number: int) -> str:
    """Write the number that CUPTI has for its version as that of the toolkit it came with."""
    if number >= 100_000:
        return f"{number // 10_000}.{number // 100 % 100}"
    return f"12.{number - 18}" if 18 <= number < 30 else str(number)
