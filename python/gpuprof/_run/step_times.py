"""A program's steps as times: where each began, what ran in it, how long the GPU waited."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from gpuprof._distributed.rows import COLLECTIVE
from gpuprof._run import batches, waits
from gpuprof._run.steps import OPTIMIZER, Mark, Span, Steps

_WARM_UP = 2  # steps in which kernels and libraries are loaded
_BEHIND_NS = 50_000  # a GPU that is so little behind has caught up
_LONG = 3.0  # times the median: the end of an epoch, a validation, a checkpoint

Names = tuple[str, ...]


@dataclass
class Step:
    """One step, in nanoseconds. `host` and `gpu` are by path, `idle` is the GPU's by cause."""

    begin: int
    end: int
    host: Counter[Names] = field(default_factory=Counter)
    gpu: Counter[Names] = field(default_factory=Counter)
    idle: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, list[Span]] = field(default_factory=dict)
    communication: int = 0

    @property
    def ns(self) -> int:
        return self.end - self.begin

    def total(self, kind: str) -> int:
        """Return how long the host was in spans of a kind; of "gpu" it is the GPU's time."""
        spans = self.kinds.get(kind, ())
        return sum(span.gpu or 0 if kind == "gpu" else span.end - span.begin for span in spans)


def cut(noted: Steps) -> tuple[list[Step], list[Step]]:
    """Return the steps that are like most, and the longer ones, of which only times are known."""
    spans, bounds = noted.spans(), _bounds(noted.marks)[_WARM_UP:]
    # Samples come as they end, and more steps than samples fit into memory.
    known = bisect_left(bounds, noted.since)
    steps = [Step(*pair) for pair in zip(bounds[known:], bounds[known + 1 :], strict=False)]
    if not spans or not steps:
        return [], []
    most = _LONG * median(step.ns for step in steps)
    kept = [step for step in steps if step.ns <= most]
    looks = tuple(noted.looks)
    begins, times = [span.begin for span in spans], [ns for ns, _ in looks]
    lag, end = math.inf, 0
    for step in kept:
        inside = spans[bisect_left(begins, step.begin) : bisect_left(begins, step.end)]
        # Also on autograd's threads.
        waited = (span for span in inside if COLLECTIVE in span.name)
        step.communication = sum(
            span.end - span.begin if span.gpu is None else span.gpu for span in waited
        )
        _fill(step, [span for span in inside if span.is_main and span.end <= step.end])
        seen = looks[bisect_left(times, step.begin) : bisect_left(times, step.end)]
        lag = _find_idle(step, seen, lag if step.begin == end else math.inf)
        end = step.end
    return kept, [step for step in steps if step.ns > most]


def _bounds(marks: Iterable[Mark]) -> list[int]:
    """Return when steps begin, by the optimizer, or else the model, that is used most."""
    found = [mark for mark in marks if mark.kind == OPTIMIZER] or list(marks)
    owner = Counter(mark.owner for mark in found).most_common(1)
    return [mark.ns for mark in found if mark.owner == owner[0][0]]


def _fill(step: Step, spans: Sequence[Span]) -> None:
    around: list[tuple[Span, Names]] = []
    for span in spans:
        while around and around[-1][0].end < span.end:
            around.pop()
        names = (*(around[-1][1] if around else ()), span.name)
        step.host[names] += span.end - span.begin
        kind = _kind_of(span.name)
        if kind and not any(_kind_of(outer.name) for outer, _ in around):
            step.kinds.setdefault(kind, []).append(span)
        if span.gpu is not None:
            step.gpu[names] += span.gpu
            if all(outer.gpu is None for outer, _ in around):
                step.kinds.setdefault("gpu", []).append(span)
        around.append((span, names))


def _kind_of(name: str) -> str:
    if name.startswith(waits.NAME):
        return "reads"
    return "input" if name == batches.NAME else ""


def _find_idle(step: Step, looks: Iterable[tuple[int, bool]], lag: float) -> float:
    """Find how long the GPU had nothing queued, at most, and what the host did meanwhile.

    `lag` is how far the GPU is behind at the step's begin; that at its end is returned. Between two
    looks the GPU was waiting for the host if it had caught up at the second. One that is a few
    microseconds behind has not, so its lag is reckoned from the times since it had. While the host
    waits for the GPU it has work. Outside of scopes it cannot wait for longer than the step lasts
    beyond their times on the GPU.
    """
    inside, outside = 0.0, Counter[str]()
    before = step.begin
    for ns, caught_up in (*looks, (step.end, False)):
        window, before = (before, ns), ns
        host = window[1] - window[0]
        of = {kind: _overlap(window, spans) for kind, spans in step.kinds.items()}
        data, reads = of.get("input", 0), of.get("reads", 0)
        behind = lag if math.isfinite(lag) else 0
        launched = (s.gpu or 0 for s in step.kinds.get("gpu", ()) if window[0] <= s.begin < ns)
        lag = 0 if caught_up or reads else max(lag + sum(launched) - host, 0)
        if lag > _BEHIND_NS or host <= reads + behind:
            continue
        part = 1 - behind / (host - reads)  # the rest of it was for what had been queued before
        rest = host - data - reads
        in_scopes = min(rest, of.get("gpu", 0))
        inside += part * in_scopes
        idle = {"input": data, "host": rest - in_scopes}
        outside.update({cause: round(part * amount) for cause, amount in idle.items()})
    gap = max(step.ns - step.total("gpu"), 0)
    scale = min(1.0, gap / total) if (total := sum(outside.values())) else 1.0
    step.idle = Counter({cause: round(ns * scale) for cause, ns in outside.items()})
    # The host could have run ahead in the time that it waited for single values.
    launches = step.idle["host"] + round(inside)
    ahead = min(launches, step.total("reads"))
    step.idle.update({"waiting": ahead, "host": launches - ahead - step.idle["host"]})
    return lag


def _overlap(window: tuple[int, int], spans: Iterable[Span]) -> int:
    return sum(max(0, min(window[1], each.end) - max(window[0], each.begin)) for each in spans)
