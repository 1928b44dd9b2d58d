"""`gpuprof.compat.graph` and `CUDAGraph`, on the fake driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import gpuprof
from gpuprof import errors
from gpuprof.compat import CUDAGraph, Event, graph, graph_pool_handle, make_graphed_callables
from tests.fake_driver.control import FakeCuda
from tests.support.processes import check_python

MS = 1_000_000


def test_a_block_is_captured_into_the_graph(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    with graph(g, stream=stream) as nothing:
        fake.kernel(stream, "add_k", 5_000)
    assert nothing is None
    before = fake.now()
    for _ in range(3):
        g.replay()
    fake.stream_synchronize(stream)
    assert fake.now() - before >= 15_000
    assert g.graph.num_replays == 3
    assert g.graph.kernel_names() == ["add_k"]
    assert g.raw_cuda_graph() == g.graph.raw_graph != 0
    assert g.raw_cuda_graph_exec() == g.graph.raw_exec != 0
    g.instantiate()
    g.reset()


def test_a_graph_without_a_capture_says_so(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    for use in (g.replay, g.instantiate, g.pool, lambda: g.graph):
        with pytest.raises(errors.InvalidStateError, match=r"capture (one|it) first"):
            use()
    with pytest.raises(errors.InvalidStateError, match="not being captured"):
        g.capture_end()
    g.reset()
    assert repr(g) == "<gpuprof.compat.CUDAGraph, not captured>"


def test_a_reset_graph_is_captured_again_and_another_must_be_reset_first(
    fake: FakeCuda, stream: int
) -> None:
    g = CUDAGraph(keep_graph=True)
    with graph(g, stream=stream):
        fake.work(stream, MS)
    with pytest.raises(errors.InvalidStateError, match=r"has a graph already; call reset\(\)"):
        with graph(g, stream=stream):
            pass
    g.reset()
    with pytest.raises(errors.InvalidStateError):
        g.replay()
    with graph(g, stream=stream):
        fake.work(stream, MS)
        fake.work(stream, MS)
    assert g.graph.num_nodes == 2
    g.reset()


def test_an_exception_in_the_block_leaves_no_graph_and_comes_out(
    fake: FakeCuda, stream: int
) -> None:
    g = CUDAGraph()
    with pytest.raises(KeyError, match="mine"), graph(g, stream=stream):
        raise KeyError("mine")
    assert not gpuprof.is_stream_capturing(stream)
    with graph(g, stream=stream):
        fake.work(stream, MS)
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


def test_an_empty_block_is_a_graph_as_in_torch(fake: FakeCuda, stream: int) -> None:
    g = CUDAGraph()
    with pytest.warns(UserWarning, match="The CUDA Graph is empty") as caught:
        with graph(g, stream=stream):
            pass
    assert caught[0].filename == __file__
    assert g.graph.num_nodes == 0
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_the_capture_has_the_mode_that_is_asked_for(fake: FakeCuda, stream: int, mode: str) -> None:
    g = CUDAGraph()
    with graph(g, stream=stream, capture_error_mode=mode):
        fake.work(stream, MS)
        (mine,) = gpuprof.capture_info(stream).open_captures
        assert mine.mode.name.lower() == mode
    g.reset()


def test_graphs_share_a_pool(fake: FakeCuda, stream: int) -> None:
    first, second, third = CUDAGraph(), CUDAGraph(), CUDAGraph()
    handle = graph_pool_handle()
    with graph(first, pool=handle, stream=stream):
        fake.work(stream, MS)
    with graph(second, pool=first.pool(), stream=stream):
        fake.work(stream, MS)
    with graph(third, stream=stream):
        fake.work(stream, MS)
    assert first.pool() == second.pool() == handle
    assert third.pool() not in {handle, graph_pool_handle()}
    with gpuprof.capture(stream, pool=third.pool()) as cap:
        fake.work(stream, MS)
    assert cap.graph.pool is third.graph.pool
    assert first.graph.pool is second.graph.pool is not third.graph.pool
    for g in (first, second, third):
        g.reset()
    cap.graph.close()


def test_gpuprofs_own_pools_are_shared_too_and_have_a_handle_of_torchs(
    fake: FakeCuda, stream: int
) -> None:
    pool, own_handle = gpuprof.CapturePool(), gpuprof.graph_pool_handle()
    for given, found in ((pool, pool), (own_handle, gpuprof.capture_pool_for_handle(own_handle))):
        g = CUDAGraph()
        with graph(g, pool=given, stream=stream):
            fake.work(stream, MS)
        assert g.graph.pool is found
        handle = g.pool()
        with graph(CUDAGraph(), pool=handle, stream=stream):
            fake.work(stream, MS)
        assert g.pool() == handle
        g.reset()
    gpuprof.release_graph_pool_handle(own_handle)
    pool.seal()
    with pytest.raises(errors.InvalidStateError, match="sealed"):
        CUDAGraph().capture_begin(pool)


def test_a_reset_discards_an_open_capture(fake: FakeCuda, cupy: Any) -> None:
    g = CUDAGraph()
    with cupy.cuda.Stream(non_blocking=True) as mine:
        g.capture_begin()
        assert gpuprof.is_stream_capturing(mine)
        with pytest.raises(errors.InvalidStateError, match="capture one first"):
            g.pool()
        g.reset()
        assert not gpuprof.is_stream_capturing(mine)
        with graph(g):
            cupy.launch()
    assert g.graph.num_nodes == 1
    g.reset()


def test_graphed_callables_share_the_pool_that_is_named(cupy: Any) -> None:
    calls: list[str] = []

    def function(name: str) -> None:
        calls.append(name)
        cupy.launch()

    handle = gpuprof.graph_pool_handle()
    one = make_graphed_callables(lambda: function("one"), (), 0, pool=handle)
    two, three = make_graphed_callables(
        (lambda: function("two"), lambda: function("three")), ((), ()), 0, pool=handle
    )
    assert calls == ["one", "two", "three"]
    for graphed in (one, two, three):
        graphed()
        assert graphed.graph.num_replays == 1
        assert graphed.graph.pool is gpuprof.capture_pool_for_handle(handle)
    assert calls == ["one", "two", "three"]
    gpuprof.release_graph_pool_handle(handle)


@pytest.mark.usefixtures("cupy")
def test_graphed_callables_check_their_arguments() -> None:
    with pytest.raises(TypeError, match="pool: expected a CapturePool, a handle or None"):
        make_graphed_callables(print, (), pool=3)
    with pytest.raises(TypeError, match="sample_args: expected a tuple of 2"):
        make_graphed_callables((print, print), ((),))


def test_an_event_in_a_capture_orders_its_streams(fake: FakeCuda, stream: int, other: int) -> None:
    g, fork, join = CUDAGraph(), Event(), Event()
    with graph(g, stream=stream):
        fork.record(stream)
        fork.wait(other)
        fake.work(other, MS)
        join.record(other)
        join.wait(stream)
        fake.work(stream, MS)
    assert g.graph.num_nodes == 2
    assert len(g.graph.edges) == 1
    g.replay()
    fake.stream_synchronize(stream)
    g.reset()


def test_a_graph_is_written_as_dot(fake: FakeCuda, stream: int, tmp_path: Path) -> None:
    g = CUDAGraph()
    g.enable_debug_mode()
    with graph(g, stream=stream):
        fake.kernel(stream, "add_k", 5_000)
    g.debug_dump(tmp_path / "g.dot")
    assert "add_k" in (tmp_path / "g.dot").read_text(encoding="utf-8")
    g.reset()


def test_wrong_arguments_are_errors_at_the_call(fake: FakeCuda, stream: int) -> None:
    with pytest.raises(TypeError, match=r"cuda_graph: expected a gpuprof.compat.CUDAGraph, got"):
        graph(object())  # type: ignore[arg-type]
    for argument in ("enable_annotations", "check_input_liveness"):
        given: dict[str, Any] = {argument: True}
        with pytest.raises(ValueError, match=f"{argument}: .*no such thing"):
            graph(CUDAGraph(), **given)
    with pytest.raises(ValueError, match="check_input_liveness"):
        CUDAGraph().capture_begin(check_input_liveness=True)
    with pytest.raises(TypeError, match="pool: expected a CapturePool, a handle or None"):
        with graph(CUDAGraph(), pool=3, stream=stream):
            pass
    with pytest.raises(ValueError, match="mode"):
        with graph(CUDAGraph(), stream=stream, capture_error_mode="strict"):
            pass
    assert not gpuprof.is_stream_capturing(stream)


def test_without_cuda_a_capture_says_that_there_is_none() -> None:
    out = check_python(
        """
        from gpuprof import errors
        from gpuprof.compat import CUDAGraph, graph, graph_pool_handle
        assert graph_pool_handle() != graph_pool_handle()
        try:
            with graph(CUDAGraph(), pool=graph_pool_handle()):
                pass
        except errors.CudaUnavailableError:
            print("unavailable")
        """,
        CUDA_VISIBLE_DEVICES="",
    )
    assert out.strip() == "unavailable"
