"""A program's steps as times: where each began, what ran in it, how long the GPU waited."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TypeVar

from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._run import batches, waits
from gpuprof._run.steps import OPTIMIZER, Look, Mark, Span

_WARM_UP = 2  # steps in which kernels and libraries are loaded
_BEHIND_NS = 50_000  # a GPU that is so little behind has caught up
_LONG = 3.0  # times the median: the end of an epoch, a validation, a checkpoint

Names = tuple[str, ...]
Interval = tuple[int, int]
_Intervals = dict[str, list[Interval]]
_GpuTimes = list[tuple[int, int, int]]  # the host's begin and end of a span, and its GPU time
_Item = TypeVar("_Item")


@dataclass
class Step:
    """One step, in nanoseconds. `host` and `gpu` are by path, `idle` is the GPU's by cause."""

    begin: int
    end: int
    host: Counter[Names] = field(default_factory=Counter)
    gpu: Counter[Names] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    waited: int = 0  # of the host, in all calls that wait for the GPU
    communication: int = 0
    outermost_gpu: int = 0

    @property
    def ns(self) -> int:
        return self.end - self.begin


def cut(
    spans: Sequence[Span], looks: Iterable[Look], marks: Sequence[Mark]
) -> tuple[list[Step], int]:
    """Return the steps that are like most, and how many longer ones are left out."""
    bounds, thread = _bounds(marks)
    steps = [Step(*pair) for pair in zip(bounds[_WARM_UP:], bounds[_WARM_UP + 1 :], strict=False)]
    if not steps:
        return [], 0
    # What was measured may begin later than the steps, of which more fit into memory.
    known_from = spans[0].begin if spans else 0
    most = _LONG * median(step.ns for step in steps)
    kept = [step for step in steps if step.begin >= known_from and step.ns <= most]
    long = sum(step.ns > most for step in steps)
    own_looks = [look for look in looks if look.thread == thread]
    looks_of = _by_step(kept, own_looks, [look.ns for look in own_looks])
    spans_of = _by_step(kept, spans, [span.begin for span in spans])
    for step, inside, seen in zip(kept, spans_of, looks_of, strict=True):
        own = [span for span in inside if span.thread == thread and span.end <= step.end]
        _fill(step, own, seen)
        # Also on autograd's threads.
        step.communication = sum(_own_ns(span) for span in inside if COLLECTIVE in span.name)
    return kept, long


def _bounds(marks: Sequence[Mark]) -> tuple[list[int], int]:
    """Return when steps begin, by the optimizer or model that is used most, and on which thread."""
    training = [mark for mark in marks if mark.kind == OPTIMIZER] or list(marks)
    if not training:
        return [], 0
    counts = Counter((mark.owner, mark.thread) for mark in training)
    (owner, thread), _ = counts.most_common(1)[0]
    return [mark.ns for mark in training if (mark.owner, mark.thread) == (owner, thread)], thread


def _by_step(
    steps: Sequence[Step], items: Sequence[_Item], times: Sequence[int]
) -> Iterator[Sequence[_Item]]:
    """Yield what began in each step."""
    for step in steps:
        yield items[bisect_left(times, step.begin) : bisect_left(times, step.end)]


def _own_ns(span: Span) -> int:
    return span.end - span.begin if span.gpu_ms is None else round(span.gpu_ms * 1e6)


def _fill(step: Step, spans: Sequence[Span], looks: Sequence[Look]) -> None:
    open_spans: list[tuple[Span, Names]] = []
    of_kind: _Intervals = {"data": [], "copies": [], "reads": []}
    gpu: _GpuTimes = []
    for span in spans:
        while open_spans and open_spans[-1][0].end < span.end:
            open_spans.pop()
        names = (*(open_spans[-1][1] if open_spans else ()), span.name)
        step.host[names] += span.end - span.begin
        if span.gpu_ms is not None:
            step.gpu[names] += _own_ns(span)
            if all(outer.gpu_ms is None for outer, _ in open_spans):
                gpu.append((span.begin, span.end, _own_ns(span)))
        kind = _kind_of(span.name)
        if kind and not any(_kind_of(outer.name) for outer, _ in open_spans):
            of_kind[kind].append((span.begin, span.end))
        open_spans.append((span, names))
    step.waited = sum(end - begin for kind in ("copies", "reads") for begin, end in of_kind[kind])
    step.outermost_gpu = sum(ns for _, _, ns in gpu)
    _find_idle(step, looks, of_kind, gpu)


def _kind_of(name: str) -> str:
    if name == batches.NAME:
        return "data"
    if name.startswith(waits.NAME):
        return "copies" if name.removeprefix(waits.NAME) in waits.COPIES else "reads"
    return ""


def _find_idle(step: Step, looks: Sequence[Look], of_kind: _Intervals, gpu: _GpuTimes) -> None:
    """Find how long the GPU had nothing queued, at most, and what the host did meanwhile.

    Between two looks the GPU was waiting for the host if it had caught up at the second. One that
    is a few microseconds behind has not, so its lag is reckoned from the times since it had. While
    the host waits for the GPU it has work. Outside of scopes it cannot wait for longer than the
    step lasts beyond their times on the GPU.
    """
    inside, outside = 0, Counter[str]()
    before, lag = step.begin, math.inf
    for look in (*looks, Look(0, step.end, False)):
        window = (before, look.ns)
        before = look.ns
        data, copies, reads = (_overlap(window, each) for each in of_kind.values())
        host = window[1] - window[0]
        lag += sum(ns for begin, _, ns in gpu if window[0] <= begin < window[1]) - host
        if look.caught_up or copies or reads or lag < 0:
            lag = 0
        if lag > _BEHIND_NS:
            continue
        rest = host - data - copies - reads
        in_scopes = min(rest, _overlap(window, [(begin, end) for begin, end, _ in gpu]))
        outside.update({"input": data, "waiting": copies, "host": rest - in_scopes})
        inside += in_scopes
    gap = max(step.ns - step.outermost_gpu, 0)
    scale = min(1.0, gap / total) if (total := sum(outside.values())) else 1.0
    step.idle = Counter({cause: round(ns * scale) for cause, ns in outside.items()})
    # The host could have run ahead in the time that it waited for single values.
    launches = step.idle["host"] + inside
    ahead = min(launches, sum(end - begin for begin, end in of_kind["reads"]))
    step.idle["waiting"] += ahead
    step.idle["host"] = launches - ahead


def _overlap(window: Interval, intervals: Iterable[Interval]) -> int:
    return sum(max(0, min(window[1], end) - max(window[0], begin)) for begin, end in intervals)
