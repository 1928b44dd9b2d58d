"""A stream that waits for another Python thread freezes no program, however full its queue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_cuda
from tests.support.stuck_streams import (
    BESIDE,
    BESIDE_A_BUSY_THREAD,
    BESIDE_A_FULL_QUEUE,
    ENTRIES,
    OTHERS,
    USES,
    WAITS,
    busy_thread,
    check_stuck,
    service_threads,
)

TIMES = 300


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wait", [*WAITS, OTHERS])
def test_a_full_queue_lets_other_threads_run(fake_path: Path, use: str, wait: str) -> None:
    check_stuck(use, wait, fake_path, FAKECUDA_CONFIG=f"queue_entries={ENTRIES}")


@pytest.mark.parametrize("use", BESIDE_A_BUSY_THREAD)
@pytest.mark.parametrize("wait", [*WAITS, OTHERS])
def test_a_full_queue_lets_other_threads_run_beside_a_busy_one(
    fake_path: Path, use: str, wait: str
) -> None:
    check_stuck(use, wait, fake_path, busy=True, FAKECUDA_CONFIG=f"queue_entries={ENTRIES}")


@pytest.fixture
def busy(fake: FakeCuda, stream: int) -> Iterator[None]:
    """A busy thread, because of which calls on streams are made on gpuprof's own."""
    del fake
    with busy_thread():
        while not service_threads():
            with gpuprof.timer("first", stream=stream):
                pass
        yield


@pytest.mark.usefixtures("busy")
def test_beside_a_busy_thread_calls_read_what_they_read_alone(fake: FakeCuda, stream: int) -> None:
    scope = gpuprof.timer("step", stream=stream)
    timer = gpuprof.Timer(backend="cuda", stream=stream)
    scalar = gpuprof.DeviceScalar(0, stream=stream)
    times = []
    for value in range(TIMES):
        with scope:
            fake.work(stream, 500_000)
        timer.record_start()
        fake.work(stream, 250_000)
        timer.record_end()
        scalar.update(value)
        fake.complete(stream)
        times.append(timer.elapsed_ms())
    assert scalar.get() == TIMES - 1
    row = gpuprof.stats()["step"]
    assert row.gpu.count == TIMES
    assert row.gpu.mean_ms == pytest.approx(0.5, rel=0.01)
    assert times == pytest.approx([0.25] * TIMES, rel=0.01)
    timer.close()
    scalar.close()


@pytest.mark.usefixtures("busy")
def test_beside_a_busy_thread_a_captured_scope_is_part_of_its_capture(
    fake: FakeCuda, stream: int
) -> None:
    with (
        gpuprof.capture(stream) as cap,
        gpuprof.timer("inside", stream=stream, in_capture="record"),
    ):
        fake.work(stream, 500_000)
    for _ in range(3):
        cap.graph.launch(stream)
    fake.complete(stream)
    assert cap.graph.timings()["inside"].ms == pytest.approx(0.5, rel=0.01)
    cap.graph.close()


@pytest.mark.usefixtures("busy")
def test_beside_a_busy_thread_an_error_is_the_callers(fake: FakeCuda, stream: int) -> None:
    with gpuprof.capture(stream) as cap:
        fake.work(stream, 500)
    for _ in range(3):
        with fake.faults("cuGraphLaunch@1-9=999"), pytest.raises(gpuprof.errors.CudaError):
            cap.graph.launch(stream)
    cap.graph.close()
    with pytest.raises(gpuprof.errors.InvalidStateError):
        cap.graph.launch(stream)


@pytest.mark.usefixtures("busy")
def test_beside_a_busy_thread_threads_share_one_for_their_calls(
    fake: FakeCuda, stream: int
) -> None:
    def enter() -> None:
        for _ in range(TIMES):
            with gpuprof.timer("shared", stream=stream):
                fake.work(stream, 500)

    threads = [threading.Thread(target=enter) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    fake.complete(stream)
    assert gpuprof.stats()["shared"].gpu.count == 4 * TIMES
    assert len(service_threads()) == 1


DEFAULT_STREAM_OF_A_THREAD = """
from tests.fake_driver.control import PER_THREAD_STREAM
from tests.support.stuck_streams import busy_thread
fake.set_current(context)
scalar = gpuprof.DeviceScalar(0, stream=PER_THREAD_STREAM)
with gpuprof.capture(stream, keep_alive=[scalar]) as cap:
    fake.work(stream, 500)
timer = gpuprof.Timer(backend="cuda", stream=stream)
times = []
with busy_thread():
    for value in range(20):
        timer.record_start()
        fake.work(PER_THREAD_STREAM, 5_000_000)
        scalar.update(value)
        cap.graph.launch(stream)
        timer.record_end()
        fake.complete(stream)
        times.append(timer.elapsed_ms())
print(min(times) > 4.0)
"""


def test_beside_a_busy_thread_a_launch_waits_for_its_threads_default_stream(
    fake_path: Path,
) -> None:
    assert check_cuda(fake_path, DEFAULT_STREAM_OF_A_THREAD) == "True\n"


@pytest.mark.parametrize("use", BESIDE_A_FULL_QUEUE)
def test_beside_a_full_queue_nothing_stops_other_threads(fake_path: Path, use: str) -> None:
    check_stuck(use, BESIDE, fake_path, FAKECUDA_CONFIG=f"queue_entries={ENTRIES}")
