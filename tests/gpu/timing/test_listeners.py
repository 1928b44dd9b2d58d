"""Listeners to samples of real GPU work: heard while the program goes on, and by exporters."""

from __future__ import annotations

import threading
import time

import pytest

import gpuprof
from tests.gpu.support.kernels import MILLISECOND, Spin, device

pytestmark = pytest.mark.gpu

_PATIENCE_S = 20.0
_WITHIN_MS = 0.05


def test_gpu_samples_are_heard_while_nobody_reads() -> None:
    heard: list[gpuprof.Sample] = []
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND)
    until = time.monotonic() + _PATIENCE_S
    with gpuprof.on_sample(heard.extend, paths="step/gpu") as handle:
        while not heard and time.monotonic() < until:
            with gpuprof.timer("step"):
                with gpuprof.timer("gpu", stream=stream):
                    spin.launch()
            time.sleep(0.01)
        assert heard
        assert heard[0].ms == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)
        assert heard[0].clock == "cuda"
        assert heard[0].thread_id == threading.get_native_id()
        gpuprof.flush()
    assert handle.dropped == 0
    assert handle.error is None
    ends = [sample.host_end_ns for sample in heard]
    assert ends == sorted(ends)


def test_a_listener_never_makes_the_host_wait_for_the_gpu() -> None:
    heard: list[str] = []
    stream = device().stream()
    spin = Spin(device(), stream, 200 * MILLISECOND)
    with gpuprof.on_sample(lambda samples: heard.extend(each.path for each in samples)):
        with gpuprof.timer("long", stream=stream) as sample:
            spin.launch()
        for _ in range(600):  # two batches, and many looks at what the GPU has finished
            with gpuprof.timer("short", backend="cpu"):
                pass
        assert not sample.ready
        assert "short" in heard
        assert "long" not in heard
        gpuprof.flush()
    assert heard.count("long") == 1
