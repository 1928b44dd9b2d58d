"""A trace of gpuprof's and one of torch.profiler's in one file: the same work at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip

_STEPS = 20
_CLOCKS_US = 50.0  # torch maps the GPU's clock to the host's with an error of its own


def _end(event: dict[str, Any]) -> float:
    return float(event["ts"] + event["dur"])


def _spans(events: list[dict[str, Any]], category: str) -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in events if each.get("cat") == category}


def test_each_span_is_around_its_kernels_in_a_merged_file(tmp_path: Path) -> None:
    """The first one too: torch takes milliseconds to open its first range, and not the clocks."""
    torch = torch_or_skip()
    ours, theirs, both = (tmp_path / f"{name}.json" for name in ("ours", "theirs", "both"))
    a = torch.randn(1024, 1024, device="cuda")
    a @ a  # loads cuBLAS
    torch.cuda.synchronize()
    with torch.profiler.profile() as profiler, gpuprof.trace(ours) as writer:
        for step in range(_STEPS):
            with gpuprof.timer(f"step {step}"):
                torch.cuda._sleep(1_000_000)
                a @ a
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(theirs))
    command = [sys.executable, "-m", "gpuprof", "trace", "merge", ours, theirs, "-o", both]
    subprocess.run(command, check=True)
    events = [e for e in json.loads(both.read_text())["traceEvents"] if e.get("ph") == "X"]
    kernels = sorted((e for e in events if e.get("cat") == "kernel"), key=lambda e: float(e["ts"]))
    on_gpu, on_host, ranges = (_spans(events, name) for name in ("gpu", "scope", "user_annotation"))
    assert len(kernels) == 2 * _STEPS
    error = _CLOCKS_US + writer.stats()["gpu_error_ns"] / 1e3
    for step in range(_STEPS):
        name, first, last = f"step {step}", kernels[2 * step], kernels[2 * step + 1]
        assert on_gpu[name]["ts"] <= first["ts"] + error, step
        assert abs(_end(on_gpu[name]) - _end(last)) <= error, step
        # torch's range is opened before gpuprof reads its clock, and closed after.
        assert ranges[name]["ts"] <= on_host[name]["ts"] + error, step
        assert _end(on_host[name]) <= _end(ranges[name]) + error, step
        if step:  # what the GPU still has queued hides how long a launch takes
            assert abs(on_gpu[name]["ts"] - first["ts"]) <= error, step
