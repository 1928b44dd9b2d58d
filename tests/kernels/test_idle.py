"""Why streams were idle between kernels, as `gpuprof.kernels` reports it."""

from __future__ import annotations

import time
from typing import Any

import pytest

import gpuprof
from tests.support.gpu_records import Recording

US = 1_000


class Timeline:
    """Kernels at chosen times, in microseconds from the block's begin."""

    def __init__(self, gpu: Recording) -> None:
        self._gpu = gpu
        self._zero = time.monotonic_ns()

    def kernel(
        self,
        begin: int,
        end: int,
        *,
        launched: int | None,
        call: int = 3,
        name: str = "cudaLaunchKernel",
        stream: int = 7,
    ) -> None:
        correlation = 999
        if launched is not None:
            correlation = self._gpu.call(name, begin=self._zero + launched * US, ns=call * US)
        self._gpu.work(
            f"k{begin}", correlation, self._zero + begin * US, (end - begin) * US, stream=stream
        )


def causes(k: gpuprof.Kernels) -> dict[str, tuple[str, float]]:
    return {each.name: (each.idle_cause, each.idle_ns / US) for each in k.records if each.idle_ns}


@pytest.mark.parametrize(
    ("kernels", "cause", "idle"),
    [
        pytest.param([(60, 70, {"launched": 50})], "host_bound", 40, id="launched late"),
        # It returns at 22.
        pytest.param([(24, 30, {"launched": 18, "call": 4})], "host_bound", 4, id="called late"),
        pytest.param([(22, 30, {"launched": 9})], "launch_gap", 2, id="launched in time"),
        pytest.param(
            [(15, 58, {"launched": 6, "stream": 13}), (60, 70, {"launched": 9})],
            "dependency",
            40,
            id="a long gap",
        ),
        pytest.param([(60, 70, {"launched": None})], "unknown", 40, id="no known launch"),
        # Its call waits for it, which is not the host's fault.
        pytest.param(
            [(22, 30, {"launched": 9, "call": 25, "name": "cudaMemcpyAsync"})],
            "launch_gap",
            2,
            id="a copy",
        ),
    ],
)
def test_the_cause_of_a_gap_follows_from_the_launch_of_the_work_after_it(
    gpu: Recording, kernels: list[tuple[int, int, dict[str, Any]]], cause: str, idle: int
) -> None:
    with gpuprof.kernels() as k:
        at = Timeline(gpu)
        at.kernel(10, 20, launched=5)
        for begin, end, how in kernels:
            at.kernel(begin, end, **how)
    assert causes(k) == {f"k{kernels[-1][0]}": (cause, idle)}
    row = k.rows[0]
    assert getattr(row, f"{cause}_ms") == row.idle_ms == pytest.approx(idle * 1e-3)


def test_a_wait_for_another_stream_is_no_fault_of_the_host(gpu: Recording) -> None:
    """As after `cudaStreamWaitEvent`: launched onto an idle stream, and held up by another."""
    with gpuprof.kernels() as k:
        at = Timeline(gpu)
        at.kernel(10, 20, launched=1)
        at.kernel(30, 20_000, launched=25, stream=13)
        at.kernel(20_005, 20_010, launched=47)  # returns at 50
    assert causes(k) == {"k20005": ("dependency", 19_985)}
    (row,) = k.rows
    assert row.host_bound_ms == pytest.approx(0.030)
    assert row.dependency_ms == pytest.approx(19.955)
    assert row.idle_ms == pytest.approx(19.985)


def test_inside_a_replay_nothing_waits_for_the_host(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        zero = time.monotonic_ns()
        replay = gpu.call("cudaGraphLaunch", begin=zero, ns=100 * US)
        for begin, end in ((10, 20), (22, 30), (60, 70)):
            gpu.work(f"k{begin}", replay, zero + begin * US, (end - begin) * US, graph_id=1)
    assert causes(k) == {"k22": ("launch_gap", 2), "k60": ("dependency", 30)}


def test_overlapping_work_and_the_first_of_a_stream_leave_no_gap(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        at = Timeline(gpu)
        at.kernel(10, 50, launched=1)
        at.kernel(20, 30, launched=2)
        at.kernel(50, 60, launched=3)
        at.kernel(500, 510, launched=4, stream=13)
    assert causes(k) == {}


def test_idle_time_belongs_to_the_scope_of_what_came_late(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        with gpuprof.timer("load"):
            gpu.run("copy", 5 * US)
        with gpuprof.timer("step"), gpuprof.timer("fwd"):
            time.sleep(0.001)
            gpu.run("gemm", 5 * US)
    load, step, fwd = k.rows
    assert (load.path, load.idle_ms) == ("load", 0)
    assert step.host_bound_ms == fwd.host_bound_ms > 0.9
