"""Traces with something odd in them: what is sound is still read, and the rest is named."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.benchmark_results import answer, command
from tests.support.processes import check_python, environment
from tests.support.trace_events import OLD
from tests.support.trace_files import load, named, object_form, slice_event, written

GOOD = slice_event("good", 0, 1000)
Tool = Callable[..., tuple[int, Any, str]]


@pytest.fixture
def tool(capsys: pytest.CaptureFixture[str]) -> Tool:
    """Run a part of ``gpuprof trace``; return its exit code, what it found, and its complaints."""

    def run(name: str, *arguments: object) -> tuple[int, Any, str]:
        as_json = ["--json"] if name in {"summary", "validate"} else []
        code, out, err = answer(capsys, "trace", name, *arguments, *as_json)
        return code, json.loads(out) if out and as_json else out, err

    return run


def text(event: dict[str, Any]) -> bytes:
    return json.dumps(event).encode()


def array(*events: bytes) -> bytes:
    return b"[" + b",\n".join(events) + b"]"


ODD = {
    "text as a time": (text({**GOOD, "ts": "0"}), '"ts" is a string; expected a number'),
    "a key twice": (b'{"ph":"X","ph":"X","ts":1,"dur":1}', "a key is there twice"),
    "no object": (b"[1, 2]", "the event is an array; expected an object"),
    "an async begin without a time": (b'{"ph":"b","id":1}', '"ts" is missing; expected a number'),
    "18 digits": (
        b'{"ph":"X","ts":99999999999999999.5,"dur":1}',
        '"ts" is 1e+17; expected microseconds within 146 years',
    ),
}


@pytest.mark.parametrize("what", ODD)
def test_one_odd_event_is_left_out_of_a_summary_and_named(
    tmp_path: Path, tool: Tool, what: str
) -> None:
    odd, reason = ODD[what]
    data = array(text(GOOD), odd, text(slice_event("good", 5000, 2000)))
    path = written(tmp_path / "t.json", data)
    code, found, _ = tool("summary", path)
    assert code == 0
    assert [(row["name"], row["count"], row["total_ms"]) for row in found["ranges"]] == [
        ("good", 2, 3.0)
    ]
    assert (found["events"], found["left_out"]) == (3, 1)
    (note,) = found["notes"]
    assert note.startswith("1 event was left out; the first: event 1, byte ")
    assert reason in note
    place = int(note.split("byte ")[1].split(":")[0])
    assert data.index(odd) <= place < data.index(odd) + len(odd)


def test_a_time_of_18_digits_is_a_fault_and_not_another_time(tmp_path: Path, tool: Tool) -> None:
    event = b'{"ph":"X","name":"a","pid":1,"tid":7,"ts":99999999999999999.5,"dur":1}'
    code, found, _ = tool("validate", written(tmp_path / "t.json", array(event)))
    assert (code, found["faults"]) == (1, {"ts": 1})


def test_differences_of_the_farthest_times_are_right(tmp_path: Path, tool: Tool) -> None:
    far = "4611686018427387.5"  # close to 2^62 nanoseconds
    data = array(
        b'{"ph":"B","name":"all","pid":1,"tid":7,"ts":-%s}' % far.encode(),
        b'{"ph":"E","name":"all","pid":1,"tid":7,"ts":%s}' % far.encode(),
    )
    path = written(tmp_path / "t.json", data)
    (row,) = tool("summary", path)[1]["ranges"]
    assert row["total_ms"] == 2 * float(far) / 1e3
    late = written(tmp_path / "late.json", object_form([GOOD], baseTimeNanoseconds=1))
    early = written(tmp_path / "early.json", data[:-1] + b"]")
    assert tool("merge", early, late, "--no-align", "-o", tmp_path / "out.json")[0] == 0
    events = load(tmp_path / "out.json")["traceEvents"]
    times = {event["ph"]: event["ts"] for event in events if event["name"] == "all"}
    assert times == {"B": -float(far), "E": float(far)}


def test_a_text_of_many_megabytes_in_the_place_of_an_event_is_one_fault(
    tmp_path: Path, tool: Tool
) -> None:
    data = array(text(GOOD), b'"' + b"x" * (17 << 20) + b'"', text(GOOD))
    path = written(tmp_path / "t.json", data)
    code, found, _ = tool("validate", path)
    assert (code, found["events"], found["faults"]) == (1, 3, {"event": 1})
    assert tool("repair", path)[0] == 0
    assert load(tmp_path / "t.repaired.json")["traceEvents"] == [GOOD, GOOD]


@pytest.mark.parametrize("odd", [b"{}", b"[1]", b"5"])
def test_a_repair_leaves_out_what_is_no_event(tmp_path: Path, tool: Tool, odd: bytes) -> None:
    data = array(odd, *map(text, named(7)), text(GOOD))
    code, out, _ = tool("repair", written(tmp_path / "t.json", data))
    assert code == 0
    assert ": 3 events\n1 events left out" in out
    assert load(tmp_path / "t.repaired.json")["traceEvents"] == [*named(7), GOOD]
    assert tool("validate", tmp_path / "t.repaired.json")[0] == 0


@pytest.mark.parametrize(
    ("odd", "place", "reason"),
    [
        (b'{"ph":"i","name":"a","ts":NaN}', b"NaN", "NaN or Infinity"),
        (b'{"ph":"i","ts":1,"args":{"loss":-Infinity}}', b"-Inf", "NaN or Infinity"),
        (
            b'{"ph":"i","ts":1,"args":{"k":{"a":1},"\\u006b":2}}',
            b"{",
            "a key is there twice",
        ),
        (b'{"ph":"i","name":"a\tb","ts":1}', b"\t", "a control character"),
        (b'{"ph":"i","name":"\xc3(\xff","ts":1}', b"\xc3", "bytes in a string that are not UTF-8"),
        (b'{"ph":"i","ts":1,"args":{"v":[1,]}}', b",]", "a comma before the end"),
    ],
)
def test_a_repair_refuses_an_event_that_is_no_strict_json_and_names_the_place(
    tmp_path: Path, tool: Tool, odd: bytes, place: bytes, reason: str
) -> None:
    data = array(text(GOOD), odd, text(GOOD))
    path = written(tmp_path / "t.json", data)
    at = data.index(odd) + odd.index(place)
    code, _, err = tool("repair", path)
    assert code == 2
    assert f"event 1, byte {at}: {reason}" in err
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["summary", "validate", "repair"])
def test_a_value_nested_without_end_leaves_out_one_event(
    tmp_path: Path, tool: Tool, name: str
) -> None:
    deep = b'{"ph":"i","ts":1,"args":{"a":' + b"[" * 20_000 + b"]" * 20_000 + b"}}"
    path = written(tmp_path / "t.json", array(text(GOOD), deep, *map(text, named(7))))
    _, found, _ = tool(name, path)
    if name == "summary":
        assert (found["left_out"], found["ranges"][0]["count"]) == (1, 1)
        assert "nested too deep" in found["notes"][0]
    elif name == "validate":
        assert found["faults"] == {"event": 1}
    else:
        assert "1 events left out" in found
        assert len(load(tmp_path / "t.repaired.json")["traceEvents"]) == 3


# --- much of something


def nested(count: int) -> bytes:
    line = b'{"ph":"X","name":"n","pid":1,"tid":7,"ts":%d,"dur":%d}'
    return array(*(line % (at, 4 * count - 2 * at) for at in range(count)))


def test_any_number_of_slices_open_at_once_is_read(tmp_path: Path, tool: Tool) -> None:
    count = 210_000  # past those that wait for a place among others
    path = written(tmp_path / "t.json", nested(count))
    assert tool("summary", path)[1]["ranges"][0]["count"] == count
    assert tool("validate", path)[1]["events"] == count


def test_an_interrupt_is_heard_while_a_trace_is_read() -> None:
    summary = [sys.executable, "-m", "gpuprof", "trace", "summary", "-"]
    with subprocess.Popen(
        summary, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(None)
    ) as process:
        assert process.stdin
        process.stdin.write(b"[" + b",\n".join([text(GOOD)] * 20_000))  # more than a pipe holds
        process.stdin.flush()
        until = time.monotonic() + 30
        while process.poll() is None and time.monotonic() < until:
            # Again: Python does not hear one that comes just before it begins to wait for input.
            process.send_signal(signal.SIGINT)
            time.sleep(0.5)
        assert process.poll() == 130
        process.stdin.close()


def check_memory(most: int, *arguments: str) -> str:
    """Run a command that refuses its input in less than so many MiB; return what it says."""
    out = check_python(
        f"""
        import resource
        from tests.support.benchmark_results import command
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        sys.stderr = sys.stdout
        for parts in (["compare", "none", "none"], ["trace", "summary", "none"]):
            command(*parts)  # loads what they need
        before = peak()
        print(command(*{arguments!r}))
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
    assert command("trace", "summary", str(fifo)) == 0
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
    assert command("trace", "repair", "-") == 2
    assert command("trace", "merge", str(fifo), str(out), "-o", str(tmp_path / "no.json")) == 2
    assert "is a FIFO" in capsys.readouterr().err


