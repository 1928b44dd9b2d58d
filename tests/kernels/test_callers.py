"""`gpuprof.kernels(callers=True)`: the line of Python that launched each piece of work."""

from __future__ import annotations

import cProfile
import inspect
import os
import re
import shutil
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import CodeType
from typing import Any

import pytest

import gpuprof
from tests.support import gpu_records
from tests.support.gpu_records import Recording
from tests.support.processes import check_python

pytestmark = pytest.mark.skipif(
    sys.version_info < (3, 12), reason="callers need another Python version"
)


def place(function: Callable[..., object], text: str, name: str | None = None) -> str:
    """Return the place of the line of a function that holds the text, as records have it."""
    lines, first = inspect.getsourcelines(function)
    line = first + next(number for number, each in enumerate(lines) if text in each)
    return f"kernels/test_callers.py:{line} in {name or function.__name__}"


def pause() -> None:
    """Let longer pass than any launch takes, as CUDA would."""
    until = time.monotonic_ns() + 2_000
    while time.monotonic_ns() < until:
        pass


def callers(k: gpuprof.Kernels) -> dict[str, str]:
    return {record.name: record.caller for record in k.records}


@pytest.fixture(autouse=True)
def own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the helpers of the tests for a library, as installed packages are."""
    libraries = re.compile(r"^<frozen |/lib/python|/(gpu_records|cupti|threading)\.py$")
    monkeypatch.setattr("gpuprof._kernels.callers.is_of_library", libraries.search)


def in_parts(gpu: Recording) -> int:
    gpu.run("first")  # in parts, first
    for number in range(3):
        gpu.run(f"loop {number}")  # in parts, loop
    return 3


def leaf(gpu: Recording) -> int:
    gpu.run("leaf")  # in leaf
    pause()
    return 1


def test_each_launch_has_its_line(gpu: Recording) -> None:
    with gpuprof.kernels(callers=True) as k:
        in_parts(gpu)

    found = callers(k)
    assert found["first"] == place(in_parts, "# in parts, first")
    assert {found[f"loop {number}"] for number in range(3)} == {place(in_parts, "in parts, loop")}


def test_after_a_call_the_line_is_the_callers_again(gpu: Recording) -> None:
    def outer() -> None:
        pause()
        _ = [leaf(gpu), gpu.run("after")]  # the outer line
        pause()

    with gpuprof.kernels(callers=True) as k:
        outer()

    found = callers(k)
    assert found["leaf"] == place(leaf, "# in leaf")
    assert found["after"] == place(outer, "# the outer line")


def test_after_an_exception_the_line_is_that_of_the_handler(gpu: Recording) -> None:
    def fail() -> None:
        pause()
        raise ValueError

    def deep() -> None:
        fail()

    def outer() -> None:
        try:
            deep()
        except ValueError:
            gpu.run("handled")  # the handler
        pause()
        gpu.run("later")  # after it

    with gpuprof.kernels(callers=True) as k:
        for _ in range(3):
            outer()

    found = callers(k)
    assert found["handled"] == place(outer, "# the handler")
    assert found["later"] == place(outer, "# after it")


def test_a_generator_counts_while_it_runs(gpu: Recording) -> None:
    def batches() -> Iterator[int]:
        for number in range(2):
            pause()
            gpu.run(f"batch {number}")  # in the generator
            yield number

    def outer() -> None:
        for number in batches():
            gpu.run(f"step {number}")  # in the loop
            pause()

    with gpuprof.kernels(callers=True) as k:
        outer()

    found = callers(k)
    for number in range(2):
        assert found[f"batch {number}"] == place(batches, "# in the generator")
        assert found[f"step {number}"] == place(outer, "# in the loop")


def test_each_thread_has_its_own_lines(gpu: Recording) -> None:
    def other() -> None:
        pause()
        gpu.run("other")  # in the thread
        pause()

    with gpuprof.kernels(callers=True) as k:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        gpu.run("main")

    assert callers(k)["other"] == place(other, "# in the thread")


def a_body(gpu: Recording) -> gpuprof.Kernels:
    with gpuprof.kernels(callers=True) as k:
        pause()
        gpu.run("body")  # in the body
        for number in range(2):
            pause()
            gpu.run(f"loop {number}")  # in its loop
        pause()
        _ = [leaf(gpu), gpu.run("after")]  # in the body, after a call
        pause()
    return k


def test_the_body_of_the_block_has_its_lines(gpu: Recording) -> None:
    found = callers(a_body(gpu))
    assert found["body"] == place(a_body, "# in the body")
    assert found["loop 0"] == found["loop 1"] == place(a_body, "# in its loop")
    assert found["after"] == place(a_body, "# in the body, after a call")


def test_callers_of_what_opened_the_block_have_their_lines(gpu: Recording) -> None:
    block = gpuprof.kernels(callers=True)

    def callback() -> None:
        block.__enter__()

    def outer() -> None:
        _ = [callback(), pause(), gpu.run("after")]  # that opens it

    outer()
    block.__exit__(None, None, None)
    assert callers(block)["after"] == place(outer, "# that opens it")


def test_a_loop_of_another_thread_that_runs_already_has_its_lines(gpu: Recording) -> None:
    runs, go = threading.Event(), threading.Event()

    def worker() -> None:
        runs.set()
        go.wait()
        for number in range(2):
            pause()
            gpu.run(f"loop {number}")  # in the worker
            pause()

    thread = threading.Thread(target=worker)
    thread.start()
    runs.wait()
    with gpuprof.kernels(callers=True) as k:
        go.set()
        thread.join()
    found = callers(k)
    assert found["loop 0"] == found["loop 1"] == place(worker, "# in the worker")


def test_a_generator_that_waits_already_has_its_lines(gpu: Recording) -> None:
    def batches() -> Iterator[None]:
        yield
        pause()
        gpu.run("batch")  # in the generator
        pause()

    waiting = batches()
    next(waiting)
    with gpuprof.kernels(callers=True) as k:
        list(waiting)
    assert callers(k)["batch"] == place(batches, "# in the generator")


def test_threads_that_python_did_not_start_have_the_line_that_waits(gpu: Recording) -> None:
    def outer() -> None:
        pause()
        call = gpu.call(thread=1)  # which waits for it
        gpu.work("backward", call, time.monotonic_ns(), 1000)
        pause()

    with gpuprof.kernels(callers=True) as k:
        outer()

    assert callers(k)["backward"] == place(outer, "# which waits for it")


def test_work_of_no_line_is_counted_as_such(gpu: Recording) -> None:
    gpu.work("before", gpu.call(begin=1), 2, 1000)
    gpu.work("unknown", 12345, time.monotonic_ns(), 1000)
    with gpuprof.kernels(callers=True) as k:
        in_parts(gpu)
    found = callers(k)
    assert found["before"] == found["unknown"] == "(no Python frame)"
    by_caller = {each.name: each.count for each in k.by_caller()}
    assert by_caller["(no Python frame)"] == 2
    assert sum(by_caller.values()) == len(k.records)
    assert by_caller[place(in_parts, "in parts, loop")] == 3


def test_the_table_by_caller_may_be_of_one_scope(gpu: Recording) -> None:
    def outer() -> None:
        with gpuprof.timer("step"):
            gpu.run("inside")  # in the scope
        gpu.run("outside")  # not in it

    with gpuprof.kernels(callers=True) as k:
        outer()

    assert [each.name for each in k.by_caller("step")] == [place(outer, "# in the scope")]
    assert k.by_caller("step")[0].kind == "caller"
    assert "scope: step" in repr(k.by_caller("step"))
    with pytest.raises(KeyError):
        k.by_caller("other")


def test_room_for_lines_is_bounded(gpu: Recording) -> None:
    with gpuprof.kernels(max_records=2, callers=True) as k:
        for number in range(100):
            in_parts(gpu)
            pause()
            assert number >= 0
    assert any("no more room for callers" in note for note in k.notes)
    assert callers(k)["first"] == place(in_parts, "# in parts, first")


def test_a_second_collection_sees_the_same_lines(gpu: Recording) -> None:
    for _ in range(2):
        gpu.activities.clear()
        gpu.launches.clear()
        with gpuprof.kernels(max_records=10, callers=True) as k:
            for _ in range(30):
                in_parts(gpu)
                pause()
        assert callers(k)["first"] == place(in_parts, "# in parts, first")
        monitoring = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        assert all(monitoring.get_tool(tool) != "gpuprof callers" for tool in range(6))


def test_packages_of_any_folder_for_them_are_libraries(tmp_path: Path, fake_path: Path) -> None:
    folder = tmp_path / "dist-packages"  # Debian's name
    folder.mkdir()
    shutil.copy(gpu_records.__file__, folder / "installed.py")
    code = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import gpuprof, pytest
from installed import Recording
gpu = Recording().install(pytest.MonkeyPatch())
def train():
    gpu.run("gemm")
with gpuprof.kernels(callers=True) as k:
    train()
print(k.records[0].caller)
"""
    assert check_python(code, driver=fake_path).split()[1:] == ["in", "train"]


