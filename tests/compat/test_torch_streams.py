"""`gpuprof.compat.graph` and `Event` on torch's streams, with a stand-in for torch.

Each test has a process of its own: whatever of torch gpuprof finds, it keeps for good.
"""

from __future__ import annotations

import pytest

from tests.support.torch_blocks import Run


def test_a_block_on_the_default_stream_is_captured_by_torch_on_a_stream_of_its_own(
    in_torch: Run,
) -> None:
    in_torch("""
from gpuprof.compat import CUDAGraph, graph
g, h = CUDAGraph(), CUDAGraph()
with graph(g):
    assert torch.cuda.current_stream().cuda_stream != 0
    launch("add_k")
with graph(h, pool=g.pool(), capture_error_mode="thread_local"):
    launch("mul_k")
check_as_before(but_pools=True)
assert g.graph.kernel_names() == ["add_k"]
for each in (g, h, g):
    each.replay()
assert (g.graph.num_replays, h.graph.num_replays) == (2, 1)
g.reset()
h.reset()
del g, h
check_as_before()
""")


def test_a_capture_is_begun_and_ended_by_hand(in_torch: Run) -> None:
    in_torch("""
from gpuprof import errors
from gpuprof.compat import CUDAGraph
g = CUDAGraph()
g.capture_begin(capture_error_mode="relaxed")
assert gpuprof.is_stream_capturing()
try:
    g.capture_begin()
except errors.InvalidStateError as error:
    assert "is being captured; call capture_end() first" in str(error)
launch("add_k")
g.capture_end()
check_as_before(but_pools=True)
assert g.graph.kernel_names() == ["add_k"]
g.replay()
g.reset()
del g
check_as_before()
""")


def test_a_capture_by_hand_that_breaks_leaves_the_stream_to_the_body(in_torch: Run) -> None:
    in_torch("""
from gpuprof.compat import CUDAGraph
mine = torch.cuda.Stream()
for undo in ("capture_end", "reset"):
    g = CUDAGraph()
    with raises(RuntimeError, match="not permitted"), torch.cuda.stream(mine):
        g.capture_begin()
        launch("add_k")
        fake.shared_object.cuStreamSynchronize(__import__("ctypes").c_uint64(mine.cuda_stream))
        raise RuntimeError("operation not permitted")  # of torch's `.item()`
    assert torch.cuda.current_stream() == before["current stream"]
    if undo == "reset":
        g.reset()
    else:
        with raises(errors.CaptureInvalidatedError):
            g.capture_end()
    check_as_before()
    with torch.cuda.stream(mine):
        g.capture_begin()
        launch("add_k")
    g.capture_end()
    check_as_before(but_pools=True)
    g.replay()
    g.reset()
    check_as_before()
""")


@pytest.mark.parametrize("torch_version", ["2.11.0", "2.14.0"])
def test_pool_handles_are_torchs_and_go_into_its_own_functions_and_back(in_torch: Run) -> None:
    in_torch("""
from gpuprof.compat import CUDAGraph, graph, graph_pool_handle
handle = graph_pool_handle()
assert (*handle, torch.cuda.graph_pool_handle()[1]) == (0, handle[1], handle[1] + 1)
first, theirs = CUDAGraph(), torch.cuda.CUDAGraph()
with graph(first, pool=handle):
    launch("add_k")
with torch.cuda.stream(torch.cuda.Stream()):
    theirs.capture_begin(first.pool(), "global")
    launch("mul_k")
    theirs.capture_end()
with gpuprof.capture(pool=theirs.pool()) as cap:
    launch("sub_k")
assert cap.graph.pool is first.graph.pool
assert world.state()["pools held"] == {handle: 3}
first.reset()
cap.graph.close()
del cap
theirs.reset()
with gpuprof.capture(pool=handle) as cap:
    launch("add_k")
assert world.state()["pools held"] == {handle: 1}
cap.graph.close()
del cap
check_as_before()
""")


@pytest.mark.parametrize("torch_version", ["2.11.0", "2.12.0"])
def test_a_registered_generator_draws_anew_in_each_replay(in_torch: Run) -> None:
    in_torch("""
from gpuprof.compat import CUDAGraph, graph
from tests.support.stand_in_torch import Generator
generator, g = Generator(), CUDAGraph()
g.register_generator_state(generator)
with graph(g):
    launch("uniform_k")
    if world.generation < (2, 12):
        assert generator.state.capturing
assert not generator.state.capturing
for replays in (1, 2, 3):
    g.replay()
    assert generator.get_offset() == 4 * replays
g.reset()
g.capture_begin()
launch("uniform_k")
g.capture_end()
g.replay()
assert generator.get_offset() == 16
g.reset()
""")


def test_an_event_is_recorded_on_torchs_current_stream(in_torch: Run) -> None:
    in_torch("""
from gpuprof.compat import Event
start, end = Event(enable_timing=True), Event(enable_timing=True)
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    start.record()
    launch("add_k")
    end.record()
end.record(stream)
end.synchronize()
assert start.elapsed_time(end) > 0
end.wait(torch.cuda.current_stream())
""")
