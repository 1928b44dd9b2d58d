"""A program in a fork of the warm Python finds what a start of its own would give it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import environment, run_python
from tests.support.warm import warm_python

SHOWN = """
import os, sys, threading
print(__name__, sys.argv, sys.path, sorted(os.environ.items()), os.getcwd())
print("gpuprof" in sys.modules)
print(threading.active_count(), threading.current_thread() is threading.main_thread())
print(sys.stdin.read(), sys.stdout.isatty(), sorted(os.listdir("/proc/self/fd"))[:3])
import atexit
atexit.register(print, "ended", flush=True)
print("to stderr", file=sys.stderr)
"""
WARM = ("ctypes", "threading")


def test_a_program_finds_what_a_start_gives_it(tmp_path: Path) -> None:
    env = environment(None, GPUPROF_NOTHING="1")
    found = warm_python(*WARM).run(SHOWN, "an argument", env=env, cwd=tmp_path, timeout=60)
    expected = subprocess.run(
        [sys.executable, "-c", SHOWN, "an argument"],
        env=env,
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.stdout == expected.stdout
    assert (found.stderr, found.returncode) == (expected.stderr, expected.returncode)


@pytest.mark.parametrize(
    ("code", "status"), [("raise SystemExit(3)", 3), ("1 / 0", 1), ("os.kill(os.getpid(), 9)", -9)]
)
def test_the_status_is_the_programs(code: str, status: int) -> None:
    assert run_python(f"import os\n{code}").returncode == status


def test_a_program_that_hangs_is_killed_and_the_next_one_runs() -> None:
    env = dict(os.environ)
    with pytest.raises(subprocess.TimeoutExpired):
        warm_python(*WARM).run("import time; time.sleep(60)", env=env, cwd=None, timeout=0.2)
    assert warm_python(*WARM).run("print(1)", env=env, cwd=None, timeout=60).stdout == "1\n"


@pytest.mark.parametrize("name", ["PYTHONHASHSEED", "LD_PRELOAD", "MALLOC_PERTURB_"])
def test_what_only_a_start_reads_is_not_taken(name: str) -> None:
    assert not warm_python(*WARM).takes({**os.environ, name: "7"})
