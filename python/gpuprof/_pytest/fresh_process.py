"""Runs a test once more, in a pytest of its own that runs this one test.

The addresses, the hash seed and often the clock states of a process last as long as it does, so a
second measurement in the same process repeats what disturbed the first.

The new process gets the arguments of this one, without the files to test and without those that
write reports. Where it cannot run the test, such as without a second place on the GPU, `measure`
raises `NotMeasured`, and the caller measures in this process.

Where instructions are counted by Valgrind's Callgrind, which needs no counter, such a process runs
under it, and Callgrind counts only while the calls are made. Nothing is measured there. Python's
hashes have a fixed seed, and cyclic garbage collection is off, so that unchanged code takes the
same instructions each time.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import gpuprof._core as _core
from gpuprof._benchmark.work import Work, collector_off
from gpuprof._common.instructions import Instructions
from gpuprof._pytest.settings import CALLGRIND_CALLS, RESULT_FILE
from gpuprof.errors import BaselineError

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

_LIMIT_S = 600.0
_SHOWN = 300  # characters of what a process said that failed
# Options that write files or send results; each takes a value, or none, in the same argument or
# in the next one.
_REPORTS = ("--junit", "--report-log", "--html", "--json-report", "--alluredir", "--csv", "--md")
_OF_THE_PARENT = ("PYTEST_XDIST_", "PYTEST_CURRENT_TEST", "COV_CORE_")

_SOURCE = "Callgrind"
_COUNTED_MS = 20.0  # of calls, as long as they take without Valgrind; with it some 50 times that
_MOST_CALLS = 100
_LARGE_STACK = "--main-stacksize=67108864"  # deep recursion takes more of it under Valgrind
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)


class NotMeasured(Exception):
    """The process gave no result; the text says why."""


@dataclass(frozen=True)
class FreshProcess:
    """What it takes to run one test in a process of its own."""

    config: pytest.Config
    item: pytest.Item
    key: str

    def measure(self) -> BenchResult:
        """Run the test and return what it measured; raises `NotMeasured`."""
        from gpuprof._results.baselines import load_kind

        with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
            file = Path(folder) / "result.json"
            self.run(folder, {RESULT_FILE: str(file)})
            try:
                (run,) = load_kind(file)[1]
                return run.results[self.key]
            except (BaselineError, KeyError, ValueError) as error:
                message = f"the test measured nothing in a process of its own: {error}"
                raise NotMeasured(message) from error

    def run(self, folder: str, variables: Mapping[str, str], launcher: Sequence[str] = ()) -> None:
        """Run the test with more variables, started by the `launcher`; raises `NotMeasured`."""
        own = {k: v for k, v in os.environ.items() if not k.startswith(_OF_THE_PARENT)}
        process = subprocess.Popen(
            [*launcher, sys.executable, "-m", "pytest", *self._arguments(folder)],
            cwd=self.config.invocation_params.dir,
            env={**own, "COVERAGE_FILE": str(Path(folder) / "coverage"), **variables},
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

    def _arguments(self, folder: str) -> list[str]:
        loaded = self.config.pluginmanager.hasplugin
        path, _, rest = self.item.nodeid.partition("::")
        found = [*self._given(), f"{self.config.rootpath / path}::{rest}"]
        found += ["-o", f"cache_dir={folder}/cache", "--basetemp", f"{folder}/tmp"]
        if loaded("xdist"):
            found += ["-n", "0"]
        if loaded("_cov"):
            found += ["--cov-report="]
        return found

    def _given(self) -> Iterator[str]:
        """Yield the arguments that pytest was given here, without tests and reports."""
        worker = getattr(self.config, "workerinput", {})
        given = worker.get("mainargv", ["", *self.config.invocation_params.args])[1:]
        tests = {*self.config.args, *(getattr(self.config.option, "file_or_dir", None) or ())}
        value_of_report = False
        for each in map(str, given):
            is_report = each.startswith(_REPORTS)
            if not (is_report or value_of_report or each in tests):
                yield each
            value_of_report = is_report and "=" not in each


def with_callgrind(
    result: BenchResult, process: FreshProcess, earlier: Sequence[BenchResult]
) -> BenchResult:
    """Add what Callgrind counts, on the CPU's clock; for a test with `earlier` results, once."""
    if result.clock != "cpu" or RESULT_FILE in os.environ:
        return result
    if earlier:
        return replace(result, instructions=earlier[0].instructions)
    return replace(result, instructions=_counted(process, result.median_ms))


def _counted(process: FreshProcess, call_ms: float) -> Instructions:
    """Return the instructions of a call that takes about `call_ms`, or why there are none."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return Instructions(reason="valgrind is not installed", source=_SOURCE)
    calls = min(max(1, round(_COUNTED_MS / max(call_ms, 1e-6))), _MOST_CALLS)
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        out = Path(folder) / "callgrind.out"
        under = [valgrind, "--quiet", "--tool=callgrind", "--instr-atstart=no", _LARGE_STACK]
        variables = {CALLGRIND_CALLS: str(calls), "PYTHONHASHSEED": "0"}
        try:
            process.run(folder, variables, [*under, f"--callgrind-out-file={out}"])
        except NotMeasured as error:
            return Instructions(reason=f"under Callgrind, {error}", source=_SOURCE)
        text = ""
        with suppress(OSError):
            text = out.read_text(encoding="utf-8", errors="replace")
    total = int(found[1]) if (found := _TOTAL.search(text)) else 0
    if not total:
        return Instructions(reason="Callgrind has counted nothing", source=_SOURCE)
    return Instructions((total / calls,), source=_SOURCE)


def count_under_callgrind(work: Work) -> None:
    """Make the calls that are counted, after as many that warm up."""
    calls = int(os.environ[CALLGRIND_CALLS])
    work.call_times(calls)
    gc.collect()
    with collector_off():
        _core._set_callgrind_counting(on=True)
        work.call_times(calls)
        _core._set_callgrind_counting(on=False)
