"""How a trace is begun, ended and used again, and what it may need for that."""

from __future__ import annotations

import gc
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError, TraceError
from tests.support.processes import run_python
from tests.support.trace_events import SCOPES, events, files, measured, names
from tests.trace.programs import check_program, run_program


def test_a_trace_records_from_its_start_to_its_close(path: Path) -> None:
    writer = gpuprof.trace(path)
    measured("before")
    assert files(path.parent) == set()
    assert writer.start() is writer
    measured("inside")
    with writer:  # which ends it
        measured("block")
    measured("after")
    assert names(path) == ["inside", "block"]


def test_a_trace_that_is_used_again_writes_another_file(path: Path) -> None:
    writer = gpuprof.trace(path)
    paths = []
    for name in ("first", "second", "third"):
        with writer:
            measured(name)
        paths.append(writer.path)
        assert writer.closed
        assert writer.stats()["events"] == 1
    assert files(path.parent) == {"run.json", "run.2.json", "run.3.json"}
    assert [names(Path(each)) for each in paths] == [["first"], ["second"], ["third"]]


def test_a_use_whose_pattern_gives_another_path_needs_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = gpuprof.TraceWriter(tmp_path / "%q{STEP}.json.gz")
    for step in ("a", "b", "a"):
        monkeypatch.setenv("STEP", step)
        with writer:
            writer.span(step, 1.0, cat="test")
    assert files(tmp_path) == {"a.json.gz", "b.json.gz", "a.2.json.gz"}


def test_a_writer_of_one_s_own_begins_with_its_first_event(path: Path) -> None:
    writer = gpuprof.TraceWriter(path)
    assert (writer.closed, writer.error, files(path.parent)) == (False, None, set())
    writer.span("first", 1.0, cat="test")
    writer.close()
    assert names(path) == ["first"]
    with pytest.raises(InvalidStateError, match=r"closed.*start\(\)"):
        writer.span("late", 1.0, cat="test")


def test_a_trace_that_was_not_begun_takes_no_event(path: Path) -> None:
    writer = gpuprof.trace(path)
    with pytest.raises(InvalidStateError, match=r"not begun.*start\(\)"):
        writer.span("early", 1.0, cat="test")
    writer.close()
    assert files(path.parent) == set()


def test_a_trace_in_use_is_not_begun_a_second_time(path: Path) -> None:
    writer = gpuprof.trace(path)
    with writer:
        with pytest.raises(InvalidStateError, match="close it first"):
            writer.start()
        with pytest.raises(InvalidStateError, match="in use"), writer:
            pass
        measured("kept")
    assert names(path) == ["kept"]


@pytest.mark.parametrize(
    ("make", "shown"),
    [
        (gpuprof.trace, "run"),
        (gpuprof.flight_recorder, "run.%n"),
        (partial(gpuprof.trace_windows, schedule=(0, 0, 1, 1)), "run"),
    ],
)
def test_a_trace_that_is_never_begun_is_one_warning(
    path: Path, make: Callable[[Path], object], shown: str
) -> None:
    expected = rf"{re.escape(shown)}\.json was never begun.*start\(\)"
    with pytest.warns(RuntimeWarning, match=expected) as warned:
        make(path)
        gc.collect()
    assert len(warned) == 1


def test_a_trace_that_is_kept_and_never_begun_is_one_warning_at_exit(path: Path) -> None:
    done = run_program(f"t = gpuprof.trace({str(path)!r}); work('a')")
    assert (done.returncode, done.stderr.count("was never begun")) == (0, 1)


def test_all_traces_are_closed_at_exit_where_a_warning_of_one_is_an_error(tmp_path: Path) -> None:
    done = run_program(f"""
import shutil, warnings
os.mkdir({str(tmp_path / "gone")!r})
first = gpuprof.trace({str(tmp_path / "gone" / "run.json")!r}).start()
second = gpuprof.trace({str(tmp_path / "run.json")!r}).start()
work("a")
shutil.rmtree({str(tmp_path / "gone")!r})
warnings.simplefilter("error")
""")
    assert "cannot write the trace" in done.stderr
    assert names(tmp_path / "run.json") == ["a"]


# What it needs


