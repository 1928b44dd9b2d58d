"""Running captures of torch's streams in a process of its own, on the fake driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from tests.support.processes import check_cuda

Run: TypeAlias = Callable[[str], str]

SETUP = """
import contextlib
import re
import sys
import types
import warnings
from gpuprof import errors
from tests.support.stand_in_torch import install_on
world = install_on(fake, {version!r})
torch = world.torch
before = world.state()
US = 1000

@contextlib.contextmanager
def raises(kind, match=""):  # as pytest's, which takes as long to import as all else does
    caught = types.SimpleNamespace()
    try:
        yield caught
    except kind as error:
        caught.value = error
    else:
        raise AssertionError(f"no {kind.__name__}")
    assert re.search(match, str(caught.value)), caught.value

def launch(name, on=None):
    return fake.kernel(torch.cuda.current_stream().cuda_stream if on is None else on, name, US)

def check_as_before(but_pools=False):
    after = world.state()
    if but_pools:
        after["pools held"] = before["pools held"]
    assert after == before, after
    assert _core._open_captures() == []
    assert _core._relaxed_collections() == 0

def check_works_again():
    with gpuprof.capture(name="again") as cap:
        launch("again")
    cap.graph.launch()
    cap.graph.close()
"""


def check(fake_path: Path, body: str, version: str = "2.11.0") -> str:
    """Run `body` with a stand-in for a torch of `version`."""
    return check_cuda(fake_path, SETUP.replace("{version!r}", repr(version)) + body)
