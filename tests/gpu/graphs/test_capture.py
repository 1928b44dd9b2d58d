"""How captures end, what must not break them, and updates that take over random numbers."""

from __future__ import annotations

import _thread
import gc
import signal
from typing import Any

import pytest

import gpuprof


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
