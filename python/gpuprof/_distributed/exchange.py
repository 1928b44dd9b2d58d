"""Values that ranks leave in the store for rank 0: no rank waits, and no value stays.

The n-th exchange of a kind on one rank meets the n-th on the others. Rank 0 reads what comes until
its deadline, then marks the exchange as closed and deletes its values. A rank that comes later sees
the mark, before or after it wrote, and takes its own value out. A rank that is far ahead deletes
its oldest value, and leaves the newest number. One mark a kind stays in the store, and that number.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from gpuprof._distributed.world import StoreError, World

MOST_UNREAD = 8  # values that a rank leaves for a rank 0 that does not read them
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.1

Complete = Callable[[bytes], bool]


def polls(deadline: float, shortest_s: float = SHORTEST_PAUSE_S) -> Iterator[None]:
    """Yield once and, until the deadline, again; polling takes at most half of the time."""
    while True:
        begun = time.monotonic()
        yield
        now = time.monotonic()
        if now >= deadline:
            return
        time.sleep(min(max(now - begun, shortest_s), LONGEST_PAUSE_S, deadline - now))


class Exchange:
    """One exchange, as one rank takes part in it. All methods but `collect` raise `StoreError`."""

    def __init__(self, world: World, kind: str) -> None:
        assert world.connection is not None
        self.world = world
        self.connection = world.connection
        self.folder = f"gpuprof/{kind}/{world.name}"
        self.number = self.connection.next_number(self.folder)
        self.failure: str | None = None
        self.ahead: dict[int, int] = {}  # ranks that have deleted their value, and their number

    def key(self, rank: int, number: int | None = None) -> str:
        return f"{self.folder}/{self.number if number is None else number}/{rank}"

    def is_closed(self) -> bool:
        """Whether rank 0 reads no more of it."""
        return self._noted("closed") >= self.number

    def _noted(self, name: str) -> int:
        mark = f"{self.folder}/{name}"
        return int(self.connection.get(mark)) if self.connection.has([mark]) else 0

    def post(self, value: bytes) -> bool:
        """Leave this rank's value, or replace it; False where rank 0 had already gone on."""
        own = self.key(self.world.rank)
        closed = self._noted("closed")
        if closed >= self.number:
            return False
        self.connection.set(own, value)
        if self.number - MOST_UNREAD > closed:
            newest = f"{self.folder}/newest/{self.world.rank}"
            self.connection.set(newest, str(self.number).encode())
            self.connection.delete(self.key(self.world.rank, self.number - MOST_UNREAD))
        if self.is_closed():
            self.connection.delete(own)
        return True

    def collect(self, deadline: float, complete: Complete | None = None) -> dict[int, bytes]:
        """Return the values of the other ranks that are there before the deadline.

        `deadline` is a time of `time.monotonic()`. A value that is not `complete` may be replaced
        until then. Where the store fails, `failure` says why, and what was read counts.
        """
        found: dict[int, bytes] = {}
        waiting = [rank for rank in range(self.world.size) if rank != self.world.rank]
        try:
            for _ in polls(deadline):
                for rank in self._present([*waiting]):
                    value = found[rank] = self.connection.get(self.key(rank))
                    if complete is None or complete(value):
                        waiting.remove(rank)
                waiting = [rank for rank in waiting if not self._left(rank)]
                if not waiting:
                    break
        except StoreError as error:
            self.failure = str(error)
        return found

    def _left(self, rank: int) -> bool:
        """Whether a rank has gone so far ahead that its value is deleted, unless it was read."""
        newest = self._noted(f"newest/{rank}")
        if newest - MOST_UNREAD < self.number:
            return False
        self.ahead[rank] = newest
        return True

    def _present(self, ranks: list[int]) -> Iterator[int]:
        if self.connection.has([self.key(rank) for rank in ranks]):
            yield from ranks
            return
        for rank in ranks:
            if self.connection.has([self.key(rank)]):
                yield rank

    def close(self) -> None:
        """Read no more: mark the exchange and delete its values. Rank 0 calls it."""
        self.connection.set(f"{self.folder}/closed", str(self.number).encode())
        for rank in range(self.world.size):
            self.connection.delete(self.key(rank))
