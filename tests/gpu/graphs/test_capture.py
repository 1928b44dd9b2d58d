"""How captures end, what must not break them, and updates that take over random numbers."""

from __future__ import annotations

import _thread
import ctypes
import gc
import signal
import weakref
from typing import Any

import pytest

import gpuprof
from tests.gpu.support.frameworks import torch_or_skip
from tests.gpu.support.kernels import MILLISECOND, Spin, device

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore:::torch")]

PER_THREAD_STREAM = 2


@pytest.fixture
def torch() -> Any:
    return torch_or_skip()


def test_a_capture_of_a_default_stream_ends_after_a_change_of_context() -> None:
    spin = Spin(device(), PER_THREAD_STREAM, 20 * MILLISECOND)
    spin.launch()
    device().synchronize(PER_THREAD_STREAM)
    other = ctypes.c_void_p()
    device().call("cuCtxCreate_v2", ctypes.byref(other), 0, device().ordinal)
    try:
        device().make_current()
        cap = gpuprof.GraphCaptureGuard(PER_THREAD_STREAM)
        spin.launch()
        device().call("cuCtxSetCurrent", other)
        graph = cap.finish()
        assert graph.num_nodes == 1
        graph.launch(PER_THREAD_STREAM)
        device().make_current()
        assert not gpuprof.is_stream_capturing(PER_THREAD_STREAM)
        assert spin.milliseconds() == pytest.approx(20, rel=0.1)
        graph.close()
    finally:
        device().make_current()
        device().call("cuCtxDestroy_v2", other)


class FreesMemory:
    """Device memory that a call frees which no capture allows."""

    def __init__(self) -> None:
        self._address = device().allocate(256)
        self._me = self  # a cycle

    def __del__(self) -> None:
        device().call("cuMemFree_v2", ctypes.c_void_p(self._address))


@pytest.mark.parametrize("mode", ["thread_local", "global"])
def test_a_collection_breaks_no_capture(mode: str) -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND)
    with gpuprof.capture(stream) as earlier:
        spin.launch()
    garbage: list[object] = [earlier.graph, FreesMemory()]
    garbage.append(garbage)
    alive = weakref.ref(garbage[1])
    del earlier
    with gpuprof.capture(stream, mode=mode) as cap:  # type: ignore[arg-type]
        spin.launch()
        del garbage
        gc.collect()
        assert alive() is None
        assert cap.status() is gpuprof.CaptureStatus.ACTIVE
    cap.graph.launch(stream)
    assert spin.milliseconds() == pytest.approx(1, rel=0.1)
    cap.graph.close()


def test_the_collector_finds_a_capture_that_was_left_open_in_a_cycle() -> None:
    stream = device().stream()
    spin = Spin(device(), stream, MILLISECOND)

    def fail() -> None:
        guard = gpuprof.GraphCaptureGuard(stream)
        spin.launch()
        assert guard.is_open
        raise KeyError

    def leave_behind() -> None:
        try:
            fail()
        except KeyError as error:
            kept = error  # a cycle: its traceback has this frame
            assert kept.__traceback__ is not None

    with pytest.warns(ResourceWarning, match="dropped"):
        leave_behind()
        assert gpuprof.is_stream_capturing(stream)
        young: list[object] = []
        while gpuprof.is_stream_capturing(stream) and len(young) < 1_000_000:
            young.append([young])  # sooner or later the collector runs
        young.clear()
    spin.launch()
    assert spin.milliseconds() == pytest.approx(1, rel=0.1)


def test_a_collection_of_torchs_objects_breaks_no_capture(torch: Any) -> None:
    values = torch.zeros(64, device="cuda")
    with gpuprof.capture() as earlier:
        values += 1
    event, stream = torch.cuda.Event(enable_timing=True), torch.cuda.Stream()
    event.record(stream)
    garbage: list[object] = [earlier.graph, earlier, event, stream, torch.ones(1 << 20).cuda()]
    garbage.append(garbage)
    del earlier, event, stream
    with gpuprof.capture() as cap:
        values += 1
        del garbage
        assert gc.collect() > 0
        values += 1
    cap.graph.launch()
    assert values.eq(2).all().item()
    cap.graph.close()


class Interrupt:
    """``del interrupt[signal.SIGINT]`` is a Ctrl-C, heard where Python next looks for signals."""

    __delitem__ = _thread.interrupt_main  # no function of Python's, which would hear it itself


def test_a_ctrl_c_as_the_block_ends_leaves_torch_as_it_was(torch: Any) -> None:
    interrupt = Interrupt()
    values = torch.zeros(64, device="cuda")
    before = torch.cuda.current_stream()
    with pytest.raises(KeyboardInterrupt) as caught, gpuprof.capture() as cap:
        values += 1
        del interrupt[signal.SIGINT]  # type: ignore[attr-defined]
    assert caught.tb is not None  # whose frames would keep the capture
    assert not cap.is_open
    assert gpuprof.capture_info().open_captures == ()
    assert torch.cuda.current_stream() == before
    assert torch.rand(4, device="cuda").sum().item() > 0
    with gpuprof.capture() as cap:
        values += 1
    cap.graph.launch()
    assert values.eq(1).all().item()
    cap.graph.close()


@pytest.mark.parametrize("first_draws", [True, False])
@pytest.mark.parametrize("launched", [True, False])
def test_launches_after_an_update_draw_the_numbers_that_calls_would(
    torch: Any, first_draws: bool, launched: bool
) -> None:
    few = torch.zeros(1 << 10, device="cuda")
    many = torch.zeros(1 << 24, device="cuda")  # a launch moves the generator further on
    with gpuprof.capture() as cap:
        few.uniform_() if first_draws else few.add_(1)
    with gpuprof.capture() as cap_of_other:
        many.uniform_()
    if launched:
        cap.graph.launch()
        cap_of_other.graph.launch()
    cap.graph.update(cap_of_other.graph)
    cap_of_other.graph.close()
    torch.manual_seed(7)
    expected = [torch.empty_like(many).uniform_() for _ in range(3)]
    torch.manual_seed(7)
    for numbers in expected:
        cap.graph.launch()
        assert torch.equal(many, numbers)
    cap.graph.close()
