"""Captures of torch's work: results against eager ones, and torch as it was after each failure."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

import pytest

import gpuprof
from gpuprof.errors import CaptureError, CaptureInvalidatedError, CaptureUnjoinedError
from tests.gpu.support.alone import needs_the_gpu_alone
from tests.gpu.support.frameworks import free_bytes, torch_or_skip
from tests.gpu.support.scripts import check_script


@pytest.fixture
def torch() -> Any:
    torch = torch_or_skip()
    warm = torch.nn.Linear(64, 64, device="cuda")
    torch.nn.functional.dropout(warm(torch.zeros(64, 64, device="cuda"))).sum().item()
    torch.cuda.synchronize()
    return torch


class Health:
    """What a failed capture must leave as it was. The graph of `drawing` is captured before it."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stream = torch.cuda.current_stream()
        self._drawn = torch.zeros(1024, device="cuda")
        with gpuprof.capture(name="before") as cap:
            self._drawn.copy_(torch.rand_like(self._drawn))
        self._graph = cap.graph
        self._first = self.draw()

    def draw(self) -> Any:
        """Return what the earlier graph draws, and then torch, after one seed."""
        self._torch.manual_seed(3)
        self._graph.launch()
        eager = self._torch.rand(1024, device="cuda")
        return self._torch.cat([self._drawn, eager]).cpu()

    def check(self) -> None:
        torch = self._torch
        assert torch.cuda.current_stream() == self._stream
        assert not torch.cuda.is_current_stream_capturing()
        assert torch.equal(self.draw(), self._first)
        values = torch.zeros(256, device="cuda")
        with gpuprof.capture(name="after") as cap:
            values += torch.rand_like(values)
        cap.graph.launch()
        first = values.clone()
        cap.graph.launch()
        assert not torch.equal(values, first * 2)


@pytest.fixture
def health(torch: Any) -> Health:
    return Health(torch)


def test_a_linear_layer_gives_what_it_gives_eagerly(torch: Any) -> None:
    layer = torch.nn.Linear(64, 32, device="cuda")
    given = torch.randn(16, 64, device="cuda")
    with torch.no_grad(), gpuprof.capture(name="layer") as cap:
        result = torch.relu(layer(given)) @ layer.weight
    assert "Linear" not in cap.graph.kernel_names()
    for _ in range(5):
        given.normal_()
        cap.graph.launch()
        with torch.no_grad():
            torch.testing.assert_close(result, torch.relu(layer(given)) @ layer.weight)


@pytest.mark.parametrize("how", ["object", "handle", "current"])
def test_a_stream_of_torchs_is_captured_through_torch(torch: Any, how: str) -> None:
    stream = torch.cuda.Stream()
    values = torch.zeros(4, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream if how != "object" else None):
        given = {"object": stream, "handle": stream.cuda_stream, "current": None}[how]
        with gpuprof.capture(given) as cap:
            assert cap.stream == stream.cuda_stream
            assert torch.cuda.current_stream() == stream
            values += 1
    cap.graph.launch(stream)
    cap.graph.launch(stream)
    stream.synchronize()
    assert values.tolist() == [2.0] * 4


def test_work_around_a_capture_on_the_default_stream_is_in_order(torch: Any) -> None:
    values = torch.zeros(1 << 22, device="cuda")
    for step in range(20):
        values.fill_(step)
        with gpuprof.capture() as cap:
            values.mul_(2)
        cap.graph.launch()
        assert values.sum().item() == 2 * step * values.numel()


def test_random_operators_differ_from_replay_to_replay(torch: Any) -> None:
    ones = torch.ones(4096, device="cuda")
    with gpuprof.capture() as cap:
        dropped = torch.nn.functional.dropout(ones)
    seen = []
    for _ in range(4):
        cap.graph.launch()
        seen.append(dropped.clone())
    assert not any(torch.equal(seen[0], other) for other in seen[1:])
    torch.manual_seed(7)
    cap.graph.launch()
    first = dropped.clone()
    torch.manual_seed(7)
    cap.graph.launch()
    assert torch.equal(dropped, first)


def test_another_librarys_object_for_torchs_stream_is_captured_by_torch(torch: Any) -> None:
    class Stream:
        def __init__(self, handle: int) -> None:
            self.handle = handle

        def __cuda_stream__(self) -> tuple[int, int]:
            return (0, self.handle)

    mine = torch.cuda.Stream()
    with torch.cuda.stream(mine):
        with gpuprof.capture(Stream(mine.cuda_stream)) as cap:
            values = torch.rand(16, device="cuda")  # which only torch's own capture allows
        assert cap.stream == mine.cuda_stream
        seen = []
        for _ in range(2):
            cap.graph.launch()
            seen.append(values.tolist())
    assert seen[0] != seen[1]


