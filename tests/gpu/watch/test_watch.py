"""Watched models on a GPU: times beside torch's own events, memory, graphs and compiled code."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

import gpuprof

WIDTH, BATCH = 2048, 4096


def block(torch: Any) -> Any:
    return torch.nn.Sequential(
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.ReLU(inplace=True),
        torch.nn.Linear(WIDTH, WIDTH),
    )


@pytest.fixture
def model(torch: Any) -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(block(torch), block(torch)).cuda()


@pytest.fixture
def x(torch: Any) -> Any:
    return torch.randn(BATCH, WIDTH, device="cuda")


def train(model: Any, x: Any) -> None:
    model.zero_grad()
    model(x).square().mean().backward()


def assert_runs(seen: Any) -> None:
    assert "stopped" not in str(seen)


def test_passes_take_what_torchs_events_say(torch: Any, model: Any, x: Any) -> None:
    begin, middle, end = (torch.cuda.Event(enable_timing=True) for _ in range(3))
    for _ in range(3):
        train(model, x)
    y = model(x)
    y.backward(torch.ones_like(y))  # imports for seconds where a gradient is given the first time
    with gpuprof.watch(model) as seen:
        for _ in range(3):  # the first passes read the memory, which takes time on the host
            train(model, x)
        before = seen.read()[""]
        model.zero_grad()
        torch.cuda.synchronize()
        begin.record()
        y = model(x)
        middle.record()
        y.backward(torch.ones_like(y))
        end.record()
        rows = seen.read()
    assert_runs(seen)
    forward = rows[""].forward.total_ms - before.forward.total_ms
    backward = rows[""].backward.total_ms - before.backward.total_ms
    assert forward == pytest.approx(begin.elapsed_time(middle), rel=0.2, abs=0.1)
    assert backward <= middle.elapsed_time(end) + 0.05
    assert backward >= 0.5 * middle.elapsed_time(end)
    assert rows.clocks == ("cuda",)
    # Two layers of the same size in each of two blocks.
    for path in ("0", "1"):
        assert rows[path].forward.timed == rows[path].backward.timed == 4
        assert 0.2 < rows[path].share < 0.8
    assert rows["1.2"].backward.total_ms > rows["1.1"].backward.total_ms


def test_each_call_of_a_leaf_takes_what_events_in_hooks_say(torch: Any) -> None:
    """Behind work that the GPU still has, so that neither has the host's time in it."""
    linear = torch.nn.Linear(WIDTH, 512)
    block = torch.nn.Sequential(torch.nn.Linear(512, WIDTH), torch.nn.GELU(), linear)
    model = torch.nn.Sequential(torch.nn.Sequential(block, torch.nn.LayerNorm(512))).cuda()
    x = torch.randn(2048, 512, device="cuda")
    model(x)  # loads libraries
    pairs: list[tuple[Any, Any]] = []
    found: list[float] = []

    def enter(module: Any, given: Any) -> None:
        pairs.append(tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)))
        pairs[-1][0].record()

    with gpuprof.watch(model, depth=3) as seen:
        linear.register_forward_pre_hook(enter)
        linear.register_forward_hook(lambda *_: pairs[-1][1].record())
        for _ in range(8):
            torch.cuda._sleep(20_000_000)  # about 10 ms
            model(x)
            found.append(seen.read()["0.0.2"].forward.total_ms - sum(found))
    assert_runs(seen)
    by_hand = [begin.elapsed_time(end) for begin, end in pairs]
    assert found == pytest.approx(by_hand, rel=0.1, abs=0.02)
    assert seen.read()["0.0.2"].forward.mean_ms == pytest.approx(sum(by_hand) / 8, rel=0.1)


def test_running_a_watched_model_does_not_wait(torch: Any, model: Any, x: Any) -> None:
    with gpuprof.watch(model) as seen:
        train(model, x)
        torch.cuda.synchronize()
        torch.cuda._sleep(2_000_000_000)  # about a second
        train(model, x)
        assert not torch.cuda.current_stream().query()
        assert seen.read(wait=False)[""].forward.timed <= 1
        assert not torch.cuda.current_stream().query()
        assert seen.read()[""].forward.timed == 2


