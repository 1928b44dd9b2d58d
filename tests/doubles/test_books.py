"""The fake CUDA driver's books, its entry points, and what it does to misuse, forks and exits."""

from __future__ import annotations

import ctypes
import re
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.fake_driver import build as fake_build
from tests.fake_driver import control
from tests.fake_driver.control import DriverCallError, FakeCuda
from tests.fake_driver.own import exported_entry_points
from tests.support.processes import ROOT, run_command
from tests.support.threads import in_threads

# Books


def test_live_objects_are_listed_with_the_call_that_made_them(driver: FakeCuda) -> None:
    event = driver.event_create()
    driver.memory_allocate(64)
    driver.host_allocate(64)
    assert {kind: driver.live(kind) for kind in ("event", "memory", "host_memory", "primary")} == {
        "event": 1, "memory": 1, "host_memory": 1, "primary": 1,
    }  # fmt: skip
    (listed,) = driver.report()["live"]["event"]
    assert int(listed["handle"], 16) == event
    assert listed["label"].startswith("cuEventCreate #")
    driver.event_destroy(event)
    assert driver.live("event") == 0
    with pytest.raises(ValueError, match="'cat'"):
        driver.live("cat")


def test_a_destroy_that_was_made_to_fail_is_no_leak_of_the_caller(driver: FakeCuda) -> None:
    event = driver.event_create()
    with driver.faults("cuEventDestroy@1=999"), pytest.raises(DriverCallError):
        driver.event_destroy(event)
    with driver.faults("cuDevicePrimaryCtxRelease@1=999"), pytest.raises(DriverCallError):
        driver.primary_release()
    assert driver.live() == 0
    driver.event_destroy(event)


def test_calls_are_counted_by_symbol_and_by_base_name(driver: FakeCuda) -> None:
    before = driver.calls()
    event = driver.event_create()
    driver.event_destroy(event)
    assert driver.calls("cuEventDestroy_v2") == driver.calls("cuEventDestroy") == 1
    assert driver.calls() - before == 2
    assert driver.last_calls()[-2:] == ["cuEventCreate", "cuEventDestroy_v2"]


def test_spared_calls_are_neither_counted_nor_made_to_fail(driver: FakeCuda) -> None:
    event = driver.event_create()
    before = driver.calls()
    with driver.faults("any@1=999"), driver.spared():
        assert driver.event_query(event) == 0
    assert driver.calls() == before


def test_the_report_shows_what_a_thread_forgot_to_put_back(driver: FakeCuda) -> None:
    driver.exchange_mode(control.RELAXED)
    driver.call("cuCtxPushCurrent_v2", driver.current_context())
    report = driver.report()
    assert report["thread_mode"] == control.RELAXED
    assert report["context_depth"] == 2


def test_open_captures_are_in_the_report_and_their_graphs_are_not_live(driver: FakeCuda) -> None:
    stream = driver.stream_create()
    driver.begin_capture(stream)
    assert (driver.report()["open_captures"], driver.live("graph")) == (1, 0)
    driver.end_capture(stream)
    assert (driver.report()["open_captures"], driver.live("graph")) == (0, 1)


def test_handles_are_no_addresses_and_never_come_back(driver: FakeCuda) -> None:
    handles = []
    for _ in range(50):
        handles.append(driver.stream_create())
        driver.stream_destroy(handles[-1])
    assert len(set(handles)) == len(handles)
    assert all(handle >> 56 for handle in handles)


def test_after_deinit_every_call_answers_4_and_is_counted(driver: FakeCuda) -> None:
    event = driver.event_create()
    driver.deinit()
    assert driver.event_query(event) == 4
    assert driver.call("cuInit", 0, expect=None) == 4
    assert driver.report()["calls_after_deinit"] == 2
    driver.reset()
    driver.init()


def test_threads_lose_no_call_and_no_event(driver: FakeCuda) -> None:
    threads, pairs = 16, 50
    context = driver.current_context()
    start = threading.Barrier(threads)
    before = driver.calls("cuEventRecord")

    def record_pairs() -> None:
        driver.set_current(context)
        stream = driver.stream_create()
        begin, end = driver.event_create(), driver.event_create()
        start.wait()
        for _ in range(pairs):
            driver.event_record(begin, stream)
            driver.event_record(end, stream)

    in_threads(*[record_pairs] * threads)
    assert driver.calls("cuEventRecord") - before == threads * pairs * 2
    assert (driver.live("stream"), driver.live("event")) == (threads, threads * 2)


# Entry points


