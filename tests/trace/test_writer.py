"""Traces: what is in the file, whatever the program does while it is written."""

from __future__ import annotations

import math
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.support.growth import resident_kib
from tests.support.processes import native_threads
from tests.support.threads import beside, in_threads
from tests.support.trace_events import (
    assert_tracks_nest,
    cpu_scope,
    events,
    load,
    measured,
    metadata,
    names,
)

# What is in it


def test_scopes_nest_as_they_did(path: Path) -> None:
    with gpuprof.trace(path):
        with cpu_scope("step"):
            measured("fwd")
            measured("bwd")
    fwd, bwd, step = events(path)
    assert [e["name"] for e in (fwd, bwd, step)] == ["fwd", "bwd", "step"]
    assert step["ts"] <= fwd["ts"]
    assert fwd["ts"] + fwd["dur"] <= bwd["ts"]
    assert bwd["ts"] + bwd["dur"] <= step["ts"] + step["dur"] + 1e-3
    assert {e["tid"] for e in (fwd, bwd, step)} == {threading.get_native_id()}


def test_the_durations_are_those_of_the_statistics(path: Path) -> None:
    gpuprof.reset()
    with gpuprof.trace(path):
        for _ in range(20):
            measured("step")
    total_us = sum(event["dur"] for event in events(path))
    assert total_us == pytest.approx(gpuprof.stats()["step"].host.total_ms * 1e3, abs=1e-6)


def test_a_thread_is_called_what_python_calls_it(path: Path) -> None:
    with gpuprof.trace(path):
        thread = threading.Thread(target=lambda: measured("inside"), name='loader "7"')
        thread.start()
        thread.join()
    (slice_,) = events(path)
    called = {m["args"]["name"] for m in metadata(path, "thread_name") if m["tid"] == slice_["tid"]}
    assert called == {'loader "7"'}


