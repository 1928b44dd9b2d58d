"""Input that is no trace, or means harm: a clear error, exit code 2, little time and memory."""

from __future__ import annotations

import gzip
import os
import random
import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuprof._trace_tools import files, reader, tools
from gpuprof._trace_tools import validate as trace_validate
from gpuprof._trace_tools.summary import Summary
from gpuprof._trace_tools.tools import summary, validate
from gpuprof.errors import TraceError
from tests.support.benchmark_results import answer, command
from tests.support.fuzzing import TIMES
from tests.support.processes import check_python
from tests.support.trace_events import OLD
from tests.support.trace_files import (
    array_form,
    load,
    named,
    object_form,
    slice_event,
    strict,
    written,
)

EVENT = b'{"ph":"X","name":"a","pid":1,"tid":7,"ts":1,"dur":1}'


def deep(levels: int) -> bytes:
    return b'[{"ph":"i","ts":1,"args":{"a":' + b"[" * levels + b"]" * levels + b"}}]"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", r"byte 0: the file is empty"),
        (b"  \n ", r"byte 0: found no JSON"),
        (b"hello", r"byte 0: found 'h'; expected '{' or '\['"),
        (b"\x00" * 100, r"byte 0: found byte 0x00"),
        (b"\x7fELF" + bytes(range(256)), r"byte 0: found byte 0x7f"),
        (b"7", r"byte 0: found '7'; expected '{' or '\['"),
        (b"{}", r"no \"traceEvents\"; this is no trace"),
        (b'{"a":[1,2', r"cut off before its \"traceEvents\""),
        (b'{"traceEvents":{}}', r"byte 15: found '{'; expected an array"),
        (b'{"traceEvents":[],"traceEvents":[]}', r"byte 18: a key is there twice"),
        (b'{"a":1,"a":2,"traceEvents":[]}', r"byte 7: a key is there twice"),
        (b"[1]", r"byte 1: the event is a number; expected an object"),
        (b"[" + EVENT + b",]", r"byte 53: a comma before the end of an array"),
        (b"[" + EVENT + b"}", r"found '}'; expected ',' or '\]'"),
        (b"[" + EVENT + b"]x", r"found 'x'; expected nothing more"),
        (b'[{"ph":"X","ph":"X"}]', r"event 0, byte 1: a key is there twice"),
        (b'[{"ph":"i","ts":1,"k":1,"\\u006b":1}]', r"a key is there twice"),
        (b'[{"ph":7}]', r"event 0, byte 1: \"ph\" is 7; expected a letter in quotes"),
        (b'[{"name":"a"}]', r"\"ph\" is missing"),
        (b'[{"ph":"X","ts":"1","dur":1}]', r"\"ts\" is a string; expected a number"),
        (b'[{"ph":"X","ts":1,"dur":{}}]', r"\"dur\" is an object; expected a number"),
        (b'[{"ph":"X","ts":1,"dur":-1}]', r"\"dur\" is -1; expected none below 0"),
        (b'[{"ph":"X","ts":1,"dur":1,"name":[]}]', r"\"name\" is an array; expected a string"),
        (b'[{"ph":"X","ts":1,"dur":1,"pid":null}]', r"\"pid\" is null; expected a whole number"),
        (b'[{"ph":"X","ts":1e400,"dur":1}]', r"\"ts\" is inf; expected microseconds within"),
        (b'[{"ph":"X","ts":1,"dur":' + b"9" * 5000 + b"}]", r"byte 1: a number of too many digits"),
        (b'[{"ph":"X","ts":4e15,"dur":4e15}]', r"expected an end within 146 years"),
        (b'[{"ph":"X","ts":NaN,"dur":1}]', r"byte 16: NaN or Infinity, which is no JSON"),
        (b'[{"ph":"X","ts":-Infinity}]', r"NaN or Infinity, which is no JSON"),
        (b'[{"ph":"X","ts":01}]', r"byte 17: found '1'; expected ',' or the end of an"),
        (b'[{"ph":"X","ts":1.}]', r"byte 17: found '\.'; expected ',' or the end of an"),
        (b'[{"ph":"X","ts":+1}]', r"found '\+'; expected a value"),
        (b'[{"ph":"X","name":"\x01"}]', r"byte 19: a control character in a string"),
        (b'[{"ph":"X","name":"\\x"}]', r"byte 19: found what is no escape of JSON"),
        (b'[{"ph":"X","name":"\\u12g4"}]', r"byte 20: found what is no escape of JSON"),
        (b'[{"ph":"X","name":"\xc0\xaf"}]', r"not UTF-8"),
        (b'[{"ph":"X","name":"\xed\xa0\x80"}]', r"not UTF-8"),
        (b'[{"ph":"X","name":"\xf4\x90\x80\x80"}]', r"not UTF-8"),
        (b'[{"ph":"X",}]', r"byte 10: a comma before the end of an array or object"),
        (b'[{ph:"X"}]', r"byte 2: found 'p'; expected a key in quotes"),
        (b"[tru]", r"byte 1: found 't'; expected a value"),
        (b"\xef\xbb\xbf[]", r"byte 0: a byte order mark"),
        (b'[/* */{"ph":"X"}]', r"found '/'"),
        (deep(20_000), r"nested too deep to be read"),
        (b'{"a":' + b"[" * 1_000_000, r"cut off before its \"traceEvents\""),
    ],
)
def test_hostile_text_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, message: str
) -> None:
    path = written(tmp_path / "t.json", data)
    with pytest.raises(TraceError, match=message) as caught:
        summary(path)
    assert str(caught.value).startswith(f"{path}: ")
    code, out, err = answer(capsys, "trace", "summary", path)
    assert (code, out) == (2, "")
    assert err.startswith("gpuprof: ")
    assert err.count("\n") == 1