def test_a_profiler_works_within_and_misses_nothing_afterwards(gpu: Recording) -> None:
    def profiled() -> set[str]:
        profile = cProfile.Profile()
        profile.enable()
        textwrap.dedent("  a")
        profile.disable()
        codes = (each.code for each in profile.getstats())
        return {each.co_name for each in codes if isinstance(each, CodeType)}

    with gpuprof.kernels(callers=True):
        textwrap.dedent("  a")  # of a library: its start has no events from now on
        assert "dedent" in profiled()
    assert "dedent" in profiled()


def test_the_next_owner_of_the_tool_misses_nothing(gpu: Recording) -> None:
    monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
    starts = []
    with gpuprof.kernels(callers=True):
        tool = next(n for n in range(6) if monitoring.get_tool(n) == "gpuprof callers")
        textwrap.dedent("  a")
    monitoring.use_tool_id(tool, "another")
    try:
        event = monitoring.events.PY_START
        monitoring.register_callback(tool, event, lambda code, _: starts.append(code.co_name))
        monitoring.set_events(tool, event)
        textwrap.dedent("  a")
    finally:
        monitoring.set_events(tool, 0)
        monitoring.register_callback(tool, event, None)
        monitoring.free_tool_id(tool)
    assert "dedent" in starts


def run_fresh(file: str, count: int = 1) -> None:
    code = compile("1", file, "exec")
    for number in range(count):
        exec(code.replace(co_firstlineno=number + 1))


def test_a_function_may_start_while_the_block_ends(
    gpu: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    block = gpuprof.kernels(callers=True)
    asked = []

    def end(file: str) -> bool:
        asked.append(file)
        if file == "fresh.py":
            block.__exit__(None, None, None)
        return False

    monkeypatch.setattr("gpuprof._kernels.callers.is_of_library", end)
    block.__enter__()
    run_fresh("fresh.py")
    run_fresh("later.py")
    assert "fresh.py" in asked
    assert "later.py" not in asked


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_follows_nothing(gpu: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("gpuprof._kernels.callers.is_of_library", asked.append)
    with gpuprof.kernels(callers=True):
        child = os.fork()
        if child == 0:
            run_fresh("child.py")
            os._exit("child.py" in asked)
        assert os.waitpid(child, 0)[1] == 0
        run_fresh("parent.py")
    assert "parent.py" in asked


def test_functions_that_are_followed_are_bounded(
    gpu: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr("gpuprof._kernels.callers.is_of_library", asked.append)
    with gpuprof.kernels(callers=True):
        run_fresh("many.py", 10_010)
        run_fresh("more.py")
    assert 9_000 < asked.count("many.py") <= 10_000
    assert "more.py" not in asked
