"""Ranks without processes: a store in memory, and one process that is one rank after the other."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

import gpuprof


class MemoryStore:
    """What gpuprof uses of a store of torch.distributed."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.before: Callable[[str, str], None] = lambda _call, _key: None

    def set(self, key: str, value: bytes | str) -> None:
        self.before("set", key)
        self.values[key] = value.encode() if isinstance(value, str) else bytes(value)

    def get(self, key: str) -> bytes:
        self.before("get", key)
        return self.values[key]

    def check(self, keys: Sequence[str]) -> bool:
        self.before("check", keys[0])
        return all(key in self.values for key in keys)

    def delete_key(self, key: str) -> bool:
        self.before("delete", key)
        return self.values.pop(key, None) is not None

    def wait(self, keys: Sequence[str], timeout: timedelta) -> None:
        until = time.monotonic() + timeout.total_seconds()
        while not self.check(keys):
            if time.monotonic() > until:
                raise RuntimeError(f"wait timeout, keys: {keys}")
            time.sleep(0.0005)


class Ranks:
    """One process as each of several ranks, with statistics as each test wants them."""

    def __init__(self, patch: pytest.MonkeyPatch, size: int) -> None:
        self.store = MemoryStore()
        self._patch = patch
        self._size = size
        # A connection for each rank, as processes have it: it counts the rank's own calls.
        self._connections: dict[tuple[int, int], Any] = {}
        self._rank = 0
        patch.setattr("gpuprof._distributed.world.connect", self._connect)

    def _connect(self, store: Any) -> Any:
        make = sys.modules["gpuprof._distributed.world"].Connection
        return self._connections.setdefault((self._rank, id(store)), make(store))

    def be(self, rank: int, rows: Sequence[gpuprof.results.Row] = ()) -> None:
        """Go on as a rank that has measured these rows."""
        self._rank = rank
        self._patch.setenv("RANK", str(rank))
        self._patch.setenv("WORLD_SIZE", str(self._size))
        own = gpuprof.Stats(rows)
        self._patch.setattr("gpuprof._distributed.gather.own_stats", lambda **_: own)


def summary(mean: float, count: int = 10) -> gpuprof.results.Summary:
    """Return the summary of samples that all took the same time."""
    return gpuprof.results.Summary(count, mean * count, *[mean] * 7)


def row(path: str, mean: float, count: int = 10, **more: Any) -> gpuprof.results.Row:
    """Return a row of the host's clock; a collective's name has its slash inside."""
    names = tuple(path.replace("collective/", "collective:").split("/"))
    names = tuple(name.replace("collective:", "collective/") for name in names)
    empty = gpuprof.results.Summary(0, 0.0, *[float("nan")] * 7)
    return gpuprof.results.Row(
        "/".join(names), "cpu", empty, summary(mean, count), names=names, **more
    )


def gpu_row(path: str, gpu: float, host: float, count: int = 10) -> gpuprof.results.Row:
    """Return a row of the GPU's clock."""
    names = row(path, 1.0).names
    return gpuprof.results.Row(
        "/".join(names), "cuda", summary(gpu, count), summary(host, count), names=names
    )
