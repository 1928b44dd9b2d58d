"""The causes of `benchmarks/graphs_breaks.py`: each breaks its capture, and is named."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.support.processes import ROOT, run_command

SCRIPT = ROOT / "benchmarks" / "graphs_breaks.py"

# By the beginning of the title: the error, and what its text must hold.
NAMED = {
    "Reading a value": ("CaptureInvalidatedError", "cuStreamSynchronize on this thread"),
    "Waiting for the device": ("CaptureInvalidatedError", "cuCtxSynchronize on this thread"),
    "Asking an event": ("CaptureInvalidatedError", "cuEventQuery on this thread"),
    "An allocation": ("CaptureInvalidatedError", "cuMemAlloc_v2 on this thread"),
    "A fork": ("CaptureUnjoinedError", "was not joined again"),
    "Another thread": ("CaptureInvalidatedError", "cuMemAlloc_v2 on another thread"),
    "Nothing on the capture's stream": ("EmptyGraphError", "recorded nothing"),
}


@pytest.fixture(scope="module")
def said(fake_path: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    out = tmp_path_factory.mktemp("breaks") / "breaks.json"
    done = run_command(sys.executable, SCRIPT, "--json", out, driver=fake_path)
    assert done.returncode == 0, done.stderr
    cases = json.loads(out.read_text(encoding="utf-8"))["cases"]
    return {case["title"]: case["gpuprof"] for case in cases}


def test_every_cause_that_needs_no_torch_is_run(said: dict[str, str]) -> None:
    assert len(said) == len(NAMED)


@pytest.mark.parametrize("title", NAMED)
def test_the_message_names_the_cause(title: str, said: dict[str, str]) -> None:
    (text,) = (text for full, text in said.items() if full.startswith(title))
    error, named = NAMED[title]
    assert text.startswith(f"{error}: ")
    assert named in text


def test_without_a_driver_the_script_says_that_it_needs_a_gpu(tmp_path: Path) -> None:
    done = run_command(sys.executable, SCRIPT, driver=tmp_path / "absent.so")
    assert done.returncode == 1
    assert done.stderr.startswith("graphs_breaks needs a GPU: ")
