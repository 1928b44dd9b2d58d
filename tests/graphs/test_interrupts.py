"""Ctrl-C at any step of a capture: the stream, the collector and the framework are as they were.

Each test has a process of its own, which raises an interrupt at one bytecode of gpuprof's after the
other, until the capture gets through without one.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import torch_blocks
from tests.support.processes import check_cuda

SWEEP = """
import gc
import sys
import warnings
PACKAGE = os.path.dirname(gpuprof.__file__)

class Interrupt(KeyboardInterrupt):
    pass

class Countdown:
    # Raises when `left` bytecodes of the package have run.
    def __init__(self, left):
        self.left = left
        self.where = None

    def enter(self, frame, event, arg):
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = True
        return self.step

    def step(self, frame, event, arg):
        if event in ("opcode", "line"):
            self.left -= 1
            if self.left == 0:
                self.where = (frame.f_code.co_name, frame.f_lineno)
                raise Interrupt
        return self.step

def interrupted_at(step, capture, look=None):
    countdown = Countdown(step)
    sys.settrace(countdown.enter)
    try:
        capture()
    except (Interrupt, KeyError):
        sys.settrace(None)
        if look is not None:
            look(countdown.where)  # while the traceback keeps all frames
    finally:
        sys.settrace(None)
    return countdown.where

def sweep(capture, state, held=False):
    warnings.simplefilter("ignore")
    sys.unraisablehook = lambda _: None  # an interrupt in a destructor, and nobody to tell
    interrupted_at(-1, capture)  # imports what it needs
    gc.collect()
    gc.freeze()  # the collections below become cheap
    before = state()
    def look(where):
        assert state() == before, (where, state())
        assert _core._open_captures() == [], where
    step = 1
    while True:
        where = interrupted_at(step, capture, look if held else None)
        if where is None:
            break
        gc.collect()
        assert state() == before, (where, state())
        assert _core._relaxed_collections() == 0, where
        assert gc.isenabled(), where
        assert _core._open_captures() == [], where
        step += 1
    assert step > 100, step

def block():
    with gpuprof.capture(given) as cap:
        launch("add_k")

def raising_block():
    with gpuprof.capture(given) as cap:
        launch("add_k")
        raise KeyError

def guard():
    opened = gpuprof.GraphCaptureGuard(given)
    launch("add_k")
    opened.finish().close()

def aborted():
    opened = gpuprof.GraphCaptureGuard(given)
    launch("add_k")
    opened.abort()
"""

WAYS = ["block", "raising_block", "guard", "aborted"]


# Held: before whoever handles the interrupt has let go of its traceback.
@pytest.mark.parametrize(
    ("way", "held"),
    [*((way, False) for way in WAYS), ("block", True), ("raising_block", True)],
)
def test_an_interrupt_leaves_no_capture_behind(fake_path: Path, way: str, held: bool) -> None:
    body = f"""
given = stream
def launch(name):
    fake.kernel(stream, name, 1000)
sweep({way}, lambda: fake.capture_status(stream), held={held})
"""
    check_cuda(fake_path, SWEEP + body)


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_leaves_torch_as_it_was(fake_path: Path, way: str) -> None:
    body = f"""
given = None
def state():
    # An interrupt between the two halves of a repair can leave memory reserved, but no more.
    return {{name: value for name, value in world.state().items() if name != "pools held"}}
sweep({way}, state)
check_works_again()
"""
    torch_blocks.check(fake_path, SWEEP + body)


@pytest.mark.parametrize("way", WAYS)
def test_an_interrupt_leaves_cupy_as_it_was(fake_path: Path, way: str) -> None:
    body = f"""
from tests.support.stand_in_cupy import installed
given = stream
def launch(name):
    fake.kernel(stream, name, 1000)
def state():
    fake.exchange_mode(0)  # two bytecodes of relaxed() leave the thread in another one
    of_cupy = thread.current, [*thread.streams], [*thread.allocators]
    return fake.capture_status(stream), *of_cupy
with installed(fake) as cupy:
    thread = cupy.world.thread
    sweep({way}, state)
"""
    check_cuda(fake_path, SWEEP + body)
