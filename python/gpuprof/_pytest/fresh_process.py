"""Runs a test once more, in a pytest of its own that runs this one test.

The addresses, the hash seed and often the clock states of a process last as long as it does, so a
second measurement in the same process repeats what disturbed the first.

The new process gets the arguments of this one, without the files to test and without those that
write reports. Where it cannot run the test, such as without a second place on the GPU, `measure`
raises `NotMeasured`, and the caller measures in this process.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gpuprof._pytest.settings import RESULT_FILE
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import load_kind
from gpuprof.errors import BaselineError

_LIMIT_S = 600.0
_SHOWN = 300  # characters of what a process said that failed
# Options that write files or send results; each takes a value, or none, in the same argument or
# in the next one.
_REPORTS = ("--junit", "--report-log", "--html", "--json-report", "--alluredir", "--csv", "--md")
_OF_THE_PARENT = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "COV_CORE_")


class NotMeasured(Exception):
    """The process gave no result; the text says why."""


def measure(item: pytest.Item, key: str) -> BenchResult:
    """Run a test in a process of its own and return what it measured; raises `NotMeasured`."""
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        file = Path(folder) / "result.json"
        _run(item, folder, file)
        try:
            return load_kind(file)[1].results[key]
        except (BaselineError, KeyError, ValueError) as error:
            message = f"the test measured nothing in a process of its own: {error}"
            raise NotMeasured(message) from error


def _run(item: pytest.Item, folder: str, file: Path) -> None:
    own = {k: v for k, v in os.environ.items() if not k.startswith(_OF_THE_PARENT)}
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *_arguments(item, folder)],
        cwd=item.config.invocation_params.dir,
        env={**own, "COVERAGE_FILE": str(Path(folder) / "coverage"), RESULT_FILE: str(file)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        message = f"a process of its own did not end in {_LIMIT_S:.0f} s"
        raise NotMeasured(message) from error
    finally:
        with suppress(ProcessLookupError):  # also what it has started
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    if process.returncode != 0:
        last = " ".join(said.split())[-_SHOWN:]
        message = f"a process of its own ended with {process.returncode}: {last}"
        raise NotMeasured(message)


def _arguments(item: pytest.Item, folder: str) -> list[str]:
    loaded = item.config.pluginmanager.hasplugin
    path, _, rest = item.nodeid.partition("::")
    found = [*_given(item.config), f"{item.config.rootpath / path}::{rest}"]
    found += ["-o", f"cache_dir={folder}/cache", "--basetemp", f"{folder}/tmp"]
    if loaded("xdist"):
        found += ["-n", "0"]
    if loaded("_cov"):
        found += ["--cov-report="]
    return found


def _given(config: pytest.Config) -> Iterator[str]:
    """Yield the arguments that pytest was given here, without tests and reports."""
    worker = getattr(config, "workerinput", {})
    given = worker.get("mainargv", ["", *config.invocation_params.args])[1:]
    tests = {*config.args, *(getattr(config.option, "file_or_dir", None) or ())}
    value_of_report = False
    for each in map(str, given):
        is_report = each.startswith(_REPORTS)
        if not (is_report or value_of_report or each in tests):
            yield each
        value_of_report = is_report and "=" not in each
