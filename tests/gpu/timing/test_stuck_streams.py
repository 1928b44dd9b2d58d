"""A stream that waits for another Python thread freezes no program, however full its queue."""

from __future__ import annotations

import pytest

from tests.support.stuck_streams import (
    BESIDE,
    BESIDE_A_BUSY_THREAD,
    BESIDE_A_FULL_QUEUE,
    OTHERS,
    USES,
    WAITS,
    check_stuck,
)


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("wait", [*WAITS, OTHERS])
def test_a_full_queue_lets_other_threads_run(use: str, wait: str) -> None:
    if use == "graphed callable":
        pytest.importorskip("cupy", reason="needs CuPy")
    check_stuck(use, wait, driver=None)


@pytest.mark.parametrize("use", BESIDE_A_BUSY_THREAD)
@pytest.mark.parametrize("wait", [*WAITS, OTHERS])
def test_a_full_queue_lets_other_threads_run_beside_a_busy_one(use: str, wait: str) -> None:
    check_stuck(use, wait, driver=None, busy=True)


@pytest.mark.parametrize("use", BESIDE_A_FULL_QUEUE)
def test_beside_a_full_queue_nothing_stops_other_threads(use: str) -> None:
    check_stuck(use, BESIDE, driver=None)