def test_a_hundred_levels_are_read(tmp_path: Path) -> None:
    assert summary(written(tmp_path / "t.json", deep(100))).left_out == 0


def make_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(os.path.relpath(path))


SPECIAL: dict[str, Callable[[Path], None]] = {
    "a socket": make_socket,
    "a directory": Path.mkdir,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "No such file": lambda _path: None,
    "Too many levels": lambda path: path.symlink_to(path),
}


@pytest.mark.parametrize("what", SPECIAL)
@pytest.mark.parametrize("tool", ["summary", "validate", "repair", "merge"])
def test_what_is_no_file_is_refused_without_waiting(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    what: str,
    tool: str,
) -> None:
    monkeypatch.chdir(tmp_path)  # names of sockets are short
    path = tmp_path / "t.json"
    SPECIAL[what](path)
    output = ["-o", tmp_path / "out.json"] if tool == "merge" else []
    code, _, err = answer(capsys, "trace", tool, path, *output)
    assert code == 2
    assert re.search(what, err)
    assert not (tmp_path / "out.json").exists()


def test_a_name_of_a_file_is_shown_harmlessly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command("trace", "summary", tmp_path / "\x1b[31m\n.json") == 2
    assert command("trace", "summary", "a\0b") == 2
    shown = capsys.readouterr().err
    assert "\x1b" not in shown
    assert shown.count("\n") == 2


def test_a_gzip_bomb_is_told_by_its_ratio(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bomb.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"[")
        for _ in range(200):
            file.write(b" " * (1 << 20))
    for tool in ("summary", "validate", "repair"):
        assert command("trace", tool, path) == 2
        assert "times when uncompressed, which no trace does" in capsys.readouterr().err
    assert [entry.name for entry in tmp_path.iterdir()] == ["bomb.json.gz"]


def test_a_trace_that_repeats_one_kernel_is_no_bomb(tmp_path: Path) -> None:
    name = b"void cutlass::Kernel2<" + b"float, 128, 64, " * 20 + b">"
    line = b'{"ph":"X","name":"' + name + b'","cat":"gpu","tid":7,"ts":%d.125,"dur":10.5},\n'
    path = tmp_path / "t.json.gz"
    with gzip.open(path, "wb", compresslevel=6) as file:
        file.write(b"[\n")
        file.writelines(line % (1000 * at) for at in range(200_000))
    assert 200_000 * len(line) > files.RATIO_COUNTS_FROM
    assert 200_000 * len(line) > 100 * path.stat().st_size
    assert summary(path).events == 200_000


def test_damaged_compression_is_told(tmp_path: Path) -> None:
    events = [slice_event(f"n{at}", at, 1) for at in range(20_000)]
    data = bytearray(gzip.compress(array_form(events)))
    data[-6] ^= 0xFF  # of the checksum
    path = tmp_path / "t.json.gz"
    path.write_bytes(data)
    found = summary(path)
    assert 19_000 < found.events <= 20_000
    assert found.cut is not None
    assert "the compressed data is damaged near byte" in found.cut
    assert validate(path).faults["gzip"] == 1
    path.write_bytes(b"\x1f\x8bnonsense")
    with pytest.raises(TraceError, match=r"the file is empty.*the compressed data is damaged"):
        summary(path)


def test_an_event_of_ten_megabytes_is_read_and_one_of_64_is_refused(tmp_path: Path) -> None:
    event = slice_event("x" * 10_000_000, 0, 1)
    path = written(tmp_path / "t.json", object_form([event]))
    tools.repair(path)
    assert load(tmp_path / "t.repaired.json")["traceEvents"] == [event]
    for rest in (b"x" * (2 << 20), b'"}]}'):
        path.write_bytes(b'{"traceEvents":[{"name":"' + b"x" * (64 << 20) + rest)
        with pytest.raises(
            TraceError, match="event 0, byte 16: the event is longer than 67108864 bytes"
        ):
            summary(path)


