"""Traces of windows of steps: which steps are in them, when a file is there, wrong calls."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import InvalidStateError
from tests.fake_driver.control import FakeCuda
from tests.support.processes import native_threads
from tests.support.trace_events import events, files, measured, names
from tests.trace.programs import check_program

MS = 1_000_000


def run(windows: gpuprof.results.TraceWindows, steps: int) -> None:
    """Do as many steps, each a scope with the number of the step in its name."""
    for number in range(steps):
        measured(f"s{number}")
        windows.step()


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ((1, 1, 2, 2), [["s2", "s3"], ["s6", "s7"]]),
        ((0, 0, 1, 3), [["s0"], ["s1"], ["s2"]]),
        ((0, 1, 2, 1), [["s1", "s2"]]),
        ((2, 0, 1, 0), [["s2"], ["s5"], ["s8"]]),
    ],
)
def test_a_file_holds_the_active_steps_of_its_cycle(
    tmp_path: Path, schedule: tuple[int, int, int, int], expected: list[list[str]]
) -> None:
    with gpuprof.trace_windows(tmp_path / "run.json", schedule=schedule) as windows:
        run(windows, 9)
    found = [names(tmp_path / f"run.{n + 1}.json") for n in range(len(expected))]
    assert found == expected
    assert len(files(tmp_path)) == len(expected)


@pytest.mark.filterwarnings("ignore:Profiler won't be using warmup")
def test_the_phases_are_those_of_torch(tmp_path: Path) -> None:
    profiler = pytest.importorskip("torch.profiler")
    of_phase = {"wait": "NONE", "done": "NONE", "warm": "WARMUP", "active": "RECORD"}
    for wait, warm, active, repeat in [(1, 2, 3, 2), (0, 1, 1, 0), (2, 0, 2, 1)]:
        theirs = profiler.schedule(wait=wait, warmup=warm, active=active, repeat=repeat)
        ours = gpuprof.trace_windows(tmp_path / "run.json", schedule=(wait, warm, active, repeat))
        for step in range(20):
            action = theirs(step).name.removesuffix("_AND_SAVE")
            assert of_phase[ours.phase_of(step)] == action
        ours.close()


def test_a_window_is_there_as_soon_as_it_is_over_and_nothing_is_written_between(
    tmp_path: Path,
) -> None:
    seen = []
    with gpuprof.trace_windows(tmp_path / "run.json.gz", schedule=(1, 1, 1, 0)) as windows:
        for _ in range(6):
            measured("step")
            seen.append((windows.phase, files(tmp_path)))
            windows.step()
    first, second = "run.1.json.gz", "run.2.json.gz"
    assert seen == [
        ("wait", set()),
        ("warm", set()),
        ("active", {first + ".part"}),
        ("wait", {first}),
        ("warm", {first}),
        ("active", {first, second + ".part"}),
    ]
    assert [names(tmp_path / name) for name in (first, second)] == [["step"], ["step"]]


def test_there_is_a_thread_that_records_only_where_something_is_recorded(tmp_path: Path) -> None:
    before = native_threads()
    more = []
    with gpuprof.trace_windows(tmp_path / "run.json", schedule=(1, 1, 1, 1)) as windows:
        for expected in (0, 1, 1, 0):
            more.append((windows.phase, native_threads(before + expected) - before))
            windows.step()
    assert more == [("wait", 0), ("warm", 1), ("active", 1), ("done", 0)]


def test_the_end_of_the_block_writes_a_window_that_is_not_over(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        with gpuprof.trace_windows(tmp_path / "run.json", schedule=(0, 0, 5, 1)) as windows:
            run(windows, 2)
            raise KeyError
    assert names(tmp_path / "run.1.json") == ["s0", "s1"]
    assert windows.closed


def test_gpu_spans_that_end_after_the_last_step_are_in_its_window(
    fake: FakeCuda, stream: int, tmp_path: Path
) -> None:
    with gpuprof.trace_windows(tmp_path / "run.json", schedule=(0, 1, 2, 1)) as windows:
        for number in range(4):
            with gpuprof.timer(f"s{number}", stream=stream):
                fake.work(stream, 5 * MS)
            windows.step()
    slices = [e["name"] for e in events(tmp_path / "run.1.json") if e["cat"] == "gpu"]
    assert slices == ["s1", "s2"]


def test_the_number_may_stand_anywhere_in_the_path(tmp_path: Path) -> None:
    (tmp_path / "w1").mkdir()
    (tmp_path / "w2").mkdir()
    with gpuprof.trace_windows(tmp_path / "w%n" / "%%n-%n.json", schedule=(0, 0, 1, 2)) as windows:
        run(windows, 3)
    assert files(tmp_path / "w1") == {"%n-1.json"}
    assert files(tmp_path / "w2") == {"%n-2.json"}


def test_windows_that_are_used_again_go_on_counting(tmp_path: Path) -> None:
    windows = gpuprof.trace_windows(tmp_path / "run.json", schedule=(0, 0, 1, 1))
    for _ in range(2):
        with windows:
            run(windows, 2)
    assert files(tmp_path) == {"run.1.json", "run.2.json"}
    assert (windows.windows, windows.path) == (2, str(tmp_path / "run.2.json"))


def test_a_window_lies_beside_other_traces(tmp_path: Path) -> None:
    with gpuprof.trace(tmp_path / "all.json"):
        with gpuprof.trace_windows(tmp_path / "run.json", schedule=(1, 0, 1, 1)) as windows:
            run(windows, 3)
    assert names(tmp_path / "all.json") == ["s0", "s1", "s2"]
    assert names(tmp_path / "run.1.json") == ["s1"]


def test_a_wrong_order_is_told(tmp_path: Path) -> None:
    windows = gpuprof.trace_windows(tmp_path / "run.json", schedule=(0, 0, 1, 1))
    with pytest.raises(InvalidStateError, match=r"not begun.*start\(\)"):
        windows.step()
    with windows:
        with pytest.raises(InvalidStateError, match="begun already"):
            windows.start()
    windows.close()
    with pytest.raises(InvalidStateError, match="are closed"):
        windows.step()


def test_a_step_in_the_middle_of_another_one_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inside, go_on = threading.Event(), threading.Event()
    close = gpuprof.TraceWriter.close

    def slow(writer: gpuprof.TraceWriter) -> None:
        inside.set()
        assert go_on.wait(10)
        close(writer)

    monkeypatch.setattr(gpuprof.TraceWriter, "close", slow)
    windows = gpuprof.trace_windows(tmp_path / "run.json", schedule=(0, 0, 1, 1)).start()
    thread = threading.Thread(target=windows.step)
    thread.start()
    assert inside.wait(10)
    with pytest.raises(InvalidStateError, match="another thread"):
        windows.step()
    go_on.set()
    thread.join()
    windows.close()
    assert files(tmp_path) == {"run.1.json"}


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (5, TypeError),
        ("1111", TypeError),
        ((1, 1, 1), ValueError),
        ((1, 1, 0, 1), ValueError),
        ((-1, 1, 1, 1), ValueError),
        ((1, 1, 1.0, 1), TypeError),
        ((True, 1, 1, 1), TypeError),
    ],
)
def test_a_schedule_that_is_none_is_told(
    tmp_path: Path, wrong: Any, error: type[Exception]
) -> None:
    with pytest.raises(error, match="schedule: expected"):
        gpuprof.trace_windows(tmp_path / "run.json", schedule=wrong)


def test_a_window_that_cannot_be_written_is_one_warning(tmp_path: Path) -> None:
    with pytest.warns(RuntimeWarning, match="cannot write the trace") as warned:
        with gpuprof.trace_windows(
            tmp_path / "gone" / "run.json", schedule=(0, 0, 1, 1)
        ) as windows:
            run(windows, 2)
    assert len(warned) == 1
    assert windows.error == "No such file or directory"


def test_a_forked_child_has_windows_of_its_own(tmp_path: Path) -> None:
    check_program(f"""
windows = gpuprof.trace_windows({str(tmp_path / "run.json")!r}, schedule=(0, 1, 1, 2)).start()
windows.step()
work("both")
child = os.fork()
if child == 0:
    work("child")
    windows.step()
    windows.step()
    work("child's second")
    windows.close()
    os._exit(0)
os.waitpid(child, 0)
work("parent")
windows.close()
print(child, file=open({str(tmp_path / "pid")!r}, "w"))
""")
    child = (tmp_path / "pid").read_text().strip()
    assert names(tmp_path / "run.1.json") == ["both", "parent"]
    assert names(tmp_path / f"run.1.{child}.json") == ["child"]
    assert names(tmp_path / f"run.2.{child}.json") == ["child's second"]
    assert len(files(tmp_path)) == 4
