"""When the fake CUDA driver lets go of what graphs keep alive."""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.fake_driver.own import fresh, kernel_graph, own_library

ROOT = Path(__file__).resolve().parents[1]
MS = 1_000_000


@pytest.fixture(scope="module")
def library(fake_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return own_library(fake_path, tmp_path_factory.mktemp("fake_driver"))


@pytest.fixture
def driver(library: Path) -> Iterator[FakeCuda]:
    with fresh(library) as fake:
        yield fake


@pytest.fixture
def stream(driver: FakeCuda) -> int:
    return driver.stream_create()


class Watched:
    """User objects that note their end, and on which thread it came."""

    def __init__(self, driver: FakeCuda) -> None:
        self.driver = driver
        self.ended: list[int] = []
        self.threads: set[int] = set()
        self.inside: Callable[[], object] = lambda: None
        self.callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(self._end)

    def _end(self, number: int) -> None:
        self.inside()
        self.ended.append(number)
        self.threads.add(threading.get_ident())

    def make(self, number: int, references: int = 1) -> int:
        out = ctypes.c_uint64()
        self.driver.call(
            "cuUserObjectCreate", ctypes.byref(out), number, self.callback, references, 1
        )
        return out.value

    def give(self, graph: int, number: int) -> None:
        self.driver.call("cuGraphRetainUserObject", graph, self.make(number), 1, 1)


@pytest.fixture
def watched(driver: FakeCuda) -> Watched:
    return Watched(driver)


def test_a_user_object_lives_as_long_as_its_last_owner(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    graph = kernel_graph(driver, stream)
    watched.give(graph, 1)
    copies = [driver.instantiate(graph) for _ in range(2)]
    assert driver.live("user_object") == 1
    driver.graph_destroy(graph)
    driver.exec_destroy(copies[0])
    assert watched.ended == []
    driver.exec_destroy(copies[1])
    assert watched.ended == [1]
    assert driver.live("user_object") == 0


def test_a_user_object_outlives_its_copy_while_a_launch_runs(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    driver.configure(mode="manual")
    graph = kernel_graph(driver, stream)
    watched.give(graph, 1)
    graph_exec = driver.instantiate(graph)
    driver.graph_destroy(graph)
    driver.graph_launch(graph_exec, stream)
    driver.exec_destroy(graph_exec)
    driver.advance(MS - 1)
    assert watched.ended == []
    driver.advance(1)
    assert watched.ended == [1]


def test_references_that_are_moved_count_once(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    graph = kernel_graph(driver, stream)
    kept = watched.make(1, references=2)
    driver.call("cuGraphRetainUserObject", graph, kept, 1, 1)
    driver.graph_destroy(graph)
    assert watched.ended == []
    driver.call("cuUserObjectRelease", kept, 1)
    assert watched.ended == [1]


def test_an_update_takes_over_what_the_other_graph_keeps_alive(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    driver.configure(mode="manual")
    graph, other = kernel_graph(driver, stream), kernel_graph(driver, stream)
    watched.give(graph, 1)
    watched.give(other, 2)
    graph_exec = driver.instantiate(graph)
    driver.graph_destroy(graph)
    driver.graph_launch(graph_exec, stream)
    info = (ctypes.c_uint64 * 3)()
    driver.call("cuGraphExecUpdate_v2", graph_exec, other, info)
    driver.graph_destroy(other)
    assert watched.ended == [], "the running launch still wants it"
    driver.stream_synchronize(stream)
    assert watched.ended == [1]
    driver.exec_destroy(graph_exec)
    assert watched.ended == [1, 2]


def test_an_abandoned_capture_gives_up_what_its_graph_was_given(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    driver.begin_capture(stream)
    watched.give(driver.captured_graph(stream), 1)
    assert driver.stream_query(stream) == 900
    with pytest.raises(DriverCallError, match="901"):
        driver.end_capture(stream)
    assert watched.ended == [1]


def test_a_destructor_runs_on_another_thread_and_may_not_call_the_driver(
    driver: FakeCuda, watched: Watched
) -> None:
    event = driver.event_create()
    answers: list[int] = []
    watched.inside = lambda: answers.append(driver.event_query(event))
    driver.call("cuUserObjectRelease", watched.make(1), 1)
    assert answers == [800]
    assert threading.get_ident() not in watched.threads
    assert driver.event_query(event) == 0


def test_what_a_dead_context_held_stays_until_its_copies_are_destroyed(
    driver: FakeCuda, watched: Watched
) -> None:
    context = driver.context_create()
    stream = driver.stream_create()
    graph = kernel_graph(driver, stream)
    watched.give(graph, 1)
    graph_exec = driver.instantiate(graph)
    driver.graph_destroy(graph)
    driver.context_destroy(context)
    assert driver.live("exec") == 0
    free, total = driver.memory_info()
    assert free == total
    driver.exec_destroy(graph_exec)
    assert watched.ended == [1]


def test_using_a_user_object_that_is_gone_is_misuse(fake_path: Path) -> None:
    code = f"""
import ctypes, sys
sys.path.insert(0, {str(ROOT)!r})
from tests.fake_driver.control import FakeCuda
fake = FakeCuda({str(fake_path)!r})
fake.use_primary()
out = ctypes.c_uint64()
end = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
fake.call("cuUserObjectCreate", ctypes.byref(out), None, end, 1, 1)
fake.call("cuUserObjectRelease", out.value, 1)
fake.call("cuUserObjectRelease", out.value, 1)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == -6
    assert "FAKECUDA MISUSE cuUserObjectRelease" in done.stderr


def test_what_only_a_graph_holds_whose_destroy_was_made_to_fail_is_no_leak(
    driver: FakeCuda, stream: int, watched: Watched
) -> None:
    graph = kernel_graph(driver, stream)
    watched.give(graph, 1)
    with driver.faults("cuGraphDestroy@1=999"), pytest.raises(DriverCallError):
        driver.graph_destroy(graph)
    assert driver.live("user_object") == 0
    assert watched.ended == []
    driver.graph_destroy(graph)
    assert watched.ended == [1]
