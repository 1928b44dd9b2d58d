"""Flight recorders: what a dump holds, what asks for one, and what one that fails does."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.growth import resident_kib
from tests.support.processes import check_python
from tests.support.recorders import first, told, until
from tests.support.trace_events import cpu_scope, events, files, load, measured, metadata, names

MS = 1_000_000


# What is written, and when


def test_a_recorder_that_nobody_asks_leaves_no_file(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
        measured("a")
        recorder.flush()
        assert recorder.stats()["held"] == 1
        assert files(path.parent) == set()
    assert files(path.parent) == set()
    assert recorder.closed


def test_a_call_writes_what_is_held_and_goes_on(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last=30) as recorder:
        measured("a")
        one = recorder.dump()
        measured("b")
        two = recorder.dump()
        assert recorder.stats()["dumps"] == 2
    assert (one, two) == (str(first(path)), str(path.with_name("run.2.json")))
    assert names(Path(one or "")) == ["a"]
    assert names(Path(two or "")) == ["a", "b"]
    assert told(first(path))["reason"] == "a call of dump()"
    assert told(first(path))["keepLastSeconds"] == 30.0


def test_a_dump_is_a_whole_trace(path: Path) -> None:
    gpuprof.counter("queue").set(1)
    with gpuprof.flight_recorder(path, keep_last="30s", args={"run": "x"}) as recorder:
        with cpu_scope("outer"):
            measured("inner")
            gpuprof.counter("queue").set(waiting=2, running=3)
            gpuprof.mark("now", args={"text": 'a"b'})
        recorder.span("own", 1.0, cat="mine")
        thread = threading.Thread(target=lambda: measured("there"), name="worker")
        thread.start()
        thread.join()
        recorder.dump()
    trace = load(first(path))
    assert trace["displayTimeUnit"] == "ns"
    assert sorted(names(first(path))) == ["inner", "outer", "own", "there"]
    assert events(first(path), "C")[0]["args"] == {"waiting": 2, "running": 3}
    marks = events(first(path), "i")
    assert [mark["name"] for mark in marks] == ["now", "dump: a call of dump()"]
    assert marks[0]["args"] == {"text": 'a"b'}
    assert "worker" in [e["args"]["name"] for e in metadata(first(path), "thread_name")]
    assert metadata(first(path), "gpuprof")[0]["args"]["args"] == {"run": "x"}


def test_a_dump_has_nothing_that_is_older(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="30ms") as recorder:
        gpuprof.counter("memory").set(alloc=1)
        measured("old")
        recorder.flush()
        time.sleep(0.06)
        measured("new")
        recorder.dump()
    assert names(first(path)) == ["new"]
    assert events(first(path), "C") == []
    assert 0.02 < told(first(path))["reachesBackSeconds"] <= 0.03


# In a process of its own: names past the 10,000 of a process take more room in the ring.
def test_what_does_not_fit_drops_the_oldest(path: Path) -> None:
    out = check_python(f"""
    import gpuprof, json
    with gpuprof.flight_recorder({str(path)!r}, keep_bytes=64 << 10) as recorder:
        for number in range(5000):
            recorder.span(f"n{{number}}", 0.0, cat="test")
        recorder.flush()
        print(json.dumps(recorder.stats()))
        recorder.dump()
    """)
    found, stats = names(first(path)), json.loads(out)
    assert found == [f"n{number}" for number in range(5000 - len(found), 5000)]
    assert 500 < len(found) < 1100
    assert stats["events"] == 5000
    assert stats["held"] == len(found)
    assert stats["bytes"] <= 64 << 10
    assert "keepLastSeconds" not in told(first(path))


def test_an_event_that_is_larger_than_half_the_ring_is_counted(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_bytes=64 << 10) as recorder:
        recorder.instant("small")
        recorder.instant("large", args={"rows": ["x" * 4000] * 20})
        recorder.dump()
    assert names(first(path), "i")[:-1] == ["small"]
    assert told(first(path))["tooLarge"] == 1


def test_memory_is_flat(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_bytes=1 << 20) as recorder:
        sizes = []
        for _ in range(4):
            for _ in range(50):
                for _ in range(2000):
                    gpuprof.trace_span("event", 0.0, cat="test")
                recorder.flush()
            sizes.append(resident_kib())
        assert recorder.stats()["events"] + recorder.stats()["dropped"] == 400_000
    assert sizes[-1] - sizes[0] < 2 << 10


def test_two_rings_of_different_lengths_and_a_trace_see_the_same(path: Path) -> None:
    long = path.with_name("long.json")
    everything = path.with_name("all.json")
    with gpuprof.trace(everything), gpuprof.flight_recorder(long, keep_last="1h") as longer:
        with gpuprof.flight_recorder(path, keep_last="20ms") as recorder:
            measured("old")
            time.sleep(0.04)
            measured("new")
            recorder.dump()
            longer.dump()
    assert names(first(path)) == ["new"]
    assert names(path.with_name("long.1.json")) == ["old", "new"]
    assert names(everything) == ["old", "new"]


def test_no_dump_replaces_a_file(path: Path) -> None:
    path.with_name("run.1.json").write_text("yesterday's")
    path.with_name("run.3.json.part").write_text("somebody's")
    with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
        made = [recorder.dump() for _ in range(2)]
    assert [Path(each or "").name for each in made] == ["run.2.json", "run.4.json"]
    assert path.with_name("run.1.json").read_text() == "yesterday's"
    assert path.with_name("run.3.json.part").read_text() == "somebody's"


def test_the_number_may_stand_anywhere_in_the_path(tmp_path: Path) -> None:
    with gpuprof.flight_recorder(tmp_path / "%%n-%n-%r.json", keep_last="30s") as recorder:
        recorder.dump()
    assert files(tmp_path) == {"%n-1-0.json"}
    with pytest.raises(ValueError, match="%n once"):
        gpuprof.flight_recorder(tmp_path / "%n-%n.json", keep_last="30s")


def test_enough_dumps_are_one_warning(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="30s", max_dumps=2) as recorder:
        assert [recorder.dump() is None for _ in range(2)] == [False, False]
        with pytest.warns(RuntimeWarning, match=r"written its 2 dumps.*max_dumps=") as warned:
            assert [recorder.dump() for _ in range(3)] == [None, None, None]
    assert len(warned) == 1
    assert files(path.parent) == {"run.1.json", "run.2.json"}


def test_a_recorder_that_is_used_again_goes_on_counting(path: Path) -> None:
    recorder = gpuprof.flight_recorder(path, keep_last="30s")
    for name in ("a", "b"):
        with recorder:
            measured(name)
            recorder.dump()
    assert names(first(path)) == ["a"]
    assert names(path.with_name("run.2.json")) == ["b"]


# Limits


def test_a_scope_that_passes_its_limit_is_a_dump(path: Path) -> None:
    with gpuprof.flight_recorder(
        path, keep_last="30s", when={"outer/slow": 2.0, "never": 0.0}
    ) as recorder:
        with cpu_scope("slow"):  # the path is another one
            time.sleep(0.003)
        with cpu_scope("outer"), cpu_scope("slow"):
            time.sleep(0.003)
        until(lambda: recorder.stats()["dumps"])
    assert files(path.parent) == {"run.1.json"}
    assert names(first(path)).count("slow") == 2
    reason = told(first(path))["reason"]
    assert reason.startswith("outer/slow took ")
    assert reason.endswith(" ms, more than 2 ms")


def test_a_limit_by_name_holds_on_every_path_and_only_while_it_is_open(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="30s", when={"slow": 2.0}) as recorder:
        with cpu_scope("anywhere"), cpu_scope("slow"):
            time.sleep(0.003)
        until(lambda: recorder.stats()["dumps"])
    with gpuprof.flight_recorder(path, keep_last="30s"), cpu_scope("slow"):
        time.sleep(0.003)
    assert files(path.parent) == {"run.1.json"}


def test_a_limit_is_of_gpu_time(fake: FakeCuda, stream: int, path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="30s", when={"step": 25.0}) as recorder:
        for ms in (20, 30):
            with gpuprof.timer("step", stream=stream):
                fake.work(stream, ms * MS)
            fake.stream_synchronize(stream)
            gpuprof.flush()
        until(lambda: recorder.stats()["dumps"])
    reason = told(first(path))["reason"]
    assert reason.startswith("step took 30.0")
    assert reason.endswith(" ms of GPU time, more than 25 ms")
    slices = [e for e in events(first(path)) if e["cat"] == "gpu"]
    assert [round(e["dur"] / 1000) for e in slices] == [20, 30]
    arrows = len(events(first(path), "s")), len(events(first(path), "f"))
    assert arrows == (2, 2)


def test_what_stats_tells_is_complete_from_the_start(path: Path) -> None:
    for _ in range(20):
        with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
            stats = recorder.stats()
        assert (stats["open"], stats["held"], stats["dumps"]) == (True, 0, 0)
        assert stats["reaches_back_ns"] >= 0


def test_limits_that_are_passed_again_and_again_do_not_fill_the_disk(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_last="1h", when={"slow": 0.0}) as recorder:
        measured("slow")
        until(lambda: recorder.stats()["dumps"])
        for _ in range(50):
            measured("slow")
            time.sleep(0.001)
        assert recorder.stats()["dumps"] == 1
    # What came since is in one more, at the end.
    assert files(path.parent) == {"run.1.json", "run.2.json"}
    assert names(path.with_name("run.2.json")).count("slow") == 51


# The GPU


def test_gpu_spans_in_flight_are_in_a_dump_if_they_end_soon(
    fake: FakeCuda, stream: int, path: Path
) -> None:
    def finish() -> None:
        fake.complete(stream)
        fake.configure(mode="auto")

    with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
        fake.configure(mode="manual")
        with gpuprof.timer("step", stream=stream):
            fake.work(stream, 2 * MS)
        later = threading.Timer(0.03, finish)
        later.start()
        recorder.dump()
        later.join()
    assert [e["name"] for e in events(first(path)) if e["cat"] == "gpu"] == ["step"]
    assert told(first(path))["unfinishedGpuSpans"] == 0


def test_gpu_spans_that_do_not_end_are_left_out_and_said(
    fake: FakeCuda, stream: int, path: Path
) -> None:
    with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
        fake.configure(mode="manual")
        try:
            with gpuprof.timer("hangs", stream=stream):
                fake.work(stream, 2 * MS)
            recorder.dump()
        finally:
            fake.complete(stream)
            fake.configure(mode="auto")
        gpuprof.flush()
        recorder.dump()
    assert [e["cat"] for e in events(first(path))] == ["scope"]
    assert told(first(path))["unfinishedGpuSpans"] == 1
    later = path.with_name("run.2.json")
    assert [e["cat"] for e in events(later)] == ["scope", "gpu"]