def test_activations_are_what_stays_allocated(torch: Any, model: Any, x: Any) -> None:
    with gpuprof.watch(model) as seen:
        for _ in range(3):
            train(model, x)
    rows = seen.read()
    result = 4 * BATCH * WIDTH
    assert rows["0.0"].activation_bytes == result
    assert rows["0.1"].activation_bytes == 0  # in place
    assert rows["0"].activation_bytes == 2 * result  # of the middle one, and the result
    assert rows["0.0"].parameter_bytes == 4 * (WIDTH * WIDTH + WIDTH)
    assert "activations" in str(rows)


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_a_graph_of_a_watched_model_has_its_times(
    torch: Any, model: Any, x: Any, timers: Any
) -> None:
    replays = 20
    with torch.no_grad(), gpuprof.watch(model) as seen:
        model(x)  # cuBLAS makes its workspace
        torch.cuda.synchronize()
        with gpuprof.capture(timers=timers) as cap:
            model(x)
        for _ in range(replays):
            cap.graph.launch()
        torch.cuda.synchronize()
        rows = seen.read()
        assert_runs(seen)
        count = replays if timers == "collect" else 1
        for path in ("", "0", "1", "0.0", "1.2"):
            assert rows[path].forward.graph_calls == count, path
            assert rows[path].forward.calls == 1, path
        assert rows["0.0"].forward.graph_mean_ms <= rows["0"].forward.graph_mean_ms
        assert rows["0"].forward.graph_mean_ms <= rows[""].forward.graph_mean_ms
        assert rows[""].forward.graph_mean_ms == pytest.approx(
            rows["0"].forward.graph_mean_ms + rows["1"].forward.graph_mean_ms, rel=0.2
        )
        assert any(str(path).endswith("0.0 forward") for path in cap.graph.timings())
        cap.graph.close()


def test_a_backward_pass_in_a_graph_has_its_times(torch: Any, model: Any, x: Any) -> None:
    stream = torch.cuda.Stream()
    with gpuprof.watch(model) as seen:
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                train(model, x)
            model.zero_grad(set_to_none=True)
            torch.cuda.synchronize()
            with gpuprof.capture() as cap:
                model(x).square().mean().backward()
            cap.graph.launch()
            torch.cuda.synchronize()
        rows = seen.read()
        assert_runs(seen)
    for path in ("", "0", "1", "1.2"):
        assert rows[path].forward.graph_calls == rows[path].backward.graph_calls == 1, path
        assert rows[path].backward.graph_ms > 0
    assert rows[""].backward.graph_ms >= rows["1"].backward.graph_ms
    cap.graph.close()


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_a_graphed_callable_of_a_watched_model_replays(
    torch: Any, model: Any, x: Any, timers: Any
) -> None:
    with torch.no_grad(), gpuprof.watch(model) as seen:
        expected = model(x)
        fast = gpuprof.make_graphed_callable(model, (x,), timers=timers)
        for _ in range(10):
            result = fast(x)
        torch.testing.assert_close(result, expected)
        torch.cuda.synchronize()
        assert fast.stats().captures == 1
        rows = seen.read()
        assert_runs(seen)
        assert rows["0.0"].forward.graph_calls >= 1
        assert rows["0.0"].forward.graph_mean_ms > 0


def test_a_compiled_model_is_one_row(torch: Any, model: Any, x: Any) -> None:
    pytest.importorskip("triton", reason="torch has no compiler without Triton")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiled = torch.compile(model)
        with gpuprof.watch(compiled) as seen:
            for _ in range(3):
                compiled(x).square().mean().backward()
    rows = seen.read()
    assert_runs(seen)
    assert (rows[""].forward.timed, rows[""].backward.timed) == (3, 3)
    assert not any(row.forward.calls for path, row in rows.items() if path)


def test_checkpoints_and_autocast_are_seen(torch: Any, model: Any, x: Any) -> None:
    from torch.utils.checkpoint import checkpoint

    def run() -> None:
        for reentrant in (False, True):
            y = checkpoint(model, x.requires_grad_(), use_reentrant=reentrant)
            y.float().square().mean().backward()

    with torch.autocast("cuda", torch.bfloat16):
        run()  # loads kernels and libraries
        with gpuprof.watch(model) as seen:
            run()
    rows = seen.read()
    assert_runs(seen)
    assert (rows[""].forward.calls, rows[""].recomputed.calls) == (2, 2)
    assert rows[""].forward.failed == rows[""].recomputed.failed == 0
    assert rows["1.2"].backward.total_ms < rows[""].recomputed.total_ms
    assert rows["1.2"].backward.timed == 2
