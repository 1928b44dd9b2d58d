"""A short run of graphed calls under compute-sanitizer, which sees a wrong address on the GPU."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from tests.gpu.support.frameworks import torch_or_skip
from tests.support.processes import ROOT, run_command


def test_memcheck_finds_nothing() -> None:
    torch_or_skip()
    tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    if not Path(tool).exists():
        pytest.skip("compute-sanitizer is not installed: an NVIDIA command-line tool")
    # A refused SetParams and the calls that break a capture are answers that the program handles.
    done = run_command(
        *(tool, "--tool", "memcheck", "--report-api-errors", "no", "--error-exitcode", "9"),
        *(sys.executable, "-m", "tests.gpu.support.sanitized_callable"),
        cwd=ROOT,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all results are right" in done.stdout
    assert "ERROR SUMMARY: 0 errors" in done.stdout + done.stderr
