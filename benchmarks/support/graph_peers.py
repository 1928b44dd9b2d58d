"""Graphs of torch and CuPy with the same kernels as gpuprof's; a missing library is reported."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from raw_driver.build import RawGraphs
from support.peers import Peers

Launch = Callable[[], object]


class GraphPeers(Peers):
    """The libraries that are installed, with graphs of `kernels` kernels captured by each."""

    def __init__(self, graphs: RawGraphs) -> None:
        super().__init__()
        self._graphs = graphs

    def current(self, stream: int) -> contextlib.AbstractContextManager[object]:
        """Make a stream torch's current one, which is where it replays."""
        if self.torch is None:
            return contextlib.nullcontext()
        context: contextlib.AbstractContextManager[object] = self.torch.cuda.stream(
            self.torch.cuda.ExternalStream(stream)
        )
        return context

    def torch_graph(self, stream: int, kernels: int) -> Launch:
        """Return the replay of a graph that torch captured."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.torch.cuda.ExternalStream(stream)):
            self._graphs.kernels(stream, kernels)
        replay: Launch = graph.replay
        return replay

    def cupy_graph(self, stream: int, kernels: int) -> tuple[Callable[[Any], object], Any]:
        """Return the launch of a graph that CuPy captured, and the stream to give to it."""
        on = self.cupy.cuda.ExternalStream(stream)
        with on:
            on.begin_capture()
            self._graphs.kernels(stream, kernels)
            graph = on.end_capture()
        return graph.launch, on
