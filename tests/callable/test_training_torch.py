"""Which replays in one memory overwrite what a backward pass reads."""

from __future__ import annotations

import math
from typing import Any

import pytest

from gpuprof import CapturePool
from gpuprof._callable.training import _Order

pytest.importorskip("torch", reason="torch is not installed")
pytestmark = pytest.mark.torch


class Launches:
    """Stands for the launch order of a pool."""

    launches = 0


@pytest.fixture
def order(monkeypatch: pytest.MonkeyPatch) -> Any:
    launches = Launches()
    monkeypatch.setattr(CapturePool, "_launch_order", lambda _: launches)
    order = _Order.of(CapturePool())
    order.counted = launches
    return order


def replay(order: Any, number: int, last: float) -> Any:
    """Replay a graph; return what tells whether another one has come in between."""
    order.counted.launches += 1
    since = order.replayed(number)
    return lambda: order.is_overwritten(number, last, since=since)


def test_a_pool_has_one_order() -> None:
    pool, other = CapturePool(), CapturePool()
    assert _Order.of(pool) is _Order.of(pool)
    assert _Order.of(pool) is not _Order.of(other)
    assert [_Order.of(pool).next_number() for _ in range(3)] == [1, 2, 3]
    assert _Order.of(other).next_number() == 1


@pytest.mark.parametrize(
    ("opened", "others", "overwrites"),
    [
        ((1, 2), [(2, 2)], False),  # its own backward pass, which may run again
        ((1, 4), [(2, 3), (3, 3), (4, 4)], False),  # those captured in between
        ((2, 3), [(3, 3)], False),
        ((4, 5), [(3, 4)], True),  # those captured outside
        ((1, 2), [(5, 6)], True),
        # Where activations are kept, any graph captured later is right.
        ((2, math.inf), [(3, 3), (7, 7), (5, 5)], False),
        ((2, math.inf), [(3, 3), (7, 7), (5, 5), (1, math.inf)], True),
    ],
)
def test_which_replays_overwrite_what_a_backward_pass_reads(
    order: Any, opened: tuple[int, float], others: list[tuple[int, float]], overwrites: bool
) -> None:
    is_overwritten = replay(order, *opened)
    for other in others:
        assert not is_overwritten()
        replay(order, *other)
    assert is_overwritten() is overwrites


def test_a_replay_of_a_graph_without_a_backward_pass_overwrites(order: Any) -> None:
    opened = replay(order, 1, 4)
    order.counted.launches += 1  # which is not noted
    assert opened()
    replay(order, 2, 3)
    assert opened()
