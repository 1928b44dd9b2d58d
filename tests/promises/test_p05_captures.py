"""P5: the thread's capture mode and everybody's captures are what they were, whatever fails.

tests/timing/test_capture.py has what scopes do inside captures.
"""

from __future__ import annotations

import pytest

import gpuprof
from tests.fake_driver.control import ACTIVE, GLOBAL, RELAXED, THREAD_LOCAL, FakeCuda


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_waiting_puts_the_threads_mode_back(fake: FakeCuda, stream: int, mode: int) -> None:
    fake.exchange_mode(mode)
    with gpuprof.timer("step", stream=stream) as sample:
        fake.work(stream, 100_000)
    assert sample.ms > 0
    assert fake.exchange_mode(GLOBAL) == mode


@pytest.mark.parametrize("when", ["", ":after"])
@pytest.mark.parametrize("call", [1, 2])
def test_the_mode_is_put_back_when_changing_it_fails(
    fake: FakeCuda, stream: int, call: int, when: str
) -> None:
    with gpuprof.timer("step", stream=stream) as sample:
        fake.work(stream, 100_000)
    with fake.faults(f"cuThreadExchangeStreamCaptureMode@{call}=999{when}"):
        assert sample.ms > 0
    assert fake.exchange_mode(GLOBAL) == GLOBAL


def test_verify_stream_inside_a_capture_leaves_it_alone(fake: FakeCuda, stream: int) -> None:
    fake.begin_capture(stream)
    with pytest.warns(RuntimeWarning, match="in_capture"):
        with gpuprof.timer("step", stream=stream, verify_stream=True):
            fake.work(stream, 1000)
    with gpuprof.timer(stream=stream, verify_stream=True, in_capture="record") as sample:
        fake.work(stream, 1000)
    assert fake.capture_status(stream) == ACTIVE
    fake.graph_destroy(fake.end_capture(stream))
    assert sample.state == "captured"
