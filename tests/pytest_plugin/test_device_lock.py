"""One measurement at a time on a device, among the processes of a user."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuprof._pytest import device_lock
from tests.support.processes import ROOT, check_cuda, check_python, environment

# Holds the lock of a place until its standard input ends.
HOLDER = """
import sys
from gpuprof._pytest import device_lock
device_lock.place = lambda: sys.argv[1]
with device_lock.measuring(sys.exit, sys.exit):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield tmp_path
    # Found anew, from what the environment says then.
    tempfile.tempdir = None


@pytest.fixture
def warnings() -> list[str]:
    return []


def holder(place: str) -> subprocess.Popen[str]:
    """Start a process that holds a lock; it has it when this returns."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, place],
        cwd=ROOT,
        env=environment(None),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def is_free(place: str) -> bool:
    descriptor = os.open(device_lock.lock_file(place), os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


def test_a_second_process_waits_until_the_first_is_done(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(device_lock, "place", lambda: "GPU-1")
    first = holder("GPU-1")
    order: list[str] = []

    def second() -> None:
        with device_lock.measuring(warnings.append, warnings.append):
            order.append("second measures")

    thread = threading.Thread(target=second)
    thread.start()
    thread.join(0.2)
    assert thread.is_alive()
    order.append("first is done")
    first.communicate("")
    thread.join(30)
    assert order == ["first is done", "second measures"]
    assert warnings == []


def test_another_gpu_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    first = holder("GPU-1")
    monkeypatch.setattr(device_lock, "place", lambda: "GPU-2")
    with device_lock.measuring(warnings.append, warnings.append):
        assert not is_free("GPU-1")
        assert not is_free("GPU-2")
    assert is_free("GPU-2")
    first.communicate("")


def test_the_lock_of_a_killed_process_is_free() -> None:
    first = holder("GPU-1")
    assert not is_free("GPU-1")
    first.send_signal(signal.SIGKILL)
    first.wait(30)
    first.communicate()
    assert is_free("GPU-1")


def test_the_lock_changes_when_cuda_comes_into_use(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    places = ["cpu"]
    monkeypatch.setattr(device_lock, "place", lambda: places[-1])
    with device_lock.measuring(warnings.append, warnings.append) as change:
        assert not is_free("cpu")
        change()
        assert not is_free("cpu")
        places.append("GPU-1")
        change()
        assert is_free("cpu")
        assert not is_free("GPU-1")
    assert is_free("GPU-1")


def test_it_is_let_go_when_the_measurement_fails(warnings: list[str]) -> None:
    with pytest.raises(ZeroDivisionError), device_lock.measuring(warnings.append, warnings.append):
        _ = 1 / 0
    assert is_free(device_lock.place())


@pytest.mark.filterwarnings("ignore:.*use of fork:DeprecationWarning")
def test_a_forked_child_that_lives_on_does_not_keep_it(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(device_lock, "place", lambda: "GPU-1")
    read, write = os.pipe()
    with device_lock.measuring(warnings.append, warnings.append):
        child = os.fork()
        if child == 0:
            os.close(write)
            os.read(read, 1)
            os._exit(0)
        os.close(read)
    try:
        assert is_free("GPU-1")
    finally:
        os.close(write)
        os.waitpid(child, 0)


def test_the_folder_is_the_users_alone(folder: Path) -> None:
    file = device_lock.lock_file("GPU-1/../x")
    assert file.parent.parent == folder
    assert file.name == "GPU-1_.._x.lock"
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("how", ["a file", "a link", "a link for the lock", "a FIFO for the lock"])
def test_what_is_in_the_way_is_warned_of_and_nothing_is_locked(
    folder: Path, how: str, warnings: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    place = folder / f"gpuprof-{os.getuid()}"
    target = folder / "elsewhere"
    if how == "a file":
        place.write_text("", encoding="utf-8")
    elif how == "a link":
        target.mkdir()
        place.symlink_to(target)
    elif how == "a FIFO for the lock":
        os.mkfifo(device_lock.lock_file("cpu"))
    else:
        device_lock.lock_file("cpu").symlink_to(target)
    monkeypatch.setattr(device_lock, "place", lambda: "cpu")
    with device_lock.measuring(warnings.append, warnings.append):
        pass
    (text,) = warnings
    assert text.startswith("measured without a lock, so another process may have disturbed it: ")
    assert not target.is_file()
    assert not list(target.glob("*"))


def test_a_wait_that_takes_long_is_said_once(
    monkeypatch: pytest.MonkeyPatch, warnings: list[str]
) -> None:
    monkeypatch.setattr(device_lock, "place", lambda: "GPU-1")
    monkeypatch.setattr(device_lock, "SILENT_S", 0.0)
    process = holder("GPU-1")
    assert process.stdin is not None
    assert process.stdout is not None
    said: list[str] = []

    def say(text: str) -> None:
        said.append(text)
        assert process.stdin is not None
        process.stdin.close()  # which lets the lock go

    with device_lock.measuring(warnings.append, say):
        (text,) = said
    assert text.startswith("waiting until another process has measured on this device; it holds ")
    assert text.endswith("GPU-1.lock")
    assert not warnings
    process.stdout.close()
    process.wait()


def test_without_cuda_the_place_is_the_cpu() -> None:
    said = check_python("from gpuprof._pytest import device_lock; print(device_lock.place())")
    assert said == "cpu\n"


def test_with_cuda_the_place_is_the_gpu(fake_path: Path) -> None:
    code = """
        from gpuprof._pytest import device_lock
        print(device_lock.place() == _core.devices()[0]["uuid"] != "")
    """
    assert check_cuda(fake_path, code) == "True\n"


def test_waiting_for_another_process_is_said_while_it_waits(tmp_path: Path) -> None:
    quick = "from gpuprof._pytest import device_lock\ndevice_lock.SILENT_S = 0.0\n"
    (tmp_path / "conftest.py").write_text(quick, encoding="utf-8")
    test = "def test_a(gpu_benchmark):\n    gpu_benchmark.pedantic(sum, ([1],))\n"
    (tmp_path / "test_it.py").write_text(test, encoding="utf-8")
    first = holder("cpu")
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", "-p", "gpuprof._pytest.plugin", "test_it.py"],
        cwd=tmp_path,
        env=environment(None, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    ) as waiting:
        assert waiting.stderr is not None
        said = next((line for line in waiting.stderr if line.strip()), "nothing")
        first.communicate("")
    assert said.startswith("gpu_benchmark: waiting until another process has measured")
    assert waiting.returncode == 0
