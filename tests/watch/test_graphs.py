"""Watched models on the GPU's clock and inside graphs, on the fake driver."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import gpuprof
from tests.fake_driver.control import FakeCuda
from tests.support.watched import nn, torch

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]

MS = 1_000_000


class _Work(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: Any, work: Any, forward_ms: int, backward_ms: int) -> Any:
        ctx.work, ctx.ms = work, backward_ms
        work(forward_ms)
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Any) -> Any:
        ctx.work(ctx.ms)
        return gradient, None, None, None


class Kernel(nn.Module):  # type: ignore[misc, name-defined]
    """Launches kernels of so many milliseconds on the current stream, and returns its argument."""

    def __init__(self, cupy: Any, forward_ms: int, backward_ms: int) -> None:
        super().__init__()
        self.cupy = cupy
        self.ms = forward_ms, backward_ms

    def work(self, ms: int) -> None:
        assert self.cupy.fake.work(self.cupy.cuda.get_current_stream().ptr, ms * MS) == 0

    def forward(self, x: Any) -> Any:
        return _Work.apply(x, self.work, *self.ms)


@pytest.fixture
def model(cupy: Any) -> Iterator[Any]:
    """A model with two kernels: 2 ms and 6 ms forward, 4 ms and 10 ms backward."""
    yield nn.Sequential(Kernel(cupy, 2, 4), Kernel(cupy, 6, 10))
    gc.collect()


def near(ms: float) -> Any:
    return pytest.approx(ms, abs=0.05)


def train(model: Any) -> None:
    model(torch.ones(1, requires_grad=True)).backward()


def test_passes_have_the_time_of_the_gpu(model: Any) -> None:
    with gpuprof.watch(model) as seen:
        for _ in range(3):
            train(model)
        rows = seen.read()
    assert rows.clocks == ("cuda",)
    assert (rows["0"].forward.mean_ms, rows["0"].backward.mean_ms) == (near(2), near(4))
    assert (rows["1"].forward.total_ms, rows["1"].backward.total_ms) == (near(18), near(30))
    assert (rows[""].forward.mean_ms, rows[""].backward.mean_ms) == (near(8), near(14))
    assert rows["1"].share == pytest.approx(16 / 22, abs=0.01)
    assert rows[""].forward.self_ms == near(0)
    assert "cuda (GPU time" in str(rows)


def test_running_never_waits_and_reading_does(model: Any, fake: FakeCuda) -> None:
    fake.configure("mode=manual")
    with gpuprof.watch(model) as seen:
        train(model)
        early = seen.read(wait=False)
        assert early[""].forward.pending == early[""].backward.pending == 1
        assert early["0"].forward.calls == 1
        assert early["0"].forward.timed == 0
        assert "pending" in repr(seen)
        fake.configure("mode=auto")
        assert seen.read()["0"].forward.mean_ms == near(2)


def test_more_calls_than_can_be_pending_are_dropped_and_counted(model: Any, fake: FakeCuda) -> None:
    fake.configure("mode=manual")
    with warnings.catch_warnings(), gpuprof.watch(model, 0) as seen, torch.no_grad():
        warnings.simplefilter("ignore")
        for _ in range(4200):
            model(torch.ones(1))
        fake.complete(model[0].cupy.cuda.get_current_stream().ptr)
        fake.configure("mode=auto")
        row = seen.read()[""].forward
    assert row.timed + row.dropped == row.calls == 4200
    assert row.dropped > 0
    assert "dropped" in str(seen)


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_passes_inside_a_graph_have_the_times_of_its_replays(model: Any, timers: Any) -> None:
    with gpuprof.watch(model) as seen:
        with gpuprof.capture(timers=timers) as cap:
            train(model)
        assert seen.read()["0"].forward.graph_calls == 0  # it was not replayed
        for _ in range(3):
            cap.graph.launch()
        train(model)
        rows = seen.read()
    replays = 3 if timers == "collect" else 1
    for path, forward, backward in (("", 8, 14), ("0", 2, 4), ("1", 6, 10)):
        row = rows[path]
        assert row.forward.calls == row.backward.calls == 1  # those outside of the graph
        assert row.forward.graph_calls == row.backward.graph_calls == replays
        assert row.forward.graph_mean_ms == near(forward)
        assert row.backward.graph_ms == near(replays * backward)
    assert "graph backward" in str(rows)
    cap.graph.close()
    assert str(seen)


def test_graphs_name_the_modules_in_their_timings(model: Any) -> None:
    with gpuprof.watch(model) as seen, gpuprof.capture() as cap:
        train(model)
    cap.graph.launch()
    times = cap.graph.timings()
    assert [names.rpartition("/")[2].partition(".")[2] for names in times] == [
        "", "0 forward", "1 forward", "", "1 backward", "0 backward",
    ]  # fmt: skip
    root = next(iter(times))
    assert root.startswith("Sequential")
    assert times[root].ms == near(8)
    cap.graph.close()
    del seen


def test_collected_times_are_in_the_statistics_too(model: Any) -> None:
    with gpuprof.watch(model, 0), gpuprof.capture(timers="collect", name="g") as cap:
        train(model)
    cap.graph.launch()
    cap.graph.launch()
    rows = gpuprof.stats()
    (forward,) = (row for path, row in rows.items() if path.endswith(" forward"))
    assert (forward.gpu.count, forward.gpu.mean_ms) == (2, near(8))
    cap.graph.close()


def test_stripped_timers_leave_nothing_in_the_graph(model: Any) -> None:
    with gpuprof.watch(model) as seen, gpuprof.capture(timers="strip") as cap:
        train(model)
    cap.graph.launch()
    assert cap.graph.num_nodes == 4
    assert seen.read()["0"].forward.graph_calls == 0
    cap.graph.close()


def test_a_graph_that_is_captured_after_the_watch_has_nothing_of_it(model: Any) -> None:
    with gpuprof.watch(model):
        train(model)
    with gpuprof.capture() as cap:
        train(model)
    assert cap.graph.num_nodes == 4
    cap.graph.close()
