"""What a graph that torch captured offers: the driver's handles of it, and how it is launched.

Also what torch must have before the capture begins.
"""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from dataclasses import dataclass, field
from typing import Any

from gpuprof._frameworks import loaded
from gpuprof._frameworks.cupy import relaxed
from gpuprof.errors import InvalidStateError


class RandomnessProbe:
    """Whether a graph of torch's has to be launched by torch.

    A launch of its executable graph draws the same random numbers each time: only torch's replay
    moves the generator on. Nothing says which graphs draw any, but the first replay shows it: the
    generator has moved, or has not. `uses_random` is None until then.

    `only_default` says that the graph can only draw from torch's default generators. From torch
    2.12 on any other joins a capture by itself and cannot be found afterwards, so that a graph may
    draw while the default ones stand still, and always has to be launched by torch.
    """

    def __init__(self, torch: Any, *, only_default: bool = True) -> None:
        self._torch = torch
        is_older = re.match(r"2\.(8|9|10|11)\b", str(torch.__version__))
        self._can_tell = only_default and is_older is not None
        self._lock = threading.RLock()  # torch's replay is not for two threads at once
        self.uses_random: bool | None = None

    def replay(self, graph: Any, stream: int | None = None) -> None:
        """Launch a graph by torch, and learn from the first time whether that is needed."""
        with self._lock, self._on(stream):
            before = self._offsets() if self.uses_random is None and self._can_tell else None
            graph.replay()
            if before is not None:
                self.uses_random = self._offsets() != before

    def _offsets(self) -> list[int] | None:
        try:
            return [int(each.get_offset()) for each in self._torch.cuda.default_generators]
        except RuntimeError:  # a capture is open
            return None

    def _on(self, stream: int | None) -> contextlib.AbstractContextManager[object]:
        cuda = self._torch.cuda
        device = cuda.current_device()
        if stream is None or self._torch._C._cuda_getCurrentRawStream(device) == stream:
            return contextlib.nullcontext()
        other = cuda.ExternalStream(stream) if stream else cuda.default_stream()
        context: contextlib.AbstractContextManager[object] = cuda.stream(other)
        return context


@dataclass(frozen=True)
class TorchParts:
    """What a graph that torch captured is made of: the driver's handles, and what owns them."""

    graph: int | None  # None where torch has destroyed it
    exec: int | None  # of the executable graph; None where this torch does not tell
    keep: Any  # the torch.cuda.CUDAGraph, which owns both
    probe: RandomnessProbe
    lacks: str  # what cannot be had of it and why; empty if nothing
    # Of other graphs, which were updated from this one and are launched through it.
    launched_for: weakref.WeakSet[ByTorch] = field(default_factory=weakref.WeakSet)


class ByTorch:
    """A graph that torch captured, which torch may have to launch itself, from its `parts`.

    `exec_of` is whose executable graph the driver launches otherwise.
    """

    def __init__(self, parts: TorchParts, exec_of: TorchParts | None = None) -> None:
        self.graph = parts.keep
        self.lacks = parts.lacks
        self._parts = parts
        self._exec_of = exec_of
        self._has_exec = parts.exec is not None

    @property
    def must_replay(self) -> bool:
        """Whether the next launch has to be torch's, which moves the random generators on."""
        return not self._has_exec or self._parts.probe.uses_random is not False

    @property
    def lends_exec(self) -> bool:
        """Whether another graph is launched through the executable graph that an update changes."""
        return self._exec_of is not None and any(
            each.must_replay for each in list(self._exec_of.launched_for)
        )

    def replay(self, stream: int) -> None:
        self._parts.probe.replay(self.graph, stream)


def after_update(own: ByTorch | None, other: ByTorch | None) -> ByTorch | None:
    """Return how a graph is launched that was updated from another one; None: by the driver.

    The other one's random numbers differ from launch to launch only if its `torch.cuda.CUDAGraph`
    is replayed: that one knows how many it draws, and from torch 2.12 on from which memory its
    kernels read the seed.
    """
    exec_of = None if own is None else own._exec_of
    if other is None:
        return None if exec_of is None else ByTorch(exec_of, exec_of)
    result = ByTorch(other._parts, exec_of)
    result._has_exec = True  # the updated one, at least
    other._parts.launched_for.add(result)
    return result


def make_blas_handle(torch: Any) -> None:
    """Make torch's cuBLAS handle of this thread and device, which a capture would not allow.

    A workspace comes with it, of the current stream. It is made for the default stream: the body's,
    which the graph uses, comes from the graph's memory. Never raises: the body may not need it.
    """
    cuda = torch.cuda
    with contextlib.suppress(Exception), relaxed(), cuda.stream(cuda.default_stream()):
        cuda.current_blas_handle()


def from_torch(graph: Any) -> TorchParts:
    """Return the parts of a `torch.cuda.CUDAGraph`, which is instantiated if it is not yet.

    TypeError if it is something else, InvalidStateError if it has captured nothing, was reset, or
    is of a torch before 2.8.
    """
    torch = loaded.torch()
    kind = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    if kind is None or not isinstance(graph, kind):
        message = f"graph: expected a torch.cuda.CUDAGraph, got {type(graph).__name__}"
        raise TypeError(message)
    check_torch(torch)
    try:
        graph.pool()
    except RuntimeError as error:
        message = "graph: it has captured nothing yet, or was reset; capture with it first"
        raise InvalidStateError(message) from error
    lacks = what_it_lacks(torch)
    raw_graph = None
    try:
        raw_graph = int(graph.raw_cuda_graph())
    except RuntimeError:
        lacks = (
            "torch has destroyed the graph that this one was instantiated from: nodes, edges and "
            "update are not available; capture with torch.cuda.CUDAGraph(keep_graph=True)"
        )
    # Whoever captured it may have registered generators of their own with it.
    probe = RandomnessProbe(torch, only_default=False)
    return TorchParts(raw_graph, raw_exec(graph), graph, probe, lacks)


def raw_exec(graph: Any) -> int | None:
    """Return the handle of a torch graph's executable form, made if need be; None if not known."""
    if not hasattr(graph, "raw_cuda_graph_exec"):
        return None
    try:
        return int(graph.raw_cuda_graph_exec())
    except RuntimeError:  # kept, and not instantiated yet
        graph.instantiate()
        return int(graph.raw_cuda_graph_exec())


def check_torch(torch: Any) -> None:
    """Refuse a torch that keeps no graph beside the one instantiated from it."""
    if not hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph"):
        message = (
            f"torch {torch.__version__} keeps no graphs that can be looked into: gpuprof's graphs "
            "of torch's work need torch 2.8 or later"
        )
        raise InvalidStateError(message)


def what_it_lacks(torch: Any) -> str:
    """Return what this torch cannot give of its graphs, in words; empty if nothing."""
    if hasattr(torch.cuda.CUDAGraph, "raw_cuda_graph_exec"):
        return ""
    return (
        f"torch {torch.__version__} does not give the executable graph: update, upload and "
        "collected timers are not available; torch 2.9 or later gives it"
    )
