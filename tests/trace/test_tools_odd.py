"""Traces with something odd in them: what is sound is still read, and the rest is named."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from gpuprof._cli.main import main
from gpuprof._trace_tools.tools import merge, repair, summary, validate
from gpuprof.errors import TraceError
from tests.support.processes import check_python, environment
from tests.support.trace_events import OLD
from tests.support.trace_files import load, named, object_form, slice_event, written

GOOD = slice_event("good", 0, 1000)


def text(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def array(*events: bytes) -> bytes:
    return b"[" + b",\n".join(events) + b"]"


ODD = {
    "text as a time": (text({**GOOD, "ts": "0"}), '"ts" is a string; expected a number'),
    "no time": (b'{"ph":"X","name":"a"}', '"ts" is missing; expected a number'),
    "true as a time": (text({**GOOD, "ts": True}), '"ts" is true; expected a number'),
    "a negative duration": (text({**GOOD, "dur": -1.5}), '"dur" is -1.5; expected none below 0'),
    "a list as a name": (text({**GOOD, "name": ["a"]}), '"name" is an array; expected a string'),
    "null as a track": (text({**GOOD, "tid": None}), '"tid" is null; expected a whole number'),
    "no phase": (b'{"name":"a"}', '"ph" is missing; expected a letter in quotes'),
    "NaN": (b'{"ph":"X","ts":NaN,"dur":1}', "NaN or Infinity, which is no JSON"),
    "a key twice": (b'{"ph":"X","ph":"X","ts":1,"dur":1}', "a key is there twice"),
    "a control character": (
        b'{"ph":"i","ts":1,"name":"a\tb"}',
        "a control character in a string that is not escaped",
    ),
    "no object": (b"[1, 2]", "the event is an array; expected an object"),
    "an async begin without a time": (b'{"ph":"b","id":1}', '"ts" is missing; expected a number'),
    "18 digits": (
        b'{"ph":"X","ts":99999999999999999.5,"dur":1}',
        '"ts" is 99999999999999999.5; expected microseconds within 146 years',
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_one_odd_event_is_left_out_of_a_summary_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], what: str
) -> None:
    odd, reason = ODD[what]
    data = array(text(GOOD), odd, text(slice_event("good", 5000, 2000)))
    path = written(tmp_path / "t.json", data)
    assert main(["trace", "summary", str(path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["count"], row["total_ms"]) for row in found["ranges"]] == [
        ("good", 2, 3.0)
    ]
    assert (found["events"], found["left_out"]) == (3, 1)
    (note,) = found["notes"]
    assert note.startswith("1 event was left out; the first: event 1, byte ")
    assert reason in note
    place = int(note.split("byte ")[1].split(":")[0])
    assert data.index(odd) <= place < data.index(odd) + len(odd)


def test_a_file_of_odd_events_alone_is_no_trace(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", b"[1, 2, 3]")
    with pytest.raises(TraceError, match="event 0, byte 1: the event is a number"):
        summary(path)


def test_a_time_of_18_digits_is_a_fault_and_not_another_time(tmp_path: Path) -> None:
    event = b'{"ph":"X","name":"a","pid":1,"tid":7,"ts":99999999999999999.5,"dur":1}'
    found = validate(written(tmp_path / "t.json", array(event)))
    assert found.faults == {"ts": 1}


def test_differences_of_the_farthest_times_are_right(tmp_path: Path) -> None:
    far = "4611686018427387.904"  # 2^62 nanoseconds
    data = array(
        b'{"ph":"B","name":"all","pid":1,"tid":7,"ts":-%s}' % far.encode(),
        b'{"ph":"E","name":"all","pid":1,"tid":7,"ts":%s}' % far.encode(),
    )
    path = written(tmp_path / "t.json", data)
    (row,) = summary(path).ranges
    assert row.total_ms == pytest.approx((1 << 63) / 1e6)
    late = written(tmp_path / "late.json", object_form([GOOD], baseTimeNanoseconds=1))
    early = written(tmp_path / "early.json", data[:-1] + b"]")
    merge([early, late], tmp_path / "out.json", align=False)
    events = load(tmp_path / "out.json")["traceEvents"]
    times = {event["ph"]: event["ts"] for event in events if event["name"] == "all"}
    assert times == {"B": -float(far), "E": float(far)}


def test_a_text_of_many_megabytes_in_the_place_of_an_event_is_one_fault(tmp_path: Path) -> None:
    data = array(text(GOOD), b'"' + b"x" * (17 << 20) + b'"', text(GOOD))
    path = written(tmp_path / "t.json", data)
    found = validate(path)
    assert (found.events, found.faults) == (3, {"event": 1})
    assert repair(path).left_out == 1
    assert load(tmp_path / "t.repaired.json")["traceEvents"] == [GOOD, GOOD]


@pytest.mark.parametrize("odd", [b"{}", b"[1]", b"5"])
def test_a_repair_leaves_out_what_is_no_event(tmp_path: Path, odd: bytes) -> None:
    data = array(odd, *map(text, named(7)), text(GOOD))
    done = repair(written(tmp_path / "t.json", data))
    assert (done.events, done.left_out) == (3, 1)
    assert load(Path(done.output))["traceEvents"] == [*named(7), GOOD]
    assert validate(done.output).ok


@pytest.mark.parametrize(
    ("odd", "place", "reason"),
    [
        (b'{"ph":"i","name":"a","ts":NaN}', b"NaN", "NaN or Infinity"),
        (b'{"ph":"i","ts":1,"args":{"loss":-Infinity}}', b"-Inf", "NaN or Infinity"),
        (
            b'{"ph":"i","ts":1,"args":{"k":{"a":1},"\\u006b":2}}',
            b'"\\u006b',
            "a key is there twice",
        ),
        (b'{"ph":"i","name":"a\tb","ts":1}', b"\t", "a control character"),
        (b'{"ph":"i","name":"\xc3(\xff","ts":1}', b"\xc3", "bytes in a string that are not UTF-8"),
        (b'{"ph":"i","ts":1,"args":{"v":[1,]}}', b",]", "a comma before the end"),
    ],
)
def test_a_repair_refuses_an_event_that_is_no_strict_json_and_names_the_place(
    tmp_path: Path, odd: bytes, place: bytes, reason: str
) -> None:
    data = array(text(GOOD), odd, text(GOOD))
    path = written(tmp_path / "t.json", data)
    at = data.index(odd) + odd.index(place)
    with pytest.raises(TraceError, match=f"event 1, byte {at}: {reason}"):
        repair(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("tool", ["summary", "validate", "repair"])
def test_a_value_nested_without_end_leaves_out_one_event(tmp_path: Path, tool: str) -> None:
    deep = b'{"ph":"i","ts":1,"args":{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
    path = written(tmp_path / "t.json", array(text(GOOD), deep, *map(text, named(7))))
    if tool == "summary":
        found = summary(path)
        assert (found.left_out, found.ranges[0].count) == (1, 1)
        assert "nested too deep" in found.notes[0]
    elif tool == "validate":
        assert validate(path).faults == {"event": 1}
    else:
        assert repair(path).left_out == 1
        assert len(load(tmp_path / "t.repaired.json")["traceEvents"]) == 3


# --- much of something


def nested(count: int) -> bytes:
    line = b'{"ph":"X","name":"n","pid":1,"tid":7,"ts":%d,"dur":%d}'
    return array(*(line % (at, 4 * count - 2 * at) for at in range(count)))


@pytest.mark.parametrize("tool", ["summary", "validate"])
def test_any_number_of_slices_open_at_once_is_read(tmp_path: Path, tool: str) -> None:
    from gpuprof._trace_tools.nesting import MOST_SLICES

    count = MOST_SLICES + 10_000
    path = written(tmp_path / "t.json", nested(count))
    if tool == "summary":
        found = summary(path)
        assert found.ranges[0].count == count
    else:
        assert validate(path).events == count


def test_an_interrupt_is_heard_while_a_trace_is_read() -> None:
    command = [sys.executable, "-m", "gpuprof", "trace", "summary", "-"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(None)
    ) as process:
        assert process.stdin
        process.stdin.write(b"[" + b",\n".join([text(GOOD)] * 20_000))  # more than a pipe holds
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        process.stdin.close()


def check_memory(most: int, *command: str) -> str:
    """Run a command that refuses its input in less than so many MiB; return what it says."""
    out = check_python(
        f"""
        import resource
        from gpuprof._cli.main import main
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        import gpuprof._cli.compare, gpuprof._trace_tools.tools
        before = peak()
        sys.stderr = sys.stdout
        print(main({list(command)!r}))
        print(peak() - before)
        """
    )
    status, grown = out.split("\n")[-3:-1]
    assert status == "2"
    assert int(grown) < most
    return out


def test_a_merge_of_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    # Pids of ten kilobytes, which gzip makes nothing of.
    path = tmp_path / "t.json.gz"
    line = b'{"ph":"M","name":"a","pid":"%d' + b"x" * 10_000 + b'","tid":1,"ts":1},\n'
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"[")
        file.writelines(line % at for at in range(6000))
    output = str(tmp_path / "o.json")
    out = check_memory(60, "trace", "merge", str(path), str(path), "--no-align", "-o", output)
    assert "a pid is longer than" in out


def test_an_input_of_compare_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(b"[" + b"[]," * 4_000_000 + b"[]]")
    check_memory(100, "compare", str(path), str(path))


# --- where they come from, and go to


def test_a_pipe_and_the_standard_input_are_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = gzip.compress(array(*map(text, named(7)), text(GOOD)))
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    writer = threading.Thread(target=fifo.write_bytes, args=(data,))
    writer.start()
    assert main(["trace", "summary", str(fifo)]) == 0
    writer.join()
    assert "good" in capsys.readouterr().out
    out = tmp_path / "out.json"
    for arguments in (["summary", "-"], ["validate", "-"], ["repair", "-", "-o", str(out)]):
        done = subprocess.run(
            [sys.executable, "-m", "gpuprof", "trace", *arguments],
            input=data,
            capture_output=True,
            env=environment(None),
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, b"")
    assert load(out)["traceEvents"][-1] == GOOD
    assert main(["trace", "repair", "-"]) == 2
    assert main(["trace", "merge", str(fifo), str(out), "-o", str(tmp_path / "no.json")]) == 2
    assert "is a FIFO" in capsys.readouterr().err


def test_several_files_are_validated_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(written(tmp_path / "good.json", array(*map(text, named(7)), text(GOOD))))
    bad = str(written(tmp_path / "bad.json", array(text({**GOOD, "dur": -1}))))
    none = str(written(tmp_path / "none.json", b"hello"))
    assert main(["trace", "validate", good, good]) == 0
    assert capsys.readouterr().out.count("no faults") == 2
    assert main(["trace", "validate", good, bad, good]) == 1
    assert main(["trace", "validate", none, bad, good]) == 2
    shown = capsys.readouterr()
    assert shown.out.count("no faults") == 3
    assert "none.json" in shown.err
    assert main(["trace", "validate", good, bad, "--json"]) == 1
    assert [one["ok"] for one in json.loads(capsys.readouterr().out)] == [True, False]


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_a_repair_into_the_standard_output_is_the_trace_alone(tmp_path: Path, out: str) -> None:
    path = written(tmp_path / "t.json", array(text(GOOD))[:-1])
    command = [sys.executable, "-m", "gpuprof", "trace", "repair", str(path), "-o", out]
    piped = subprocess.run(command, capture_output=True, env=environment(None), check=True)
    assert json.loads(piped.stdout)["traceEvents"] == [GOOD]
    assert b"1 events" in piped.stderr
    with (tmp_path / "out.json").open("wb") as file:
        subprocess.run(command, stdout=file, env=environment(None), check=True)
    assert load(tmp_path / "out.json")["traceEvents"] == [GOOD]


def test_an_output_that_is_a_link_stays_one(tmp_path: Path) -> None:
    path = written(tmp_path / "t.json", array(text(GOOD))[:-1])
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    for existing in (False, True):
        link, target = tmp_path / f"{existing}.json", folder / f"{existing}.json"
        link.symlink_to(target)
        if existing:
            target.write_text(OLD)
        repair(path, link)
        assert link.is_symlink()
        assert load(target)["traceEvents"] == [GOOD]
    assert sorted(entry.name for entry in folder.iterdir()) == ["False.json", "True.json"]
