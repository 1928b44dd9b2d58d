"""What becomes of scopes and samples that are dropped, damaged, replaced or left in odd places."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda

MS = 1_000_000


def test_a_scope_dropped_while_open_leaves_the_path(fake: FakeCuda) -> None:
    scope: Any = gpuprof.timer("dropped", stream=0, backend="cuda")
    scope.__enter__()
    del scope
    with gpuprof.timer("after", backend="cpu") as sample:
        pass
    assert sample.path == "after"


def test_reading_a_scope_keeps_the_sample_that_it_waits_for(fake: FakeCuda, stream: int) -> None:
    fake.configure("mode=manual")
    scope = gpuprof.timer("step", stream=stream)
    with scope:
        fake.work(stream, 5 * MS)
    values: list[float] = []
    reader = threading.Thread(target=lambda: values.append(scope.ms))
    reader.start()
    for _ in range(50):  # replaces the scope's last sample while the reader waits
        with scope:
            fake.work(stream, 1 * MS)
    fake.complete(stream)
    reader.join()
    assert values[0] == pytest.approx(5, abs=0.01) or values[0] == pytest.approx(1, abs=0.01)


def test_a_default_stream_scope_survives_a_change_of_context_in_its_body(fake: FakeCuda) -> None:
    mine = fake.current_context()
    other = fake.context_create()
    fake.set_current(mine)
    with gpuprof.timer("step", backend="cuda") as sample:
        fake.work(0, 3 * MS)
        fake.set_current(other)
    assert fake.current_context() == other
    fake.set_current(mine)
    assert sample.ms == pytest.approx(3, abs=0.01)
    fake.set_current(other)  # the current context is popped when it is destroyed
    fake.context_destroy(other)
    fake.set_current(mine)


@pytest.mark.parametrize("status", [-1, 0, 1, 6, 9])
def test_a_damaged_pickle_of_a_sample_is_refused(status: int) -> None:
    with gpuprof.timer("path", backend="cpu") as sample:
        pass
    restore, (names, clock, _, *others) = sample.__reduce__()
    with pytest.raises(ValueError, match="not a pickled Sample"):
        restore(names, clock, status, *others)


def test_a_sample_that_fails_has_no_negative_host_time(fake: FakeCuda) -> None:
    scope = gpuprof.timer("step", stream=0, backend="cuda", verify_stream=True)
    with fake.faults("cuStreamIsCapturing@3-9=999"), pytest.raises(gpuprof.errors.CudaError):
        with scope as sample:
            pass
    assert sample.failed
    assert sample.host_ms >= 0.0


def test_an_open_scope_keeps_the_stream_that_was_current(cupy: Any) -> None:
    scope: Any = gpuprof.timer("step")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        sample = scope.__enter__()
        cupy.launch("work", 5 * MS)
    gone = weakref.ref(stream)
    del stream
    assert gone() is not None
    scope.__exit__(None, None, None)
    assert gone() is None
    assert sample.ms >= 5


def test_scopes_that_are_left_in_any_order_let_their_streams_go(cupy: Any) -> None:
    scope: Any = gpuprof.timer("step", backend="cuda")
    gone = []

    def step(scope: Any) -> Any:
        with cupy.cuda.Stream(non_blocking=True) as stream:
            gone.append(weakref.ref(stream))
            scope.__enter__()
        del stream
        yield
        scope.__exit__(None, None, None)

    steps = [step(scope) for _ in range(3)]
    for each in steps:
        next(each)
    assert None not in [each() for each in gone]
    next(steps[1], None)
    assert [each() is None for each in gone] == [False, True, False]
    next(steps[0], None)
    assert [each() is None for each in gone] == [True, True, False]
    del scope, steps, each
    assert [each() for each in gone] == [None] * 3


def test_a_timer_keeps_the_stream_that_was_current(cupy: Any) -> None:
    timer = gpuprof.Timer("cuda")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        timer.record_start()
        cupy.launch("work", 5 * MS)
    gone = weakref.ref(stream)
    del stream
    timer.record_end()
    assert timer.elapsed_ms() >= 5
    timer.close()
    assert gone() is None
