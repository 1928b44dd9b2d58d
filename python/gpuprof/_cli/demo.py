"""``gpuprof demo``: real work under real scopes, on the best clock that this machine has.

The work is a small training step where torch has CUDA, fills of device memory where only the driver
is there, and text processing on the CPU where neither is. On a GPU many small writes are also run
eagerly and replayed as a CUDA graph. It uses the process's statistics and empties them.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import re
import sys
import timeit
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (GPUPROF_TRACE_OUT and GPUPROF_NVTX)
from gpuprof._cli.command import FAILED, Answer, Refused
from gpuprof._common import outputs
from gpuprof._common.machine import cuda_version
from gpuprof._common.text import shown_text, write_text
from gpuprof._common.units import duration
from gpuprof._core import timer
from gpuprof._graphs.capture import capture
from gpuprof._graphs.device_scalar import DeviceScalar
from gpuprof._timing.scope import flush, reset, stats
from gpuprof._trace.path import expand
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import GpuprofError

COST_SCOPES = 4000
GRAPH_STEPS = 50
ROUNDS = 5  # of a timing by the host's clock; the best one counts
MIB = 1 << 20
FILLS = {"load": (4 * MIB, 2), "compute": (16 * MIB, 4), "store": (MIB, 2)}
WRITES = 64
_STREAM = 2  # the driver's handle of a default stream that can be captured


class Work(NamedTuple):
    """`step` does one step's work under scopes; `headline` says what that is and why."""

    headline: str
    step: Callable[[], None]


def run(options: argparse.Namespace) -> Answer:
    """Do the work, and write the report and perhaps a trace of the steps."""
    if options.trace is not None:
        try:
            wanted = outputs.Output("--trace", outputs.TRACE, options.trace, expand(options.trace))
        except ValueError as error:
            raise Refused(str(error)) from error
        if complaint := outputs.complaint([wanted]):
            raise Refused(complaint)
    reset()
    driver = dict(_core.driver_info())
    on_gpu = driver["available"]
    reason = shown_text(why_no_gpu(driver))
    work = _gpu_work(driver) if on_gpu else _text_work(reason)
    write_text(sys.stdout, shown_text(work.headline) + "\n")
    with TraceWriter(options.trace, collect=True) if options.trace else nullcontext() as writer:
        for _ in range(options.steps):
            work.step()
    measured = stats()
    if not measured:
        return Answer("nothing was measured: timing is off; unset GPUPROF_DISABLE\n", FAILED)
    measured.print(sys.stdout)
    reset()
    left_out = f"CUDA graph: left out, because graphs need CUDA ({reason})\n"
    text = compare_graph() if on_gpu else left_out
    text += _cost_line("cuda" if on_gpu else "cpu")
    text += 'next: put `with gpuprof.timer("name"):` around your own code, then '
    text += "print(gpuprof.stats())"
    text += "\n" if on_gpu else "; `gpuprof info` says what a GPU clock needs here\n"
    if writer is None:
        return Answer(text)
    if writer.error:
        return Answer(text, FAILED)  # a warning has said why
    return Answer(f"{text}trace: open {shown_text(writer.path)} at https://ui.perfetto.dev\n")


def why_no_gpu(driver: dict[str, Any]) -> str:
    """Return why there is no driver, in short where it is just not there."""
    reason = str(driver["reason"])
    if driver["path"] is None and driver["tried"] and "No such file" in reason.partition(";")[0]:
        return f"{driver['tried'][0]} not found"
    return reason


def _text_work(reason: str) -> Work:
    text = " ".join(f"{n * n % 4001:x}" * (1 + n % 3) for n in range(40_000))

    def step() -> None:
        with timer("step", backend="cpu"):
            with timer("tokenise", backend="cpu"):
                tokens = re.findall(r"\w+", text)
            with timer("count", backend="cpu"):
                counts = Counter(tokens)
            with timer("sort", backend="cpu"):
                tokens.sort(key=lambda token: (-counts[token], token))
            with timer("hash", backend="cpu"):
                hash(" ".join(tokens))

    return Work(f"CPU clock: {reason}", step)


def _gpu_work(driver: dict[str, Any]) -> Work:
    if driver["override"]:
        # torch would use the system's driver, whose handles mean nothing to this one.
        return fill_work(driver, f" (driver {driver['override']})")
    if importlib.util.find_spec("torch") is None:
        return fill_work(driver, " (torch is not installed)")
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            return torch_work(driver, torch)
    except Exception as error:  # a broken torch must not end the demo
        return fill_work(driver, f" (torch does not work here: {type(error).__name__}: {error})")
    return fill_work(driver, " (torch sees no CUDA device)")