def test_what_a_writer_is_given_is_there(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        now = time.monotonic_ns()
        writer.span("load", 5, begin_ns=now - 5_000_123, cat="io", tid=7, args={"rows": 3})
        writer.instant("oom", args={"free": None})
        writer.counter("memory", {"alloc": 1.5, "reserved": 2})
        writer.flow("start", 9, "handover", tid=7, at_ns=now - 4_000_000)
        writer.flow("end", 9, "handover", at_ns=now)
    (slice_,) = events(path)
    assert (slice_["name"], slice_["cat"], slice_["tid"]) == ("load", "io", 7)
    assert slice_["args"] == {"rows": 3}
    assert slice_["dur"] == 5000.0
    base = load(path)["baseTimeNanoseconds"]
    unix_ns = base + slice_["ts"] * 1000
    assert unix_ns == pytest.approx(
        time.time_ns() - (time.monotonic_ns() - now) - 5_000_123, abs=5e6
    )
    assert events(path, "i")[0]["args"] == {"free": None}
    assert events(path, "C")[0]["args"] == {"alloc": 1.5, "reserved": 2}
    start, end = events(path, "s") + events(path, "f")
    assert (start["id"], end["id"], end["bp"]) == (9, 9, "e")
    assert end["ts"] - start["ts"] == pytest.approx(4000)


def test_a_pushed_slice_ends_now(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        writer.span("decode", 2.5, cat="engine")
        writer.instant("after")
    (slice_,), (after,) = events(path), events(path, "i")
    assert slice_["dur"] == 2500.0
    assert 0 <= after["ts"] - (slice_["ts"] + 2500.0) < 1e6


def test_a_plain_writer_takes_only_what_it_is_given(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        measured("not for it")
        writer.span("mine", 0.1, cat="test")
    assert names(path) == ["mine"]


def test_a_counter_is_in_every_open_trace(tmp_path: Path) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    depth = gpuprof.counter("queue")
    depth.set(1)  # no trace: nothing
    with gpuprof.trace(paths[0]), gpuprof.trace(paths[1]):
        depth.set(5)
        depth.set(alloc=1, reserved=2)
        depth.set(math.nan)
    for path in paths:
        assert [e["args"] for e in events(path, "C")] == [
            {"value": 5},
            {"alloc": 1, "reserved": 2},
        ]


def test_traces_that_overlap_each_get_what_ends_while_they_are_open(tmp_path: Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    outer = gpuprof.trace(first).start()
    measured("a")
    inner = gpuprof.trace(second).start()
    measured("b")
    outer.close()
    measured("c")
    inner.close()
    assert (names(first), names(second)) == (["a", "b"], ["b", "c"])


def test_a_scope_that_was_open_already_is_whole(path: Path) -> None:
    with cpu_scope("outer"):
        time.sleep(0.01)
        with gpuprof.trace(path) as writer:
            pass
        assert writer.stats()["events"] == 0
        writer = gpuprof.trace(path).start()
    writer.close()
    (slice_,) = events(path)
    assert slice_["name"] == "outer"
    assert slice_["dur"] >= 10_000


def test_a_body_that_raised_is_told(path: Path) -> None:
    with gpuprof.trace(path), pytest.raises(KeyError), cpu_scope("step"):
        raise KeyError
    assert events(path)[0]["args"] == {"raised": True}


def test_a_probe_lands_in_the_trace(path: Path) -> None:
    probe = gpuprof.start_probe_timer_if(True, backend="cpu")
    assert gpuprof.finish_probe_timer_traced(probe, "none", "engine", 3) is not None
    with gpuprof.trace(path):
        probe = gpuprof.start_probe_timer_if(True, backend="cpu")
        microseconds = gpuprof.finish_probe_timer_traced(probe, "decode", "engine", 3)
        assert gpuprof.finish_probe_timer_traced(None, "off", "engine", 3) is None
    (slice_,) = events(path)
    assert (slice_["name"], slice_["cat"], slice_["tid"]) == ("decode", "engine", 3)
    assert slice_["dur"] == pytest.approx(microseconds, abs=1e-3)


# Slices of one track nest


def test_scopes_that_generators_interleave_are_slices_of_their_own(path: Path) -> None:
    def job(name: str) -> Any:
        with cpu_scope(name):
            yield

    with gpuprof.trace(path):
        first, second = job("first"), job("second")
        next(first)
        next(second)
        first.close()
        second.close()
    assert_tracks_nest(events(path))
    begins, ends = events(path, "b"), events(path, "e")
    assert names(path) == ["first"]
    assert [e["name"] for e in begins] == ["second"]
    assert [e["id2"] for e in begins] == [e["id2"] for e in ends]


def test_an_epoch_of_many_steps_stays_on_its_track(path: Path) -> None:
    with gpuprof.trace(path):
        for _ in range(3):
            with cpu_scope("epoch"):
                for _ in range(6000):
                    measured("step")
    assert names(path).count("step") == 18_000
    assert names(path).count("epoch") == 3
    assert events(path, "b") == []
    assert_tracks_nest(events(path))


def test_a_user_s_slices_that_cross_do_not_share_a_track(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        now = time.monotonic_ns()
        writer.span("one", 0.001, begin_ns=now, tid=5)
        writer.span("two", 0.001, begin_ns=now + 500, tid=5)
    assert names(path) == ["one"]
    assert names(path, "b") == ["two"]


# Wrong calls


def test_wrong_arguments_are_told_at_the_call(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        for call, error in (
            (lambda: writer.span(3, 1, cat="c"), TypeError),
            (lambda: writer.span("", 1, cat="c"), ValueError),
            (lambda: writer.span("n", math.nan, cat="c"), ValueError),
            (lambda: writer.span("n", -1, cat="c"), ValueError),
            (lambda: writer.span("n", "1", cat="c"), TypeError),
            (lambda: writer.span("n", 1, cat="c", tid=2**40), ValueError),
            (lambda: writer.span("n", 1, cat="c", tid=True), TypeError),
            (lambda: writer.span("n", 1, begin_ns=1.5), TypeError),
            (lambda: writer.span("n", 1, begin_ns=-1), ValueError),
            (lambda: writer.instant("n", args=[1]), TypeError),
            (lambda: writer.counter("n", {}), ValueError),
            (lambda: writer.counter("n", {"a": "b"}), TypeError),
            (lambda: writer.flow("begin", 1), ValueError),
            (lambda: writer.flow("start", -1), ValueError),
        ):
            with pytest.raises(error):
                call()
    assert writer.stats()["events"] == 0
    for wrong, error in (
        (3, TypeError),
        (b"x.json", TypeError),
        ("", ValueError),
        ("a\0b", ValueError),
        ("%z.json", ValueError),
        ("100%", ValueError),
    ):
        with pytest.raises(error, match="path"):
            gpuprof.trace(wrong)  # type: ignore[arg-type]


# Threads, and much of everything


def test_nothing_is_lost_from_a_tight_loop(path: Path) -> None:
    hot = cpu_scope("hot")
    with gpuprof.trace(path) as writer:
        for _ in range(200_000):
            with hot:
                pass
    assert (writer.stats()["events"], writer.stats()["dropped"]) == (200_000, 0)
    assert path.read_bytes().count(b'"ph":"X"') == 200_000


def test_many_threads_at_once_lose_nothing(path: Path) -> None:
    def work(name: str) -> None:
        scope = cpu_scope(name)
        for _ in range(2000):
            with scope:
                pass

    with gpuprof.trace(path):
        in_threads(*[lambda i=i: work(f"t{i}") for i in range(8)])
    assert sorted(set(names(path))) == [f"t{i}" for i in range(8)]
    assert len(names(path)) == 16_000
    assert_tracks_nest(events(path))


def test_traces_open_and_close_while_others_record(tmp_path: Path) -> None:
    with beside(lambda: measured("busy")):
        for number in range(30):
            with gpuprof.trace(tmp_path / f"{number}.json"):
                measured("mine")
    for number in range(30):
        assert names(tmp_path / f"{number}.json").count("mine") == 1


def test_no_thread_is_left_when_the_last_trace_is_closed(tmp_path: Path) -> None:
    before = native_threads()
    with gpuprof.trace(tmp_path / "a.json"):
        with gpuprof.trace(tmp_path / "b.json"):
            assert native_threads() == before + 1
        assert native_threads() == before + 1
    assert native_threads(awaited=before) == before


def test_disabled_scopes_write_nothing(path: Path) -> None:
    gpuprof.disable()
    try:
        with gpuprof.trace(path), cpu_scope("off"):
            pass
    finally:
        gpuprof.enable()
    assert events(path) == []


def test_no_warning_is_given_in_ordinary_use(path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with gpuprof.trace(path), cpu_scope("step"):
            pass
    with gpuprof.trace(path.with_name("other.json")) as writer:
        assert repr(writer) == f"<gpuprof.TraceWriter {writer.path!r}, 0 events>"


# What reviews have found


def test_a_writer_that_could_not_open_its_file_writes_nowhere(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="cannot write the trace"):
        broken = gpuprof.TraceWriter(tmp_path / "gone" / "x.json").start()
    with gpuprof.trace(tmp_path / "run.json"):
        broken.span("mine", 1.0, cat="test")
        broken.instant("mine")
        broken.counter("mine", 1)
        broken.flow("start", 1)
        broken.flush()
    broken.close()
    assert [e["ph"] for e in load(tmp_path / "run.json")["traceEvents"] if e["ph"] != "M"] == []


def test_closing_from_two_threads_is_closing_once(tmp_path: Path) -> None:
    for number in range(50):
        path = tmp_path / f"{number}.json"
        writer = gpuprof.TraceWriter(path)
        writer.span("kept", 0.1, cat="test")
        in_threads(*[writer.close] * 3)
        assert names(path) == ["kept"]


def test_long_names_are_not_kept(tmp_path: Path) -> None:
    with gpuprof.TraceWriter(tmp_path / "run.json") as writer:

        def write_names() -> None:
            for number in range(300):
                writer.instant(f"{number} " + "x" * 1_000_000)
            writer.flush()

        write_names()  # a checking allocator holds the first 256 MiB back
        before = resident_kib()
        write_names()
        assert resident_kib() - before < 50 << 10


def test_what_is_kept_of_the_run_is_in_the_file(path: Path) -> None:
    with gpuprof.TraceWriter(path, args={"rank": "mine", "batch": 8}):
        pass
    last = metadata(path, "gpuprof")[-1]["args"]
    assert last["args"] == {"rank": "mine", "batch": 8}
    assert last["rank"] == 0


def test_large_counters_are_numbers(path: Path) -> None:
    with gpuprof.TraceWriter(path) as writer:
        writer.counter("bytes", 2**60)
        writer.counter("bytes", 10**400)
    assert [e["args"] for e in events(path, "C")] == [{"value": 2.0**60}]
