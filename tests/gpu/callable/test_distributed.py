"""Graphed training on two GPUs beside eager training: DDP around a graphed module, and FSDP.

DDP adds its hooks to parameters and waits for autograd to come to each: a graphed module inside of
it, with ``param_grads="autograd"``, is one node of autograd's graph, and DDP stays eager. A module
of FSDP has parameters that are shards, and collects them in the forward pass.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.frameworks import two_gpus_or_skip
from tests.support.processes import ROOT, environment

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]


@pytest.fixture(autouse=True)
def torch() -> Any:
    return two_gpus_or_skip()


def run(name: str, folder: Path) -> None:
    """Run one of the checks in two processes."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gpu.support.distributed_callable", name, folder / "meeting"],
        cwd=ROOT,
        env=environment(None),
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all gradients are right" in done.stdout


def test_a_graphed_module_inside_of_ddp_gives_what_eager_ddp_gives(tmp_path: Path) -> None:
    run("ddp", tmp_path)


def test_gradients_that_ddp_adds_up_before_it_synchronizes(tmp_path: Path) -> None:
    run("ddp_without_synchronization", tmp_path)


def test_a_module_of_ddp_itself_is_refused(tmp_path: Path) -> None:
    run("ddp_itself", tmp_path)


def test_accumulation_under_ddp_is_refused(tmp_path: Path) -> None:
    run("ddp_and_accumulation", tmp_path)


def test_a_sharded_module_is_refused_by_name(tmp_path: Path) -> None:
    run("fsdp", tmp_path)
