"""How far rank 0's monotonic clock is ahead of a rank's own: messages to rank 0 and back.

A rank asks, rank 0 answers with its time. That time was read between the question and the answer,
so the middle of the two is wrong by half of the round trip at most, however long each way took. Of
several tries the fastest counts. The messages go through the store: 50 to 100 microseconds within a
host.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from gpuprof._distributed.exchange import Exchange, polls
from gpuprof._distributed.world import StoreError
from gpuprof._trace_tools.clocks import Anchor

TRIES, MANY_RANKS, TRIES_OF_MANY = 32, 64, 12
ANSWER_S = 5.0  # how long one message may take before the other side counts as gone


def _tries(exchange: Exchange) -> int:
    """Return how many messages each rank sends; rank 0 answers one rank after the other."""
    return TRIES if exchange.world.size <= MANY_RANKS else TRIES_OF_MANY


def measure(
    exchange: Exchange, when: str, deadline: float, is_over: Callable[[], bool]
) -> Anchor | None:
    """Ask rank 0 for its clock once it is there; None where it never comes, or `is_over`."""
    connection = exchange.connection
    hello, turn = _keys(exchange, when, exchange.world.rank)
    connection.set(hello, b"")
    is_there = False
    for _ in polls(deadline):
        is_there = connection.has([turn])
        if is_there or is_over():
            break
    if not is_there:
        connection.delete(hello)
        return None
    reference = connection.get(turn).decode("ascii", "replace")
    best: Anchor | None = None
    for number in range(_tries(exchange)):
        ask, answer = f"{hello}/{number}", f"{turn}/{number}"
        try:
            before = time.monotonic_ns()
            connection.set(ask, b"")
            connection.wait(answer, ANSWER_S)
            after = time.monotonic_ns()
            there = int(connection.get(answer))
        except StoreError:
            break
        finally:
            with contextlib.suppress(StoreError):
                connection.delete(ask)
                connection.delete(answer)
        middle, error = (before + after) // 2, (after - before + 1) // 2
        if best is None or error < best.error:
            best = Anchor(middle, there - middle, error, reference)
    with contextlib.suppress(StoreError):
        connection.delete(turn)
    return best


def serve(
    exchange: Exchange,
    when: str,
    deadline: float,
    reference: str,
    has_left: Callable[[int], bool],
) -> None:
    """Answer all other ranks but those that `has_left`, one by one, until the deadline."""
    waiting = [*range(1, exchange.world.size)]
    for _ in polls(deadline):
        for rank in list(waiting):
            keys = _keys(exchange, when, rank)
            if exchange.connection.has([keys[0]]):
                _answer(exchange, *keys, reference)
                waiting.remove(rank)
            elif has_left(rank):
                waiting.remove(rank)
        if not waiting:
            return


def _answer(exchange: Exchange, hello: str, turn: str, reference: str) -> None:
    connection = exchange.connection
    connection.delete(hello)
    connection.set(turn, reference.encode("ascii", "replace"))
    try:
        for number in range(_tries(exchange)):
            connection.wait(f"{hello}/{number}", ANSWER_S)
            connection.set(f"{turn}/{number}", str(time.monotonic_ns()).encode())
    except StoreError:  # the rank is gone
        connection.delete(turn)


def _keys(exchange: Exchange, when: str, rank: int) -> tuple[str, str]:
    folder = f"{exchange.folder}/{exchange.number}/{when}/{rank}"
    return f"{folder}/hello", f"{folder}/turn"
