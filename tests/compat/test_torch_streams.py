"""`gpuprof.compat.graph` and `Event` on torch's streams, with a stand-in for torch.

Each test has a process of its own: whatever of torch gpuprof finds, it keeps for good.
"""

from __future__ import annotations

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


def test_an_exception_in_the_block_puts_all_back(in_torch: Run) -> None:
    in_torch("""
from gpuprof.compat import CUDAGraph, graph
g = CUDAGraph()
try:
    with graph(g):
        launch("add_k")
        raise KeyError("mine")
except KeyError:
    pass
check_as_before()
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