def test_replays_of_a_graph_without_random_operators_are_right_before_and_after_it_is_known(
    torch: Any,
) -> None:
    values = torch.zeros(64, device="cuda")
    with gpuprof.capture() as cap:
        values += 1
    for _ in range(1000):
        cap.graph.launch()
    assert values[0].item() == 1000.0
    assert cap.graph.num_replays == 1000


def test_a_training_step_is_captured(torch: Any) -> None:
    layer = torch.nn.Linear(32, 1, device="cuda")
    given = torch.randn(64, 32, device="cuda")

    def step() -> None:
        layer.zero_grad(set_to_none=False)
        (layer(given) ** 2).mean().backward()

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    with gpuprof.capture() as cap:
        step()
    given.normal_()
    cap.graph.launch()
    replayed = layer.weight.grad.clone()
    step()
    torch.testing.assert_close(replayed, layer.weight.grad)


def test_autocast_is_captured(torch: Any) -> None:
    layer = torch.nn.Linear(64, 64, device="cuda")
    given = torch.randn(8, 64, device="cuda")
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        with gpuprof.capture() as cap:
            result = layer(given)
        assert result.dtype == torch.bfloat16
        given.normal_()
        cap.graph.launch()
        torch.testing.assert_close(result, layer(given))


def forks(torch: Any, _values: Any) -> None:
    capturing = torch.cuda.current_stream()
    other = torch.cuda.Stream()
    while other == capturing:  # torch gives out its 32 streams in turns
        other = torch.cuda.Stream()
    other.wait_stream(capturing)
    with torch.cuda.stream(other):
        torch.zeros(4, device="cuda")


def asks_an_event(torch: Any, _values: Any) -> None:
    event = torch.cuda.Event()
    event.record()
    event.query()


BREAKERS: dict[str, tuple[Callable[[Any, Any], object], str]] = {
    "item": (lambda _torch, values: values[0].item(), "cuStreamSynchronize"),
    "print": (lambda _torch, values: repr(values), "cuStreamSynchronize"),
    "synchronize": (lambda torch, _values: torch.cuda.synchronize(), "cuCtxSynchronize"),
    "event": (asks_an_event, "cuEventQuery"),
}
breaker = pytest.mark.parametrize("name", BREAKERS)


@breaker
def test_what_breaks_the_capture_is_named_and_torch_is_as_it_was(
    torch: Any, health: Health, name: str
) -> None:
    action, call = BREAKERS[name]
    values = torch.ones(16, device="cuda")
    with pytest.raises(CaptureInvalidatedError) as caught:
        with gpuprof.capture(name="body"):
            values += 1
            with contextlib.suppress(RuntimeError):
                action(torch, values)
    error = caught.value
    assert str(error.first_refused).startswith(call), error
    assert (error.capture, error.mode) == ("body", "thread_local")
    assert error.hint is not None
    health.check()


@breaker
def test_torchs_own_error_passes_with_a_note_of_the_refused_call(
    torch: Any, health: Health, name: str
) -> None:
    action, call = BREAKERS[name]
    values = torch.ones(16, device="cuda")
    with pytest.raises(RuntimeError) as caught:
        with gpuprof.capture(name="body"):
            action(torch, values)
    assert not isinstance(caught.value, CaptureError)
    if sys.version_info >= (3, 11):
        assert call in "".join(caught.value.__notes__)
    health.check()


def test_a_lost_fork_is_named_and_torch_is_as_it_was(torch: Any, health: Health) -> None:
    with pytest.raises(CaptureUnjoinedError, match="wait_stream"):
        with gpuprof.capture(name="body"):
            forks(torch, None)
    health.check()


def test_a_lost_fork_in_a_body_that_raises_leaves_torch_as_it_was(
    torch: Any, health: Health
) -> None:
    with pytest.raises(KeyError), gpuprof.capture():
        forks(torch, None)
        raise KeyError
    health.check()


FAILURES: dict[str, Callable[[Any, Any], object]] = {
    **{name: action for name, (action, _) in BREAKERS.items()},
    "fork": forks,
}


@pytest.mark.parametrize("name", FAILURES)
def test_failed_captures_hold_no_memory(torch: Any, name: str) -> None:
    def fail() -> None:
        with contextlib.suppress(RuntimeError), gpuprof.capture():
            torch.zeros(16 << 20, device="cuda")
            FAILURES[name](torch, torch.ones(16, device="cuda"))

    def held() -> int:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        return int(torch.cuda.memory_reserved())

    fail()
    before = held()
    for _ in range(20):
        fail()
    assert held() <= before


