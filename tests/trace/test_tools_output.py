"""`gpuprof trace repair` and `merge`: what they write."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuprof._trace_tools import files
from gpuprof._trace_tools.tools import merge, repair, repaired_path, validate
from gpuprof.errors import TraceError
from tests.support.fuzzing import bounded
from tests.support.trace_events import OLD
from tests.support.trace_files import (
    Event,
    array_form,
    load,
    named,
    object_form,
    own_metadata,
    slice_event,
    written,
)

OK_EVENT = slice_event("a", 0, 1)

# --- repair


def small_trace() -> list[Event]:
    return [
        own_metadata(base=10**18),
        *named(7),
        slice_event(
            'a"\\é\N{GRINNING FACE}', 0.125, 10, args={"s": "x\ny", "n": [1, -2.5e3, None]}
        ),
        {"ph": "C", "name": "mem", "pid": 1, "tid": 7, "ts": 3, "args": {"v": 1}},
        slice_event("b", 20, 10),
    ]


@pytest.mark.parametrize("form", ["array", "object", "lines"])
def test_cut_at_every_byte_a_repair_has_every_complete_event(tmp_path: Path, form: str) -> None:
    events = small_trace()
    if form == "object":
        data = json.dumps({"traceEvents": events, "z": 1}, ensure_ascii=False).encode()
    elif form == "array":
        data = json.dumps(events, ensure_ascii=False).encode()
    else:
        data = array_form(events)
    ends, at = [], 0
    for event in events:
        for ascii_only in (False, True):
            text = json.dumps(event, ensure_ascii=ascii_only).encode()
            if (found := data.find(text, at)) >= 0:
                at = found + len(text)
                break
        ends.append(at)
    start = len('{"traceEvents": [') if form == "object" else 1
    for cut in range(start, len(data) + 1):
        complete = sum(end <= cut for end in ends)
        path = written(tmp_path / "t.json", data[:cut])
        if complete:
            repair(path, tmp_path / "out.json")
            assert load(tmp_path / "out.json")["traceEvents"] == events[:complete]
        else:
            with pytest.raises(TraceError, match="no complete event"):
                repair(path, tmp_path / "out.json")


def test_a_repair_keeps_the_clock_and_the_rank_of_the_array_form(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json.part", array_form(small_trace())[:-30])
    done = repair(path)
    assert done.output == str(tmp_path / "t.json")
    data = load(tmp_path / "t.json")
    assert data["baseTimeNanoseconds"] == 10**18
    assert data["distributedInfo"] == {"rank": 0}
    assert len(data["traceEvents"]) == done.events == len(small_trace()) - 1
    assert done.stopped is not None
    assert validate(tmp_path / "t.json").ok


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b'\xef\xbb\xbf{"traceEvents":[%s]}', "byte 0: a byte order mark"),
        (b'{"bad":NaN,"traceEvents":[%s]}', "byte 7: NaN or Infinity"),
        (b'{"traceEvents":[%s,]}', "byte 68: a comma before the end"),
        (b'{"traceEvents":[%s],"a":1,"a":2}', "byte 76: a key is there twice"),
        (b'{"traceEvents":[%s]}{}', "byte 70: found '{'; expected nothing more"),
    ],
)
def test_a_repair_refuses_what_is_no_strict_json_beside_the_events(
    tmp_path: Path, data: bytes, message: str
) -> None:
    event = json.dumps(OK_EVENT, separators=(",", ":")).encode()
    path = written(tmp_path / "t.json", data % event)
    with pytest.raises(TraceError, match=message):
        repair(path)
    assert list(tmp_path.iterdir()) == [path]


def test_a_cut_compressed_file_is_repaired_into_a_compressed_one(tmp_path: Path) -> None:
    events = [slice_event(f"n{at}", at, 0.5) for at in range(5000)]
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(object_form(events))[:-2000])
    done = repair(path)
    assert done.output == str(tmp_path / "t.repaired.json.gz")
    assert 0 < done.events < 5000
    assert load(Path(done.output))["traceEvents"] == events[: done.events]


@pytest.mark.parametrize(
    ("name", "existing", "wanted"),
    [
        ("t.json.part", [], "t.json"),
        ("t.json.part", ["t.json"], "t.repaired.json"),
        ("t.json.gz.part", [], "t.json.gz"),
        ("t.json.gz", [], "t.repaired.json.gz"),
        ("t.json", [], "t.repaired.json"),
        ("t", [], "t.repaired"),
    ],
)
def test_where_a_repair_goes(tmp_path: Path, name: str, existing: list[str], wanted: str) -> None:
    for other in existing:
        (tmp_path / other).touch()
    assert repaired_path(tmp_path / name) == tmp_path / wanted


def test_a_failed_repair_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", b'{"traceEvents":[')
    old = written(tmp_path / "old.json", OLD.encode())
    with pytest.raises(TraceError, match="no complete event"):
        repair(path, old)
    with pytest.raises(ValueError, match="is an input"):
        repair(path, path)
    assert old.read_bytes() == OLD.encode()
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old.json", "t.json"]


# --- merge

BASE = 1_700_000_000_000_000_000


def test_a_merge_puts_times_on_one_clock_to_the_nanosecond(tmp_path: Path) -> None:
    one = object_form([slice_event("a", 1000.001, 5)], baseTimeNanoseconds=BASE + 1_234_567)
    two = array_form([own_metadata(BASE, rank=1, pid=2), slice_event("b", 2, 5)])
    # As viztracer writes it: the clock's base comes after the events, in an object.
    three = json.dumps(
        {
            "traceEvents": [slice_event("c", 0.5, 5)],
            "viztracer_metadata": {"baseTimeNanoseconds": BASE + 1},
        }
    ).encode()
    paths = [
        written(tmp_path / "1.json", one),
        written(tmp_path / "2.json.part", two),
        written(tmp_path / "3.json.gz", three),
    ]
    done = merge(paths, tmp_path / "out.json.gz")
    data = load(tmp_path / "out.json.gz")
    assert data["baseTimeNanoseconds"] == BASE
    ts = {event["name"]: event["ts"] for event in data["traceEvents"] if event["ph"] == "X"}
    assert ts == {"a": 2234.568, "b": 2, "c": 0.501}
    assert [source["shift_ms"] for source in done.inputs] == [1.234567, 0.0, 1e-6]
    assert list(data)[-1] == "traceEvents"


@pytest.mark.parametrize("twice", [False, True])
def test_what_a_merge_writes_is_strict_json(tmp_path: Path, twice: bool) -> None:
    """Also where a pid is no whole number, and where an event had to be read in detail."""

    def trace(name: str, pid: str) -> Path:
        event = f'{{"ph":"X","name":"a","pid":{pid},"tid":1,"ts":1,"dur":1,"args":{{"x":1'
        event += ',"a":1,"a":2}}' if twice else "}}"
        text = f'{{"baseTimeNanoseconds":5,"distributedInfo":{{"rank":1}},"traceEvents":[{event}]}}'
        return written(tmp_path / name, text.encode())

    merge([trace("1.json", "1.5"), trace("2.json", "1.5")], tmp_path / "out.json")
    text = (tmp_path / "out.json").read_text()
    pids = [event["pid"] for event in json.loads(text, parse_constant=int)["traceEvents"]]
    assert {*pids} == {1.5, "1.5 #1"}
    for member in ("pid", "tid"):
        endless = trace("3.json", "1e999")
        if member == "tid":
            endless.write_text(
                endless.read_text().replace("1e999", "1").replace('"tid":1', '"tid":-1e999')
            )
        with pytest.raises(TraceError, match=f'event 0.*"{member}" is .*; expected a whole number'):
            merge([endless], tmp_path / "no.json")


def test_pids_that_collide_are_renamed_and_ranks_are_shown(tmp_path: Path) -> None:
    paths = []
    for rank in range(3):
        events = [
            *named(7),
            slice_event("a", 0, 5),
            {"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "args": {}},
        ]
        info = {"baseTimeNanoseconds": BASE, "distributedInfo": {"rank": rank, "world_size": 3}}
        paths.append(written(tmp_path / f"{rank}.json", object_form(events, **info)))
    merge(paths, tmp_path / "out.json")
    events = load(tmp_path / "out.json")["traceEvents"]
    pids = [event["pid"] for event in events if event["ph"] == "X"]
    assert pids == [1, (1 << 22) + 1, (2 << 22) + 1]
    names = {
        event["pid"]: event["args"]["name"]
        for event in events
        if event["name"] == "process_name" and event["args"]
    }
    assert names[1] == "python (rank 0)"
    assert names[(2 << 22) + 1] == "python (rank 2)"
    assert {"Spans", "Spans #1", "Spans #2"} <= {event["pid"] for event in events}


def test_flow_and_async_ids_of_different_files_stay_apart(tmp_path: Path) -> None:
    ids: list[Any] = [1, 2, "0x1", "task", 1 << 60]
    events = [
        {"ph": phase, "name": "f", "cat": "f", "pid": 1, "tid": 7, "ts": 1, "id": one}
        for one in ids
        for phase in "sf"
    ]
    events.append({"ph": "C", "name": "c", "pid": 1, "tid": 7, "ts": 1, "id": 1, "args": {"v": 1}})
    events.append({"ph": "b", "name": "x", "pid": 1, "ts": 1, "id2": {"global": "0x5"}})
    events.append({"ph": "b", "name": "x", "pid": 1, "ts": 1, "id2": {"local": "0x5"}})
    paths = [
        written(tmp_path / f"{at}.json", object_form(events, baseTimeNanoseconds=BASE))
        for at in "012"
    ]
    merge(paths, tmp_path / "out.json")
    found = load(tmp_path / "out.json")["traceEvents"]
    flows = [event["id"] for event in found if event["ph"] in "sf"]
    assert flows[::2] == flows[1::2]
    assert len(set(map(str, flows))) == 3 * len(ids)
    assert [event["id"] for event in found if event["ph"] == "C"] == [1, 1, 1]
    pairs = [event["id2"] for event in found if "id2" in event]
    assert len({pair["global"] for pair in pairs if "global" in pair}) == 3
    assert [pair["local"] for pair in pairs if "local" in pair] == ["0x5"] * 3


def test_a_file_without_a_clock_is_named_unless_alignment_is_off(tmp_path: Path) -> None:
    good = written(tmp_path / "good.json", object_form([OK_EVENT], baseTimeNanoseconds=BASE))
    bare = written(tmp_path / "bare.json", object_form([slice_event("b", 3, 1)]))
    with pytest.raises(TraceError, match=r"bare\.json does not say what its clock was"):
        merge([good, bare], tmp_path / "out.json")
    assert not (tmp_path / "out.json").exists()
    merge([good, bare], tmp_path / "out.json", align=False)
    events = load(tmp_path / "out.json")["traceEvents"]
    assert [event["ts"] for event in events if event["ph"] == "X"] == [0, 3]


def test_a_cut_object_is_not_merged_before_it_is_repaired(tmp_path: Path) -> None:
    data = object_form([OK_EVENT, OK_EVENT], baseTimeNanoseconds=BASE)
    good = written(tmp_path / "good.json", data)
    cut = written(tmp_path / "cut.json", data[:-20])
    with pytest.raises(TraceError, match=r"cut\.json: cut off inside an event .* trace repair"):
        merge([good, cut], tmp_path / "out.json")
    with pytest.raises(ValueError, match="is an input"):
        merge([good, good], good)


@given(
    st.lists(
        st.fixed_dictionaries(
            {"ph": st.sampled_from("XiC"), "name": st.text(), "ts": st.integers(0, 10**12)},
            optional={
                "dur": st.floats(0, 1e6, allow_nan=False),
                "pid": st.integers(0, 5),
                "args": st.dictionaries(
                    st.text(),
                    st.one_of(
                        st.text(),
                        st.integers(),
                        st.floats(allow_nan=False, allow_infinity=False),
                    ),
                ),
            },
        ),
        max_size=6,
    ),
    st.booleans(),
    st.integers(1, 50),
)
@example([{"ph": "X", "name": "a", "ts": 1, "args": {"above 64 bits": 10**20 + 1}}], True, 1000)
@bounded(100)
def test_repair_and_merge_change_nothing_of_a_sound_trace(
    tmp_path_factory: pytest.TempPathFactory, events: list[Event], ascii_only: bool, step: int
) -> None:
    for event in events:
        event.setdefault("dur", 1)
    # Lone surrogates have a JSON form only as escapes.
    try:
        text = json.dumps({"traceEvents": events}, ensure_ascii=ascii_only).encode()
    except UnicodeEncodeError:
        text = json.dumps({"traceEvents": events}).encode()
    folder = tmp_path_factory.mktemp("sound")
    path = written(folder / "t.json", text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "PIECE", step)
        if events:
            repair(path, folder / "repaired.json")
            assert load(folder / "repaired.json")["traceEvents"] == events
        merge([path], folder / "merged.json", align=False)
    assert load(folder / "merged.json")["traceEvents"] == events
