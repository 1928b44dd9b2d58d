"""Real work under real scopes, on the best clock that this machine has: ``gpuprof demo``.

The work is a small training step where torch has CUDA, fills of device memory where only the driver
is there, and text processing on the CPU where neither is. On a GPU a second workload is replayed as
a CUDA graph, too. It uses the process's statistics and empties them.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.metadata
import importlib.util
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TextIO

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (GPUPROF_TRACE_OUT and GPUPROF_NVTX)
from gpuprof._cli import demo_graph
from gpuprof._common.machine import cuda_version
from gpuprof._common.text import shown_text, write_text
from gpuprof._core import timer
from gpuprof._timing.scope import flush, reset, stats
from gpuprof._trace.writer import TraceWriter

DEFAULT_STEPS = 20
COST_ROUNDS = 5
COST_SCOPES = 4000

MIB = 1 << 20
FILLS = {"load": (4 * MIB, 2), "compute": (16 * MIB, 4), "store": (MIB, 2)}


@dataclass(frozen=True)
class Workload:
    """`step` does one step's work under scopes of `clock`; `headline` says what that is and why.

    `graph` does the graph's part and returns what is said of it.
    """

    headline: str
    clock: str
    step: Callable[[], None]
    graph: Callable[[], str]


def _text_workload(reason: str) -> Workload:
    """Tokenise, count, sort and hash a text that is made from a fixed rule."""
    words = [hashlib.sha256(str(n).encode()).hexdigest()[: 3 + n % 9] for n in range(4000)]
    text = " ".join(words[n * n % len(words)] for n in range(40_000))
    scopes = {name: _scope(name, "cpu") for name in ("step", "tokenise", "count", "sort", "hash")}

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

    return Workload(f"CPU clock: {reason}", "cpu", step, lambda: demo_graph.without_cuda(reason))


def _fill_workload(driver: dict[str, Any], note: str) -> Workload:
    """Fill device memory through the driver alone."""
    buffers = {name: _core.DeviceBuffer(size) for name, (size, _) in FILLS.items()}
    scopes = {name: _scope(name, "cuda") for name in ("step", *FILLS)}

    def step() -> None:
        with scopes["step"]:
            for name, (_, repeats) in FILLS.items():
                with scopes[name]:
                    buffers[name].fill(repeats)

    headline = _gpu_headline(driver, f"fills of device memory{note}")
    return Workload(headline, "cuda", step, lambda: demo_graph.compare(demo_graph.scalar_work))


def _torch_workload(driver: dict[str, Any], torch: Any) -> Workload:
    """Train a small perceptron."""
    torch.manual_seed(0)
    layers = torch.nn
    model = layers.Sequential(
        layers.Linear(1024, 4096), layers.GELU(), layers.Linear(4096, 1024)
    ).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given, wanted = torch.randn(512, 1024).cuda(), torch.randn(512, 1024).cuda()
    scopes = {name: _scope(name, "cuda") for name in ("step", "forward", "backward", "optimizer")}

    def step() -> None:
        with scopes["step"]:
            with scopes["forward"]:
                loss = layers.functional.mse_loss(model(given), wanted)
            with scopes["backward"]:
                optimizer.zero_grad()
                loss.backward()
            with scopes["optimizer"]:
                optimizer.step()

    def graph() -> str:
        return demo_graph.compare(lambda: demo_graph.torch_work(torch))

    return Workload(_gpu_headline(driver, f"torch {torch.__version__}"), "cuda", step, graph)


def _scope(name: str | None, clock: str, enabled: bool | None = None) -> Any:
    return timer(name, backend=clock, enabled=enabled)


def _gpu_headline(driver: dict[str, Any], work: str) -> str:
    devices = _core.devices()
    index = max(_core.cuda_device(), 0)
    name = devices[index]["name"] if index < len(devices) else "a device without a name"
    return f"GPU clock: {name}, driver for CUDA {cuda_version(driver['version'])}, work by {work}"


def _torch_with_cuda() -> tuple[Any, str]:
    """Return torch if it can use CUDA, else None and what to say of it."""
    if importlib.util.find_spec("torch") is None:
        return None, " (torch is not installed)"
    try:
        torch = importlib.import_module("torch")
        if torch.cuda.is_available():
            return torch, ""
    except Exception as error:  # a broken torch is not what the demo is about
        return None, f" (torch does not work here: {type(error).__name__}: {error})"
    return None, " (torch sees no CUDA device)"


def _why_no_gpu(driver: dict[str, Any]) -> str:
    reason = str(driver["reason"])
    if driver["path"] is None and driver["tried"] and "No such file" in reason.partition(";")[0]:
        return f"{driver['tried'][0]} not found"
    return reason


def choose_workload() -> Workload:
    """Pick the work and the clock for this machine."""
    driver = dict(_core.driver_info())
    if not driver["available"]:
        return _text_workload(_why_no_gpu(driver))
    if driver["override"]:
        # torch would use the system's driver, and the handles of one mean nothing to the other.
        return _fill_workload(driver, f" (driver {driver['override']})")
    torch, note = _torch_with_cuda()
    return _torch_workload(driver, torch) if torch else _fill_workload(driver, note)


def _loop_ns(scope: AbstractContextManager[Any] | None) -> int:
    """Time COST_SCOPES entries, with what their results cost; None times the loop alone."""
    begin = time.perf_counter_ns()
    if scope is None:
        for _ in range(COST_SCOPES):
            pass
    else:
        for _ in range(COST_SCOPES):
            with scope:
                pass
        flush()
    return time.perf_counter_ns() - begin


def _scope_cost_ns(scope: AbstractContextManager[Any]) -> float:
    empty = min(_loop_ns(None) for _ in range(COST_ROUNDS))
    return max(0, min(_loop_ns(scope) for _ in range(COST_ROUNDS)) - empty) / COST_SCOPES


def cost_line(clock: str) -> str:
    """Measure what a scope costs on this machine, and say so. Empties the statistics."""
    enabled = _scope_cost_ns(_scope("cost", clock, enabled=True))
    dropped = stats().dropped
    reset()
    disabled = _scope_cost_ns(_scope("cost", clock, enabled=False))
    lost = f", {dropped:,} of them dropped" if dropped else ""
    return (
        f"a scope costs {enabled:,.0f} ns of host time on the {clock} clock and {disabled:,.0f} ns "
        f"when off (best of {COST_ROUNDS} rounds of {COST_SCOPES:,}, readout included{lost})"
    )


def _next_line(clock: str) -> str:
    usage = 'put `with gpuprof.timer("name"):` around your own code, then print(gpuprof.stats())'
    if clock == "cpu":
        return f"next: {usage}; `gpuprof info` says what a GPU clock needs here"
    return f"next: {usage}"


def run(out: TextIO, steps: int = DEFAULT_STEPS, trace: str | None = None) -> int:
    """Do the work and write the report.

    Parameters
    ----------
    out
        Where to write.
    steps
        How many steps of work, at least 1.
    trace
        Where to write a trace of the steps; None for none.

    Returns
    -------
    int
        An exit code: 1 where timing is switched off, so that there is nothing to show, and where
        the trace cannot be written.
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
    write_text(out, f"{cost_line(workload.clock)}\n{_next_line(workload.clock)}\n")
    if writer is None:
        return 0
    if writer.error:
        return 1  # the warning has told why
    write_text(out, f"trace: open {shown_text(writer.path)} at https://ui.perfetto.dev\n")
    return 0
