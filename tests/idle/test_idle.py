"""`gpuprof.idle`: the lines that run while the GPU has nothing to do, on the fake driver."""

from __future__ import annotations

import ctypes
import gc
import inspect
import json
import pickle
import statistics
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

import gpuprof
from tests.fake_cupti.control import FakeCupti
from tests.fake_driver.control import ACTIVE, FakeCuda
from tests.support.gpu_records import Recording
from tests.support.processes import native_threads
from tests.support.recorders import until
from tests.support.stuck_streams import busy_thread, service_threads
from tests.support.torch_blocks import Run

LONG = 10**12  # ns of the fake's clock, which goes on when it is told to


def line_of(function: Callable[..., object], text: str) -> int:
    """Return the number of the line of a function that holds the text."""
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def ms_at(found: gpuprof.Idle, line: int) -> float:
    return sum(row.idle_ms for row in found.rows if (row.file, row.line) == (__file__, line))


def busy_and_idle(fake: FakeCuda, stream: int, steps: int) -> float:
    """Have the GPU work and idle in turns; return for how long it was idle, in milliseconds."""
    planted = 0.0
    for _ in range(steps):
        with gpuprof.timer("step", stream=stream):
            fake.work(stream, LONG)
        time.sleep(0.001)  # the GPU works
        fake.complete(stream)
        begin = time.monotonic()
        time.sleep(0.005)  # it has nothing to do
        planted += (time.monotonic() - begin) * 1e3
    return planted


@pytest.fixture
def measured(fake: FakeCuda, stream: int) -> FakeCuda:
    """The driver, on a stream of which a scope has begun and ended."""
    with gpuprof.timer("step", stream=stream):
        pass
    return fake


def test_planted_sleeps_are_found_at_their_line(fake: FakeCuda, stream: int) -> None:
    at_sleep = line_of(busy_and_idle, "it has nothing to do")
    rounds: list[tuple[float, float]] = []
    while sum(planted < 1.04 * 300 * 5 for planted, _ in rounds) < 3 and len(rounds) < 9:
        with gpuprof.idle() as found:
            planted = busy_and_idle(fake, stream, steps=300)
        rounds.append((planted, ms_at(found, at_sleep) / planted))

    # Of the rounds in which sleeps ended least late: where no CPU is free, looks are late as well.
    assert statistics.median(ratio for _, ratio in sorted(rounds)[:3]) == pytest.approx(1, abs=0.1)
    assert ms_at(found, line_of(busy_and_idle, "the GPU works")) < 0.05 * planted
    row = found.rows[0]
    assert (row.line, row.function) == (at_sleep, "busy_and_idle")
    assert row.code.startswith("time.sleep(0.005)")
    assert row.place == f"{__file__}:{at_sleep}"
    assert found.share == pytest.approx(found.idle_ms / found.seconds / 1e3)
    assert "launched outside of scopes" in found.notes[0]


def test_the_table_and_the_plain_data_say_the_same(fake: FakeCuda, stream: int) -> None:
    with gpuprof.idle() as found:
        busy_and_idle(fake, stream, steps=20)

    row = found.rows[0]
    assert repr(found).startswith("GPU idle: ")
    assert f"idle/test_idle.py:{row.line}" in repr(found)
    plain = json.loads(found.to_json())
    assert plain["rows"][0]["line"] == row.line
    assert plain["idle_ms"] == pytest.approx(found.idle_ms)
    assert str(row.idle_ms) in (found.to_csv() or "")
    with pytest.raises(TypeError, match="to_dict"):
        pickle.dumps(found)
    assert pickle.loads(pickle.dumps(row)) == row