def test_several_files_are_validated_one_after_the_other(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = str(written(tmp_path / "good.json", array(*map(text, named(7)), text(GOOD))))
    bad = str(written(tmp_path / "bad.json", array(text({**GOOD, "dur": -1}))))
    none = str(written(tmp_path / "none.json", b"hello"))
    assert command("trace", "validate", good, good) == 0
    assert capsys.readouterr().out.count("no faults") == 2
    assert command("trace", "validate", good, bad, good) == 1
    assert command("trace", "validate", none, bad, good) == 2
    shown = capsys.readouterr()
    assert shown.out.count("no faults") == 3
    assert "none.json" in shown.err
    assert command("trace", "validate", good, bad, "--json") == 1
    assert [one["ok"] for one in json.loads(capsys.readouterr().out)] == [True, False]


@pytest.mark.parametrize("out", ["-", "/dev/stdout"])
def test_a_repair_into_the_standard_output_is_the_trace_alone(tmp_path: Path, out: str) -> None:
    path = written(tmp_path / "t.json", array(text(GOOD))[:-1])
    repair = [sys.executable, "-m", "gpuprof", "trace", "repair", str(path), "-o", out]
    piped = subprocess.run(repair, capture_output=True, env=environment(None), check=True)
    assert json.loads(piped.stdout)["traceEvents"] == [GOOD]
    assert b"1 events" in piped.stderr
    with (tmp_path / "out.json").open("wb") as file:
        subprocess.run(repair, stdout=file, env=environment(None), check=True)
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
        assert command("trace", "repair", path, "-o", link) == 0
        assert link.is_symlink()
        assert load(target)["traceEvents"] == [GOOD]
    assert sorted(entry.name for entry in folder.iterdir()) == ["False.json", "True.json"]
