"""Comparing traces that torch's profiler wrote of real kernels."""

from __future__ import annotations

import json
from pathlib import Path

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import run_python

_PROGRAM = """
import time
import torch
from torch.profiler import ProfilerActivity, profile, record_function

size, steps, pause, path = {size}, {steps}, {pause}, {path!r}
a = torch.randn(size, size, device="cuda")
small = torch.randn(64, device="cuda")

def step():
    with record_function("step"):
        with record_function("mm"):
            b = a @ a
        if pause:
            torch.cuda.synchronize()
            time.sleep(pause)
        with record_function("add"):
            small + 1
    return b

for _ in range(3):
    step()
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as found:
    for _ in range(steps):
        step()
    torch.cuda.synchronize()
found.export_chrome_trace(path)
"""


def traced(path: Path, *, size: int = 2048, steps: int = 10, pause: float = 0.0) -> Path:
    """Profile a program in a process of its own."""
    done = run_python(
        _PROGRAM.format(size=size, steps=steps, pause=pause, path=str(path)), timeout=180
    )
    assert done.returncode == 0, done.stderr
    return path


def totals(found: gpuprof.TraceDiff, kind: str) -> dict[str, tuple[float, float]]:
    return {row.name: (row.total_a_ms, row.total_b_ms) for row in found.rows if row.kind == kind}


def test_a_larger_product_is_what_got_slower(tmp_path: Path) -> None:
    torch_or_skip()
    before = traced(tmp_path / "a.json")
    after = traced(tmp_path / "b.json.gz", size=4096, steps=20)
    found = gpuprof.trace_diff(before, after, per="step")
    assert found.per_calls == (10, 20)
    launched = totals(found, "launched")
    slower = found.rows[0]
    assert launched["step/mm"][1] > 4 * launched["step/mm"][0]
    assert launched["step/add"][1] < 2 * launched["step/add"][0]
    assert slower.name in ("step", "step/mm")
    assert slower.change_ms > 0
    assert {"step", "step/mm", "step/add"} <= set(totals(found, "host"))
    assert not found.cut
    json.dumps(found.to_dict())


def test_a_host_that_sleeps_is_what_the_gpu_waited_for(tmp_path: Path) -> None:
    torch_or_skip()
    before = traced(tmp_path / "a.json")
    after = traced(tmp_path / "b.json", pause=0.005)
    found = gpuprof.trace_diff(before, after, per="step")
    idle = {row.cause: row for row in found.idle}
    assert idle["host_bound"].total_b_ms > 4.0
    assert idle["host_bound"].total_b_ms > 10 * idle["host_bound"].total_a_ms
    assert "unknown" not in idle