def test_a_huge_member_beside_the_events_is_passed_over(tmp_path: Path) -> None:
    filling = b"y" * (20 << 20)
    data = b'{"big":"' + filling + b'","traceEvents":[' + EVENT + b'],"more":["' + filling + b'"]}'
    found = summary(written(tmp_path / "t.json", data))
    assert (found.events, found.cut) == (1, None)


def test_memory_is_bounded_whatever_the_names_are(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    line = '{"ph":"%s","name":"%s%d","cat":"c%d","pid":%d,"tid":%d,"ts":%d,"dur":3,"id":%d},\n'
    with path.open("w") as file:
        file.write("[")
        file.writelines(
            line % ("XXXBbs"[n % 6], "n" * 60, n, n, n % 1000, 1 + n % 97, n * 7 % 1000003, n)
            for n in range(80_000)
        )
    output = check_python(f"""
        import resource
        from gpuprof._trace_tools import tools as _trace_tools
        def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
        before = peak()
        _trace_tools.summary({str(path)!r})
        _trace_tools.validate({str(path)!r})
        print(peak() - before)
        """)
    assert int(output) < 120


LATE = "self times and gaps are approximate: ranges come far out of the order of time"


def pieces(*parts: bytes) -> Iterator[bytes]:
    data = b"".join(parts)
    return (data[at : at + 5000] for at in range(0, len(data), 5000))


def test_slices_beyond_what_is_kept_are_still_nested_right() -> None:
    # In the order of ends, with an outermost slice that comes last of all.
    line = b'{"ph":"X","name":"%s","pid":1,"tid":7,"ts":%d,"dur":%d},'
    nodes = 20_000
    lines = []
    for at in range(0, 3 * nodes, 3):
        lines.append(line % (b"leaf", 10 * at + 1, 5))
        lines.append(line % (b"leaf", 10 * at + 11, 5))
        lines.append(line % (b"node", 10 * at, 20))
    root = line % (b"root", 0, 30 * nodes)
    found = Summary("name", most_slices=2000)
    found.read(pieces(b"[", *lines, root.rstrip(b","), b"]"))
    assert found.notes() == []
    assert {row.name: row.self_ms for row in found.ranges.longest(9)} == {
        "leaf": 2 * nodes * 5e-3,
        "node": nodes * 10e-3,
        "root": nodes * 10e-3,
    }


def test_a_slice_that_comes_too_late_to_be_placed_is_told() -> None:
    line = b'{"ph":"X","name":"a","pid":1,"tid":7,"ts":%d,"dur":%d},'
    found = Summary("name", most_slices=2000)
    found.read(pieces(b"[", *(line % (10 * at, 5) for at in range(40_000)), line % (1, 2)))
    assert LATE in found.notes()


def nested_slices(random_: random.Random) -> list[bytes]:
    """Lines of slices that nest, each of another name, in one of several orders."""
    found: list[tuple[int, int]] = []

    def fill(begin: int, end: int, depth: int) -> None:
        while begin < end and len(found) < 120:
            at = random_.randint(begin, end)
            until = random_.randint(at, end)
            found.append((at, until))
            if depth < 5:
                fill(at, until, depth + 1)
            begin = until + random_.randint(1, 5)

    fill(0, random_.choice([50, 1000, 5000]), 0)
    match random_.randrange(3):
        case 0:
            found.sort(key=lambda one: (one[0], -one[1]))
        case 1:
            found.sort(key=lambda one: (one[1], -one[0]))
        case _:
            random_.shuffle(found)
    line = b'{"ph":"X","name":"%d-%d","pid":1,"tid":7,"ts":%d,"dur":%d},'
    return [line % (begin, end, begin, end - begin) for begin, end in found]


def test_self_times_of_any_order_are_right_or_said_to_be_approximate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reader, "ENOUGH", 1)  # one event after the other
    exact = 0
    for seed in range(150):
        random_ = random.Random(seed)
        lines = nested_slices(random_)
        own = []
        for most in (random_.choice([4, 8, 20, 50]), 1000):
            found = Summary("name", most_slices=most)
            found.read(iter([b"[", *lines]))
            own.append({row.name: row.self_ms for row in found.ranges.longest(1000)})
            if LATE in found.notes():
                break
        else:
            assert own[0] == pytest.approx(own[1])
            exact += 1
    assert exact > 50


