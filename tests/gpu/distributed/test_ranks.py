"""Two ranks under torchrun with NCCL: who is slow, what DDP waits for, one trace.

Where there is one GPU they share it; NCCL moves their data through the network then.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import nccl_or_skip
from tests.support.processes import ROOT, environment
from tests.support.trace_files import load


@pytest.fixture(autouse=True)
def torch() -> Any:
    return nccl_or_skip()


def run(name: str, folder: Path) -> None:
    """Run one of the checks in two processes."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [sys.executable, *launcher, "-m", "tests.gpu.support.distributed_ranks", name, folder],
        cwd=ROOT,
        env=environment(None, NCCL_NVLS_ENABLE="0", OMP_NUM_THREADS="1"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as ranks:
        try:
            said = ranks.communicate(timeout=180)[0]
        except subprocess.TimeoutExpired:
            ranks.terminate()  # it ends both ranks then; killed, it would leave them on the GPUs
            said = ranks.communicate()[0]
    assert ranks.returncode == 0, said
    assert said.count("is done") == 2, said


@needs_the_gpu_alone
def test_the_rank_that_an_all_reduce_waits_for_is_named(tmp_path: Path) -> None:
    run("all_reduce", tmp_path)


def test_what_ddp_waits_for_is_on_the_gpus_clock_inside_the_backward_pass(tmp_path: Path) -> None:
    run("ddp", tmp_path)


@needs_the_gpu_alone
def test_exposed_communication_is_what_the_intervals_of_torchs_trace_say(tmp_path: Path) -> None:
    run("exposed", tmp_path)


def test_gathering_through_the_store_of_torchrun_and_with_nccl(tmp_path: Path) -> None:
    run("gather", tmp_path)


def test_a_gpu_that_waits_for_a_rank_that_never_comes_stops_nobody(tmp_path: Path) -> None:
    run("hung", tmp_path)


def test_benchmarks_of_collectives_are_rank_0s_calls_on_both_gpus(tmp_path: Path) -> None:
    run("together", tmp_path)


def test_the_traces_of_both_gpus_are_one_file(tmp_path: Path) -> None:
    run("trace", tmp_path)
    merged = tmp_path / "run.json"
    command = [sys.executable, "-m", "gpuprof", "trace", "validate", merged]
    assert subprocess.run(command, check=False, cwd=ROOT).returncode == 0
    data = load(merged)
    assert {source["rank"] for source in data["mergedFrom"]} == {0, 1}
    # An all-reduce ends on both GPUs at nearly the same time: within a millisecond, for clocks that
    # are right to some tens of microseconds and kernels that take less than one.
    ends: dict[int, list[float]] = {}
    for event in data["traceEvents"]:
        if event["ph"] == "X" and event.get("cat") == "gpu" and "all_reduce" in event["name"]:
            ends.setdefault(event["pid"], []).append(event["ts"] + event["dur"])
    first, second = (sorted(each) for each in ends.values())
    assert len(first) == len(second) == 10
    apart = sorted(abs(one - other) for one, other in zip(first, second, strict=True))
    assert apart[len(apart) // 2] < 1000.0
