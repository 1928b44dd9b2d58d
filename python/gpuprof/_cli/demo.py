"""``gpuprof demo``: real work under real scopes, on the best clock that this machine has.

The work is a small training step where torch has CUDA, fills of device memory where only the driver
is there, and text processing on the CPU where neither is. It uses the process's statistics and
empties them.
"""

from __future__ import annotations

import argparse
import importlib
import re
import sys
import timeit
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeAlias

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (GPUPROF_TRACE_OUT and GPUPROF_NVTX)
from gpuprof._cli.command import FAILED, Answer, Refused, refusing
from gpuprof._common import outputs
from gpuprof._common.machine import cuda_version
from gpuprof._common.text import shown_text, write_text
from gpuprof._core import timer
from gpuprof._timing.scope import flush, reset, stats
from gpuprof._trace.path import expand
from gpuprof._trace.writer import TraceWriter

COST_SCOPES = 4000
ROUNDS = 5  # of a timing by the host's clock; the best one counts
MIB = 1 << 20
FILLS = {"load": (4 * MIB, 2), "compute": (16 * MIB, 4), "store": (MIB, 2)}
Work: TypeAlias = dict[str, Callable[[], object]]


def run(options: argparse.Namespace) -> Answer:
    """Do the work, and write the report and perhaps a trace of the steps."""
    if options.trace is not None:
        with refusing(ValueError):
            wanted = outputs.Output("--trace", outputs.TRACE, options.trace, expand(options.trace))
        if complaint := outputs.complaint([wanted]):
            raise Refused(complaint)
    reset()
    driver = dict(_core.driver_info())
    on_gpu = driver["available"]
    if on_gpu:
        clock, (what, work) = "cuda", _gpu_work(driver)
        name = _core.devices()[max(_core.cuda_device(), 0)]["name"]
        version = cuda_version(driver["version"])
        what = f"{name}, driver for CUDA {version} ({driver['path']}), work by {what}"
    else:
        clock, what, work = "cpu", driver["reason"], _text_work()
    write_text(sys.stdout, shown_text(f"{'GPU' if on_gpu else 'CPU'} clock: {what}") + "\n")
    with TraceWriter(options.trace, collect=True) if options.trace else nullcontext() as writer:
        for _ in range(options.steps):
            do_step(clock, work)
    measured = stats()
    if not measured:
        return Answer("nothing was measured: timing is off; unset GPUPROF_DISABLE\n", FAILED)
    measured.print(sys.stdout)
    reset()
    text = (
        f"a scope costs {_scope_ns(clock, True):,.0f} ns of host time on the {clock} clock and "
        f"{_scope_ns(clock, False):,.0f} ns when off (best of {ROUNDS} rounds of {COST_SCOPES:,}, "
        'loop and readout included)\nnext: put `with gpuprof.timer("name"):` around your own code, '
        "then print(gpuprof.stats()); `gpuprof info` says what a GPU clock needs here\n"
    )
    if writer is None:
        return Answer(text)
    if writer.error:
        return Answer(text, FAILED)  # a warning has said why
    return Answer(f"{text}trace: open {shown_text(writer.path)} at https://ui.perfetto.dev\n")


def do_step(clock: Any, work: Work) -> None:
    with timer("step", backend=clock):
        for name, do in work.items():
            with timer(name, backend=clock):
                do()


def _text_work() -> Work:
    text = " ".join(f"{n * n % 4001:x}" * (1 + n % 3) for n in range(40_000))
    words = text.split()
    return {
        "tokenise": lambda: re.findall(r"\w+", text),
        "count": lambda: Counter(words),
        "sort": lambda: sorted(words),
    }


def _gpu_work(driver: dict[str, Any]) -> tuple[str, Work]:
    if not driver["override"]:  # torch would still use the system's driver
        try:
            torch = importlib.import_module("torch")
            if torch.cuda.is_available():
                return f"torch {torch.__version__}", torch_work(torch)
        except Exception as error:  # a broken or absent torch must not end the demo
            write_text(sys.stdout, shown_text(f"without torch: {error}") + "\n")
    fills: Work = {
        name: partial(_core.DeviceBuffer(size).fill, n) for name, (size, n) in FILLS.items()
    }
    return "fills of device memory", fills


def torch_work(torch: Any) -> Work:
    nn = torch.nn
    model = nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    given, wanted = torch.randn(512, 1024).cuda(), torch.randn(512, 1024).cuda()
    losses: list[Any] = []

    def backward() -> None:
        optimizer.zero_grad()
        losses.pop().backward()

    return {
        "forward": lambda: losses.append(nn.functional.mse_loss(model(given), wanted)),
        "backward": backward,
        "optimizer": optimizer.step,
    }


def _scope_ns(clock: Any, enabled: bool) -> float:
    scope = timer("cost", backend=clock, enabled=enabled)

    def entries() -> None:
        for _ in range(COST_SCOPES):
            with scope:
                pass
        flush()

    best_s = min(timeit.repeat(entries, number=1, repeat=ROUNDS))
    reset()
    return best_s / COST_SCOPES * 1e9
