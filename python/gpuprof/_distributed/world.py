"""Which ranks there are, and the store that they share.

The store is torch.distributed's own, which `init_process_group` has made, or one that the caller
gives. Where it can be cloned, gpuprof uses a connection of its own: a store's client serves one
call at a time, and NCCL uses the original.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any
from weakref import WeakKeyDictionary

from gpuprof._frameworks import loaded
from gpuprof._trace import path as trace_path
from gpuprof.errors import InvalidStateError

GET_S = 30.0  # a value that was seen may have been deleted since, and would be waited for


class StoreError(Exception):
    """The store does not answer; the text says why. It never reaches the user as such."""


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, OSError, ValueError) as error:  # torch's own are RuntimeErrors
        raise StoreError(f"{type(error).__name__}: {error}".splitlines()[0]) from error


@dataclass
class Connection:
    """A store as gpuprof uses it: what it raises becomes a `StoreError`."""

    store: Any
    counts: Counter[str] = field(default_factory=Counter)  # exchanges begun, by kind
    unread: list[str] = field(default_factory=list)  # keys of `Lockstep` that may be deleted later
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_number(self, kind: str) -> int:
        """Return the number of a new exchange, from 1; each rank counts its own."""
        with self.lock:
            self.counts[kind] += 1
            return self.counts[kind]

    def has(self, keys: Sequence[str]) -> bool:
        with _store_errors():
            return bool(self.store.check(list(keys)))

    def get(self, key: str) -> bytes:
        with _store_errors():
            return bytes(self.store.get(key))

    def wait(self, key: str, seconds: float) -> None:
        with _store_errors():
            self.store.wait([key], timedelta(seconds=seconds))

    def set(self, key: str, value: bytes) -> None:
        with _store_errors():
            self.store.set(key, value)

    def delete(self, key: str) -> None:
        with _store_errors():
            self.store.delete_key(key)


@dataclass(frozen=True)
class World:
    """The ranks of a process group, seen from one of them."""

    rank: int  # within the group
    members: tuple[int, ...]  # the global ranks, by those of the group
    connection: Connection | None = None  # none for a rank alone
    name: str = "default"

    @property
    def size(self) -> int:
        return len(self.members)

    @property
    def own(self) -> int:
        return self.members[self.rank]


_connections: WeakKeyDictionary[Any, Connection] = WeakKeyDictionary()
_lock = threading.Lock()


def distributed() -> Any:
    """Return torch.distributed where a process group is initialised, else None."""
    module = loaded.torch_part("distributed")
    is_initialized = getattr(module, "is_initialized", None)
    return module if is_initialized is not None and is_initialized() else None


def timeout_s() -> float:
    return float(distributed().distributed_c10d._get_default_store().timeout.total_seconds())


def find(call: str, store: Any = None, group: Any = None) -> World:
    """Return the world that `call` is made in: of a process group, else of the launcher's ranks.

    `InvalidStateError` where the other ranks cannot be reached, or this one is not of the group.
    """
    torch_distributed = distributed()
    if torch_distributed is None:
        return _from_environment(call, store, group)
    rank = torch_distributed.get_rank(group)
    members = tuple(torch_distributed.get_process_group_ranks(group))
    if rank < 0:
        message = (
            f"{call}: this process, rank {torch_distributed.get_rank()}, is not in the group of "
            f"the ranks {', '.join(map(str, members))}; call it on those only"
        )
        raise InvalidStateError(message)
    if len(members) == 1:
        return World(0, members)
    found = torch_distributed.distributed_c10d._get_default_store() if store is None else store
    name = "default" if group is None else str(group.group_name)
    return World(rank, members, connect(found), name)


def _from_environment(call: str, store: Any, group: Any) -> World:
    rank, size = trace_path.rank(), trace_path.world_size()
    needs_group = group is not None or (size > 1 and store is None)
    if needs_group:
        of = f" of a world of {size}" if size > 1 else ""
        message = (
            f"{call}: this is rank {rank}{of}, and torch.distributed has no process group yet; "
            "call torch.distributed.init_process_group() first, or give store="
        )
        raise InvalidStateError(message)
    if size == 1:
        return World(0, (0,))
    if rank >= size:
        message = f"{call}: RANK is {rank}, and WORLD_SIZE {size}; expected a rank below it"
        raise InvalidStateError(message)
    return World(rank, tuple(range(size)), connect(store))


def connect(store: Any) -> Connection:
    """Return gpuprof's own connection to a store, the same one each time."""
    with _lock:
        known = _connections.get(store)
    if known is not None:
        return known
    made = Connection(_cloned(store))  # which may wait for the store's host
    with _lock:
        return _connections.setdefault(store, made)


def _cloned(store: Any) -> Any:
    try:
        own = store.clone()
        own.set_timeout(timedelta(seconds=GET_S))
    except (AttributeError, RuntimeError, TypeError):  # older than torch 2.8, or no such store
        return store
    return own
