"""``gpuprof run --idle``: what is said of the GPU of an unchanged program."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.processes import SETUP_CUDA
from tests.support.programs import measured, script

ROOT = Path(__file__).parents[2]
IDLE = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
{SETUP_CUDA}
with scope:
    pass
time.sleep(0.3)  # where it waits
"""


@pytest.mark.parametrize("end", ["", "raise ValueError('own')", "sys.exit(3)"])
def test_the_idle_lines_of_a_program_are_shown(tmp_path: Path, fake_path: Path, end: str) -> None:
    name = script(tmp_path, IDLE + end)
    done = measured(tmp_path, "--idle", name, program=name, GPUPROF_CUDA_DRIVER=str(fake_path))
    assert done.status == {"": 0, "sys": 3, "raise ValueError('own')": 1}.get(end.split(".")[0], 1)
    table = done.report[done.report.index("GPU idle: ") :]
    assert "time.sleep(0.3)  # where it waits" in table
    assert f"{tmp_path.name}/{name}:" in table


def test_a_program_without_a_gpu_is_told_once(tmp_path: Path) -> None:
    name = script(tmp_path, "import gpuprof\nwith gpuprof.timer('a'):\n    pass\n")
    done = measured(tmp_path, "--idle", name, program=name, GPUPROF_CUDA_DRIVER="/missing.so")
    assert done.status == 0
    assert done.report.count("no scope ran on a GPU in that time") == 1
