"""Dumps and windows in Perfetto's engine: what is cut off at the front leaves nothing dangling."""

from __future__ import annotations

import time
from pathlib import Path

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.perfetto.check import check_closed
from tests.perfetto.engine import TraceProcessor

MS = 1_000_000


def step(fake: FakeCuda, stream: int, number: int) -> None:
    with gpuprof.timer("step", stream=stream):
        with gpuprof.annotate("load", payload=number), gpuprof.timer("forward", stream=stream):
            fake.work(stream, MS // 10)
        gpuprof.counter("memory").set(alloc=number, reserved=2 * number)
    if number % 10 == 0:
        gpuprof.flush()


def test_a_dump_of_a_ring_that_has_dropped_much_is_read_without_a_complaint(
    engine: TraceProcessor, fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    with gpuprof.flight_recorder(tmp_path / "last.json", keep_bytes=64 << 10) as recorder:
        for number in range(400):
            step(fake, stream, number)
        recorder.dump()
    found = check_closed(engine, tmp_path / "last.1.json")
    on_gpu = [each for each in found.named("step") if each.category == "gpu"]
    assert 5 < len(on_gpu) < 300
    assert len(found.named("forward")) > 10


def test_a_dump_of_the_last_moment_is_read_without_a_complaint(
    engine: TraceProcessor, fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    with gpuprof.flight_recorder(tmp_path / "last.json", keep_last="500ms") as recorder:
        for number in range(10):
            step(fake, stream, number)
        time.sleep(0.6)
        for number in range(10, 30):
            step(fake, stream, number)
        recorder.dump()
    found = check_closed(engine, tmp_path / "last.1.json")
    assert 0 < len([each for each in found.named("step") if each.category == "scope"]) <= 20


def test_a_window_between_others_is_read_without_a_complaint(
    engine: TraceProcessor, fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    with gpuprof.trace_windows(tmp_path / "run.json", schedule=(2, 1, 3, 2)) as windows:
        for number in range(12):
            step(fake, stream, number)
            windows.step()
    for number in (1, 2):
        found = check_closed(engine, tmp_path / f"run.{number}.json")
        assert len(found.named("load")) == 3
