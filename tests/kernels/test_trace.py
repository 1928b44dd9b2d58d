"""Kernels in traces: in torch's format, on their streams, inside the scopes that launched them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import gpuprof
from tests.support.gpu_records import COPY, MEMSET, Recording
from tests.support.trace_events import assert_tracks_nest, events, load, metadata

US = 1_000
KERNEL_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset"}


def of_category(path: Path, *categories: str) -> list[dict[str, Any]]:
    return [each for each in events(path) if each.get("cat") in categories]


def track_names(path: Path) -> dict[int, str]:
    return {each["tid"]: each["args"]["name"] for each in metadata(path, "thread_name")}


def test_kernels_have_torchs_format(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path):
        with gpuprof.kernels() as k, gpuprof.timer("step"), gpuprof.timer("fwd"):
            gpu.run("gemm<float>", 10_000)
            gpu.run("Memcpy HtoD", 3_000, kind=COPY, nbytes=64, delay=20_000)
            gpu.run("Memset (Device)", 1_000, kind=MEMSET, stream=13, graph_id=4, node_id=9)

    work = of_category(path, *KERNEL_CATEGORIES)
    assert {(each["cat"], each["name"]) for each in work} == {
        ("kernel", "gemm<float>"),
        ("gpu_memcpy", "Memcpy HtoD"),
        ("gpu_memset", "Memset (Device)"),
    }
    gemm, copy, memset = (each["args"] for each in sorted(work, key=lambda each: each["cat"][4:]))
    by_name = {each["name"]: each["args"] for each in work}
    assert by_name["gemm<float>"] == {
        "device": 0,
        "stream": 7,
        "correlation": 1,
        "scope": "step/fwd",
    }
    assert by_name["Memcpy HtoD"]["bytes"] == 64
    assert by_name["Memset (Device)"]["graph id"] == 4
    assert by_name["Memset (Device)"]["graph node id"] == 9
    calls = of_category(path, "cuda_runtime", "cuda_driver")
    assert [each["args"]["correlation"] for each in calls] == [1, 2, 3]
    base = load(path)["baseTimeNanoseconds"]
    wall = k.records[0].begin_ns + time.time_ns() - time.monotonic_ns()
    begin = next(each["ts"] for each in work if each["name"] == "gemm<float>")
    assert abs(base + begin * US - wall) < 1_000_000
    assert {gemm["stream"], copy["stream"], memset["stream"]} == {7, 13}


def test_scopes_are_around_the_kernels_that_they_launched(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path), gpuprof.kernels():
        for _ in range(3):
            with gpuprof.timer("step"):
                with gpuprof.timer("fwd"):
                    gpu.run("a")
                    gpu.run("b", delay=50_000)
                with gpuprof.timer("bwd"):
                    gpu.run("c", delay=70_000)
            time.sleep(0.002)

    assert_tracks_nest(events(path))
    names = track_names(path)
    (tid,) = {each["tid"] for each in of_category(path, "kernel")}
    assert names[tid] == "GPU 0, kernels of stream 7 (default stream)"
    scopes = of_category(path, "gpu_user_annotation")
    assert sorted(each["name"] for each in scopes) == ["bwd"] * 3 + ["fwd"] * 3 + ["step"] * 3
    for each in of_category(path, "kernel"):
        inner = each["args"]["scope"].split("/")
        around = [
            scope["name"]
            for scope in sorted(scopes, key=lambda e: -e["dur"])
            if scope["ts"] <= each["ts"] < scope["ts"] + scope["dur"]
        ]
        assert around == inner


def test_every_launch_points_at_its_kernel(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path), gpuprof.kernels():
        for name in "abc":
            gpu.run(name)
            time.sleep(0.001)

    starts = {each["id"]: each for each in events(path, "s") if each["cat"] == "ac2g"}
    ends = {each["id"]: each for each in events(path, "f") if each["cat"] == "ac2g"}
    assert len(starts) == len(ends) == 3
    calls = {each["ts"]: each["tid"] for each in of_category(path, "cuda_runtime")}
    kernels = {each["ts"]: each["tid"] for each in of_category(path, "kernel")}
    for number, start in starts.items():
        assert calls[start["ts"]] == start["tid"]
        assert kernels[ends[number]["ts"]] == ends[number]["tid"]


def test_work_that_overlaps_on_one_stream_gets_tracks_side_by_side(
    gpu: Recording, tmp_path: Path
) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path), gpuprof.kernels(), gpuprof.timer("serve"):
        replay = gpu.call("cudaGraphLaunch")
        now = time.monotonic_ns()
        gpu.work("left", replay, now, 50 * US)
        gpu.work("right", replay, now + 10 * US, 100 * US)
        gpu.work("joined", replay, now + 120 * US, 10 * US)

    assert_tracks_nest(events(path))
    names = track_names(path)
    tracks = {each["name"]: names[each["tid"]] for each in of_category(path, "kernel")}
    assert tracks["left"] == tracks["joined"] == "GPU 0, kernels of stream 7 (default stream)"
    assert tracks["right"] == "GPU 0, kernels of stream 7 (default stream) #2"


def test_every_open_trace_gets_them_and_a_closed_one_none(gpu: Recording, tmp_path: Path) -> None:
    first, second, closed = (tmp_path / f"{name}.json" for name in ("first", "second", "closed"))
    with gpuprof.trace(first), gpuprof.trace(second):
        with gpuprof.kernels():
            with gpuprof.trace(closed):
                gpu.run("gemm")
    for path in (first, second):
        assert [each["name"] for each in of_category(path, "kernel")] == ["gemm"]
    assert of_category(closed, "kernel") == []


def test_two_blocks_share_the_tracks(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path):
        for _ in range(2):
            with gpuprof.kernels():
                gpu.run("gemm")
            gpu.activities.clear()
            gpu.launches.clear()

    kernels = of_category(path, "kernel")
    assert len(kernels) == 2
    assert len({each["tid"] for each in kernels}) == 1


def test_many_kernels_are_all_written(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace(path, buffer_mib=8) as writer, gpuprof.kernels():
        begin = time.monotonic_ns()
        with gpuprof.timer("step"):
            for place in range(12_000):
                correlation = gpu.call(begin=begin + place * US)
                gpu.work("k", correlation, begin + place * US + 500, 300)

    assert writer.stats()["dropped"] == 0
    assert len(of_category(path, "kernel")) == 12_000
    assert_tracks_nest(events(path))


def test_a_step_that_warms_up_has_its_kernels_in_no_window(gpu: Recording, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with gpuprof.trace_windows(path, schedule=(0, 1, 1, 1)) as windows:
        for name in ("warm", "active"):
            with gpuprof.kernels() as k:
                gpu.run(name)
            assert [each.name for each in k.records] == [name]
            gpu.activities.clear()
            gpu.launches.clear()
            windows.step()

    (kernel,) = of_category(tmp_path / "run.1.json", "kernel")
    assert kernel["name"] == "active"
