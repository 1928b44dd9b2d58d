"""Traces and processes: exits, kills, forks, full disks, and others that want the same file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gpuprof
from tests.support.processes import ROOT, check_python, environment
from tests.support.programs import plain, script
from tests.support.trace_events import SCOPES, complete_lines, files, names
from tests.trace.programs import check_program, run_program

# The whole run


def test_a_run_that_traces_nothing_writes_no_file(tmp_path: Path) -> None:
    check_python("import gpuprof; gpuprof.timer('x')", GPUPROF_TRACE_OUT=str(tmp_path / "a.json"))
    assert files(tmp_path) == set()


def test_a_pattern_that_is_none_is_a_warning(tmp_path: Path) -> None:
    done = run_program("work('a'); print('on')", GPUPROF_TRACE_OUT=str(tmp_path / "%z"))
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.count("GPUPROF_TRACE_OUT was ignored") == 1


def test_patterns_are_filled_in(tmp_path: Path) -> None:
    pattern = str(tmp_path / "%q{WHO}-%r-%p-%%.json")
    code = "work('a'); print(os.getpid())"
    pid = check_program(code, GPUPROF_TRACE_OUT=pattern, WHO="a/b", RANK="3").strip()
    assert files(tmp_path) == {f"a_b-3-{pid}-%.json"}
    trace = json.loads((tmp_path / f"a_b-3-{pid}-%.json").read_text())
    assert trace["distributedInfo"]["rank"] == 3


def test_scopes_of_other_exit_handlers_are_harmless(path: Path) -> None:
    check_python(
        "import atexit\natexit.register(lambda: work('late'))\n"
        + SCOPES
        + f"gpuprof.trace({str(path)!r}).start(); work('a')"
    )
    assert names(path) == ["a"]


# Ends that are not exits


@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_a_killed_process_loses_less_than_a_second(tmp_path: Path, suffix: str) -> None:
    out = tmp_path / f"run{suffix}"
    code = (
        SCOPES
        + f"""
gpuprof.trace({str(out)!r}).start()
number = 0
while True:
    with gpuprof.timer(f"n{{number}}", backend="cpu"):
        pass
    print(number, flush=True)
    number += 1
    time.sleep(0.001)
"""
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment(None)
    )
    assert child.stdout is not None
    seen: list[tuple[float, int]] = []
    begun = time.monotonic()
    while time.monotonic() - begun < 2.0:
        seen.append((time.monotonic(), int(child.stdout.readline())))
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    died = time.monotonic()
    part = tmp_path / f"run{suffix}.part"
    assert files(tmp_path) == {part.name}
    written = [e["name"] for e in complete_lines(part) if e["ph"] == "X"]
    last_safe = max(number for at, number in seen if at < died - 1.0)
    assert written == [f"n{number}" for number in range(len(written))]
    assert len(written) > last_safe


def test_what_a_killed_run_left_is_kept_beside_the_next_one(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    (tmp_path / "run.json.part").write_text('[{"ph":"M"},\n')
    with gpuprof.trace(out):
        pass
    assert files(tmp_path) == {"run.json", "run.json.part.old"}


def test_os_exit_leaves_what_was_flushed(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    check_program(f"t = gpuprof.trace({str(out)!r}).start(); work('a'); t.flush(); os._exit(0)")
    assert files(tmp_path) == {"run.json.part"}
    part = complete_lines(tmp_path / "run.json.part")
    assert [event["name"] for event in part if event["ph"] == "X"] == ["a"]


# The same path


def test_two_traces_of_one_path_keep_apart(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    first = gpuprof.TraceWriter(out).start()
    second = gpuprof.TraceWriter(out).start()
    third = gpuprof.TraceWriter(out).start()
    for writer, name in ((first, "1"), (second, "2"), (third, "3")):
        writer.span(name, 0.1, cat="test")
        writer.close()
    pid = os.getpid()
    assert Path(second.path).name == f"run.{pid}.json"
    assert Path(third.path).name == f"run.{pid}.2.json"
    assert [names(Path(w.path)) for w in (first, second, third)] == [["1"], ["2"], ["3"]]


def test_a_later_trace_replaces_an_earlier_one_whole(path: Path) -> None:
    for name in ("first", "second"):
        with gpuprof.TraceWriter(path) as writer:
            writer.span(name, 0.1, cat="test")
            if name == "second":
                assert names(path) == ["first"]
    assert names(path) == ["second"]


# Forks


def test_a_forked_child_writes_a_file_of_its_own_if_it_traces_anything(tmp_path: Path) -> None:
    out = check_program(f"""