def test_a_memory_pool_can_be_destroyed_after_a_failure() -> None:
    torch_or_skip()
    check_script("""
        import warnings
        warnings.simplefilter("ignore")
        import torch
        values = torch.ones(4, device="cuda")
        for _ in range(3):
            try:
                with gpuprof.capture():
                    values += 1
                    values[0].item()
            except RuntimeError:
                pass
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            torch.zeros(1024, device="cuda")
        del pool
        torch.cuda.synchronize()
        assert float(values[0]) == 1.0
    """)


def test_debug_names_the_line_of_an_operator(torch: Any, health: Health) -> None:
    values = torch.ones(16, device="cuda")
    with pytest.raises(CaptureInvalidatedError) as caught, gpuprof.capture(debug=True):
        values += 1
        line = sys._getframe().f_lineno + 1
        values[0].item()
    assert caught.value.op == "aten::_local_scalar_dense"
    assert f"{__file__}:{line} in " in str(caught.value.where)
    health.check()


def test_debug_reports_work_outside_of_the_capture(torch: Any) -> None:
    values = torch.ones(16, device="cuda")
    with pytest.warns(RuntimeWarning, match=r"1 operator ran on a stream .*aten::mul_"):
        with gpuprof.capture(debug=True) as cap:
            values += 1
            with torch.cuda.stream(torch.cuda.default_stream()):
                values.mul_(10)
    torch.cuda.synchronize()
    assert values[0].item() == 10.0
    cap.graph.launch()
    assert values[0].item() == 11.0


@needs_the_gpu_alone
def test_thousand_captures_leave_the_memory_as_it_was(torch: Any) -> None:
    values = torch.ones(1024, device="cuda")

    def cycle() -> None:
        with gpuprof.capture() as cap:
            values.copy_((values + 1) * 2)
        cap.graph.launch()
        cap.graph.close()

    for _ in range(50):
        cycle()
    before = free_bytes(torch)
    for _ in range(1000):
        values.fill_(1)
        cycle()
    assert values[0].item() == 4.0
    # The driver takes and gives back memory in pieces of 2 MiB.
    assert before - free_bytes(torch) <= 4 << 20


def test_captures_of_one_pool_share_their_memory(torch: Any) -> None:
    pool = gpuprof.CapturePool()
    graphs = []
    results = []
    for step in range(3):
        with gpuprof.capture(pool=pool, keep_alive=results) as cap:
            result = torch.full((1 << 20,), float(step), device="cuda") + 1
        graphs.append(cap.graph)
        results.append(result)
    for graph in graphs:
        graph.launch()
    assert [float(result[0]) for result in results] == [1.0, 2.0, 3.0]
    assert all(graph.pool is pool for graph in graphs)


def test_a_pool_whose_graphs_are_closed_can_be_used_again(torch: Any) -> None:
    pool = gpuprof.CapturePool()
    values = torch.zeros(64, device="cuda")
    for _ in range(3):
        with gpuprof.capture(pool=pool) as cap:
            values += torch.ones(64, device="cuda")
        cap.graph.launch()
        cap.graph.close()
        with contextlib.suppress(RuntimeError), gpuprof.capture(pool=pool):
            values[0].item()
    assert values[0].item() == 3.0


@pytest.mark.parametrize("keep", [True, False])
def test_a_graph_of_torchs_is_looked_into_and_replayed(torch: Any, keep: bool) -> None:
    values = torch.zeros(64, device="cuda")
    values += 0
    graph = torch.cuda.CUDAGraph(keep_graph=keep)
    with torch.cuda.graph(graph):
        values += 1
    seen = gpuprof.CapturedGraph.from_torch(graph)
    if keep:
        assert seen.num_nodes == 1
        assert len(seen.kernel_names()) == 1
    else:
        with pytest.raises(gpuprof.errors.InvalidStateError, match="keep_graph=True"):
            _ = seen.nodes
    for _ in range(3):
        seen.launch()
    assert values[0].item() == 3.0


def test_a_foreign_graph_with_a_generator_of_its_own_draws_anew(torch: Any) -> None:
    generator = torch.Generator(device="cuda")
    drawn = torch.zeros(1024, device="cuda")
    graph = torch.cuda.CUDAGraph(keep_graph=True)
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        drawn.uniform_(generator=generator)
    seen = gpuprof.CapturedGraph.from_torch(graph)
    seen.launch()
    first = drawn.clone()
    seen.launch()
    seen.launch()
    assert not torch.equal(drawn, first)


def test_the_drivers_capture_of_torchs_work_can_be_asked_for(torch: Any) -> None:
    stream = torch.cuda.Stream()
    values = torch.zeros(64, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        with gpuprof.capture(stream, backend="driver") as cap:
            values += 1
    cap.graph.launch(stream)
    stream.synchronize()
    assert values[0].item() == 1.0
