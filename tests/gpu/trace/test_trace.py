"""Traces of real GPU work: the GPU's slices where they belong."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device
from tests.gpu.support.scripts import check_script
from tests.support.trace_events import assert_tracks_nest, events, metadata

_FIRST_GPU_TID = 2**28
_ROUNDING_US = 0.002


def slices(path: Path, category: str) -> list[dict[str, Any]]:
    found = [e for e in events(path) if e.get("cat") == category]
    return sorted(found, key=lambda event: float(event["ts"]))


def gpu_us(event: dict[str, Any]) -> float:
    """Return what was measured; the slice may be drawn longer."""
    return float(event.get("args", {}).get("gpu_us", event["dur"]))


def tracks(found: list[dict[str, Any]]) -> set[int]:
    return {event["tid"] for event in found}


@needs_the_gpu_alone
def test_every_scope_has_a_gpu_slice_after_its_launch(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND // 5)
    gpuprof.reset()
    with gpuprof.trace(path) as writer:
        for _ in range(200):
            with gpuprof.timer("step", stream=stream):
                with gpuprof.timer("fwd", stream=stream):
                    spin.launch()
                with gpuprof.timer("bwd", stream=stream):
                    spin.launch()
    state = writer.stats()
    assert (state["unplaced"], state["dropped"]) == (0, 0)
    assert 0 < state["gpu_error_ns"] < 20_000
    host, gpu = slices(path, "scope"), slices(path, "gpu")
    assert len(host) == len(gpu) == 600
    for name in ("step", "fwd", "bwd"):
        launches = [e["ts"] for e in host if e["name"] == name]
        starts = [e["ts"] for e in gpu if e["name"] == name]
        assert all(start >= launch for launch, start in zip(launches, starts, strict=True))
    assert_tracks_nest(gpu, _ROUNDING_US)
    assert_tracks_nest(host, _ROUNDING_US)
    assert len(tracks(gpu)) == 1
    assert min(tracks(gpu)) >= _FIRST_GPU_TID
    for name, path_ in (("step", "step"), ("fwd", "step/fwd"), ("bwd", "step/bwd")):
        drawn = sum(gpu_us(e) for e in gpu if e["name"] == name)
        assert drawn == pytest.approx(gpuprof.stats()[path_].gpu.total_ms * 1e3, abs=1)


@needs_the_gpu_alone
def test_streams_and_threads_have_tracks_of_their_own(tmp_path: Path) -> None:
    path = tmp_path / "run.json"

    def work(stream: int, name: str) -> None:
        device().make_current()
        spin = Spin(device(), stream, MILLISECOND // 10)
        for _ in range(20):
            with gpuprof.timer(name, stream=stream):
                spin.launch()

    streams = [device().stream() for _ in range(2)]
    gpuprof.name_stream(streams[0], "copy stream")
    with gpuprof.trace(path):
        for number, stream in enumerate(streams):
            thread = threading.Thread(target=work, args=(stream, f"on{number}"), name=f"t{number}")
            thread.start()
            thread.join()
        device().synchronize()
    names = {e["tid"]: e["args"]["name"] for e in metadata(path, "thread_name")}
    gpu = slices(path, "gpu")
    first, second = (tracks([e for e in gpu if e["name"] == f"on{i}"]) for i in range(2))
    assert len(first) == len(second) == 1
    assert first != second
    assert "copy stream" in names[first.pop()]
    assert "(t1)" in names[second.pop()]
    assert all("GPU 0 NVIDIA" in names[e["tid"]] for e in gpu)


def test_a_long_run_keeps_its_slices_in_place(tmp_path: Path) -> None:
    """Work that the host waits for lies between the launch and the return of the wait."""
    path = tmp_path / "run.json"
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND // 2)
    until = time.monotonic() + 4.0
    with gpuprof.trace(path) as writer:
        while time.monotonic() < until:
            with gpuprof.timer("work", stream=stream):
                spin.launch()
            device().synchronize()
            writer.instant("done")
            time.sleep(0.02)
    error_us = writer.stats()["gpu_error_ns"] / 1e3
    done = sorted(e["ts"] for e in events(path, "i"))
    host, gpu = slices(path, "scope"), slices(path, "gpu")
    assert len(gpu) == len(host) == len(done) > 50
    for launch, work, end in zip(host, gpu, done, strict=True):
        assert launch["ts"] <= work["ts"]
        assert work["ts"] + work["dur"] <= end + error_us


def test_torch_work_on_a_side_stream_is_placed(tmp_path: Path) -> None:
    torch = torch_or_skip()
    path = tmp_path / "run.json"
    a = torch.randn(1024, 1024, device="cuda")
    side = torch.cuda.Stream()
    with gpuprof.trace(path):
        with gpuprof.timer("main"):
            a @ a
        with torch.cuda.stream(side), gpuprof.timer("side"):
            a @ a
        torch.cuda.synchronize()
    gpu = slices(path, "gpu")
    assert sorted(e["name"] for e in gpu) == ["main", "side"]
    assert len(tracks(gpu)) == 2


def test_a_trace_is_saved_after_a_sticky_error(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    check_script(
        f"""
        import warnings
        warnings.simplefilter("ignore", RuntimeWarning)  # that the scope failed
        stream = device().stream()
        with gpuprof.trace({str(path)!r}):
            with gpuprof.timer("host", backend="cpu"):
                pass
            with gpuprof.timer("gpu", stream=stream):
                device().launch_fault(stream)
        """
    )
    assert "host" in {e["name"] for e in slices(path, "scope")}
