"""Running a piece of Python in a process of its own, where the exit status is part of the test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.warm import WarmPython

ROOT = Path(__file__).parents[2]
_PREFIX = """\
import sys, warnings
sys.path.insert(0, {root!r})
warnings.filterwarnings("ignore", message=".*multi-threaded.*fork")  # from Python 3.12 on
"""
# What gpuprof and the fake driver import of Python's own.
OF_PYTHON = (
    *("contextlib", "ctypes", "dataclasses", "datetime", "email.message", "gzip", "html"),
    *("importlib.metadata", "inspect", "ipaddress", "random", "shutil", "statistics", "threading"),
    *("types", "typing", "urllib.parse", "weakref"),
)
_WARM = WarmPython(*OF_PYTHON, "tests.fake_driver.control")


def environment(driver: Path | str | None, **variables: str) -> dict[str, str]:
    """Return this process's environment with another driver (None: an absent one)."""
    result = {k: v for k, v in os.environ.items() if not k.startswith(("GPUPROF_", "FAKECUDA_"))}
    if driver is not None:
        result["GPUPROF_CUDA_DRIVER"] = str(driver)
    result.update(variables)
    return result


def run_command(
    *command: object,
    cwd: Path | None = None,
    driver: Path | str | None = None,
    timeout: float = 120,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run a command and return what it printed and how it ended."""
    return subprocess.run(
        [*map(str, command)],
        cwd=cwd,
        env=environment(driver, **variables),
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def run_python(
    code: str,
    *,
    cwd: Path | None = None,
    driver: Path | str | None = None,
    timeout: float = 60,
    **variables: str,
) -> subprocess.CompletedProcess[str]:
    """Run `code` and return what it printed and how it ended."""
    script = _PREFIX.format(root=str(ROOT)) + textwrap.dedent(code)
    env = environment(driver, **variables)
    return _WARM.run("-c", script, env=env, cwd=cwd, timeout=timeout)


def run_fresh_python(code: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `code` in a Python that has imported nothing, where the first use is what is tested."""
    script = _PREFIX.format(root=str(ROOT)) + textwrap.dedent(code)
    return run_command(sys.executable, "-c", script, **options)


def check_python(
    code: str,
    run: Callable[..., subprocess.CompletedProcess[str]] = run_python,
    **options: Any,
) -> str:
    """Run `code`; it must end with status 0 and print nothing to stderr. Return its output."""
    done = run(code, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == "", done.stderr
    return done.stdout


def result_of(code: str, **options: Any) -> Any:
    """Run `code`, which sets `result`; return that as plain data."""
    code = f"{textwrap.dedent(code)}\nimport json\nprint('RESULT', json.dumps(result))\n"
    done = run_python(code, **options)
    assert done.returncode == 0, f"exit status {done.returncode}\n{done.stdout}\n{done.stderr}"
    print(done.stdout)
    return json.loads(done.stdout.rpartition("RESULT ")[2])


def native_threads(awaited: int | None = None) -> int:
    """The threads of this process; a joined one leaves /proc a moment after its join."""
    deadline = time.monotonic() + 5
    count = -1
    while time.monotonic() < deadline:
        last, count = count, len(list(Path("/proc/self/task").iterdir()))
        if count == (last if awaited is None else awaited):
            break
        time.sleep(0.02)
    return count


# A context and a stream as a framework would have them, and a scope on the stream.
SETUP_CUDA = """
import os, threading, time
import gpuprof
from gpuprof import _core
from tests.fake_driver.control import FakeCuda
fake = FakeCuda(os.environ["GPUPROF_CUDA_DRIVER"])
context = fake.use_primary()
stream = fake.stream_create()
scope = gpuprof.timer("step", stream=stream)
"""


def check_cuda(driver: Path, body: str, **variables: str) -> str:
    """Run `body` after `SETUP_CUDA` on the fake driver, as `check_python` does."""
    return check_python(SETUP_CUDA + textwrap.dedent(body), driver=driver, **variables)