def looked_up(driver: FakeCuda, name: str, version: int) -> tuple[int, int, bool]:
    entry, result = ctypes.c_void_p(), ctypes.c_int(-7)
    code = driver.call(
        "cuGetProcAddress_v2", name.encode(), ctypes.byref(entry), version, 0,
        ctypes.byref(result), expect=None,
    )  # fmt: skip
    return code, result.value, entry.value is not None


def test_a_missing_entry_is_not_found_while_an_older_form_is(driver: FakeCuda) -> None:
    driver.configure(missing=["cuEventElapsedTime_v2", "cuLogsCurrent", "cuStreamDestroy"])
    assert looked_up(driver, "cuEventElapsedTime", 12080) == (0, 1, False)
    assert looked_up(driver, "cuEventElapsedTime", 2000) == (0, 0, True)
    assert looked_up(driver, "cuLogsCurrent", 12090) == (0, 1, False)
    assert looked_up(driver, "cuStreamDestroy", 4000) == (0, 1, False)


def test_an_older_driver_lacks_what_came_later(driver: FakeCuda) -> None:
    driver.configure(driver_version=12020)
    version = ctypes.c_int()
    driver.call("cuDriverGetVersion", ctypes.byref(version))
    assert version.value == 12020
    assert looked_up(driver, "cuEventElapsedTime", 12080)[0] == 1
    assert looked_up(driver, "cuLogsCurrent", 12020) == (0, 1, False)
    assert looked_up(driver, "cuEventRecord", 12000) == (0, 0, True)


def test_a_driver_can_be_without_device_or_fail_to_start(driver: FakeCuda) -> None:
    driver.reset()
    driver.configure(device_count=0)
    assert driver.call("cuInit", 0, expect=None) == 100
    driver.configure(device_count=2, init=803)
    assert driver.call("cuInit", 0, expect=None) == 803
    driver.configure(init=0)
    driver.init()
    assert driver.primary_retain(1) != driver.primary_retain(0)


def test_every_exported_entry_point_can_be_looked_up(driver: FakeCuda, library: Path) -> None:
    names = {re.sub(r"_v\d$", "", symbol) for symbol in exported_entry_points(library)}
    assert len(names) > 60
    assert {name for name in names if looked_up(driver, name, 13000) != (0, 0, True)} == set()


# Processes of their own: misuse, fork, exit


def run_script(library: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    prelude = (
        "import ctypes, os, sys\n"
        "from tests.fake_driver.control import *\n"
        f"driver = FakeCuda({str(library)!r})\n"
    )
    return run_command(sys.executable, "-c", prelude + body, cwd=ROOT, **environment)


def test_calls_in_a_forked_child_are_refused_and_counted_for_the_parent(library: Path) -> None:
    body = """
driver.use_primary()
event = driver.event_create()
child = os.fork()
if child == 0:
    answers = [driver.call("cuInit", 0, expect=None), driver.event_query(event)]
    os._exit(0 if answers == [3, 0] else 1)
assert os.waitpid(child, 0)[1] == 0
assert driver.report()["calls_in_child"] == 2
assert driver.event_query(event) == 0
"""
    done = run_script(library, body)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_environment_configures_and_scripts_a_fresh_process(library: Path) -> None:
    done = run_script(
        library,
        "sys.exit(driver.call('cuInit', 0, expect=None))",
        FAKECUDA_CONFIG="driver_version=12080",
        FAKECUDA_SCRIPT="cuInit@1=34",
    )
    assert done.returncode == 34
    wrong = run_script(library, "pass", FAKECUDA_SCRIPT="cuInit")
    assert wrong.returncode == 2
    assert "a fault is written fn@n=code: 'cuInit'" in wrong.stderr


# Building it


def test_the_library_is_writable_by_its_owner_alone(library: Path) -> None:
    mode = stat.S_IMODE(library.stat().st_mode)
    assert mode & (stat.S_IWGRP | stat.S_IWOTH) == 0


def test_an_unchanged_library_is_not_built_again(fake_path: Path) -> None:
    before = fake_path.stat().st_mtime_ns
    assert fake_build.build(fake_path.parent).stat().st_mtime_ns == before


def test_a_failed_build_shows_the_compilers_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKECUDA_CXXFLAGS", "-not-a-flag")
    with pytest.raises(RuntimeError, match="-not-a-flag"):
        fake_build.build(tmp_path)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(RuntimeError, match=r"no-such-compiler.*install g\+\+ or set CXX"):
        fake_build.build(tmp_path)
