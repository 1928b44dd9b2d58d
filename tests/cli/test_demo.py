"""The demonstration's part on CUDA graphs, and what it says where there are none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gpuprof
from gpuprof._cli import demo as cli_demo
from tests.fake_driver.control import FakeCuda
from tests.support.processes import environment


def demo(driver: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", "demo", "--steps", "1"],
        env=environment(driver),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_without_a_driver_the_demo_says_that_graphs_need_cuda_and_goes_on(tmp_path: Path) -> None:
    absent = tmp_path / "libcuda.so.1"
    absent.write_bytes(b"")
    absent.chmod(0o600)
    *_, said, cost, following = demo(absent)
    assert said == "CUDA graph: left out, because graphs need CUDA"
    assert "a scope costs" in cost
    assert following.startswith("next: ")


def test_on_a_driver_the_demo_compares_and_shows_the_times_inside(fake_path: Path) -> None:
    lines = demo(fake_path)
    (at,) = (index for index, line in enumerate(lines) if line.startswith("CUDA graph: "))
    compared, title, header, rule, *rows = lines[at : at + 7]
    pattern = r"70 nodes: [\d.]+ .s a step eagerly, [\d.]+ .s replayed: [\d.]+ times as fast"
    assert compared.startswith("CUDA graph: 64 writes to device memory under 3 timers, ")
    assert re.search(pattern, compared)
    assert title.startswith("timers inside one replay")
    assert header.split() == ["span", "count", "ms", "mean"]
    assert set(rule) == {"-"}
    times = {path: float(ms) for path, _, ms, _ in (row.split() for row in rows)}
    assert set(times) == {"writes", "writes/first", "writes/second"}
    assert times["writes"] > times["writes/first"] > 0.0
    assert "a scope costs" in lines[at + 7]


def test_the_comparison_leaves_timing_on_and_nothing_behind(fake: FakeCuda) -> None:
    said = cli_demo.compare_graph()
    assert "times as fast" in said
    assert len(gpuprof.stats()) == 0
    with gpuprof.timer("after", backend="cpu"):
        pass
    assert "after" in gpuprof.stats()
    assert fake.capture_status(2) == 0


@pytest.mark.parametrize(
    "fault", ["cuStreamBeginCapture_v2@1=2", "cuGraphInstantiateWithFlags@1=2", "cuGraphLaunch@1=2"]
)
def test_a_driver_that_refuses_is_told_and_the_demo_goes_on(fake: FakeCuda, fault: str) -> None:
    with fake.faults(fault):
        said = cli_demo.compare_graph()
    assert said.startswith("CUDA graph: left out: cu")
    assert said.count("\n") == 1
    with gpuprof.timer("after", backend="cpu"):
        pass
    assert "after" in gpuprof.stats()
