"""`gpuprof trace diff`: rows by scope and kernel, idle time by cause."""

from __future__ import annotations

import csv
import io
import json
import random
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.benchmark_results import command
from tests.support.torch_traces import TorchTrace, steps
from tests.support.trace_files import object_form, own_metadata, slice_event, written

MS = 1_000_000


def saved(path: Path, trace: TorchTrace, **members: Any) -> Path:
    return written(path, object_form(trace.events, **members))


def with_itself(folder: Path, trace: TorchTrace) -> gpuprof.TraceDiff:
    path = saved(folder / "t.json", trace)
    return gpuprof.trace_diff(path, path)


def rows(found: gpuprof.TraceDiff, kind: str) -> dict[str, tuple[float, float, float, float]]:
    """Calls and total milliseconds in A and in B, by name."""
    return {
        row.name: (row.calls_a, row.calls_b, round(row.total_a_ms, 9), round(row.total_b_ms, 9))
        for row in found.rows
        if row.kind == kind
    }


def idle(found: gpuprof.TraceDiff) -> dict[str, tuple[float, float, float, float]]:
    return {
        row.cause: (row.gaps_a, row.gaps_b, round(row.total_a_ms, 9), round(row.total_b_ms, 9))
        for row in found.idle
    }


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    """Ten steps before; after, mm is slower, relu is gone, gelu is new, and there are 20 steps."""
    before = steps(10, [("mm", 100), ("relu", 10), ("copy", 5)])
    after = steps(20, [("mm", 130), ("gelu", 12), ("copy", 5)])
    return saved(tmp_path / "a.json", before), saved(tmp_path / "b.json.gz", after)


# Rows


def test_kernels_are_compared_by_name_the_largest_change_first(pair: tuple[Path, Path]) -> None:
    found = gpuprof.trace_diff(*pair, by="kernel")
    assert rows(found, "kernel") == {
        "mm": (10, 20, 1.0, 2.6),
        "gelu": (0, 20, 0.0, 0.24),
        "relu": (10, 0, 0.1, 0.0),
        "copy": (10, 20, 0.05, 0.1),
    }
    assert [row.name for row in found.rows] == ["mm", "gelu", "relu", "copy"]
    assert [row.state for row in found.rows] == ["both", "new", "gone", "both"]
    first = found.rows[0]
    assert (first.change_ms, first.each_a_ms, first.each_b_ms) == pytest.approx((1.6, 0.1, 0.13))
    assert found.rows[1].each_a_ms is None


def test_per_divides_by_the_calls_of_a_scope(pair: tuple[Path, Path]) -> None:
    found = gpuprof.trace_diff(*pair, per="step")
    assert found.per_calls == (10, 20)
    assert rows(found, "kernel")["mm"] == (1, 1, 0.1, 0.13)
    assert rows(found, "kernel")["copy"] == (1, 1, 0.005, 0.005)
    assert rows(found, "host")["step"] == (1, 1, 0.04, 0.04)
    assert rows(found, "launched") == {"step": (3, 3, 0.115, 0.147)}
    assert not [note for note in found.notes if "--per" in note]


def test_without_per_traces_of_different_length_are_pointed_out(pair: tuple[Path, Path]) -> None:
    (note,) = gpuprof.trace_diff(*pair).notes
    assert "'step' ran 10 times in A and 20 times in B" in note
    assert "--per" in note


def test_top_keeps_the_largest_changes_and_counts_the_others(pair: tuple[Path, Path]) -> None:
    found = gpuprof.trace_diff(*pair, by="kernel", top=2)
    assert [row.name for row in found.rows] == ["mm", "gelu"]
    assert found.hidden == {"kernel": 2}
    assert "(2 more with smaller changes)" in str(found)


