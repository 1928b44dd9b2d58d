"""The harness itself: it sees all that Perfetto shows, and it sees what is wrong."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.perfetto.check import check_closed, check_events, check_unfinished, engine_or_skip
from tests.perfetto.engine import EngineError, TraceProcessor
from tests.perfetto.tables import UNFINISHED, Slice, Tables, differences, shown
from tests.perfetto.written import Event, complete_events, strict

PID = 4000
LANE = 1 << 28
HEADER_BYTES = 300
CUTS = 40


@pytest.fixture(scope="module")
def engine() -> Iterator[TraceProcessor]:
    with engine_or_skip() as started:
        yield started


def event(phase: str, name: str, **more: Any) -> Event:
    return {"ph": phase, "name": name, "pid": PID, "tid": PID, **more}


def meta(name: str, value: object, tid: int = PID) -> Event:
    return event("M", name, tid=tid, args={"name": value})


def line(each: Event) -> bytes:
    return json.dumps(each, ensure_ascii=False, separators=(",", ":")).encode()


def array(*events: Event) -> bytes:
    """Return an unfinished trace: the head that closing overwrites, and a line for each event."""
    head = b"[" + line(event("M", "gpuprof", args={}))
    body = b"".join(line(each) + b",\n" for each in events)
    return head.ljust(HEADER_BYTES - 2) + b",\n" + body


def closed(unfinished: bytes) -> bytes:
    head = b'{"displayTimeUnit":"ns","traceEvents":['
    last = line(event("M", "gpuprof", args={}))
    return head.ljust(HEADER_BYTES) + unfinished[HEADER_BYTES:] + last + b"\n]}\n"


def everything() -> list[Event]:
    """Return one of each kind of event."""
    return [
        meta("process_name", "python"),
        meta("thread_name", "Main"),
        meta("thread_name", "stream 1", LANE),
        event("X", 'a "b"\\c\n', ts=1, dur=10, cat="k", args={"x": 1, "d": {"e": [1, "\n", {}]}}),
        event("X", "inner", ts=2.001, dur=3, args={"f": 1.5, "n": None, "b": True, "k\t": "v\\v"}),
        event("X", "twin", ts=2.001, dur=3),
        event("X", "moment", ts=5.001, dur=0),
        event("i", "here", s="t", ts=3, args={"p": 1}),
        event("i", "there", s="p", ts=3),
        event("b", "request", cat="io", id2={"local": 1}, ts=1, args={"q": "r"}),
        event("b", "part", cat="io", id2={"local": 1}, ts=2),
        event("e", "part", cat="io", id2={"local": 1}, ts=3),
        event("e", "request", cat="io", id2={"local": 1}, ts=5),
        event("b", "request", cat="io", id2={"local": 2}, ts=2),
        event("C", "memory", ts=4, args={"used": 1, "free": 2.5}),
        event("s", "launch", cat="launch", id=1, ts=2.001),
        event("X", "kernel", tid=LANE, ts=20, dur=0.032),
        event("f", "launch", cat="launch", id=1, ts=20, tid=LANE, bp="e"),
    ]


def check_everything(found: Tables) -> None:
    outer, main, lane = 'a "b"\\c\n', (PID, PID), (PID, LANE)
    assert found.one(outer) == Slice(
        main, outer, 1000, 10_000, (), "k", {"d.e[0]": 1, "d.e[1]": "\n", "x": 1}
    )
    assert found.one("inner") == Slice(
        main, "inner", 2001, 3000, (outer,), "", {"b": 1, "f": 1.5, "k\t": "v\\v"}
    )
    assert found.one("twin").inside == (outer, "inner")
    assert found.one("moment").inside == (outer,)
    assert found.one("here") == Slice(main, "here", 3000, 0, (outer, "inner", "twin"), "", {"p": 1})
    assert found.one("there").track == (PID, "process")
    assert found.one("part") == Slice((PID, "async"), "part", 2000, 1000, ("request",), "io")
    assert [s.duration for s in found.named("request")] == [4000, UNFINISHED]
    assert found.counters == [("memory used", 4000, 1.0), ("memory free", 4000, 2.5)]
    assert found.flows == [((main, "twin", 2001), (lane, "kernel", 20_000))]
    assert found.threads == {main: "Main", lane: "stream 1"}
    assert found.processes == {PID: "python"}


def test_every_kind_of_event_is_found_where_it_is(engine: TraceProcessor) -> None:
    data = closed(array(*everything()))
    found = check_events(engine, data, strict(data)["traceEvents"])
    check_everything(found)


def test_a_compressed_file_is_the_same(engine: TraceProcessor, tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(closed(array(*everything()))))
    check_everything(check_closed(engine, path))


def test_an_unfinished_trace_is_found_whole_wherever_it_ends(engine: TraceProcessor) -> None:
    data = array(*everything(), *(event("X", f"n{i}", ts=30 + i, dur=1) for i in range(20)))
    check_everything(check_unfinished(engine, data))
    generator = random.Random(4)
    for _ in range(CUTS):
        end = generator.randrange(2, len(data) + 1)
        found = check_unfinished(engine, data[:end])
        assert len(found.slices) <= len(complete_events(data[:end]))


@pytest.mark.parametrize("header_first", [False, True])
def test_between_the_two_writes_of_closing_only_the_array_loads(
    engine: TraceProcessor, header_first: bool
) -> None:
    unfinished = array(*everything())
    done = closed(unfinished)
    if header_first:
        with pytest.raises(EngineError, match="incomplete"):
            engine.load(done[: len(unfinished)])
        return
    for end in range(len(unfinished), len(done) + 1):
        engine.load(unfinished[:HEADER_BYTES] + done[HEADER_BYTES:end])
        assert engine.errors() == []
    check_everything(shown(engine, unfinished[:HEADER_BYTES] + done[HEADER_BYTES:]))


def test_slices_that_cross_are_an_error(engine: TraceProcessor) -> None:
    crossing = (event("X", "a", ts=1, dur=2), event("X", "b", ts=2, dur=2))
    with pytest.raises(AssertionError, match="slice_drop_overlapping_complete_event"):
        check_unfinished(engine, array(*crossing))


@pytest.mark.parametrize("name", ["inner", "moment", "here", "there", "part", "memory", "kernel"])
def test_an_event_that_perfetto_does_not_show_is_a_difference(
    engine: TraceProcessor, name: str
) -> None:
    arrows = ("s", "t", "f")
    events = [each for each in everything() if each["ph"] not in arrows]
    fewer = array(*(each for each in events if each["name"] != name))
    with pytest.raises(AssertionError, match=f"only written: .*{name}"):
        check_events(engine, fewer, complete_events(array(*events)))
    with pytest.raises(AssertionError, match=f"only shown: .*{name}"):
        check_events(engine, array(*events), complete_events(fewer))


def test_an_arrow_that_perfetto_does_not_draw_is_an_error(engine: TraceProcessor) -> None:
    lost = event("s", "launch", cat="launch", id=2, ts=500)
    with pytest.raises(AssertionError):
        check_unfinished(engine, array(*everything(), lost))


def test_differences_name_both_sides() -> None:
    ours = Tables(slices=[Slice((1, 1), "a", 0, 1)], threads={(1, 1): "x"})
    theirs = Tables(slices=[Slice((1, 1), "a", 0, 2)], threads={(1, 1): "y"})
    found = "\n".join(differences(ours, theirs))
    assert "only written: Slice(track=(1, 1), name='a', begin=0, duration=1" in found
    assert "only shown: Slice(track=(1, 1), name='a', begin=0, duration=2" in found
    assert "written 'x', shown 'y'" in found


@pytest.mark.parametrize(
    "text",
    [
        '{"traceEvents":[{"ts":NaN}]}',
        '{"traceEvents":[{"ts":1,"ts":2}]}',
        '{"traceEvents":[],"displayTimeUnit":"ns"}',
        '{"traceEvents":[]}{}',
        '{"traceEvents":[',
        '{"traceEvents":["\t"]}',
    ],
)
def test_what_is_not_strict_is_refused(text: str) -> None:
    with pytest.raises((AssertionError, ValueError)):
        strict(text.encode())


def test_the_engine_outlives_what_it_refuses(engine: TraceProcessor) -> None:
    with pytest.raises(EngineError, match="syntax error"):
        engine.query("select from")
    with pytest.raises(EngineError, match="Unknown trace type"):
        engine.load(b"no trace")
    engine.load(array(*everything()))
    (row,) = engine.query("select null as n, 1 as i, -1 as m, 1.5 as f, 'x' as s, x'00ff' as b")
    assert row == {"n": None, "i": 1, "m": -1, "f": 1.5, "s": "x", "b": b"\x00\xff"}


def test_an_answer_larger_than_a_pipe_arrives_whole(engine: TraceProcessor) -> None:
    name = "n" * 10_000_000
    engine.load(array(event("X", name, ts=1, dur=1)))
    assert engine.query("select name from slice") == [{"name": name}]


def test_the_end_of_the_engine_is_an_error(engine: TraceProcessor) -> None:
    with TraceProcessor() as own:
        own.close()
        with pytest.raises((EngineError, ValueError)):
            own.query("select 1")
