"""Graphed training in two processes beside eager training: DDP of a graphed module, and FSDP.

DDP adds its hooks to parameters and waits for autograd to come to each: a graphed module inside of
it, with ``param_grads="autograd"``, is one node of autograd's graph, and DDP stays eager. A module
of FSDP has parameters that are shards, and collects them in the forward pass.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.support.frameworks import nccl_or_skip
from tests.support.processes import ROOT, run_command


@pytest.fixture(autouse=True)
def torch() -> Any:
    return nccl_or_skip()


CHECKS = {
    "a graphed module inside of DDP gives what eager DDP gives": "ddp",
    "gradients that DDP adds up before it synchronizes": "ddp_without_synchronization",
    "a module of DDP itself is refused": "ddp_itself",
    "accumulation under DDP is refused": "ddp_and_accumulation",
    "a sharded module is refused by name": "fsdp",
}


@pytest.mark.parametrize("name", CHECKS.values(), ids=CHECKS)
def test_two_processes_train_as_they_do_eagerly_or_are_refused(name: str, tmp_path: Path) -> None:
    program = (sys.executable, "-m", "tests.gpu.support.distributed_callable")
    done = run_command(*program, name, tmp_path / "meeting", cwd=ROOT, timeout=180)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all gradients are right" in done.stdout
