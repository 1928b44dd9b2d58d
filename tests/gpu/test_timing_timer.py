"""Timer and the probes on a real stream."""

from __future__ import annotations

import pytest

import gpuprof

from .kernels import MILLISECOND, Spin, device

pytestmark = pytest.mark.gpu

_WITHIN_MS = 0.05


def test_a_timer_reads_zero_until_both_ends_are_recorded() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, 2 * MILLISECOND)
    timer = gpuprof.Timer("cuda", stream=stream)
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.record_start()
    spin.launch()
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.record_end()
    assert timer.elapsed_ms() == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)
    assert timer.ready
    timer.close()


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


def test_a_new_start_clears_the_old_end() -> None:
    stream = device().stream()
    timer = gpuprof.Timer("cuda", stream=stream)
    timer.record_start()
    timer.record_end()
    assert timer.elapsed_ms() > 0.0
    timer.record_start()
    assert (timer.elapsed_ms(), timer.ready) == (0.0, False)
    timer.close()


def test_a_timer_is_not_ready_while_the_work_runs() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, 200 * MILLISECOND)
    with gpuprof.Timer("cuda", stream=stream) as timer:
        spin.launch()
    assert not timer.ready
    assert timer.elapsed_ms() >= 199.9
    assert timer.ready


def test_a_probe_reads_microseconds() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND)
    probe = gpuprof.start_probe_timer_if(True, stream=stream)
    spin.launch()
    microseconds = gpuprof.finish_probe_timer(probe)
    assert microseconds == pytest.approx(spin.milliseconds() * 1000.0, abs=50.0)


def test_a_probe_that_is_off_is_none_to_the_end() -> None:
    probe = gpuprof.start_probe_timer_if(False, stream=device().stream())
    assert probe is None
    assert gpuprof.finish_probe_timer(probe) is None
