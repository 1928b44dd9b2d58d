"""Timer and the probes on a real stream."""

from __future__ import annotations

import ctypes

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.kernels import MILLISECOND, Spin, device

_WITHIN_MS = 0.05


@needs_the_gpu_alone
def test_a_timer_is_reused_in_a_loop() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND // 10)
    timer = gpuprof.Timer("cuda", stream=stream)
    for microseconds in (100, 300, 200, 900, 50):
        spin.set_duration(microseconds * 1000)
        timer.record_start()
        spin.launch()
        timer.record_end()
        assert timer.elapsed_ms() == pytest.approx(microseconds / 1000.0, abs=_WITHIN_MS)
    timer.close()


def _let_wait(stream: int, other: int) -> None:
    """Let `stream` wait for what `other` has so far."""
    event = ctypes.c_void_p()
    device().call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(2))
    device().call("cuEventRecord", event, ctypes.c_void_p(other))
    device().call("cuStreamWaitEvent", ctypes.c_void_p(stream), event, ctypes.c_uint(0))
    device().call("cuEventDestroy_v2", event)


@needs_the_gpu_alone
def test_a_timer_spans_from_one_stream_to_another() -> None:
    origin, branch = device().stream(), device().stream()
    first, second = Spin(device(), origin, MILLISECOND), Spin(device(), branch, 2 * MILLISECOND)
    timer = gpuprof.Timer("cuda", stream=origin)
    timer.record_start()
    first.launch()
    _let_wait(branch, origin)
    second.launch()
    timer.record_end(branch)
    assert timer.streams == (origin, branch)
    span = (second.stamps()[1] - first.stamps()[0]) / MILLISECOND
    assert timer.elapsed_ms() == pytest.approx(span, abs=_WITHIN_MS)
    timer.close()


@needs_the_gpu_alone
def test_a_timer_that_ends_on_a_stream_that_did_not_wait_reads_a_negative_time() -> None:
    origin, branch = device().stream(), device().stream()
    spin = Spin(device(), origin, 100 * MILLISECOND)
    timer = gpuprof.Timer("cuda", stream=origin)
    spin.launch()
    timer.record_start()
    timer.record_end(branch)
    device().synchronize(branch)
    assert not timer.ready
    assert timer.elapsed_ms() < 0.0
    assert timer.ready
    timer.close()
