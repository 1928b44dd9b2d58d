"""P3: destructors and ``close()`` never raise and never abort."""

from __future__ import annotations

import gc
from pathlib import Path

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_cuda


def test_close_is_idempotent_and_silent_in_every_state(fake: FakeCuda, stream: int) -> None:
    fresh, started, stopped = (gpuprof.Timer("cuda", stream) for _ in range(3))
    started.record_start()
    stopped.record_start()
    stopped.record_end()
    for timer in (fresh, started, stopped):
        timer.close()
        timer.close()
        assert not timer.ready


def test_dropping_timers_and_open_scopes_gives_their_events_back(
    fake: FakeCuda, stream: int
) -> None:
    for _ in range(50):
        timer = gpuprof.Timer("cuda", stream)
        timer.record_start()
    del timer
    scope = gpuprof.timer(stream=stream)
    scope.__enter__()
    scope.__exit__(None, None, None)
    del scope
    gc.collect()
    fake.stream_synchronize(stream)


def test_destructors_are_silent_when_every_destroy_fails(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        timer = gpuprof.Timer("cuda", stream)
        timer.record_start()
        fake.script("cuEventDestroy@1*=999;cuDevicePrimaryCtxRelease@1*=999")
        timer.close()
        del timer
        _core._release_idle()
        """,
    )


def test_destructors_are_silent_after_the_driver_is_gone(fake_path: Path) -> None:
    check_cuda(
        fake_path,
        """
        timers = [gpuprof.Timer("cuda", stream) for _ in range(10)]
        for timer in timers:
            timer.record_start()
        buffer = _core.DeviceBuffer(1024)
        fake.deinit()
        del timers, timer, buffer
        """,
    )
