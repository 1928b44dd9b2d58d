"""``gpuprof demo``: real work under real scopes, on the best clock that this machine has.

The work is a small training step where torch has CUDA, fills of device memory where only the driver
is there, and text processing on the CPU where neither is. On a GPU many small launches are also run
eagerly and replayed as a CUDA graph. It uses the process's statistics and empties them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import re
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Any, TextIO

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (GPUPROF_TRACE_OUT and GPUPROF_NVTX)
from gpuprof._common.machine import cuda_version
from gpuprof._common.text import shown_text, write_text
from gpuprof._common.units import duration
from gpuprof._core import timer
from gpuprof._graphs.capture import capture
from gpuprof._graphs.device_scalar import DeviceScalar
from gpuprof._timing.scope import disable, enable, flush, reset, stats
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import GpuprofError

COST_SCOPES = 4000
GRAPH_STEPS = 50
ROUNDS = 5  # of a timing by the host's clock; the best one counts

MIB = 1 << 20
FILLS = {"load": (4 * MIB, 2), "compute": (16 * MIB, 4), "store": (MIB, 2)}
LAYERS = 16
WRITES = 64

_PER_THREAD_STREAM = 2  # the driver's handle of a default stream that can be captured


@dataclass(frozen=True)
class Workload:
    """`step` does one step's work under scopes of `clock`; `headline` says what that is and why.

    `graph` does the CUDA graph's part and returns its report.
    """

    headline: str
    clock: str
    step: Callable[[], None]
    graph: Callable[[], str]


@dataclass(frozen=True)
class GraphWork:
    """`step` does one step's work under timers on `stream`; `wait` waits until it is done."""

    name: str
    step: Callable[[], None]
    wait: Callable[[], object]
    stream: int | None


def choose_workload() -> Workload:
    """Pick the work and the clock for this machine."""
    driver = dict(_core.driver_info())
    if not driver["available"]:
        return _text_workload(_why_no_gpu(driver))
    if driver["override"]:
        # torch would use the system's driver, whose handles mean nothing to this one.
        return _fill_workload(driver, f" (driver {driver['override']})")
    torch, note = _torch_with_cuda()
    return _torch_workload(driver, torch) if torch else _fill_workload(driver, note)


def _text_workload(reason: str) -> Workload:
    """Tokenise, count, sort and hash a generated text."""
    words = [hashlib.sha256(str(n).encode()).hexdigest()[: 3 + n % 9] for n in range(4000)]
    text = " ".join(words[n * n % len(words)] for n in range(40_000))
    scopes = _scopes("cpu", "step", "tokenise", "count", "sort", "hash")

    def step() -> None:
        with scopes["step"]:
            with scopes["tokenise"]:
                tokens = re.findall(r"\w+", text)
            with scopes["count"]:
                counts = Counter(tokens)
            with scopes["sort"]:
                tokens.sort(key=lambda token: (-counts[token], token))
            with scopes["hash"]:
                hashlib.sha256(" ".join(tokens).encode()).digest()

    left_out = f"CUDA graph: left out, because graphs need CUDA ({shown_text(reason)})\n"
    return Workload(f"CPU clock: {reason}", "cpu", step, lambda: left_out)


def _fill_workload(driver: dict[str, Any], note: str) -> Workload:
    """Fill device memory through the driver alone."""
    buffers = {name: _core.DeviceBuffer(size) for name, (size, _) in FILLS.items()}
    scopes = _scopes("cuda", "step", *FILLS)

    def step() -> None:
        with scopes["step"]:
            for name, (_, repeats) in FILLS.items():
                with scopes[name]:
                    buffers[name].fill(repeats)

    headline = _gpu_headline(driver, f"fills of device memory{note}")
    return Workload(headline, "cuda", step, lambda: compare_graph(scalar_work))


