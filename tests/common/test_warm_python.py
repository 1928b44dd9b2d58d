"""A program in a fork of the warm Python finds what a start of its own would give it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import check_python, environment, run_python
from tests.support.warm import WarmPython

SHOWN = """
import os, sys, threading, warnings
print(__name__, sys.argv, sys.path, sorted(os.environ.items()), os.getcwd())
print("gpuprof" in sys.modules, vars(sys.modules["__main__"]) is globals(), "__file__" in globals())
print(threading.active_count(), threading.current_thread() is threading.main_thread())
print(sys.stdin.read(), sys.stdout.isatty(), sorted(os.listdir("/proc/self/fd")))
import atexit
atexit.register(print, "ended", flush=True)
print("to stderr", file=sys.stderr)
def annotated(x: int) -> None:
    warnings.warn("a warning")
    raise ValueError(annotated.__annotations__)
"""
ENV = {k: v for k, v in environment(None).items() if k != "LD_PRELOAD"}  # with a sanitizer
WARM = WarmPython("ctypes", "threading", env=ENV)


@pytest.mark.parametrize(
    "arguments",
    [
        ("-c", SHOWN, "an argument"),
        ("shown.py", "-m", "an argument"),
        ("-W", "ignore", "folder/shown.py"),
        ("-W", "error", "-W", "ignore:another", "-m", "shown"),
        ("-m", "shown", "-c", "1"),
        ("-m", "absent"),
        ("-c", "1 +"),
    ],
    ids=lambda given: " ".join(given).replace(SHOWN, "CODE"),
)
def test_a_program_finds_what_a_start_gives_it(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    (tmp_path / "folder").mkdir()
    for name in ("shown.py", "folder/shown.py"):
        (tmp_path / name).write_text(f"{SHOWN}annotated(1)\n", encoding="utf-8")
    env = {**ENV, "GPUPROF_NOTHING": "1"}
    found = WARM.run(*arguments, env=env, cwd=tmp_path, timeout=60)
    expected = subprocess.run(
        [sys.executable, *arguments],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == expected.stdout
    assert (found.stderr, found.returncode) == (expected.stderr, expected.returncode)


def run(code: str, timeout: float = 60) -> str:
    return WARM.run("-c", code, env=ENV, timeout=timeout).stdout


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_status_is_the_programs(code: str, status: int) -> None:
    assert run_python(f"import os\n{code}").returncode == status


def test_programs_and_what_they_write_are_of_any_length() -> None:
    text = "ä" * 1_000_000
    assert run(f"print({text!r})") == f"{text}\n"


def test_a_program_that_hangs_is_killed_with_its_children_and_the_next_one_runs(
    tmp_path: Path,
) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    assert run("print(0)") == "0\n"
    with pytest.raises(subprocess.TimeoutExpired):
        code = f"import os, time; os.write(os.open({str(pipe)!r}, os.O_WRONLY), b'x')"
        run(f"{code}; os.fork(); time.sleep(60)", timeout=1.0)
    os.set_blocking(reader, True)
    assert os.read(reader, 1) == b"x"
    assert os.read(reader, 1) == b""  # nobody has the other end any more
    os.close(reader)
    assert run("print(1)") == "1\n"


def test_a_fork_has_a_process_of_its_own_and_each_ends_with_its_owner() -> None:
    code = """
        import os
        from tests.support.warm import WarmPython
        warm = WarmPython()
        def show():
            code = "import os; print(os.getppid())"
            print(warm.run("-c", code, env=os.environ, timeout=60).stdout, end="", flush=True)
        show()
        if (child := os.fork()) == 0:
            show()
            raise SystemExit
        os.waitpid(child, 0)
        show()
    """
    first, of_fork, last = check_python(code).split()
    assert first == last != of_fork
    assert not any(Path("/proc", pid).exists() for pid in (first, of_fork))


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD", "MALLOC_PERTURB_"])
def test_what_only_a_start_reads_is_not_taken(name: str) -> None:
    assert WARM.takes(ENV)
    assert not WARM.takes({**ENV, name: "7"})


def test_such_a_program_gets_a_start_of_its_own() -> None:
    code = "import os, sys; print(sys.flags.hash_randomization, os.getppid())"
    done = WARM.run("-c", code, env={**ENV, "PYTHONHASHSEED": "0"}, timeout=60)
    assert done.stdout == f"0 {os.getpid()}\n"


def test_there_are_forks_on_linux_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    assert not WARM.takes(ENV)
