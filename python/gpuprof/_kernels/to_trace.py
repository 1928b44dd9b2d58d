"""Kernels and their launches as events of the traces that are open, in torch's own format.

Each stream has a track of its own, with the kernels inside the scopes that launched them: a scope
is shown from the begin of its first kernel to the end of its last one, by the same clock as these,
so that all slices nest. The scopes that gpuprof measures with events stay on their own tracks,
because the two clocks may differ by microseconds and viewers drop slices that cross.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._kernels.attribution import NO_SCOPE, Spans, common_prefix
from gpuprof._trace import registry

if TYPE_CHECKING:
    from gpuprof._kernels.summary import Evaluated

# What torch has for work, by its kind, and for its own annotations on the GPU.
_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memcpy", "gpu_memset")
SCOPE_CATEGORY = "gpu_user_annotation"
_MODULE = -1 << 40  # in place of the number of an entry
DEFAULT_STREAM = 7  # CUPTI's number of the legacy default stream
_FIRST_TID = 1 << 27
_EVENTS_AT_ONCE = 20_000  # that certainly find room in a trace's buffer

# The tracks of this process, so that two blocks in one trace share them.
_tids: dict[tuple[object, ...], int] = {}
_flows = itertools.count(1)

Path = tuple[str, ...]


class Slice(NamedTuple):
    """What `_core._trace_event` takes of a slice of a track; times are nanoseconds."""

    name: str
    category: str
    begin_ns: int
    end_ns: int
    tid: int
    args: dict[str, Any] | None
    number: int  # of the work or the call, -1 for a scope


def write(evaluated: Evaluated, spans: Spans) -> None:
    """Write all records to the traces that are open."""
    for number in registry.collecting() if _core._trace_records() else ():
        for count, (phase, event) in enumerate(_events(evaluated, spans), 1):
            _core._trace_event(phase, number, *event)
            if count % _EVENTS_AT_ONCE == 0:
                _core._trace_flush(number)


def _events(evaluated: Evaluated, spans: Spans) -> Iterator[tuple[str, tuple[Any, ...]]]:
    launch = evaluated.attribution.launch
    places: dict[int, tuple[int, int]] = {}  # of calls: when each began, and its track
    for call in _calls(evaluated):
        places[call.number] = call.begin_ns, call.tid
        yield "slice", call[:-1]
    for each in _stream_tracks(evaluated, spans):
        yield "slice", each[:-1]
        # An arrow to the first work of the call alone.
        if each.number >= 0 and (place := places.pop(launch[each.number], None)):
            flow = next(_flows)
            for phase, (at, tid) in (("start", place), ("end", (each.begin_ns, each.tid))):
                yield phase, ("ac2g", "ac2g", at, at, tid, None, flow)


def _calls(evaluated: Evaluated) -> Iterator[Slice]:
    """Yield the calls that launched something."""
    found = evaluated.found
    launches = found.launches
    for call in sorted({call for call in evaluated.attribution.launch if call >= 0}):
        thread = launches.thread_id[call]
        tid = _tid(("calls", thread), f"CUDA calls of thread {thread}")
        name = found.names[launches.name[call]]
        begin, end = launches.begin_ns[call], launches.end_ns[call]
        category = "cuda_runtime" if name.startswith("cuda") else "cuda_driver"
        args = {"correlation": launches.correlation[call], "thread": thread}
        yield Slice(name, category, begin, max(begin, end), tid, args, call)


def _stream_tracks(evaluated: Evaluated, spans: Spans) -> Iterator[Slice]:
    """Yield the slices of each stream's tracks in the order of their begins, outer ones first."""
    chains = spans.chains()
    for (device, stream), records in sorted(evaluated.found.streams().items()):
        for number, lane in enumerate(_lanes(evaluated, records)):
            name = f"GPU {device}, kernels of stream {stream}"
            if stream == DEFAULT_STREAM:
                name += " (default stream)"
            if number:
                name += f" #{number + 1}"
            tid = _tid(("stream", device, stream, number), name)
            yield from _slices(evaluated, lane, chains, tid)


def _lanes(evaluated: Evaluated, records: Sequence[int]) -> list[list[int]]:
    """Put work of one stream that overlaps, as branches of a graph do, on tracks side by side."""
    work = evaluated.found.work
    lanes: list[list[int]] = []
    for record in records:
        begin = work.begin_ns[record]
        lane = next((each for each in lanes if work.end_ns[each[-1]] <= begin), None)
        if lane is None:
            lanes.append([record])
        else:
            lane.append(record)
    return lanes


def _slices(
    evaluated: Evaluated, records: Sequence[int], chains: Sequence[tuple[int, ...]], tid: int
) -> list[Slice]:
    """Return the slices of one track: the work, and the scopes around runs of it."""
    found, by = evaluated.found, evaluated.attribution
    work = found.work
    slices: list[Slice] = []
    is_open: list[tuple[int, Path]] = []  # entries of scopes, outermost first
    places: list[int] = []  # of their slices
    last_end = 0

    def close(depth: int) -> None:
        for place in places[depth:]:
            slices[place] = slices[place]._replace(end_ns=last_end)
        del is_open[depth:], places[depth:]

    for record in records:
        span, path = by.span[record], by.paths[by.path[record]]
        entries = () if span == NO_SCOPE else chains[span]
        # The scopes of a graph's capture are entered by each replay, and modules by each run of
        # their kernels.
        missing = len(path) - len(entries)
        module = by.modules.get(path)
        deep = min(missing, module.count(".") + 1) if module else 0
        entries += (-1 - work.correlation[record],) * (missing - deep) + (_MODULE,) * deep
        chain = [(entry, path[: depth + 1]) for depth, entry in enumerate(entries)]
        same = common_prefix(is_open, chain)
        close(same)
        begin = work.begin_ns[record]
        end = max(begin, work.end_ns[record])
        for entry, names in chain[same:]:
            is_open.append((entry, names))
            places.append(len(slices))
            slices.append(Slice(names[-1], SCOPE_CATEGORY, begin, begin, tid, None, -1))
        args: dict[str, Any] = {
            "device": work.device[record],
            "stream": work.stream[record],
            "correlation": work.correlation[record],
        }
        known = {
            "graph id": work.graph_id[record],
            "graph node id": work.node_id[record],
            "bytes": work.nbytes[record],
            "scope": "/".join(path),
            "line": by.origins[by.origin[record]].line,
            "caller": evaluated.caller(record),
        }
        args.update((name, value) for name, value in known.items() if value)
        name, category = found.names[work.name[record]], _CATEGORIES[work.kind[record]]
        slices.append(Slice(name, category, begin, end, tid, args, record))
        last_end = max(last_end, end)
    close(0)
    return slices


def _tid(key: tuple[object, ...], name: str) -> int:
    """Return the number of a track, which gets its name when it is new."""
    tid = _tids.get(key)
    if tid is None:
        tid = _tids[key] = _FIRST_TID + len(_tids)
        _core._trace_name_thread(tid, name)
    return tid