@pytest.mark.parametrize("order", [None, 1, 2])
def test_kernels_belong_to_the_innermost_scope_of_their_launch(
    tmp_path: Path, order: int | None
) -> None:
    trace = TorchTrace()
    trace.scope("step", 0, 100)
    trace.scope("fwd", 10, 40)
    trace.scope("elsewhere", 0, 1000, tid=2)
    trace.kernel("in fwd", 10, 200, 7)
    trace.kernel("in step", 50, 210, 8)
    trace.kernel("outside", 100, 220, 9)
    trace.work("of another thread", 230, 10, trace.launch(20, tid=2))
    trace.work("told", 250, 11, trace.launch(10), scope="decode/mlp")
    trace.work("nobody's", 270, 12, None)
    if order is not None:
        random.Random(order).shuffle(trace.events)
    found = rows(with_itself(tmp_path, trace), "launched")
    assert {name: row[2] for name, row in found.items()} == {
        "step/fwd": 0.007,
        "step": 0.008,
        "elsewhere": 0.010,
        "decode/mlp": 0.011,
        "(no scope)": 0.021,
    }


def test_torchs_numbered_steps_are_one_scope(tmp_path: Path) -> None:
    a, b = TorchTrace(), TorchTrace()
    for number in range(4):
        a.scope(f"ProfilerStep#{number}", number * 100, 90)
        b.scope(f"ProfilerStep#{number + 50}", number * 100, 95)
    paths = saved(tmp_path / "a.json", a), saved(tmp_path / "b.json", b)
    assert rows(gpuprof.trace_diff(*paths), "host") == {"ProfilerStep": (4, 4, 0.36, 0.38)}


@pytest.mark.parametrize("base", [0.0, 5.1e12])
def test_large_times_are_exact(tmp_path: Path, base: float) -> None:
    events = json.loads(object_form(steps(3, [("mm", 0.0)]).events))["traceEvents"]
    text = json.dumps(
        {"traceEvents": [{**each, "ts": f"@{int(base + each['ts'])}.125@"} for each in events]}
    )
    path = written(tmp_path / "t.json", text.replace('"@', "").replace('@"', "").encode())
    found = gpuprof.trace_diff(path, path, per="step")
    assert rows(found, "launched") == {"step": (1, 1, 0.0, 0.0)}
    assert {*idle(found)} == {"busy", "launch_gap", "host_bound"}
    for cause in ("launch_gap", "host_bound"):  # the third one is launched as the GPU is idle
        assert idle(found)[cause] == pytest.approx((1 / 3, 1 / 3, 2e-3 / 3, 2e-3 / 3))


# Idle time


def idle_trace() -> TorchTrace:
    trace = TorchTrace()
    trace.kernel("first", 0, 10, 10)  # ends at 20
    trace.kernel("launched late", 25, 30, 10)  # 10 of host-bound
    trace.kernel("in time", 26, 42, 8)  # 2 of launch gap
    trace.kernel("waits", 27, 100, 10)  # 50 of dependency
    trace.work("untold", 113, 7, None)  # 3 of unknown
    return trace


def test_idle_time_has_its_cause(tmp_path: Path) -> None:
    found = with_itself(tmp_path, idle_trace())
    assert idle(found) == {
        "busy": (0, 0, 0.045, 0.045),
        "host_bound": (1, 1, 0.01, 0.01),
        "launch_gap": (1, 1, 0.002, 0.002),
        "dependency": (1, 1, 0.05, 0.05),
        "unknown": (1, 1, 0.003, 0.003),
    }
    assert list(idle(found))[:2] == ["busy", "host_bound"]


def test_a_device_is_idle_where_none_of_its_streams_works(tmp_path: Path) -> None:
    trace = idle_trace()
    trace.kernel("beside", 0, 15, 80, stream=20)  # from 15 to 95, then 5 until 100
    trace.kernel("of another device", 1000, 2000, 30, device=1)
    found = with_itself(tmp_path, trace)
    assert idle(found)["busy"] == (0, 0, 0.132, 0.132)
    assert idle(found)["launch_gap"] == (1, 1, 0.005, 0.005)
    assert {*idle(found)} == {"busy", "launch_gap", "unknown"}


