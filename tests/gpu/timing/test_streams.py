"""Which stream a scope measures, and which one it picks by itself."""

from __future__ import annotations

import weakref

import pytest

import gpuprof
from tests.gpu.support.frameworks import cupy_or_skip, torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device
from tests.gpu.support.scripts import check_script

_WITHIN_MS = 0.05  # launches of several streams from Python lie this close


def test_scopes_on_two_streams_measure_each_their_own() -> None:
    one, other = device().stream(), device().stream()
    long_spin = Spin(device(), one, 4 * MILLISECOND)
    short_spin = Spin(device(), other, MILLISECOND)
    with gpuprof.timer("long", stream=one) as on_one:
        long_spin.launch()
        with gpuprof.timer("short", stream=other) as on_other:
            short_spin.launch()
    assert on_one.ms == pytest.approx(long_spin.milliseconds(), abs=_WITHIN_MS)
    assert on_other.ms == pytest.approx(short_spin.milliseconds(), abs=_WITHIN_MS)


def test_the_default_streams_of_two_threads_are_read_each_by_itself() -> None:
    # In a process of its own: the hardware puts many streams in one queue, where they wait for
    # each other.
    check_script("""
        import threading

        per_thread = 2
        long_spin = Spin(device(), per_thread, 500 * MILLISECOND)
        short_spin = Spin(device(), per_thread, MILLISECOND)
        with gpuprof.timer("held", stream=per_thread) as held:
            long_spin.launch()
        readings = []

        def on_another_thread():
            device().make_current()
            with gpuprof.timer("free", stream=per_thread) as free:
                short_spin.launch()
            readings.append((free.ms, held.ready))

        thread = threading.Thread(target=on_another_thread)
        thread.start()
        thread.join()
        [(milliseconds, held_was_ready)] = readings
        assert milliseconds >= 0.99, milliseconds
        assert not held_was_ready, milliseconds
        assert held.ms >= 499.0, held.ms
        """)


def test_no_stream_means_the_current_stream_of_torch() -> None:
    torch = torch_or_skip()
    side = torch.cuda.Stream()
    spin = Spin(device(), side.cuda_stream, 2 * MILLISECOND)
    scope = gpuprof.timer()
    with torch.cuda.stream(side), scope as inside:
        spin.launch()
    assert inside.ms == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)
    with scope as outside:
        spin.launch()
    assert outside.ms < 0.05
    device().synchronize()


def test_the_exit_records_on_the_stream_that_the_enter_picked() -> None:
    torch = torch_or_skip()
    side = torch.cuda.Stream()
    spin = Spin(device(), side.cuda_stream, 2 * MILLISECOND)
    scope = gpuprof.timer()
    with torch.cuda.stream(side):
        sample = scope.__enter__()
        spin.launch()
    scope.__exit__(None, None, None)
    assert sample.ms == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)


def test_no_stream_means_the_current_stream_of_cupy() -> None:
    cupy = cupy_or_skip()
    scope = gpuprof.timer()
    with cupy.cuda.Stream(non_blocking=True) as side:
        spin = Spin(device(), side.ptr, 2 * MILLISECOND)
        with scope as sample:
            spin.launch()
        side.synchronize()
    assert sample.ms == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)


def test_stream_objects_of_torch_and_cupy_name_their_stream() -> None:
    torch = torch_or_skip()
    cupy = cupy_or_skip()
    of_torch = torch.cuda.Stream()
    of_cupy = cupy.cuda.Stream(non_blocking=True)
    for stream, handle in ((of_torch, of_torch.cuda_stream), (of_cupy, of_cupy.ptr)):
        spin = Spin(device(), handle, 2 * MILLISECOND)
        with gpuprof.timer(stream=stream) as sample:
            spin.launch()
        assert sample.ms == pytest.approx(spin.milliseconds(), abs=_WITHIN_MS)


def test_a_stream_of_cupys_lives_as_long_as_it_is_used() -> None:
    cupy = cupy_or_skip()
    scope = gpuprof.timer("step", backend="cuda")
    timer = gpuprof.Timer("cuda")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        sample = scope.__enter__()
        timer.record_start()
        scalar = gpuprof.DeviceScalar(1.5)
    gone = weakref.ref(stream)
    del stream
    timer.record_end()
    scope.__exit__(None, None, None)
    assert gone() is not None
    assert sample.ms >= 0
    assert timer.elapsed_ms() >= 0
    assert scalar.get() == 1.5
    timer.close()
    scalar.close()