NO_THREAD = """
import ctypes
libc = ctypes.CDLL(None)
attributes = ctypes.create_string_buffer(256)
libc.pthread_attr_init(attributes)
libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(1 << 62))
libc.pthread_setattr_default_np(attributes)
"""


def test_a_trace_without_a_thread_is_a_trace_error(tmp_path: Path) -> None:
    out = check_program(f"""{NO_THREAD}
trace = gpuprof.trace({str(tmp_path / "run.json")!r})
for _ in range(2):
    try:
        trace.start()
    except gpuprof.errors.TraceError as error:
        print(error)
work("on")
""")
    assert out.count("no thread can start") == 2
    assert files(tmp_path) == set()


def test_a_run_that_is_to_be_traced_without_a_thread_is_one_warning(tmp_path: Path) -> None:
    code = NO_THREAD + SCOPES + "work('a', 3); print('on')"
    done = run_python(code, GPUPROF_TRACE_OUT=str(tmp_path / "run.json"))
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.count("RuntimeWarning") == 1
    assert "GPUPROF_TRACE_OUT was ignored" in done.stderr
    assert "no thread can start" in done.stderr


GONE = """
import tempfile
folder = tempfile.mkdtemp()
os.chdir(folder)
os.rmdir(folder)
"""


def test_a_relative_path_without_a_working_directory_is_a_trace_error() -> None:
    out = check_program(f"""{GONE}
try:
    gpuprof.trace("run.json")
except gpuprof.errors.TraceError as error:
    print(error)
work("on")
""")
    assert "'run.json' is relative, and the working directory is gone" in out
    done = run_program(GONE + "work('a', 3); print('on')", GPUPROF_TRACE_OUT="run.json")
    assert (done.returncode, done.stdout) == (0, "on\n")
    assert done.stderr.count("RuntimeWarning") == 1
    assert "GPUPROF_TRACE_OUT was ignored" in done.stderr


def test_a_later_use_needs_no_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = gpuprof.TraceWriter("run.json")
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with writer:
        pass
    monkeypatch.chdir(tmp_path)
    assert files(tmp_path) == {"run.json"}


def test_trace_errors_are_gpuprof_errors() -> None:
    assert issubclass(TraceError, gpuprof.errors.GpuprofError)


# Room for events that wait


def large(mib: int) -> dict[str, object]:
    return {"rows": ["x" * 1024] * 1024 * mib}


@pytest.mark.parametrize("by", ["argument", "environment"])
def test_what_may_wait_is_as_much_as_was_asked_for(
    path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    if by == "environment":
        monkeypatch.setenv("GPUPROF_TRACE_BUFFER_MIB", "4")
    with gpuprof.TraceWriter(path, buffer_mib=4 if by == "argument" else None) as writer:
        writer.instant("kept", args=large(1))
        writer.flush()
        writer.instant("too large", args=large(4))
        small = writer.stats()["dropped"]
        with gpuprof.TraceWriter(path, buffer_mib=16):  # open traces share the largest
            writer.instant("kept", args=large(4))
            writer.flush()
        writer.instant("too large", args=large(4))
        with pytest.warns(RuntimeWarning, match=r"lacks 2 events.*buffer_mib="):
            writer.close()
    assert small == 1
    assert names(path, "i") == ["kept", "kept"]


@pytest.mark.parametrize(
    ("wrong", "error"),
    [(0, ValueError), (-1, ValueError), (65537, ValueError), (1.5, TypeError), (True, TypeError)],
)
def test_a_buffer_of_no_size_is_told(path: Path, wrong: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="buffer_mib: expected a whole number of MiB"):
        gpuprof.trace(path, buffer_mib=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["0", "many", "1e3", "99999999999"])
def test_a_buffer_of_no_size_in_the_environment_is_one_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    monkeypatch.setenv("GPUPROF_TRACE_BUFFER_MIB", wrong)
    with pytest.warns(RuntimeWarning, match="GPUPROF_TRACE_BUFFER_MIB was ignored") as warned:
        with gpuprof.TraceWriter(path) as writer:
            writer.instant("kept", args=large(8))
    assert len(warned) == 1
    assert len(events(path, "i")) == 1
