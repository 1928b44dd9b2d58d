"""What a watch says of activation checkpoints: passes that run again are a time of their own."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import gpuprof
from tests.support.watched import checkpoint, nn
from tests.watch.test_graphs import Kernel, near, train

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore:::torch")]


class Saving(Kernel):
    """A kernel whose backward pass needs what its forward pass has made."""

    def forward(self, x: Any) -> Any:
        return super().forward(x).sin()


class Checkpointing(nn.Module):  # type: ignore[misc, name-defined]
    """Keeps nothing of what is in it, which is run again in the backward pass."""

    def __init__(self, *parts: Any, reentrant: bool) -> None:
        super().__init__()
        self.parts = nn.Sequential(*parts)
        self.reentrant = reentrant

    def forward(self, x: Any) -> Any:
        return checkpoint.checkpoint(self.parts, x, use_reentrant=self.reentrant)


Make = Callable[..., Any]


@pytest.fixture
def make(cupy: Any) -> Iterator[Make]:
    """Make a model: 1 ms in front, then 2 and 6 ms forward, 4 and 10 ms backward, run again."""

    def model(reentrant: bool, around: Callable[[Any], Any] = lambda block: block) -> Any:
        block = Checkpointing(Saving(cupy, 2, 4), Saving(cupy, 6, 10), reentrant=reentrant)
        return nn.Sequential(Saving(cupy, 1, 1), around(block))

    yield model
    gc.collect()


def times(row: Any) -> tuple[float, float, float]:
    return row.forward.total_ms, row.recomputed.total_ms, row.backward.total_ms


def assert_complete(rows: Any) -> None:
    """No call counts as failed, and parts are not longer than what they are in."""
    for path, row in rows.items():
        assert row.forward.failed == row.backward.failed == row.recomputed.failed == 0, path
        assert row.share is None or row.share <= 1.001, path


@pytest.mark.parametrize("reentrant", [False, True])
@pytest.mark.parametrize("early", [True, False])
def test_recomputation_is_in_no_forward_or_backward_pass(
    make: Make, reentrant: bool, early: bool
) -> None:
    model = make(reentrant)
    with gpuprof.watch(model, depth=3) as seen, checkpoint.set_checkpoint_early_stop(early):
        train(model)
        train(model)
    rows = seen.read()
    assert times(rows["1.parts.0"]) == (near(4), near(4), near(8))
    assert times(rows["1.parts.1"]) == (near(12), near(12), near(20))
    assert times(rows["1.parts"]) == (near(16), near(16), near(28))
    assert times(rows["1"]) == pytest.approx(times(rows["1.parts"]), abs=0.05)
    assert times(rows["0"]) == (near(2), 0, near(2))
    assert times(rows[""]) == (near(18), near(16), near(30))
    assert rows["1.parts.1"].forward.calls == rows["1.parts.1"].recomputed.calls == 2
    assert rows["1.parts.1"].recomputed.mean_ms == near(6)
    assert rows[""].recomputed.calls == 0
    assert rows["1.parts"].recomputed.self_ms == near(0)
    assert rows["1.parts"].total_ms == near(60)
    assert rows["1.parts.1"].share == pytest.approx(44 / 60, abs=0.01)
    assert rows["1"].share == pytest.approx(60 / 64, abs=0.01)
    assert "recomputed" in str(seen)
    assert_complete(rows)


@pytest.mark.parametrize("reentrant", [False, True])
def test_nested_checkpoints_are_recomputation_all_the_way(make: Make, reentrant: bool) -> None:
    model = make(reentrant, lambda block: Checkpointing(block, reentrant=reentrant))
    with gpuprof.watch(model, depth=9) as seen:
        train(model)
    rows = seen.read()
    leaf = rows["1.parts.0.parts.1"]
    assert (leaf.forward.total_ms, leaf.backward.total_ms) == (near(6), near(10))
    again = 2 if reentrant else 1  # the outer one stops where the inner one has its argument
    assert leaf.recomputed.calls == again
    assert leaf.recomputed.total_ms == near(6 * again)
    assert times(rows[""]) == (near(9), near(8 * again), near(15))
    assert_complete(rows)


def test_an_error_while_a_block_runs_again_is_a_failed_call(make: Make) -> None:
    model = make(False)
    calls = []

    def fail(*_arguments: Any) -> None:
        calls.append(1)
        if len(calls) > 1:
            raise ValueError("not twice")

    model[1].parts[0].register_forward_hook(fail)
    with gpuprof.watch(model, depth=3) as seen, pytest.raises(ValueError, match="not twice"):
        train(model)
    rows = seen.read()
    assert rows["1.parts.0"].recomputed.failed == rows["1.parts"].recomputed.failed == 1
    assert rows["1.parts.0"].forward.failed == 0


@pytest.mark.parametrize("timers", ["last", "collect"])
def test_recomputation_inside_a_graph_is_a_time_of_its_own(make: Make, timers: Any) -> None:
    model = make(False)
    with gpuprof.watch(model, depth=3) as seen:
        with gpuprof.capture(timers=timers) as cap:
            train(model)
        for _ in range(3):
            cap.graph.launch()
        rows = seen.read()
    for path, expected in {"1.parts.1": (6, 6, 10), "1.parts": (8, 8, 14)}.items():
        row = rows[path]
        found = [each.graph_mean_ms for each in (row.forward, row.recomputed, row.backward)]
        assert found == [near(ms) for ms in expected], path
    assert rows[""].backward.graph_mean_ms == near(15)
    cap.graph.close()
