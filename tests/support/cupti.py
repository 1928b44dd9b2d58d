"""Kernel records of the extension as rows, for tests of the collection through CUPTI."""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gpuprof import _core
from tests.fake_driver.control import FakeCuda

KERNEL, MEMCPY, PEER_COPY, MEMSET = range(4)

ACTIVITY_CODES = {
    "kind": "B",
    "name": "I",
    "begin_ns": "q",
    "end_ns": "q",
    "device": "I",
    "stream": "I",
    "correlation": "I",
    "graph_id": "I",
    "node_id": "Q",
    "nbytes": "Q",
}
LAUNCH_CODES = {
    "name": "I",
    "begin_ns": "q",
    "end_ns": "q",
    "thread_id": "I",
    "correlation": "I",
}


def candidates() -> list[str]:
    """Return the copies of CUPTI that wheels have put on the path, the newest first."""
    found = [
        str(path)
        for place in sys.path
        for folder in ("nvidia/cu13/lib", "nvidia/cuda_cupti/lib")
        for path in sorted(Path(place or ".").glob(f"{folder}/libcupti.so.*"), reverse=True)
    ]
    return list(dict.fromkeys(found))


def rows(columns: dict[str, bytes], codes: dict[str, str], names: list[str]) -> list[Any]:
    """Return the rows of columns, each a namespace, with names for their indices."""
    assert list(columns) == list(codes)
    values = {key: memoryview(columns[key]).cast(code).tolist() for key, code in codes.items()}
    assert len({len(column) for column in values.values()}) == 1
    made = []
    for row in zip(*values.values(), strict=True):
        entry = types.SimpleNamespace(**dict(zip(codes, row, strict=True)))
        entry.name = names[entry.name]
        made.append(entry)
    return made


@dataclass
class Collected:
    """What a collection returned."""

    plain: dict[str, Any] = field(default_factory=dict)
    activities: list[Any] = field(default_factory=list)
    launches: list[Any] = field(default_factory=list)

    def take(self, plain: dict[str, Any]) -> None:
        """Fill this from what ``_cupti_stop`` returned, in the order of time."""
        self.plain = plain
        names = plain["names"]
        self.activities = rows(plain["activities"], ACTIVITY_CODES, names)
        self.launches = rows(plain["launches"], LAUNCH_CODES, names)
        self.activities.sort(key=lambda row: row.begin_ns)
        self.launches.sort(key=lambda row: row.begin_ns)

    def named(self, text: str) -> list[Any]:
        """Return the activities whose names contain `text`."""
        return [row for row in self.activities if text in row.name]

    def launch_of(self, row: Any) -> Any:
        """Return the launch of an activity: the outermost where one calls another."""
        return min(
            (each for each in self.launches if each.correlation == row.correlation),
            key=lambda each: each.begin_ns,
        )


@contextmanager
def loaded(path: str) -> Iterator[None]:
    """Have gpuprof load a CUPTI, and check that nobody still collects on the way out."""
    assert _core._cupti_load([path])["path"] == path, "another CUPTI is in the process"
    yield
    if _core._cupti_is_collecting():
        _core._cupti_stop(timeout_s=0.0)
        pytest.fail("the test left a collection behind")


@contextmanager
def collected(max_records: int = 1_000_000, paths: list[str] | None = None) -> Iterator[Collected]:
    """Collect in the block; what came is in the object behind it."""
    _core._cupti_start(max_records, candidates() if paths is None else paths)
    result = Collected()
    try:
        yield result
    finally:
        result.take(_core._cupti_stop())


@contextmanager
def node_numbers(fake: FakeCuda) -> Iterator[FakeCuda]:
    """Let the fake driver tell the numbers of nodes, as a loaded CUPTI does."""
    addresses = [
        ctypes.cast(getattr(fake.shared_object, name), ctypes.c_void_p).value or 0
        for name in ("fakecuda_node_id", "fakecuda_exec_id")
    ]
    _core._set_node_ids(*addresses)
    try:
        yield fake
    finally:
        _core._set_node_ids(0, 0)