def test_while_the_gpu_works_nothing_is_idle(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("step", stream=stream):
        fake.work(stream, LONG)
    with gpuprof.idle() as found:
        time.sleep(0.1)

    assert found.rows == []
    assert found.seconds > 0.05
    assert found.not_known_ms == 0
    fake.complete(stream)


def test_an_open_scope_is_not_known(fake: FakeCuda, stream: int) -> None:
    with gpuprof.idle() as found, gpuprof.timer("step", stream=stream):
        time.sleep(0.2)

    assert found.idle_ms < 50
    assert found.not_known_ms > 100
    assert "collect kernels" in found.notes[1]


def test_the_pair_of_a_timer_is_no_open_scope(fake: FakeCuda, stream: int) -> None:
    timer = gpuprof.Timer(stream=stream)
    with timer, gpuprof.timer("step", stream=stream):
        pass
    with gpuprof.idle() as found:
        until(lambda: found._looks.found()[0])
    assert found.not_known_ms == 0
    timer.close()


def test_library_code_is_below_the_programs_line(measured: FakeCuda) -> None:
    with gpuprof.idle() as found:
        threading.Event().wait(0.2)

    row = next(row for row in found.rows if row.inner)
    assert row.file == __file__
    assert "threading.Event" in row.code
    assert row.inner.split("/")[-1].startswith("threading.py:")
    assert row.inner.endswith(" wait")


@pytest.mark.parametrize(
    ("file", "is_typed"),
    [
        ("<generated>", False),
        ("<stdin>", True),
        ("<python-input-3>", True),  # from Python 3.13 on
        ("<ipython-input-3-0a1b2c>", True),
        ("<timed exec>", True),  # what is below %%time
        ("<gputime>", True),
    ],
)
def test_generated_code_is_below_the_line_that_calls_it_unless_it_was_typed(
    measured: FakeCuda, file: str, is_typed: bool
) -> None:
    made: dict[str, Any] = {}
    exec(compile("def wait(event): event.wait(0.2)", file, "exec"), made)
    with gpuprof.idle() as found:
        made["wait"](threading.Event())

    assert {row.file for row in found.rows} - {__file__} == ({file} if is_typed else set())


def test_the_line_is_of_the_thread_that_launches(fake: FakeCuda, stream: int) -> None:
    done = threading.Event()

    def launch() -> None:
        fake.use_primary()
        with gpuprof.timer("step", stream=stream):
            pass
        while not done.is_set():
            time.sleep(0.001)  # the thread that launches

    with gpuprof.idle() as found:
        thread = threading.Thread(target=launch)
        thread.start()
        time.sleep(0.3)  # the main thread
        done.set()
        thread.join()

    at = line_of(test_the_line_is_of_the_thread_that_launches, "# the thread that launches")
    assert ms_at(found, at) > 0.8 * found.idle_ms
    fake.primary_release()


def test_calls_that_another_thread_makes_are_of_the_thread_that_asks(
    fake: FakeCuda, stream: int
) -> None:
    """Beside a busy thread, calls are made on one of gpuprof's own, which Python does not know."""
    scope = gpuprof.timer("step", stream=stream)
    with busy_thread():
        for _ in range(8):  # until it is seen that the lock comes back late
            with scope:
                pass
        with gpuprof.idle() as found:
            for _ in range(20):
                with scope:
                    pass
                time.sleep(0.01)  # it has nothing to do
    assert service_threads()
    at = line_of(test_calls_that_another_thread_makes_are_of_the_thread_that_asks, "nothing to do")
    assert ms_at(found, at) > 0.5 * found.idle_ms > 0


def test_threads_without_frames_are_counted_together(fake: FakeCuda, stream: int) -> None:
    def launch() -> None:
        fake.use_primary()
        with gpuprof.timer("step", stream=stream):
            pass

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    with gpuprof.idle() as found:
        until(lambda: found._looks.found()[0])
    assert [row.place for row in found.rows] == ["(no Python frame)"]
    fake.primary_release()


def test_without_scopes_nothing_is_known(fake: FakeCuda) -> None:
    with gpuprof.idle() as found, gpuprof.timer("host", backend="cpu"):
        time.sleep(0.05)
    assert found.rows == []
    assert found.seconds == 0
    assert repr(found) == "no scope ran on a GPU in that time, so nothing is known of it"


def test_a_capture_is_left_alone(fake: FakeCuda, stream: int) -> None:
    with gpuprof.timer("before", stream=stream):
        fake.work(stream, LONG)
    of_streams = fake.calls("cuStreamQuery")
    with gpuprof.idle() as found:
        fake.begin_capture(stream, 0)
        queries = fake.calls("cuEventQuery")
        until(lambda: fake.calls("cuEventQuery") > queries + 5)
        assert fake.capture_status(stream) == ACTIVE
        fake.graph_destroy(fake.end_capture(stream))
        fake.complete(stream)
    assert fake.calls("cuStreamQuery") == of_streams
    assert found.seconds > 0


def test_one_thread_looks_while_it_is_open(fake: FakeCuda) -> None:
    before = native_threads()
    with gpuprof.idle():
        assert native_threads(before + 1) == before + 1
    assert native_threads(before) == before


def test_two_may_be_open(fake: FakeCuda, stream: int) -> None:
    with gpuprof.idle() as outer:
        with gpuprof.idle() as inner:
            busy_and_idle(fake, stream, steps=20)
        time.sleep(0.1)
    assert 0 < inner.idle_ms < outer.idle_ms


def test_it_is_entered_once_and_read_afterwards(fake: FakeCuda) -> None:
    found = gpuprof.idle()
    with pytest.raises(gpuprof.InvalidStateError, match="not entered"):
        print(found.rows)
    with found:
        assert repr(found) == "<gpuprof.Idle, open>"
        assert found._repr_html_() == "&lt;gpuprof.Idle, open&gt;"
    with pytest.raises(gpuprof.InvalidStateError, match="is ended"):
        found.__enter__()


def test_an_exception_ends_it(fake: FakeCuda) -> None:
    with pytest.raises(KeyError), gpuprof.idle() as found:
        raise KeyError("own")
    assert found.rows == []


@pytest.mark.parametrize("kernels_first", [False, True])
def test_records_of_kernels_correct_it(
    fake: FakeCuda, cupti: FakeCupti, kernels_first: bool
) -> None:
    """No scope is there, and what ran is known from records alone."""
    with ExitStack() as stack:
        if kernels_first:
            kernels = stack.enter_context(gpuprof.kernels())
        found = stack.enter_context(gpuprof.idle())
        if not kernels_first:
            kernels = stack.enter_context(gpuprof.kernels())
        time.sleep(0.1)  # before the first work: not counted
        first = begin = cupti.now()
        for _ in range(10):
            time.sleep(0.02)  # the GPU works
            cupti.kernel("gemm", begin, cupti.now())
            time.sleep(0.02)  # it is idle
            begin = cupti.now()
        cupti.kernel("gemm", begin, begin + 1000)
        last = cupti.now()

    assert kernels.source
    busy = sum(each.end_ns - each.begin_ns for each in kernels.records)
    idle_ms = (last - first - busy) * 1e-6
    assert found.idle_ms == pytest.approx(idle_ms, abs=60)  # what came after the last kernel
    at = line_of(test_records_of_kernels_correct_it, "# it is idle")
    assert ms_at(found, at) > 0.6 * found.idle_ms
    worked = line_of(test_records_of_kernels_correct_it, "# the GPU works")
    assert ms_at(found, worked) < 0.2 * found.idle_ms
    before = line_of(test_records_of_kernels_correct_it, "before the first work")
    assert ms_at(found, before) == 0
    assert all(row.idle_ms > 0 for row in found.rows)
    assert found.notes == []


def test_once_the_collection_has_ended_early_events_tell_again(
    fake: FakeCuda, stream: int, cupti: FakeCupti
) -> None:
    with gpuprof.idle() as found:
        with gpuprof.kernels() as kernels:
            begin = cupti.now()
            time.sleep(0.05)
            cupti.kernel("gemm", begin, cupti.now())
            assert kernels._collector is not None
            kernels._collector._end_early()  # as a torch profiler does
            with gpuprof.timer("step", stream=stream):
                fake.work(stream, LONG)
            time.sleep(0.3)  # the GPU works
            fake.complete(stream)
    assert found.idle_ms < 100


@pytest.mark.parametrize("lost", ["displaced", "cupti_dropped"])
def test_after_records_were_lost_nothing_more_is_taken_from_them(
    fake: FakeCuda, monkeypatch: pytest.MonkeyPatch, lost: str
) -> None:
    gpu = Recording().install(monkeypatch)
    gpu.extra = {lost: 1}
    with gpuprof.idle() as found, gpuprof.kernels():
        gpu.run("gemm")
        time.sleep(0.2)
    assert found.idle_ms == 0


def test_idle_time_before_the_first_record_is_kept_where_events_know_it(
    measured: FakeCuda, cupti: FakeCupti
) -> None:
    with gpuprof.idle() as found, gpuprof.kernels():
        until(lambda: found._looks._waiting)
        time.sleep(0.2)  # before the first record
        cupti.kernel("gemm", cupti.now(), cupti.now() + 1000)
    at = line_of(
        test_idle_time_before_the_first_record_is_kept_where_events_know_it, "# before the first"
    )
    assert 100 < ms_at(found, at) <= found.seconds * 1e3
    assert found.share <= 1


def test_past_the_limit_of_places_no_time_counts_twice(
    measured: FakeCuda, cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._idle.looks.MAX_WAITING", 3)
    with gpuprof.idle() as found, gpuprof.kernels():
        cupti.kernel("gemm", cupti.now(), cupti.now() + 1000)
        until(lambda: found._looks.full_since_ns)
        time.sleep(0.2)
    assert 0.8 < found.share <= 1


def test_the_wait_for_the_interpreters_lock_is_time_of_its_line(
    fake: FakeCuda, stream: int
) -> None:
    """The GPU works outside of calls that keep the lock, so no look but a late one is there."""
    planted = 0.0
    with gpuprof.idle() as found:
        for _ in range(10):
            with gpuprof.timer("step", stream=stream):
                fake.work(stream, LONG)
            time.sleep(0.02)  # the GPU works
            fake.complete(stream)
            begin = time.monotonic()
            ctypes.PyDLL(None).usleep(100_000)  # keeps the lock
            planted += (time.monotonic() - begin) * 1e3
    test = test_the_wait_for_the_interpreters_lock_is_time_of_its_line
    assert ms_at(found, line_of(test, "# keeps the lock")) > 0.7 * planted
    assert ms_at(found, line_of(test, "# the GPU works")) < 0.2 * planted
    assert found.share <= 1


def test_no_share_is_past_the_whole(measured: FakeCuda) -> None:
    for _ in range(10):
        with gpuprof.idle() as found:
            until(lambda: found._looks.found()[0])
        assert 0 < found.share <= 1


def test_the_garbage_collector_stays_as_the_program_has_it(
    measured: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: set[bool] = set()
    monkeypatch.setattr("gpuprof._idle.api.places_of", lambda _: seen.add(gc.isenabled()) or [])
    with gpuprof.idle():
        until(lambda: seen)
    assert seen == {True}


def test_a_sticky_error_ends_the_calls_of_the_driver(in_cuda: Run) -> None:
    out = in_cuda("""
        with scope: fake.trap(stream)
        with gpuprof.idle() as found:
            while not fake.calls("cuEventQuery"): time.sleep(0.001)
            time.sleep(0.05)
        print(fake.calls("cuEventQuery"), found.idle_ms)
        """)
    assert out.split() == ["1", "0"]


def test_an_interrupt_of_its_end_loses_nothing(fake: FakeCuda, stream: int) -> None:
    class Interrupted:
        def __init__(self, looks: object) -> None:
            self._looks = looks

        def __getattr__(self, name: str) -> object:
            return getattr(self._looks, name)

        def stop(self) -> None:
            self._looks.stop()  # type: ignore[attr-defined]
            raise KeyboardInterrupt

    found = gpuprof.idle()
    with gpuprof.timer("step", stream=stream):
        pass
    with pytest.raises(KeyboardInterrupt), found:
        until(lambda: found._looks.found()[0])
        found._watching = Interrupted(found._watching)
    assert 0 < found.share <= 1
    assert found.seconds > 0


def test_it_is_kept_by_nothing_once_all_have_ended(fake: FakeCuda, cupti: FakeCupti) -> None:
    with gpuprof.idle() as first:
        pass
    with gpuprof.kernels(), gpuprof.idle() as second:
        pass
    left = [weakref.ref(first), weakref.ref(second)]
    del first, second
    gc.collect()
    assert [each() for each in left] == [None, None]


def test_a_look_that_fails_is_told_and_ends_nothing(
    measured: FakeCuda, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", told.append)

    def fail(*_: object) -> None:
        message = "planted"
        raise ValueError(message)

    monkeypatch.setattr("gpuprof._idle.api.places_of", fail)
    with gpuprof.idle() as found:
        until(lambda: len(told) > 2)
    assert found.rows == []
