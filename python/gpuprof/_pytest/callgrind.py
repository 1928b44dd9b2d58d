"""Counts the instructions of a test's calls with Valgrind's Callgrind, where no counter is needed.

The test runs once more, in a pytest of its own under Callgrind, which counts only while the calls
are made. In that process nothing is measured. Python's hashes have a fixed seed there, and cyclic
garbage collection is off, so that unchanged code takes the same instructions each time.
"""

from __future__ import annotations

import gc
import os
import re
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import gpuprof._core as _core
from gpuprof._benchmark.work import Work, collector_off
from gpuprof._common.instructions import Instructions
from gpuprof._pytest.fresh_process import FreshProcess, NotMeasured
from gpuprof._pytest.settings import CALLGRIND_CALLS, RESULT_FILE

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

SOURCE = "Callgrind"
_COUNTED_MS = 20.0  # of calls, as long as they take without Valgrind; with it some 50 times that
_MOST_CALLS = 100
_LARGE_STACK = "--main-stacksize=67108864"  # deep recursion takes more of it under Valgrind
_TOTAL = re.compile(r"^totals: (\d+)$", re.MULTILINE)


def with_instructions(
    result: BenchResult, process: FreshProcess, earlier: Sequence[BenchResult]
) -> BenchResult:
    """Return a result on the CPU's clock with the instructions that Callgrind counts.

    If there are `earlier` results of the same test, theirs are taken: it would count as many again.
    """
    if result.clock != "cpu" or RESULT_FILE in os.environ:
        return result
    if earlier:
        return replace(result, instructions=earlier[0].instructions)
    return replace(result, instructions=_counted(process, result.median_ms))


def _counted(process: FreshProcess, call_ms: float) -> Instructions:
    """Return the instructions of a call that takes about `call_ms`, or why there are none."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return Instructions(reason="valgrind is not installed", source=SOURCE)
    calls = min(max(1, round(_COUNTED_MS / max(call_ms, 1e-6))), _MOST_CALLS)
    with tempfile.TemporaryDirectory(prefix="gpuprof-") as folder:
        out = Path(folder) / "callgrind.out"
        under = [valgrind, "--quiet", "--tool=callgrind", "--instr-atstart=no", _LARGE_STACK]
        variables = {CALLGRIND_CALLS: str(calls), "PYTHONHASHSEED": "0"}
        try:
            process.run(folder, variables, [*under, f"--callgrind-out-file={out}"])
        except NotMeasured as error:
            return Instructions(reason=f"under Callgrind, {error}", source=SOURCE)
        text = ""
        with suppress(OSError):
            text = out.read_text(encoding="utf-8", errors="replace")
    total = int(found[1]) if (found := _TOTAL.search(text)) else 0
    if not total:
        return Instructions(reason="Callgrind has counted nothing", source=SOURCE)
    return Instructions((total / calls,), source=SOURCE)


def count(work: Work) -> None:
    """Make the calls that are counted, after as many that warm up."""
    calls = int(os.environ[CALLGRIND_CALLS])
    work.call_times(calls)
    gc.collect()
    with collector_off():
        _core._set_callgrind_counting(on=True)
        work.call_times(calls)
        _core._set_callgrind_counting(on=False)
