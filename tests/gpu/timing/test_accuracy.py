"""Readings against the kernels' own clock, and against torch's events.

On an idle stream the launch gap is inside the interval; queued behind other work it is not.
"""

from __future__ import annotations

import statistics

import pytest

import gpuprof
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, EventPair, Spin, device

_REPETITIONS = {0.1: 31, 1.0: 21, 10.0: 9, 100.0: 5}


def _reading(sample: gpuprof.Sample) -> float:
    value: float = sample.ms
    assert sample.clock == "cuda"
    return value


@needs_the_gpu_alone
@pytest.mark.parametrize("nominal_ms", list(_REPETITIONS))
def test_queued_behind_other_work_a_scope_reads_the_kernels_own_time(nominal_ms: float) -> None:
    stream = device().stream()
    ahead = Spin(device(), stream, 2 * MILLISECOND)
    spin = Spin(device(), stream, int(nominal_ms * MILLISECOND))
    scope = gpuprof.timer(stream=stream)
    events = EventPair(device(), stream)
    errors_ms, errors_of_events_ms = [], []
    for _ in range(_REPETITIONS[nominal_ms]):
        ahead.launch()
        with scope as sample:
            spin.launch()
        errors_ms.append(_reading(sample) - spin.milliseconds())
        ahead.launch()
        events.begin()
        spin.launch()
        events.end()
        errors_of_events_ms.append(events.milliseconds() - spin.milliseconds())
    # What the driver's events add to a kernel, 1.6 to 5 us by the machine, is theirs.
    assert 0.0 <= statistics.median(errors_of_events_ms) <= 0.001 * nominal_ms + 0.008
    assert statistics.median(errors_ms) == pytest.approx(
        statistics.median(errors_of_events_ms), abs=0.0003 + 0.0001 * nominal_ms
    )


@needs_the_gpu_alone
@pytest.mark.parametrize("nominal_ms", list(_REPETITIONS))
def test_on_an_idle_stream_a_scope_reads_at_most_the_launch_gap_more(nominal_ms: float) -> None:
    stream = device().stream()
    spin = Spin(device(), stream, int(nominal_ms * MILLISECOND))
    wake = Spin(device(), stream, MILLISECOND // 20)
    scope = gpuprof.timer(stream=stream)
    errors_ms = []
    for _ in range(_REPETITIONS[nominal_ms]):
        wake.launch()  # after a long wait the host's core sleeps, and is slow to launch
        device().synchronize()
        with scope as sample:
            spin.launch()
        errors_ms.append(_reading(sample) - spin.milliseconds())
    assert abs(statistics.median(errors_ms)) <= 0.001 * nominal_ms + 0.012


@needs_the_gpu_alone
def test_a_scope_agrees_with_torch_events_nested_inside() -> None:
    torch = torch_or_skip()
    stream = torch.cuda.Stream()
    ahead = Spin(device(), stream.cuda_stream, 2 * MILLISECOND)
    spin = Spin(device(), stream.cuda_stream, MILLISECOND)
    begin = torch.cuda.Event(enable_timing=True)
    end = torch.cuda.Event(enable_timing=True)
    scope = gpuprof.timer(stream=stream)
    events = EventPair(device(), stream.cuda_stream)
    differences_us, of_events_us = [], []
    for _ in range(21):
        ahead.launch()
        with scope as sample:
            begin.record(stream)
            spin.launch()
            end.record(stream)
        differences_us.append((_reading(sample) - begin.elapsed_time(end)) * 1000.0)
        ahead.launch()
        events.begin()
        begin.record(stream)
        spin.launch()
        end.record(stream)
        events.end()
        of_events_us.append((events.milliseconds() - begin.elapsed_time(end)) * 1000.0)
    # Two of the driver's own events around torch's read as much more.
    assert 0.0 < statistics.median(of_events_us) <= 8.0
    assert statistics.median(differences_us) == pytest.approx(
        statistics.median(of_events_us), abs=0.3
    )


@needs_the_gpu_alone
def test_an_empty_scope_reads_a_few_microseconds_at_most() -> None:
    scope = gpuprof.timer(stream=device().stream())
    readings_ms = []
    for _ in range(21):
        with scope as sample:
            pass
        readings_ms.append(_reading(sample))
    assert 0.0 < statistics.median(readings_ms) < 0.012


@needs_the_gpu_alone
def test_calibrate_finds_the_tick_and_what_an_empty_interval_reads() -> None:
    found = gpuprof.calibrate()
    assert 0.0 < found.tick_ns <= 1100.0
    assert found.tick_ns <= found.idle_ns < 20_000.0
    # None where the device has no gate to queue behind.
    assert found.queued_ns is None or found.tick_ns <= found.queued_ns < 20_000.0
