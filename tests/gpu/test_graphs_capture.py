"""Captures of streams by the driver alone: how they end, and what must not break them."""

from __future__ import annotations

import ctypes

import pytest

import gpuprof

from .kernels import MILLISECOND, Spin, device

pytestmark = pytest.mark.gpu

PER_THREAD_STREAM = 2


def test_a_capture_of_a_default_stream_ends_after_a_change_of_context() -> None:
    spin = Spin(device(), PER_THREAD_STREAM, 20 * MILLISECOND)
    spin.launch()
    device().synchronize(PER_THREAD_STREAM)
    other = ctypes.c_void_p()
    device().call("cuCtxCreate_v2", ctypes.byref(other), 0, device().ordinal)
    try:
        device().make_current()
        cap = gpuprof.GraphCaptureGuard(PER_THREAD_STREAM)
        spin.launch()
        device().call("cuCtxSetCurrent", other)
        graph = cap.finish()
        assert graph.num_nodes == 1
        graph.launch(PER_THREAD_STREAM)
        device().make_current()
        assert not gpuprof.is_stream_capturing(PER_THREAD_STREAM)
        assert spin.milliseconds() == pytest.approx(20, rel=0.1)
        graph.close()
    finally:
        device().make_current()
        device().call("cuCtxDestroy_v2", other)