@pytest.mark.parametrize("tracks", [1, 50])
def test_slices_that_are_all_open_at_once_are_kept_up_to_a_bound(tracks: int) -> None:
    count = 20_000
    line = b'{"ph":"X","name":"a","pid":1,"tid":%d,"ts":%d,"dur":%d},'
    lines = (line % (7 + at % tracks, at, 10 * count - 2 * at) for at in range(count))
    found = Summary("name", most_slices=2000)
    found.read(pieces(b"[", *lines))
    kept = [track.kept for track in found.ranges.nesting.tracks.values()]
    assert sum(map(len, kept)) <= 2000
    assert all(kept)
    assert LATE in found.notes()
    (row,) = found.ranges.longest(9)
    assert row.count == count
    assert row.total_ms == sum(10 * count - 2 * at for at in range(count)) / 1e3


def test_any_number_of_whole_flows_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_validate, "MOST_OPEN", 1000)
    count = 6000
    line = b'{"ph":"%c","id":%d,"name":"l","pid":1,"tid":7,"ts":%d},'
    whole = [line % (phase, at, at) for at in range(count) for phase in b"sf"]
    around = b'{"ph":"X","name":"a","pid":1,"tid":7,"ts":0,"dur":%d}]' % (2 * count)
    path = written(
        tmp_path / "t.json", b"".join([b"[", *whole, line % (b"s"[0], count, count), around])
    )
    found = validate(path)
    assert found.faults == {"flow": 1}
    assert found.unchecked == []
    (fault,) = (one for one in found.findings if one["severity"] == "fault")
    assert (fault["event"], fault["message"]) == (2 * count, "flow without its end (f)")


TOKENS = [
    b"{", b"}", b"[", b"]", b",", b":", b'"', b"\\", b"\\u", b"ph", b"ts", b"NaN", b"-", b"1e9",
    b"1e999", b"\xff", b"\xc3", b"\0", b"null", b"0", b"99999999999999999999", b"traceEvents",
]  # fmt: skip


def mutated(random_: random.Random, data: bytes) -> bytes:
    result = bytearray(data)
    for _ in range(random_.randint(1, 8)):
        at = random_.randrange(len(result) + 1)
        match random_.randrange(4):
            case 0:
                result[at : at + random_.randint(1, 6)] = b""
            case 1:
                result[at:at] = random_.choice(TOKENS)
            case 2:
                end = at + random_.randint(1, 60)
                result[at:at] = result[at:end]
            case _ if at < len(result):
                result[at] = random_.randrange(256)
            case _:
                pass
    return bytes(result)


@pytest.mark.parametrize("seed", range(4 * max(TIMES, 1)))
def test_mutations_are_refused_or_read_the_same_in_any_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    random_ = random.Random(seed)
    seeds = [
        object_form([*named(7), slice_event('a"\\é', 1.5, 2, args={"a": [1, {"b": None}]})], x=[1]),
        array_form([*named(7), slice_event("b", 1, 2), {"ph": "b", "id": "0x1", "ts": 3}]),
        (Path(__file__).parents[1] / "fixtures" / "torch_profiler.json").read_bytes(),
    ]
    path, out = tmp_path / "t.json", tmp_path / "out.json"

    def outcome(tool: Callable[[], Any], step: int) -> object:
        monkeypatch.setattr(files, "PIECE", step)
        out.unlink(missing_ok=True)
        try:
            result = tool()
        except TraceError as error:
            return str(error)
        if out.exists():
            return result, strict(out.read_bytes())
        return result

    for _ in range(60):
        data = mutated(random_, random_.choice(seeds))
        path.write_bytes(data)
        for tool in (
            lambda: summary(path),
            lambda: validate(path),
            lambda: tools.repair(path, out),
            lambda: tools.merge([path], out, align=False),
        ):
            whole = outcome(tool, len(data) + 1)
            assert outcome(tool, random_.randint(1, 40)) == whole, data


def test_wrong_arguments_are_told(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="by: expected one of 'path', 'name', 'cat', 'tid', got 'color'"
    ):
        summary(tmp_path, by="color")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="top: expected a whole number of at least 1, got 0"):
        summary(tmp_path, top=0)


def test_a_full_disk_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    events = [slice_event(f"n{at}", at, 1) for at in range(9000)]
    source = written(tmp_path / "t.json", array_form(events))
    old = written(tmp_path / "old.json", OLD.encode())
    check_python(f"""
        import resource, signal
        sys.dont_write_bytecode = True  # or the limit cuts what Python caches
        from tests.support.benchmark_results import command
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        stderr, sys.stderr = sys.stderr, sys.stdout
        assert command("trace", "repair", {str(source)!r}, "-o", {str(old)!r}) == 1
        """)
    assert old.read_text() == OLD
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["old.json", "t.json"]


def test_the_progress_bar_is_for_terminals_and_long_work_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "t.json", array_form([slice_event("a", 0, 1)] * 100))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    tools.summary(path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr("gpuprof._display.progress.SHOWN_AFTER_S", -1)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    tools.summary(path)
    assert "t.json" in capsys.readouterr().err
