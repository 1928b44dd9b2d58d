"""Windows and flight recorders of real GPU work: what the GPU still does is there, or said."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.kernels import MILLISECOND, Spin, device

pytestmark = pytest.mark.gpu


def spins(stream: int, *milliseconds: int) -> list[Spin]:
    """Return kernels of these lengths, made before anything is recorded: making one may wait."""
    return [Spin(device(), stream, each * MILLISECOND) for each in milliseconds]


def slices(path: Path, category: str) -> list[dict[str, Any]]:
    events = json.loads(path.read_text())["traceEvents"]
    return [e for e in events if e["ph"] == "X" and e.get("cat") == category]


def told(path: Path) -> dict[str, Any]:
    last: dict[str, Any] = json.loads(path.read_text())["traceEvents"][-1]["args"]["dump"]
    return last


def test_a_window_has_the_gpu_spans_that_end_after_its_last_step(tmp_path: Path) -> None:
    stream = device().stream()
    (spin,) = spins(stream, 5)
    with gpuprof.trace_windows(tmp_path / "run.json", schedule=(1, 1, 3, 2)) as windows:
        for number in range(10):
            with gpuprof.timer(f"s{number}", stream=stream):
                spin.launch()
            windows.step()
    for window, names in ((1, ["s2", "s3", "s4"]), (2, ["s7", "s8", "s9"])):
        found = slices(tmp_path / f"run.{window}.json", "gpu")
        assert [each["name"] for each in found] == names
        assert all(each["dur"] > 4000 for each in found)


def test_a_dump_waits_for_spans_that_end_soon_and_leaves_out_the_others(tmp_path: Path) -> None:
    stream = device().stream()
    short, long = spins(stream, 20, 1500)
    with gpuprof.flight_recorder(tmp_path / "last.json", keep_last="30s") as recorder:
        with gpuprof.timer("short", stream=stream):
            short.launch()
        recorder.dump()
        with gpuprof.timer("long", stream=stream):
            long.launch()
        recorder.dump()
        gpuprof.flush()
        recorder.dump()
    first, second, third = (tmp_path / f"last.{number}.json" for number in (1, 2, 3))
    assert [each["name"] for each in slices(first, "gpu")] == ["short"]
    assert told(first)["unfinishedGpuSpans"] == 0
    assert [each["name"] for each in slices(second, "gpu")] == ["short"]
    assert told(second)["unfinishedGpuSpans"] == 1
    assert [each["name"] for each in slices(third, "gpu")] == ["short", "long"]


def test_a_step_that_is_slow_on_the_gpu_is_a_dump_of_what_came_before(tmp_path: Path) -> None:
    stream = device().stream()
    quick, slow = spins(stream, 5, 60)
    with gpuprof.flight_recorder(
        tmp_path / "last.json", keep_last="30s", when={"step": 25.0}
    ) as recorder:
        for spin in (quick, quick, slow, quick):
            with gpuprof.timer("step", stream=stream):
                spin.launch()
            gpuprof.flush()
        deadline = time.monotonic() + 20
        while not recorder.stats()["dumps"] and time.monotonic() < deadline:
            time.sleep(0.01)
    file = tmp_path / "last.1.json"
    lengths = [each["dur"] / 1000 for each in slices(file, "gpu")]
    assert len(lengths) >= 3
    assert lengths[0] < 25 < lengths[2]
    assert "of GPU time, more than 25 ms" in told(file)["reason"]
