"""What a model of gpuprof keeps of what is open: scopes, captures, graphs and timers.

Scopes and captures are held open by generators, so that they can be left in any order.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import gpuprof


@dataclass(eq=False)
class Entry:
    """A visit of a scope: a generator holds it open."""

    scope: tuple[str, int]  # name and stream, -1 for the CPU's clock
    sample: gpuprof.Sample
    holder: Generator[gpuprof.Sample, None, None]
    names: tuple[str, ...]  # what scopes inside it are below
    placed: bool
    epoch: int
    fate: str  # "open", or its final state where that is known at the entry
    capture: Capture | None = None

    @property
    def clock(self) -> str:
        return "cpu" if self.scope[1] < 0 else "cuda"


@dataclass(eq=False)
class Capture:
    """An open capture; without a holder it is not gpuprof's."""

    stream: int
    timers: str = "last"
    holder: Generator[gpuprof.GraphCaptureGuard, None, None] | None = None
    guard: gpuprof.GraphCaptureGuard | None = None
    broken: bool = False
    scopes: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(eq=False)
class Graph:
    graph: gpuprof.CapturedGraph
    timers: str
    scopes: list[tuple[str, ...]]
    replays: int = 0


@dataclass(eq=False)
class Marks:
    """A `Timer`: for each mark the stream and the capture in which it was set."""

    timer: gpuprof.Timer
    stream: int
    started: bool = False
    ended: bool = False
