"""The demonstration's part on CUDA graphs: one small workload, run eagerly and replayed.

The work is many small launches, which is what graphs are for: the layers of a perceptron where
torch has CUDA, else writes of single numbers to device memory. Eager and replayed steps are timed
by the host's clock over many steps, timers off; then the graph is captured once more with its
timers, whose times are one replay's.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gpuprof._common.text import shown_text
from gpuprof._common.units import duration
from gpuprof._core import timer
from gpuprof._graphs.capture import capture
from gpuprof._graphs.device_scalar import DeviceScalar
from gpuprof._timing.scope import disable, enable, reset
from gpuprof.errors import GpuprofError

ROUNDS = 5
STEPS = 50
LAYERS = 16
WRITES = 64

_PER_THREAD_STREAM = 2  # the driver's handle of a default stream that can be captured


@dataclass(frozen=True)
class GraphWork:
    """`step` does one step's work under timers on `stream`; `wait` waits until it is done."""

    name: str
    step: Callable[[], None]
    wait: Callable[[], object]
    stream: int | None


def scalar_work() -> GraphWork:
    """Write numbers to device memory, by the driver alone."""
    stream = _PER_THREAD_STREAM
    scalars = [DeviceScalar(0.0, "float32", stream) for _ in range(2)]

    def step() -> None:
        with timer("writes", stream=stream):
            for name, scalar in zip(("first", "second"), scalars, strict=True):
                with timer(name, stream=stream):
                    for value in range(WRITES // 2):
                        scalar.update(value, stream, record=True)

    return GraphWork(f"{WRITES} writes to device memory", step, scalars[0].get, stream)


def torch_work(torch: Any) -> GraphWork:
    """Run a perceptron of many small layers forward."""
    layers = torch.nn
    halves = [
        layers.Sequential(
            *(layers.Sequential(layers.Linear(256, 256), layers.ReLU()) for _ in range(LAYERS // 2))
        ).cuda()
        for _ in range(2)
    ]
    given = torch.randn(32, 256).cuda()

    @torch.no_grad()  # type: ignore[untyped-decorator]  # torch is not there when this is checked
    def step() -> None:
        with timer("forward"):
            between = given
            for name, half in zip(("first half", "second half"), halves, strict=True):
                with timer(name):
                    between = half(between)

    return GraphWork(f"{LAYERS} small layers forward", step, torch.cuda.synchronize, None)


def without_cuda(reason: str) -> str:
    """Return what is said where there is no CUDA."""
    return f"CUDA graph: left out, because graphs need CUDA ({shown_text(reason)})\n"


def compare(make: Callable[[], GraphWork]) -> str:
    """Do the work eagerly and replayed, and return what came out. Empties the statistics."""
    try:
        return _compared(make())
    except GpuprofError as error:
        return f"CUDA graph: left out: {shown_text(str(error))}\n"
    finally:
        reset()


def _compared(work: GraphWork) -> str:
    disable()
    try:
        work.step()  # loads the kernels, which a capture does not allow
        eager = _milliseconds(work.step, work.wait)
    finally:
        enable()
    with capture(work.stream, name="demo", timers="strip") as bare:
        work.step()
    with bare.graph as graph:
        replayed = _milliseconds(graph.launch, work.wait)
        nodes = graph.num_nodes
    with capture(work.stream, name="demo") as timed:
        work.step()
    with timed.graph as graph:
        for _ in range(2):  # the first one also puts the graph on the device
            graph.launch()
        inside = graph.timings()
    return (
        f"CUDA graph: {work.name}, {nodes} nodes: {duration(eager)} a step eagerly, "
        f"{duration(replayed)} replayed: {eager / replayed:.1f} times as fast (best of {ROUNDS} "
        f"rounds of {STEPS} steps)\ntimers inside one replay, in ms of GPU time:\n{inside!r}\n"
    )


def _milliseconds(step: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the host's milliseconds for a step and the GPU's work: the best of the rounds."""
    best = float("inf")
    for _ in range(ROUNDS):
        wait()
        begin = time.perf_counter_ns()
        for _ in range(STEPS):
            step()
        wait()
        best = min(best, time.perf_counter_ns() - begin)
    return best / STEPS / 1e6