def in_child(body):
    pid = os.fork()
    if pid == 0:
        body()
        sys.exit()  # which closes its traces
    assert os.waitpid(pid, 0)[1] == 0
    print(pid)

with gpuprof.trace("{tmp_path}/run.json"):
    work("before")
    in_child(lambda: work("child", 3))
    work("parent", 2)
with gpuprof.trace("{tmp_path}/quiet.json"):
    in_child(lambda: None)
    work("parent")
writer = gpuprof.TraceWriter("{tmp_path}/own.json")
writer.span("before", 0.1, cat="test")
in_child(lambda: writer.span("child", 0.1, cat="test"))
writer.span("parent", 0.1, cat="test")
writer.close()
""")
    first, _, third = out.split()
    assert {name: names(tmp_path / name) for name in files(tmp_path)} == {
        "run.json": ["before", "parent", "parent"],
        f"run.{first}.json": ["child"] * 3,
        "quiet.json": ["parent"],
        "own.json": ["before", "parent"],
        f"own.{third}.json": ["child"],
    }


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_of_multiprocessing_write_their_own(tmp_path: Path, method: str) -> None:
    name = script(
        tmp_path,
        """
        import multiprocessing, os, sys, warnings
        import gpuprof
        warnings.simplefilter("ignore", DeprecationWarning)

        def work(name):
            with gpuprof.timer(name, backend="cpu"):
                pass
            return os.getpid()

        if __name__ == "__main__":
            context = multiprocessing.get_context(sys.argv[1])
            work("main")
            process = context.Process(target=work, args=("worker",))
            process.start()
            process.join()
            assert process.exitcode == 0
            print(process.pid)
        """,
    )
    done = plain(tmp_path, name, method, GPUPROF_TRACE_OUT=str(tmp_path / "run.json"))
    assert (done.status, done.err) == (0, "")
    assert names(tmp_path / "run.json") == ["main"]
    assert names(tmp_path / f"run.{done.out.strip()}.json") == ["worker"]


def test_forking_while_threads_record_never_hangs(path: Path) -> None:
    check_program(f"""
import threading
stop = threading.Event()
def busy():
    while not stop.is_set():
        work("busy", 50)
work("warm")  # a fork beside an import may hang by itself
with gpuprof.trace({str(path)!r}):
    threads = [threading.Thread(target=busy) for _ in range(2)]
    for thread in threads: thread.start()
    for _ in range(20):
        pid = os.fork()
        if pid == 0:
            work("child")
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
    stop.set()
    for thread in threads: thread.join()
""")
    assert set(names(path)) == {"busy"}


def test_the_whole_run_is_traced_beside_a_trace_of_a_part(tmp_path: Path) -> None:
    out, part = tmp_path / "run.json", tmp_path / "part.json"
    check_program(
        f"""
with gpuprof.trace({str(part)!r}):
    work("inside")
work("after")
""",
        GPUPROF_TRACE_OUT=str(out),
    )
    assert names(part) == ["inside"]
    assert names(out) == ["inside", "after"]


def test_a_child_forked_before_the_first_event_leaves_the_path_to_its_parent(
    tmp_path: Path,
) -> None:
    pid = check_program(
        """
gpuprof.stats()
pid = os.fork()
work("child" if pid == 0 else "parent")
if pid != 0:
    assert os.waitpid(pid, 0)[1] == 0
    print(pid)
""",
        GPUPROF_TRACE_OUT=str(tmp_path / "run.json"),
    ).strip()
    assert names(tmp_path / "run.json") == ["parent"]
    assert names(tmp_path / f"run.{pid}.json") == ["child"]


def test_the_first_event_of_an_exit_handler_leaves_no_part(tmp_path: Path) -> None:
    check_python(
        "import atexit\natexit.register(lambda: work('late'))\n" + SCOPES + "gpuprof.timer('x')",
        GPUPROF_TRACE_OUT=str(tmp_path / "run.json"),
    )
    assert not [name for name in files(tmp_path) if name.endswith(".part")]


def test_a_name_that_is_no_utf_8_is_a_file_all_the_same(tmp_path: Path) -> None:
    out = os.fsdecode(os.fsencode(tmp_path) + b"/\xff.json")
    with gpuprof.TraceWriter(out) as writer:
        writer.span("a", 0.1, cat="test")
    assert writer.error is None
    assert names(Path(out)) == ["a"]


def test_the_interpreter_s_thread_count_is_not_what_the_writer_adds_to(tmp_path: Path) -> None:
    out = check_python(f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import threading, gpuprof
with gpuprof.trace({str(tmp_path / "a.json")!r}):
    print(threading.active_count())
""")
    assert out == "1\n"