def _torch_workload(driver: dict[str, Any], torch: Any) -> Workload:
    """Train a small perceptron."""
    torch.manual_seed(0)
    layers = torch.nn
    model = layers.Sequential(
        layers.Linear(1024, 4096), layers.GELU(), layers.Linear(4096, 1024)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given, wanted = torch.randn(512, 1024).cuda(), torch.randn(512, 1024).cuda()
    scopes = _scopes("cuda", "step", "forward", "backward", "optimizer")

    def step() -> None:
        with scopes["step"]:
            with scopes["forward"]:
                loss = layers.functional.mse_loss(model(given), wanted)
            with scopes["backward"]:
                optimizer.zero_grad()
                loss.backward()
            with scopes["optimizer"]:
                optimizer.step()

    headline = _gpu_headline(driver, f"torch {torch.__version__}")
    return Workload(headline, "cuda", step, lambda: compare_graph(lambda: _torch_layers(torch)))


def _scopes(clock: Any, *names: str) -> dict[str, Any]:
    return {name: timer(name, backend=clock) for name in names}


def _gpu_headline(driver: dict[str, Any], work: str) -> str:
    devices = _core.devices()
    index = max(_core.cuda_device(), 0)
    name = devices[index]["name"] if index < len(devices) else "a device without a name"
    return f"GPU clock: {name}, driver for CUDA {cuda_version(driver['version'])}, work by {work}"


def _torch_with_cuda() -> tuple[Any, str]:
    """Return torch if it can use CUDA, else None and a note for the headline."""
    if importlib.util.find_spec("torch") is None:
        return None, " (torch is not installed)"
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            return torch, ""
    except Exception as error:  # a broken torch must not end the demo
        return None, f" (torch does not work here: {type(error).__name__}: {error})"
    return None, " (torch sees no CUDA device)"


def _why_no_gpu(driver: dict[str, Any]) -> str:
    reason = str(driver["reason"])
    if driver["path"] is None and driver["tried"] and "No such file" in reason.partition(";")[0]:
        return f"{driver['tried'][0]} not found"
    return reason


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


def _torch_layers(torch: Any) -> GraphWork:
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


def compare_graph(make: Callable[[], GraphWork]) -> str:
    """Run the work eagerly and replayed, and return the report. Empties the statistics."""
    try:
        return _compared(make())
    except GpuprofError as error:
        return f"CUDA graph: left out: {shown_text(str(error))}\n"
    finally:
        reset()


def _compared(work: GraphWork) -> str:
    """Time both by the host's clock without timers, then read the timers of one replay."""
    disable()
    try:
        work.step()  # loads the kernels, which a capture does not allow
        eager = _step_ms(work.step, work.wait)
    finally:
        enable()
    with capture(work.stream, name="demo", timers="strip") as plain:
        work.step()
    with plain.graph as graph:
        replayed = _step_ms(graph.launch, work.wait)
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
        f"rounds of {GRAPH_STEPS} steps)\n"
        f"timers inside one replay, in ms of GPU time:\n{inside!r}\n"
    )


def _best_ns(body: Callable[[], object]) -> int:
    def taken() -> int:
        begin = perf_counter_ns()
        body()
        return perf_counter_ns() - begin

    return min(taken() for _ in range(ROUNDS))


def _step_ms(step: Callable[[], object], wait: Callable[[], object]) -> float:
    """Return the host's milliseconds for a step and the GPU's work."""

    def steps() -> None:
        for _ in range(GRAPH_STEPS):
            step()
        wait()

    wait()
    return _best_ns(steps) / GRAPH_STEPS / 1e6


def _scope_cost_ns(scope: AbstractContextManager[Any]) -> float:
    """Return the host's nanoseconds for an entry and the readout of its result."""

    def entries() -> None:
        for _ in range(COST_SCOPES):
            with scope:
                pass
        flush()

    def empty() -> None:
        for _ in range(COST_SCOPES):
            pass

    loop_ns = _best_ns(empty)
    return max(0, _best_ns(entries) - loop_ns) / COST_SCOPES


def _cost_line(clock: Any) -> str:
    enabled = _scope_cost_ns(timer("cost", backend=clock, enabled=True))
    dropped = stats().dropped
    reset()
    disabled = _scope_cost_ns(timer("cost", backend=clock, enabled=False))
    lost = f", {dropped:,} of them dropped" if dropped else ""
    return (
        f"a scope costs {enabled:,.0f} ns of host time on the {clock} clock and {disabled:,.0f} ns "
        f"when off (best of {ROUNDS} rounds of {COST_SCOPES:,}, readout included{lost})"
    )


def _next_line(clock: str) -> str:
    usage = 'put `with gpuprof.timer("name"):` around your own code, then print(gpuprof.stats())'
    if clock == "cpu":
        return f"next: {usage}; `gpuprof info` says what a GPU clock needs here"
    return f"next: {usage}"


def run(out: TextIO, steps: int, trace: str | None = None) -> int:
    """Do the work, write the report and perhaps a trace of the steps; return the exit code.

    It is 1 if timing is switched off, or if the trace cannot be written.
    """
    reset()
    workload = choose_workload()
    write_text(out, shown_text(workload.headline) + "\n")
    with TraceWriter(trace, collect=True) if trace else nullcontext() as writer:
        for _ in range(steps):
            workload.step()
    measured = stats()
    if not measured:
        write_text(out, "nothing was measured: timing is off; unset GPUPROF_DISABLE\n")
        return 1
    measured.print(out)
    reset()
    write_text(out, workload.graph())
    write_text(out, f"{_cost_line(workload.clock)}\n{_next_line(workload.clock)}\n")
    if writer is None:
        return 0
    if writer.error:
        return 1  # a warning has said why
    write_text(out, f"trace: open {shown_text(writer.path)} at https://ui.perfetto.dev\n")
    return 0
