"""`gpuprof trace`: what the tools find in traces, and what they write."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gpuprof
from gpuprof._trace_tools import batch, files, tools
from gpuprof._trace_tools.tools import summary, validate
from gpuprof.errors import TraceError
from tests.support.benchmark_results import answer, command
from tests.support.fuzzing import bounded
from tests.support.trace_files import Event, array_form, named, object_form, slice_event, written

GPU_TID = (1 << 28) + 1
FIXTURES = Path(__file__).parents[1] / "fixtures"


def rows(found: tools.TraceSummary, kind: str) -> dict[str, tuple[int, float, float | None]]:
    """Count, total and self time by name."""
    return {
        row.name: (row.count, round(row.total_ms, 9), row.self_ms)
        for row in found.ranges
        if row.kind == kind
    }


# --- summary


def test_a_summary_counts_and_sums_by_name(tmp_path: Path) -> None:
    events = [slice_event("a", 0, 1000), slice_event("a", 2000, 3000), slice_event("b", 9000, 500)]
    found = summary(written(tmp_path / "t.json", object_form(events)))
    assert rows(found, "host") == {"a": (2, 4.0, 4.0), "b": (1, 0.5, 0.5)}
    a = found.ranges[0]
    assert (a.mean_ms, a.min_ms, a.max_ms) == (2.0, 1.0, 3.0)
    assert (found.events, found.cut, found.open_ended, found.span_ms) == (3, None, False, 9.5)


@pytest.mark.parametrize("shuffle", [None, 1, 2, 3])
def test_self_time_is_what_direct_children_leave_in_any_order(
    tmp_path: Path, shuffle: int | None
) -> None:
    events = [
        slice_event("outer", 0, 10_000),
        slice_event("middle", 1000, 6000),
        slice_event("inner", 2000, 1000),
        slice_event("inner", 4000, 1000),
        slice_event("other", 0, 10_000, tid=8),
    ]
    if shuffle is not None:
        random.Random(shuffle).shuffle(events)
    found = summary(written(tmp_path / "t.json", object_form(events)))
    own = {name: own for name, (_, _, own) in rows(found, "host").items()}
    assert own == {"outer": 4.0, "middle": 4.0, "inner": 2.0, "other": 10.0}
    assert found.notes == []


def test_gpu_ranges_are_told_by_their_category_alone(tmp_path: Path) -> None:
    """A thread of the host may have any number: torch writes the ids of pthreads for some."""
    events = [
        slice_event("gemm", 0, 10, cat="kernel"),
        slice_event("copy", 20, 10, cat="gpu_memcpy"),
        *(slice_event(cat, 40, 30, tid=GPU_TID, cat=cat) for cat in ("gpu_graph", "gpu_in_graph")),
        slice_event("aten::add", 0, 30, tid=GPU_TID + 1, cat="cpu_op"),
    ]
    found = summary(written(tmp_path / "t.json", object_form(events)))
    assert set(rows(found, "gpu")) == {"gemm", "copy", "gpu_graph", "gpu_in_graph"}
    assert set(rows(found, "host")) == {"aten::add"}
    assert [track.tid for track in found.gpu_tracks] == ["7", str(GPU_TID)]


def test_long_names_stay_apart(tmp_path: Path) -> None:
    names = ["n" * 5000 + end for end in "aab"]
    events = [slice_event(name, 10 * at, 5) for at, name in enumerate(names)]
    path = written(tmp_path / "t.json", object_form(events))
    found = summary(path)
    assert sorted(row.count for row in found.ranges) == [1, 2]
    assert all(len(row.name) <= 4096 for row in found.ranges)
    half = {"pid": 1, "tid": 7}
    crossed = [
        {"ph": "B", "name": names[0], "ts": 1, **half},
        {"ph": "E", "name": names[2], "ts": 2, **half},
    ]
    assert codes(tmp_path, crossed) == [("fault", "unbalanced", 1)]


def test_a_gpu_track_tells_its_gaps_and_ignores_annotations_around_work(tmp_path: Path) -> None:
    events = [
        slice_event("k", 0, 1000, cat="kernel"),
        slice_event("k", 500, 1500, cat="kernel", tid=7),
        slice_event("k", 5000, 1000, cat="kernel"),
        slice_event("k", 7000, 1000, cat="kernel"),
        slice_event("step", 0, 8000, cat="gpu_user_annotation"),
    ]
    (track,) = summary(written(tmp_path / "t.json", object_form(events))).gpu_tracks
    assert (track.ranges, track.gaps, track.span_ms, track.busy_ms) == (4, 2, 8.0, 4.0)
    assert track.busy_percent == 50.0
    assert track.largest_gaps == [(2.0, 3.0), (6.0, 1.0)]


def test_grouping_by_category_and_by_track(tmp_path: Path) -> None:
    events = [
        *named(7),
        slice_event("a", 0, 1000, cat="x"),
        slice_event("b", 2000, 1000, cat="x"),
        slice_event("c", 4000, 1000),
    ]
    path = written(tmp_path / "t.json", object_form(events))
    assert rows(summary(path, by="cat"), "host") == {"x": (2, 2.0, 2.0), "(unnamed)": (1, 1.0, 1.0)}
    assert rows(summary(path, by="tid"), "host") == {"python 1 / thread 7 7": (3, 3.0, 3.0)}


def test_scopes_are_grouped_by_their_whole_path(tmp_path: Path) -> None:
    with gpuprof.trace(tmp_path / "t.json") as trace:
        for outer in ("Net", 'a "Net"'):
            with gpuprof.timer(outer, backend="cpu"), gpuprof.timer("enc", backend="cpu"):
                with gpuprof.timer("net", backend="cpu"):
                    pass
    assert validate(trace.path).ok
    expected = {"Net", "Net/enc", "Net/enc/net", 'a "Net"', 'a "Net"/enc', 'a "Net"/enc/net'}
    assert set(rows(summary(trace.path), "host")) == expected
    assert rows(summary(trace.path, by="name"), "host")["net"][0] == 2


def test_only_paths_of_scopes_group(tmp_path: Path) -> None:
    given: list[Any] = [{"path": 5}, {"path": ["a"]}, None, {"path": "Net/net"}]
    events = [
        slice_event("net", 2 * place, 1, cat="scope", args=args) for place, args in enumerate(given)
    ]
    read = slice_event("read", 0, 1, tid=8, cat="io", args={"path": "/a/file"})
    half = {**slice_event("net", 0, 1, tid=9), "ph": "B", "cat": "scope", "args": given[-1]}
    end = {"ph": "E", "pid": 1, "tid": 9, "ts": 5}
    path = written(tmp_path / "t.json", object_form([*events, read, half, end]))
    found = rows(summary(path), "host")
    assert {name: row[0] for name, row in found.items()} == {"read": 1, "net": 3, "Net/net": 2}


def test_begin_and_end_events_make_ranges_and_lonely_ones_are_told(tmp_path: Path) -> None:
    def event(phase: str, ts: int, name: str = "r", **more: Any) -> Event:
        return {"ph": phase, "name": name, "pid": 1, "tid": 7, "ts": ts, **more}

    events = [
        event("E", 0),
        event("B", 1000),
        event("B", 2000, "inner"),
        event("E", 3000, "inner"),
        event("E", 5000),
        event("b", 0, "task", id=1),
        event("b", 1000, "task", id=2),
        event("e", 4000, "task", id=1),
        event("e", 9000, "task", id=2),
        event("B", 9000),
    ]
    found = summary(written(tmp_path / "t.json", object_form(events)))
    assert rows(found, "host") == {"r": (1, 4.0, 3.0), "inner": (1, 1.0, 1.0)}
    assert rows(found, "async") == {"task": (2, 12.0, None)}
    assert found.notes == ["2 begins or ends without the other are not counted"]


def test_what_the_writer_dropped_is_told(tmp_path: Path) -> None:
    dropped = {"ph": "M", "name": "gpuprof", "pid": 1, "tid": 7, "args": {"dropped": 12}}
    found = summary(written(tmp_path / "t.json", object_form([slice_event("a", 0, 1), dropped])))
    assert found.notes == ["12 events were dropped while the trace was written"]


def test_ranges_that_cross_are_told(tmp_path: Path) -> None:
    events = [slice_event("a", 0, 10), slice_event("b", 5, 10), slice_event("c", 0, 20)]
    (note,) = summary(written(tmp_path / "t.json", object_form(events))).notes
    assert note.startswith("1 times ranges overlap on a track without nesting")


def test_names_with_escapes_are_the_same_names(tmp_path: Path) -> None:
    data = (
        b'[{"ph":"X","name":"caf\\u00e9","ts":0,"dur":1},'
        b'{"ph":"X","n\\u0061me":"caf\xc3\xa9","ts":5,"dur":1},'
        b'{"ph":"X","name":"\\ud83d\\ude00","ts":9,"dur":1},'
        b'{"ph":"X","name":"\\ud83d","ts":19,"dur":1}]'
    )
    found = summary(written(tmp_path / "t.json", data))
    counts = {row.name: row.count for row in found.ranges}
    assert counts == {"café": 2, "\N{GRINNING FACE}": 1, "\N{REPLACEMENT CHARACTER}": 1}


def test_times_that_a_double_does_not_hold_to_the_nanosecond_are_told(tmp_path: Path) -> None:
    data = (
        b'[{"ph":"X","name":"k","cat":"gpu","ts":1732181234567890.123,"dur":0.125},'
        b'{"ph":"X","name":"k","cat":"gpu","ts":1732181234567891.25,"dur":1e-3}]'
    )
    path = written(tmp_path / "t.json", data)
    found = summary(path)
    assert found.notes == ["times are exact to 250 ns only: they are so large"]
    assert found.gpu_tracks[0].gaps == 1
    assert validate(path).notes["ts"] == 2


@given(
    digits=st.from_regex(
        r"(0|[1-9][0-9]{0,20})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True
    )
)
@bounded(150)
def test_any_decimal_time_is_rounded_as_the_double_that_readers_see(
    tmp_path_factory: pytest.TempPathFactory, digits: str
) -> None:
    exact = float(digits) * 1000
    data = f'[{{"ph":"X","name":"a","ts":0,"dur":{digits}}}]'.encode()
    wanted = round(exact) if exact < 1e25 else 1 << 99
    path = written(tmp_path_factory.getbasetemp() / "decimal.json", data)
    if wanted > 1 << 62:
        with pytest.raises(TraceError, match="146 years"):
            summary(path)
    else:
        (row,) = summary(path).ranges
        assert row.total_ms == wanted / 1e6


def test_every_way_to_cut_a_file_into_pieces_reads_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [
        *named(7),
        slice_event('q"\\é\N{GRINNING FACE}', 1.5, 2e3, args={"a": [1, {"b": None}]}),
        slice_event("r", 3000, 1),
    ]
    data = json.dumps({"m": {"x": [1]}, "traceEvents": events, "z": True}, ensure_ascii=False)
    path = written(tmp_path / "t.json", data.encode())
    whole = summary(path), validate(path)
    assert whole[0].events == len(events)
    for step in (*range(1, 70), 100, 150, 200):
        monkeypatch.setattr(files, "PIECE", step)
        assert (summary(path), validate(path)) == whole


def test_the_array_form_is_whole_without_its_end_and_says_so(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json.part", array_form([slice_event("a", 0, 1000)] * 3))
    found = summary(path)
    assert (found.events, found.open_ended, found.cut) == (3, True, None)
    assert "is being written" in str(found)


def test_a_cut_file_is_summed_up_to_there(tmp_path: Path) -> None:
    data = object_form([slice_event("a", 0, 1000)] * 3)
    found = summary(written(tmp_path / "t.json", data[:-40]))
    assert found.events == 2
    assert found.cut == f"cut off inside an event at byte {len(data) - 40}, after 2 complete events"


def test_compressed_files_are_told_by_their_contents(tmp_path: Path) -> None:
    data = object_form([slice_event("a", 0, 1000)])
    path = tmp_path / "misnamed.json"
    path.write_bytes(gzip.compress(data[:30]) + gzip.compress(data[30:]) + b"\0" * 16)
    assert rows(summary(path), "host") == {"a": (1, 1.0, 1.0)}
    path.write_bytes(gzip.compress(object_form([slice_event("a", 0, 1000)] * 500))[:-9])
    cut = summary(path).cut
    assert cut is not None
    assert "the compressed data is cut off at byte" in cut


def test_a_summary_is_plain_data_and_shows_itself(tmp_path: Path) -> None:
    path = written(
        tmp_path / "t.json", object_form([slice_event("<b>\x1b[31m", 0, 1000, cat="gpu")])
    )
    found = summary(path)
    assert json.loads(json.dumps(found.to_dict()))["ranges"][0]["name"] == "<b>\x1b[31m"
    assert "\x1b" not in str(found)


def another_decoder(text: str) -> Any:
    """Decode as orjson does: no lone surrogates, and whole numbers beyond 64 bits are floats."""
    if "\\ud" in text:
        message = "lone surrogate"
        raise ValueError(message)
    return json.loads(text, parse_int=lambda digits: (int if len(digits) < 19 else float)(digits))


@pytest.mark.parametrize("name", ["\\ud83d", "caf\\u00e9"])
def test_another_decoder_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    data = (
        f'[{{"ph":"X","name":"{name}","pid":1,"tid":7,"ts":0.125,"dur":1e-3}},\n'
        '{"ph":"X","name":"a","pid":18446744073709551617,"tid":7,"ts":1,"dur":2.5},\n'
        '{"ph":"X","name":"b","pid":1,"tid":7,"ts":3,"dur":4,"args":{"v":1e400}},\n'
        '{"ph":"X","name":"b","pid":1,"tid":7,"ts":"9","dur":4},\n'
        '{"ph":"X","name":"b","pid":1,"tid":7,"ts":9,"dur":4}]'
    )
    path = written(tmp_path / "t.json", data.encode())
    found = []
    for decoder in (None, another_decoder):
        monkeypatch.setattr(batch, "_loads", decoder)
        found.append((summary(path), validate(path)))
    assert found[0] == found[1]
    assert found[0][0].left_out == 1


def test_real_traces_of_other_tools_are_read() -> None:
    by_torch = summary(FIXTURES / "torch_profiler.json")
    assert by_torch.ranges[0].name == "step"
    assert {"aten::mm", "volta_sgemm"} <= {row.name for row in by_torch.ranges}
    assert [track.gaps for track in by_torch.gpu_tracks] == [1]
    by_viztracer = summary(FIXTURES / "viztracer.json")
    assert by_viztracer.cut is None
    assert validate(FIXTURES / "torch_profiler.json").faults == {}
    assert validate(FIXTURES / "viztracer.json").faults == {}


# --- validate


def codes(tmp_path: Path, events: list[Any], **members: Any) -> list[tuple[str, str, int | None]]:
    path = written(tmp_path / "t.json", object_form([*named(7, GPU_TID), *events], **members))
    first = len(named(7, GPU_TID))
    return [
        (finding["severity"], finding["code"], finding["event"] - first)
        for finding in validate(path).findings
        if finding["event"] is not None
    ]


OK_EVENT = slice_event("a", 0, 1)


@pytest.mark.parametrize(
    ("events", "wanted"),
    [
        ([OK_EVENT], []),
        ([{**OK_EVENT, "ph": 3}], [("fault", "ph", 0)]),
        ([OK_EVENT, {}], [("fault", "event", 1)]),
        ([7, OK_EVENT], [("fault", "event", 0)]),
        ([{k: v for k, v in OK_EVENT.items() if k != "name"}], [("fault", "name", 0)]),
        ([{**OK_EVENT, "ts": "0"}], [("fault", "ts", 0)]),
        ([{**OK_EVENT, "ts": -1}], [("fault", "ts", 0)]),
        ([{k: v for k, v in OK_EVENT.items() if k != "ts"}], [("fault", "ts", 0)]),
        ([{**OK_EVENT, "dur": -1}], [("fault", "dur", 0)]),
        ([{**OK_EVENT, "dur": None}], [("fault", "dur", 0)]),
        ([{**OK_EVENT, "tid": 0}], [("fault", "tid", 0)]),
        ([{**OK_EVENT, "tid": 1 << 32}], [("fault", "tid", 0)]),
        ([{**OK_EVENT, "pid": "host"}], [("note", "pid", 0)]),
        ([{**OK_EVENT, "args": [1]}], [("fault", "args", 0)]),
        ([{**OK_EVENT, "args": {"n": 1 << 60}}], [("fault", "number", 0)]),
        ([{**OK_EVENT, "name": "path\\"}], [("note", "backslash", 0)]),
        ([slice_event("a", 0, 10), slice_event("b", 5, 10)], [("fault", "overlap", 1)]),
        ([slice_event("b", 5, 10), slice_event("a", 0, 10)], [("fault", "overlap", 1)]),
        ([slice_event("a", 0, 10), slice_event("b", 0, 10), slice_event("c", 10, 1)], []),
        ([{**OK_EVENT, "ph": "B"}], [("fault", "unbalanced", 0)]),
        ([{**OK_EVENT, "ph": "E"}], [("fault", "unbalanced", 0)]),
        ([{**OK_EVENT, "ph": "b", "id": 1}], [("fault", "unbalanced", 0)]),
        ([{**OK_EVENT, "ph": "b"}], [("fault", "id", 0)]),
        ([{**OK_EVENT, "ph": "C", "args": {"v": "x"}}], [("fault", "args", 0)]),
    ],
)
def test_a_fault_is_told_with_its_event(
    tmp_path: Path, events: list[Any], wanted: list[tuple[str, str, int]]
) -> None:
    assert codes(tmp_path, events) == wanted


def flow(phase: str, ts: float, **more: Any) -> Event:
    bound = {"bp": "e"} if phase == "f" else {}
    return (
        {"ph": phase, "name": "l", "cat": "l", "id": 1, "pid": 1, "tid": 7, "ts": ts} | bound | more
    )


def test_flows_need_a_partner_and_a_slice_around_them(tmp_path: Path) -> None:
    around = [slice_event("a", 0, 10), slice_event("b", 20, 10, tid=GPU_TID)]
    both = [flow("s", 5), flow("f", 20, tid=GPU_TID)]
    assert codes(tmp_path, [*around, *both]) == []
    assert codes(tmp_path, [*both, *around]) == []
    assert codes(tmp_path, [*around, flow("s", 5)]) == [("fault", "flow", 2)]
    assert codes(tmp_path, [*around, flow("f", 25, tid=GPU_TID)]) == [("fault", "flow", 2)]
    outside = flow("f", 15, tid=GPU_TID)
    assert codes(tmp_path, [*around, flow("s", 5), outside]) == [("fault", "flow", 3)]
    named_id = [flow("s", 5, id="launch"), flow("f", 20, tid=GPU_TID, id="launch")]
    assert codes(tmp_path, [*around, *named_id]) == [("fault", "id", 2), ("fault", "id", 3)]


def test_flows_are_told_apart_by_their_whole_ids(tmp_path: Path) -> None:
    around = [slice_event("a", 0, 10), slice_event("b", 20, 10, tid=GPU_TID)]
    for one, other in [(1, 2), (1, "1"), (-1, -2)]:
        crossed = [flow("s", 5, id=one), flow("f", 20, tid=GPU_TID, id=other)]
        # Slices and flows that were met before are checked in another way than the first.
        sound = [flow("s", 5, id=7), flow("f", 20, tid=GPU_TID, id=7)]
        found = codes(tmp_path, [*around, *sound, *crossed])
        assert found == [("fault", "flow", 4), ("fault", "flow", 5)]


def test_events_that_were_met_are_checked_like_the_first(tmp_path: Path) -> None:
    wrong: list[Event] = [{"ts": True}, {"dur": -1}, {"dur": "1"}, {"pid": True}, {"tid": 7.5}]
    wrong += [{"args": [1]}, {"ts": -1}, {"dur": True}, {"cat": 3}]
    for more in wrong:
        (found,) = codes(tmp_path, [OK_EVENT, OK_EVENT, {**OK_EVENT, "ts": 5, **more}])
        assert found[0] == "fault"
        assert found[1] in more
        assert found[2] == 2


@pytest.mark.parametrize(
    ("data", "code", "event"),
    [
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":NaN}]', "nan", 0),
        (b'[{"ph":"i","name":"a\tb","pid":1,"tid":7,"ts":1}]', "control", 0),
        (b'[{"ph":"i","name":"\xff","pid":1,"tid":7,"ts":1}]', "utf8", 0),
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1,"ts":2}]', "key", 0),
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1,"args":{"k":1,"k":2}}]', "key", 0),
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1},]', "comma", None),
        (b'\xef\xbb\xbf[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1}]', "bom", None),
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1}] []', "json", None),
        (b'[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1} {', "json", 1),
        (b'{"traceEvents":[{"ph":"i","name":"a","pid":1,"tid":7,"ts":1}', "cut", None),
        (b'{"traceEvents":[]}', "empty", None),
    ],
)
def test_what_is_no_strict_json_is_a_fault(
    tmp_path: Path, data: bytes, code: str, event: int | None
) -> None:
    found = validate(written(tmp_path / "t.json", data))
    assert not found.ok
    assert (code, event) in {(one["code"], one["event"]) for one in found.findings}


def test_missing_names_are_a_note_and_no_fault(tmp_path: Path) -> None:
    found = validate(written(tmp_path / "t.json", object_form([OK_EVENT])))
    assert found.ok
    assert found.notes == {"metadata": 2}


def test_many_findings_of_one_kind_hide_no_other(tmp_path: Path) -> None:
    events = [slice_event("a", at, -1.0) for at in range(3000)]
    late = [{**slice_event("b", 5, 1), "pid": "text"} for _ in range(30)]
    odd = {**slice_event("b", 6, 1), "args": 1}
    found = validate(written(tmp_path / "t.json", object_form([*events, *late, odd])))
    assert found.faults == {"dur": 3000, "args": 1}
    assert found.notes == {"pid": 30, "metadata": 2}
    kept = Counter(one["code"] for one in found.findings)
    assert kept["dur"] == 200
    assert (kept["pid"], kept["args"]) == (30, 1)
    text = str(found)
    assert "fault: ... and 2,980 more [dur]" in text
    assert "note: ... and 10 more [pid]" in text
    assert '"args" is a number' in text
    assert text.count("[dur]") == text.count("[pid]") == 21


# --- the command


def test_exit_codes_tell_what_happened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = written(tmp_path / "good.json", object_form([*named(7), OK_EVENT]))
    cut = written(tmp_path / "cut.json", object_form([OK_EVENT, OK_EVENT])[:-20])
    text = written(tmp_path / "no.json", b"hello")
    assert command("trace", "summary", good) == 0
    assert command("trace", "validate", good) == 0
    assert command("trace", "repair", cut) == 0
    capsys.readouterr()
    code, out, err = answer(capsys, "trace", "summary", cut)
    assert code == 2
    assert "host time" in out
    assert "cut off inside an event" in err
    assert command("trace", "validate", cut) == 1
    for tool in ("summary", "validate", "repair"):
        assert command("trace", tool, text) == 2
        assert command("trace", tool, tmp_path / "absent") == 2
    assert command("trace", "merge", good, good, "-o", tmp_path / "o.json") == 2
    assert command("trace", "merge", good, cut, "--no-align", "-o", good) == 2
    assert command("trace", "repair", cut, "-o", tmp_path / "no" / "where.json") == 1
    assert command("trace", "summary", good, "--top", "0") == 2


def test_json_is_printed_on_demand(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = written(tmp_path / "t.json", object_form([slice_event("a", 0, 1000)] * 2))
    code, out, _ = answer(capsys, "trace", "summary", path, "--json", "--top", "1", "--by", "cat")
    assert (code, json.loads(out)["ranges"][0]["count"]) == (0, 2)
    code, out, _ = answer(capsys, "trace", "validate", path, "--json")
    assert (code, json.loads(out)["events"]) == (0, 2)
