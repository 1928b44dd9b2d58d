"""`gpuprof.kernels(callers=True)`: the line of Python that launched each piece of work."""

from __future__ import annotations

import inspect
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import gpuprof
from tests.support.gpu_records import Recording

needs_lines = pytest.mark.skipif(
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


@pytest.fixture
def own_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the helpers of the tests for a library, as installed packages are."""
    libraries = ("gpu_records.py", "cupti.py", "threading.py")
    monkeypatch.setattr(
        "gpuprof._kernels.callers.is_of_library",
        lambda file: file.endswith(libraries) or "/lib/python" in file,
    )


def in_parts(gpu: Recording) -> int:
    gpu.run("first")  # in parts, first
    for number in range(3):
        gpu.run(f"loop {number}")  # in parts, loop
    return 3


def leaf(gpu: Recording) -> int:
    gpu.run("leaf")  # in leaf
    pause()
    return 1


@needs_lines
@pytest.mark.usefixtures("own_lines")
def test_each_launch_has_its_line(gpu: Recording) -> None:
    with gpuprof.kernels(callers=True) as k:
        in_parts(gpu)

    found = callers(k)
    assert found["first"] == place(in_parts, "# in parts, first")
    assert {found[f"loop {number}"] for number in range(3)} == {place(in_parts, "in parts, loop")}


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
def test_threads_that_python_did_not_start_have_the_line_that_waits(gpu: Recording) -> None:
    def outer() -> None:
        pause()
        call = gpu.call(thread=1)  # which waits for it
        gpu.work("backward", call, time.monotonic_ns(), 1000)
        pause()

    with gpuprof.kernels(callers=True) as k:
        outer()

    assert callers(k)["backward"] == place(outer, "# which waits for it")


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@needs_lines
@pytest.mark.usefixtures("own_lines")
def test_room_for_lines_is_bounded(gpu: Recording) -> None:
    with gpuprof.kernels(max_records=2, callers=True) as k:
        for number in range(100):
            in_parts(gpu)
            pause()
            assert number >= 0
    assert any("no more room for callers" in note for note in k.notes)
    assert callers(k)["first"] == place(in_parts, "# in parts, first")


@needs_lines
@pytest.mark.usefixtures("own_lines")
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


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="needs another Python version")
def test_an_older_python_is_told(gpu: Recording) -> None:
    with pytest.raises(ValueError, match=r"callers: expected False on a Python before 3\.12"):
        gpuprof.kernels(callers=True)


def test_callers_are_a_flag(gpu: Recording) -> None:
    with pytest.raises(TypeError, match="callers"):
        gpuprof.kernels(callers="yes")  # type: ignore[arg-type]


def test_callers_that_were_not_kept_are_none(gpu: Recording) -> None:
    with gpuprof.kernels() as k:
        gpu.run("gemm")
    assert k.records[0].caller == ""
    with pytest.raises(gpuprof.InvalidStateError, match="callers=True"):
        k.by_caller()
