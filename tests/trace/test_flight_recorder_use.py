"""Flight recorders and what goes wrong: exceptions, full disks, threads, forks, wrong calls."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.support.recorders import first, told
from tests.support.threads import beside, in_threads
from tests.support.trace_events import cpu_scope, events, files, measured, names
from tests.trace.programs import check_program, run_with_limits

# Exceptions


def test_an_exception_that_leaves_the_block_is_a_dump(path: Path) -> None:
    error = ValueError("bad \ud800 input")
    with pytest.raises(ValueError, match="bad") as raised:
        with gpuprof.flight_recorder(path, keep_last="30s"):
            with cpu_scope("step"):
                raise error
    assert raised.value is error
    assert error.__context__ is None
    assert names(first(path)) == ["step"]
    assert events(first(path))[0]["args"] == {"raised": True}
    assert told(first(path))["reason"].startswith("ValueError: bad")


@pytest.mark.parametrize(
    ("error", "dumps"), [(SystemExit(0), 0), (SystemExit(), 0), (SystemExit(3), 1)]
)
def test_a_good_exit_is_no_dump(path: Path, error: SystemExit, dumps: int) -> None:
    with pytest.raises(SystemExit):
        with gpuprof.flight_recorder(path, keep_last="30s"):
            raise error
    assert len(files(path.parent)) == dumps


def test_the_body_s_exception_wins_over_that_of_its_dump(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> None:
        message = "the dump's"
        raise OSError(message)

    error = KeyError("the body's")
    with pytest.raises(KeyError) as raised:
        with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
            monkeypatch.setattr(threading, "enumerate", broken)  # which gives threads their names
            raise error
    assert raised.value is error
    assert error.__context__ is None
    monkeypatch.undo()
    assert recorder.closed
    assert not recorder.stats()["open"]


# Failures


def test_a_dump_that_fails_is_one_warning_and_leaves_no_file(path: Path) -> None:
    done = run_with_limits(f"""
with gpuprof.flight_recorder({str(path)!r}, keep_last="30s") as recorder:
    work("a", 2000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    print(recorder.dump(), recorder.dump(), os.listdir({str(path.parent)!r}))
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    work("b")
    print(recorder.dump() is not None)
""")
    assert done.stdout == "None None []\nTrue\n"
    assert done.stderr.count("RuntimeWarning") == 1
    assert "a dump of the flight recorder failed" in done.stderr
    assert "File too large" in done.stderr
    (only,) = path.parent.iterdir()
    assert names(only).count("b") == 1


def test_a_folder_that_is_not_there_is_told_at_the_start(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="there is no folder") as warned:
        recorder = gpuprof.flight_recorder(tmp_path / "gone" / "run.json", keep_last="30s").start()
    assert len(warned) == 1
    with pytest.warns(RuntimeWarning, match="a dump of the flight recorder failed") as warned:
        assert recorder.dump() is None
        assert recorder.dump() is None
    assert len(warned) == 1
    (tmp_path / "gone").mkdir()
    assert recorder.dump() is not None
    recorder.close()


# Threads and processes


def test_dumps_do_not_disturb_threads_that_record(path: Path) -> None:
    with gpuprof.flight_recorder(path, keep_bytes=1 << 20, max_dumps=100) as recorder:
        with beside(lambda: measured("busy")):
            in_threads(*[recorder.dump] * 6)
        assert recorder.stats()["dumps"] == 6
        assert recorder.stats()["dropped"] == 0
    for file in path.parent.iterdir():
        assert set(names(file)) <= {"busy"}


def test_a_forked_child_has_a_ring_and_files_of_its_own(path: Path) -> None:
    out = check_program(f"""
recorder = gpuprof.flight_recorder({str(path)!r}, keep_last="30s").start()
work("parent's")
child = os.fork()
if child == 0:
    work("child's")
    recorder.dump()
    recorder.close()
    os._exit(0)
os.waitpid(child, 0)
recorder.dump()
recorder.close()
print(child)
""")
    assert names(first(path)) == ["parent's"]
    assert names(path.with_name(f"run.1.{out.strip()}.json")) == ["child's"]
    assert len(files(path.parent)) == 2


# Wrong calls


def test_a_dump_of_a_recorder_that_is_not_open_is_told(path: Path) -> None:
    recorder = gpuprof.flight_recorder(path, keep_last="30s")
    with pytest.raises(InvalidStateError, match="not begun"):
        recorder.dump()
    recorder.start()
    recorder.close()
    with pytest.raises(InvalidStateError, match="closed"):
        recorder.dump()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"keep_last": "30"}, ValueError),
        ({"keep_last": "soon"}, ValueError),
        ({"keep_last": 0}, ValueError),
        ({"keep_last": float("nan")}, ValueError),
        ({"keep_last": 10**400}, ValueError),
        ({"when": {"step": 10**400}}, ValueError),
        ({"keep_last": True}, TypeError),
        ({"keep_last": b"30s"}, TypeError),
        ({"keep_bytes": 100}, ValueError),
        ({"keep_bytes": 1e6}, TypeError),
        ({"max_dumps": 0}, ValueError),
        ({"max_dumps": "3"}, TypeError),
        ({"when": {"step": -1}}, ValueError),
        ({"when": {"step": "slow"}}, TypeError),
        ({"when": {"": 1}}, ValueError),
        ({"when": ["step"]}, TypeError),
        ({"dump_on": 9}, ValueError),
        ({"dump_on": 11}, ValueError),
        ({"dump_on": 0}, ValueError),
        ({"dump_on": "USR1"}, TypeError),
    ],
)
def test_what_is_no_setting_is_told(
    path: Path, wrong: dict[str, Any], error: type[Exception]
) -> None:
    (name,) = wrong
    with pytest.raises(error, match=f"{name}: expected"):
        gpuprof.flight_recorder(path, **wrong)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        ("500ms", 0.5),
        ("30s", 30),
        (" 1.5 s ", 1.5),
        ("2min", 120),
        ("1h", 3600),
        (2, 2),
        (0.5, 0.5),
    ],
)
def test_a_length_is_a_text_or_seconds(path: Path, given: Any, seconds: float) -> None:
    with gpuprof.flight_recorder(path, keep_last=given) as recorder:
        recorder.dump()
    assert told(first(path))["keepLastSeconds"] == seconds