def test_kernels_of_a_replay_have_one_launch(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.kernel("before", 0, 10, 10)
    replay = trace.launch(30, name="cudaGraphLaunch")
    for place in range(3):
        trace.work("node", 50 + 10 * place, 9, replay)
    found = with_itself(tmp_path, trace)
    assert idle(found)["host_bound"] == (1, 1, 0.03, 0.03)
    assert idle(found)["launch_gap"] == (2, 2, 0.002, 0.002)


def test_work_is_given_to_the_gpu_as_its_launch_call_ends(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.kernel("first", 0, 10, 10)
    trace.work("late", 24, 6, trace.launch(15, took=8))  # given at 23
    trace.work("copy", 33, 6, trace.launch(25, name="cudaMemcpyAsync", took=8), cat="gpu_memcpy")
    found = with_itself(tmp_path, trace)
    assert idle(found)["host_bound"] == (1, 1, 0.004, 0.004)
    assert idle(found)["launch_gap"] == (1, 1, 0.003, 0.003)


@pytest.mark.parametrize("inner_first", [False, True])
def test_the_drivers_call_inside_of_the_runtimes_is_not_the_launch(
    tmp_path: Path, inner_first: bool
) -> None:
    trace = TorchTrace()
    call = trace.launch(10, took=6)  # given at 16, when the GPU was idle
    trace.launch(12, name="cuLaunchKernel", took=2)
    trace.events[-1].update(cat="cuda_driver", args={"correlation": call})
    if inner_first:
        trace.events.reverse()
    trace.kernel("before", 0, 5, 10)
    trace.work("mm", 20, 5, call)
    assert idle(with_itself(tmp_path, trace))["host_bound"] == (1, 1, 0.005, 0.005)


def test_calls_on_a_track_beside_their_thread_belong_to_that(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.scope("step", 0, 100, tid=1)
    call = trace.launch(10, tid=99)
    trace.events[-1]["args"]["thread"] = 1
    trace.work("mm", 20, 5, call)
    assert set(rows(with_itself(tmp_path, trace), "launched")) == {"step"}


# Traces of gpuprof


def test_traces_of_gpuprof_are_compared_by_the_path_of_the_scope(
    tmp_path: Path, fake: FakeCuda, stream: int
) -> None:
    paths = tmp_path / "a.json", tmp_path / "b.json.gz"
    for path, ms in zip(paths, (1, 3), strict=True):
        with gpuprof.trace(path):
            with gpuprof.capture(stream, timers="collect", name="decode") as cap:
                with gpuprof.timer("inside", stream=stream):
                    fake.work(stream, MS)
            for _ in range(4):
                with gpuprof.timer("step"):
                    with gpuprof.timer("fwd", stream=stream):
                        fake.work(stream, ms * MS)
                    cap.graph.launch(stream)
            gpuprof.flush()
        cap.graph.close()
    found = gpuprof.trace_diff(*paths)
    gpu = rows(found, "gpu")
    assert gpu["step/fwd"] == (4, 4, pytest.approx(4, abs=0.05), pytest.approx(12, abs=0.05))
    assert gpu["step/decode"][:2] == (4, 4)
    assert {"step", "step/fwd"} <= set(rows(found, "host"))
    assert "step/decode" not in rows(found, "host")
    first = next(row for row in found.rows if row.kind == "gpu" and row.name == "step/fwd")
    assert first.change_ms == pytest.approx(8, abs=0.1)
    assert found.idle == []
    assert len([note for note in found.notes if "has no kernels" in note]) == 2


def test_scopes_that_overlap_are_beside_each_other_as_in_a_summary(tmp_path: Path) -> None:
    events = [
        slice_event("first", 0, 10, cat="scope"),
        slice_event("second", 5, 10, cat="scope"),
        slice_event("inside", 11, 2, cat="scope"),
    ]
    path = written(tmp_path / "t.json", object_form(events))
    found = gpuprof.trace_diff(path, path)
    assert set(rows(found, "host")) == {"first", "second", "second/inside"}


def test_a_trace_that_torch_wrote_is_read() -> None:
    path = Path(__file__).parents[1] / "fixtures" / "torch_profiler.json"
    found = gpuprof.trace_diff(path, path)
    assert rows(found, "host") == {"step": (1, 1, 1.488931, 1.488931)}
    assert rows(found, "gpu") == {}  # none was measured
    assert set(rows(found, "kernel")) == {"volta_sgemm", "Memcpy DtoH (Device -> Pinned)"}
    assert rows(found, "launched")["step"] == (1, 1, 0.120128, 0.120128)
    assert idle(found)["unknown"] == (1, 1, 0.089472, 0.089472)


# Files that are wrong, or do not fit


def test_a_file_that_is_cut_off_is_compared_as_far_as_it_goes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = steps(10, [("mm", 100)])
    data = object_form(trace.events)
    whole = written(tmp_path / "a.json", data)
    half = written(tmp_path / "b.json", data[: len(data) // 2])
    found = gpuprof.trace_diff(whole, half, per="step")
    (cut,) = found.cut
    assert cut.startswith("B: cut off inside an event")
    assert rows(found, "kernel")["mm"][0] == 1
    assert command("trace", "diff", whole, half) == 2
    assert "trace repair" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "is empty"),
        (b"not a trace", "expected '{' or"),
        (b'{"metrics": []}', "no trace"),
        (b'{"traceEvents": []}', "neither scopes nor GPU work"),
        (object_form([slice_event("f", 0, 1)]), "neither scopes nor GPU work"),
    ],
)
def test_a_file_that_has_nothing_to_compare_is_refused(
    tmp_path: Path, data: bytes, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good = saved(tmp_path / "a.json", steps(1, [("mm", 1)]))
    bad = written(tmp_path / "b.json", data)
    with pytest.raises(gpuprof.TraceError, match=text) as caught:
        gpuprof.trace_diff(good, bad)
    assert "b.json" in str(caught.value)
    assert command("trace", "diff", bad, good) == 2
    assert text in capsys.readouterr().err


def test_a_trace_without_gpu_work_is_compared_by_its_scopes(tmp_path: Path) -> None:
    host = TorchTrace()
    host.scope("step", 0, 40)
    a = saved(tmp_path / "a.json", steps(1, [("mm", 100)]))
    b = saved(tmp_path / "b.json", host)
    found = gpuprof.trace_diff(a, b)
    assert rows(found, "host") == {"step": (1, 1, 0.04, 0.04)}
    assert found.idle == []
    (note,) = found.notes
    assert note.startswith("B has no kernels")


def test_kernels_whose_launches_are_not_there_are_pointed_out(tmp_path: Path) -> None:
    trace = TorchTrace()
    trace.work("mm", 0, 10, None)
    trace.work("mm", 20, 10, 77)
    found = with_itself(tmp_path, trace)
    assert idle(found)["unknown"] == (1, 1, 0.01, 0.01)
    assert rows(found, "launched") == {}
    assert found.notes[0] == "A does not say when its kernels were launched"


def test_unequal_ranks_and_devices_are_pointed_out(tmp_path: Path) -> None:
    one, two = steps(2, [("mm", 1)]), steps(2, [("mm", 1)])
    two.kernel("mm", 0, 10, 1, device=1)
    a = saved(tmp_path / "a.json", one, distributedInfo={"rank": 0})
    b = saved(tmp_path / "b.json", two, distributedInfo={"rank": 3})
    found = gpuprof.trace_diff(a, b)
    assert "A is of rank 0, B of rank 3" in found.notes
    assert any("1 devices, B on 2" in note for note in found.notes)


def test_a_merged_trace_is_told_from_one_of_one_process(tmp_path: Path) -> None:
    ranks = []
    for rank in range(2):
        trace = steps(2, [("mm", 10 + rank)])
        for event in trace.events:
            event["pid"] = event["pid"] or 4001  # as torch's GPUs have pids below those of ours
        trace.events.append(own_metadata(1_000_000_000, rank=rank, pid=4000))
        ranks.append(saved(tmp_path / f"{rank}.json", trace))
    merged = tmp_path / "all.json"
    assert command("trace", "merge", *ranks, "-o", merged) == 0
    found = gpuprof.trace_diff(ranks[0], merged)
    assert any("A holds the traces of 1 processes, B of 2" in note for note in found.notes)
    # Correlations of two processes are the same numbers, and each has its own launches.
    assert rows(found, "launched") == {"step": (2, 4, 0.02, 0.042)}
    assert idle(found)["launch_gap"] == (1, 2, 0.002, 0.004)


def test_odd_events_are_left_out_and_counted(tmp_path: Path) -> None:
    trace = steps(2, [("mm", 10)])
    good = saved(tmp_path / "a.json", trace)
    trace.work("negative", 10, -1, 5)
    trace.work("no time", 10, 1, 5)
    del trace.events[-1]["dur"]
    trace.work("texts", 10, 1, 5)
    trace.events[-1].update(args="none", pid=[])
    data = object_form([*trace.events, 7, {"cat": ["x"], "ph": "X"}, {"ph": "X", "cat": "kernel"}])  # type: ignore[list-item]
    found = gpuprof.trace_diff(good, written(tmp_path / "b.json", data))
    assert rows(found, "kernel") == {"mm": (2, 2, 0.02, 0.02)}
    assert any(note.startswith("B: 5 events were left out") for note in found.notes)


def test_past_the_limits_kernels_are_counted_and_the_rest_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuprof._trace_tools.diff_scan.MOST_WORK", 5)
    monkeypatch.setattr("gpuprof._trace_tools.diff_scan.MOST_SCOPES", 3)
    found = with_itself(tmp_path, steps(10, [("mm", 100)]))
    assert rows(found, "kernel")["mm"] == (10, 10, 1.0, 1.0)
    assert idle(found)["launch_gap"][0] == 4
    assert "A: idle time and kernels by scope are of the first 5" in found.notes[0]
    assert any("7 scopes past the first" in note for note in found.notes)


# What is asked for wrongly, and how it is shown


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"by": "name"}, "by: expected one of 'scope', 'kernel', got 'name'"),
        ({"top": 0}, "top: expected a whole number of at least 1, got 0"),
        ({"per": "stop"}, r"per: expected a scope of .*a\.json, such as 'step', got 'stop'"),
    ],
)
def test_a_wrong_call_says_what_is_expected(
    pair: tuple[Path, Path], options: dict[str, Any], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        gpuprof.trace_diff(*pair, **options)


def test_the_command_shows_tables(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("trace", "diff", *pair, "--per", "step") == 0
    out = capsys.readouterr().out
    assert "all figures are per call of step: 10 in A, 20 in B" in out
    mm = next(line for line in out.splitlines() if line.startswith("mm"))
    assert " ".join(mm.split()) == "mm 100 µs 130 µs +30.0 µs +30.0 % 1 1 100 µs 130 µs"
    gelu = next(line for line in out.splitlines() if line.startswith("gelu"))
    assert " ".join(gelu.split()) == "gelu - 12.0 µs +12.0 µs new 0 1 - 12.0 µs"
    assert "GPU idle by cause" in out


def test_the_command_prints_json_which_is_to_dict(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["trace", "diff", *map(str, pair), "--json", "--by", "kernel", "--top", "1"]
    assert command(*arguments) == 0
    data = json.loads(capsys.readouterr().out)
    assert data == json.loads(json.dumps(gpuprof.trace_diff(*pair, by="kernel", top=1).to_dict()))
    (row,) = data["rows"]
    assert (row["name"], row["state"]) == ("mm", "both")
    assert row["change_ms"] == pytest.approx(1.6)


def test_it_leaves_as_json_csv_and_markdown(pair: tuple[Path, Path]) -> None:
    found = gpuprof.trace_diff(*pair, by="kernel", top=1)
    assert json.loads(found.to_json()) == json.loads(json.dumps(found.to_dict()))
    (line,) = csv.DictReader(io.StringIO(found.to_csv()))
    assert (line["kind"], line["name"], line["state"]) == ("kernel", "mm", "both")
    assert float(line["change_ms"]) == pytest.approx(1.6)
    text = found.to_markdown()
    assert text.startswith("A: ")
    assert "\n| mm | " in text


def test_the_command_refuses_a_scope_that_is_not_there(
    pair: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("trace", "diff", *pair, "--per", "stop") == 2
    assert "per: expected a scope of" in capsys.readouterr().err


def test_names_out_of_files_are_no_markup(tmp_path: Path) -> None:
    found = with_itself(tmp_path, steps(1, [("<b>\x1b[31m" + "x" * 500, 1)]))
    assert "\x1b" not in str(found)
    html = found._repr_html_()
    assert "<b>" not in html
    assert "\x1b" not in html
    assert max(map(len, str(found).splitlines())) < 300
    assert repr(found).startswith("<TraceDiff of ")
