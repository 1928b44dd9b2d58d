"""The page on ``gpuprof run`` shows what the command prints of the page's own program."""

from __future__ import annotations

import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.examples import ROOT, blocks, without_figures
from tests.support.processes import environment

PAGE = ROOT / "docs" / "run.md"


@pytest.mark.torch
def test_the_page_shows_what_the_command_prints(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    text = PAGE.read_text(encoding="utf-8")
    program = blocks(text, "python")[0]
    (tmp_path / "train.py").write_text(program, encoding="utf-8")
    command, shown = blocks(text, "console")[0].split("\n", 1)
    assert command.startswith("$ gpuprof run ")
    done = subprocess.run(
        [sys.executable, "-m", "gpuprof", *command.split()[2:]],
        cwd=tmp_path,
        env=environment(None, CUDA_VISIBLE_DEVICES="", PYTHONIOENCODING="utf-8"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    found = done.stdout.replace(str(tmp_path), "/home/ada").replace(platform.node(), "ada")
    found = re.sub(r"(torch [\d.]+)[+\w.]*", r"\1", re.sub("; .* left out", "", found))
    assert without_figures(found) == without_figures(shown)
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"train.py", "train.html", "train.json", "train.trace.json.gz"}