def fill_work(driver: dict[str, Any], note: str) -> Work:
    """Fill device memory through the driver alone."""
    buffers = {name: _core.DeviceBuffer(size) for name, (size, _) in FILLS.items()}

    def step() -> None:
        with timer("step", backend="cuda"):
            for name, (_, repeats) in FILLS.items():
                with timer(name, backend="cuda"):
                    buffers[name].fill(repeats)

    return Work(_headline(driver, f"fills of device memory{note}"), step)


def torch_work(driver: dict[str, Any], torch: Any) -> Work:
    """Train a small perceptron."""
    nn = torch.nn
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given, wanted = torch.randn(512, 1024).cuda(), torch.randn(512, 1024).cuda()

    def step() -> None:
        with timer("step", backend="cuda"):
            with timer("forward", backend="cuda"):
                loss = nn.functional.mse_loss(model(given), wanted)
            with timer("backward", backend="cuda"):
                optimizer.zero_grad()
                loss.backward()
            with timer("optimizer", backend="cuda"):
                optimizer.step()

    return Work(_headline(driver, f"torch {torch.__version__}"), step)


def _headline(driver: dict[str, Any], work: str) -> str:
    devices = _core.devices()
    index = max(_core.cuda_device(), 0)
    name = devices[index]["name"] if index < len(devices) else "a device without a name"
    return f"GPU clock: {name}, driver for CUDA {cuda_version(driver['version'])}, work by {work}"


def compare_graph() -> str:
    """Run small writes eagerly and as a graph, and return the report. Empties the statistics."""
    try:
        return _compared()
    except GpuprofError as error:
        return f"CUDA graph: left out: {shown_text(str(error))}\n"
    finally:
        reset()


def _compared() -> str:
    """Time both by the host's clock, then read the timers of a replay."""
    scalars = {name: DeviceScalar(0.0, "float32", _STREAM) for name in ("first", "second")}

    def step() -> None:
        with timer("writes", stream=_STREAM):
            for name, scalar in scalars.items():
                with timer(name, stream=_STREAM):
                    for value in range(WRITES // 2):
                        scalar.update(value, _STREAM, record=True)

    def step_ms(do: Callable[[], object]) -> float:
        def steps() -> None:
            for _ in range(GRAPH_STEPS):
                do()
            scalars["first"].get()  # waits

        steps()  # loads kernels, and puts the graph on the device
        return _best_s(steps) / GRAPH_STEPS * 1e3

    eager = step_ms(step)
    with capture(_STREAM, name="demo") as captured:
        step()
    with captured.graph as graph:
        replayed, nodes, inside = step_ms(graph.launch), graph.num_nodes, graph.timings()
    return (
        f"CUDA graph: {WRITES} writes to device memory under 3 timers, {nodes} nodes: "
        f"{duration(eager)} a step eagerly, {duration(replayed)} replayed: "
        f"{eager / replayed:.1f} times as fast (best of {ROUNDS} rounds of {GRAPH_STEPS} steps)\n"
        f"timers inside one replay, in ms of GPU time:\n{inside!r}\n"
    )


def _best_s(body: Callable[[], object] | str, number: int = 1) -> float:
    return min(timeit.repeat(body, number=number, repeat=ROUNDS))


def _cost_line(clock: Any) -> str:
    enabled = _scope_ns(timer("cost", backend=clock, enabled=True))
    dropped = stats().dropped
    reset()
    disabled = _scope_ns(timer("cost", backend=clock, enabled=False))
    lost = f", {dropped:,} of them dropped" if dropped else ""
    return (
        f"a scope costs {enabled:,.0f} ns of host time on the {clock} clock and {disabled:,.0f} ns "
        f"when off (best of {ROUNDS} rounds of {COST_SCOPES:,}, readout included{lost})\n"
    )


def _scope_ns(scope: Any) -> float:
    """Return the host's nanoseconds for an entry and the readout of its result."""

    def entries() -> None:
        for _ in range(COST_SCOPES):
            with scope:
                pass
        flush()

    empty_s = _best_s("pass", COST_SCOPES)
    return max(0.0, _best_s(entries) - empty_s) / COST_SCOPES * 1e9
