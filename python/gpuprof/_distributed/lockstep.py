"""Ranks that measure together: rank 0 decides how often a function is called, and all do that.

A function with a collective hangs where one rank calls it more often than another, and each rank's
own clock would decide otherwise. So the others read rank 0's decisions from the store: between
samples, never while one is timed. The n-th measurement on one rank meets the n-th on the others.
"""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from gpuprof._distributed.exchange import polls
from gpuprof._distributed.world import StoreError, World, distributed, find, timeout_s
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

CHOICES = ("together", "each")
LIMIT_S = 300.0  # for a rank to come, or the timeout of the group's store where that is less
_INSTEAD = (
    "the ranks of a process group measure together: make the same call on all of them, or give "
    "ranks='each' for a function without a collective"
)

_Value = TypeVar("_Value")


class Alone:
    """One rank, which decides for itself."""

    is_alone = True

    def decide(self, what: str, value: _Value) -> _Value:  # noqa: ARG002
        """Return rank 0's value of `what`; plain data that JSON can hold."""
        return value

    def gather(self, value: Any) -> list[Any]:
        """Return the values of all ranks, on each of them; plain data as well."""
        return [value]

    def fail(self, error: BaseException) -> None:
        """Tell the others that this rank has stopped."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            self.fail(error)


class Lockstep(Alone):
    """One of several ranks; `InvalidStateError` where another one does not do its part."""

    is_alone = False

    def __init__(self, world: World, limit_s: float) -> None:
        assert world.connection is not None
        self._world, self._store, self._limit_s = world, world.connection, limit_s
        kind = f"gpuprof/together/{world.name}"
        self._folder = f"{kind}/{self._store.next_number(kind)}"
        self._decided = self._gathered = 0
        unread = self._store.unread.copy()
        with self:
            self.gather(None)
        if world.rank == 0:  # all have come here, so nobody reads what was left before
            for key in unread:
                self._store.delete(key)
                self._store.unread.remove(key)

    def decide(self, what: str, value: _Value) -> _Value:
        self._decided += 1
        key = f"{self._folder}/{self._decided}"
        if self._world.rank == 0:
            self._set(key, [what, value])
            return value
        at, decided = self._get({0: key})[0]
        if at != what:
            message = (
                f"this rank, {self._world.own}, asks rank {self._world.members[0]} for {what}, and "
                f"that is at {at}; {_INSTEAD}"
            )
            raise InvalidStateError(message)
        return decided  # type: ignore[no-any-return]

    def gather(self, value: Any) -> list[Any]:
        self._gathered += 1
        keys = {rank: self._own_key(rank) for rank in range(1, self._world.size)}
        if self._world.rank == 0:
            return self.decide("the results", [value, *self._get(keys).values()])
        self._set(keys[self._world.rank], value)
        return self.decide("the results", [])

    def fail(self, error: BaseException) -> None:
        self._decided += 1
        self._gathered += 1
        rank = self._world.rank
        key = f"{self._folder}/{self._decided}" if rank == 0 else self._own_key(rank)
        with suppress(InvalidStateError):
            self._set(key, None, f"{type(error).__name__}: {error}".splitlines()[0])

    def _own_key(self, rank: int) -> str:
        return f"{self._folder}/{self._gathered}/{rank}"

    def _set(self, key: str, value: Any, error: str | None = None) -> None:
        try:
            self._store.set(key, json.dumps([value, error]).encode())
        except StoreError as failure:
            raise _gone(failure) from None
        self._store.unread.append(key)

    def _get(self, keys: dict[int, str]) -> dict[int, Any]:
        """Return the values of ranks; an error that names those that are missing."""
        until = time.monotonic() + self._limit_s
        found: dict[int, Any] = {}
        for rank, key in keys.items():
            try:
                for _ in polls(until):
                    if self._store.has([key]):
                        break
                else:
                    self._refuse_to_wait(keys)
                written = self._store.get(key)
            except StoreError as failure:
                raise _gone(failure) from None
            self._store.unread.append(key)
            try:
                found[rank], error = json.loads(written)
            except (ValueError, TypeError):
                error = "what it wrote for the others is damaged"
            if error is not None:
                message = f"rank {self._world.members[rank]} has stopped: {error}"
                raise InvalidStateError(message)
        return found

    def _refuse_to_wait(self, keys: dict[int, str]) -> None:
        members = self._world.members
        missing = [str(members[rank]) for rank, key in keys.items() if not self._store.has([key])]
        if missing:  # else the last one has come just now
            message = (
                f"rank {self._world.own} has waited {self._limit_s:g} s for rank "
                f"{', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not there; "
                f"{_INSTEAD}"
            )
            raise InvalidStateError(message)


def _gone(failure: StoreError) -> InvalidStateError:
    return InvalidStateError(f"the other ranks cannot be reached: {failure}")


def follows(ranks: str) -> bool:
    """Return whether this rank does what another one decides."""
    return ranks != "each" and distributed() is not None and find("gpuprof.benchmark").rank > 0


def join(ranks: str) -> Alone:
    """Return the ranks that measure together, once all have come; one alone for ``"each"``."""
    if ranks == "each" or distributed() is None:
        return Alone()
    world = find("gpuprof.benchmark")
    return Alone() if world.connection is None else Lockstep(world, min(timeout_s(), LIMIT_S))
