"""Nsight Compute finds a kernel by the range of gpuprof's around its launch."""

from __future__ import annotations

import csv
import io
import shutil
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

_PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import gpuprof
from gpuprof.compat.torch import nvtx
from tests.gpu.support.kernels import Spin, device
gpu = device()
stream = gpu.stream()
def launch(microseconds):
    Spin(gpu, stream, microseconds * 1000).launch()
    gpu.synchronize()
launch(10)
with gpuprof.annotate("around"):
    with gpuprof.annotate("chosen", color="green", payload=1):
        launch(20)
    launch(30)
with gpuprof.timer("chosen by a scope", stream=stream):
    launch(40)
nvtx.range_push("pushed as in torch")
launch(50)
nvtx.range_pop()
with gpuprof.annotate("with an array", payload=[1, 2, 3]):
    launch(60)
print("is a tool attached:", gpuprof.nvtx.is_tool_attached())
"""


def profiled(include: str) -> list[dict[str, str]]:
    """Return what ncu says of the kernels that it selects, or skip."""
    ncu = shutil.which("ncu") or "/usr/local/cuda/bin/ncu"
    if not Path(ncu).exists():
        pytest.skip("ncu is not installed: an NVIDIA command-line tool")
    command = [ncu, "--nvtx", "--nvtx-include", include, "--clock-control", "none"]
    command += ["--csv", "--page", "raw", "--metrics", "gpu__time_duration.sum"]
    command += [sys.executable, "-c", _PROGRAM]
    done = run_command(*command, timeout=240, GPUPROF_NVTX="1")
    said = done.stdout + done.stderr
    if "ERR_NVGPUCTRPERM" in said:
        pytest.skip("the GPU's counters are not open to this user")
    assert done.returncode == 0, said
    assert "is a tool attached: True" in done.stdout, said
    lines = [line for line in done.stdout.splitlines() if line.startswith('"')]
    rows = list(csv.DictReader(io.StringIO("\n".join(lines))))
    return [row for row in rows if row.get("Kernel Name")]  # the line of units has none


@pytest.mark.parametrize("name", ["chosen", "chosen by a scope", "with an array"])
def test_a_kernel_is_selected_by_the_range_around_its_launch(name: str) -> None:
    (row,) = profiled(f"gpuprof@{name}/")
    assert row["Kernel Name"].startswith("spin")


def test_a_kernel_is_selected_by_a_range_of_torchs_names_in_the_domain_without_a_name() -> None:
    (row,) = profiled("pushed as in torch/")
    assert row["Kernel Name"].startswith("spin")


def test_a_range_that_is_not_there_selects_nothing() -> None:
    assert profiled("gpuprof@no such range/") == []
