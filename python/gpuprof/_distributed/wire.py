"""The statistics of one rank as bytes: a line with the version of gpuprof, then compressed JSON.

Only the same version reads it, and nothing of it is run: a value in the store is data that another
process wrote.
"""

from __future__ import annotations

import json
import math
import socket
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core

if TYPE_CHECKING:
    from gpuprof._timing.rows import Names
    from gpuprof._timing.stats import Stats

MAGIC = b"gpuprof-ranks"
MOST_BYTES = 256 << 20  # uncompressed; 10,000 rows are about 10 MiB
MOST_IN_A_PATH, MOST_NAMES = 4_096, 1_000_000  # rank 0 looks at each beginning of a path
TIMES = ("count", "total_ms", "mean_ms", "p50_ms", "min_ms", "max_ms")
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error)


class WireError(ValueError):
    """What a rank wrote cannot be used; the text says why."""


class Measured(NamedTuple):
    """A row with a measurement: `TIMES` on its own clock, and the totals on both, in ms."""

    names: Names
    clock: str
    times: list[float]
    gpu_ms: float
    host_ms: float


class Packed(NamedTuple):
    """What one rank wrote: `stats` as plain data, and its rows with a measurement."""

    host: str
    stats: dict[str, Any]
    rows: list[Measured]
    pending: int


def pack(stats: Stats) -> bytes:
    """Return the statistics as bytes."""
    data = {"host": socket.gethostname(), "stats": stats.to_dict()}
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    head = b"%s %s\n" % (MAGIC, _core.build_info()["version"].encode())
    return head + zlib.compress(text.encode(), 1)


def unpack(raw: bytes) -> Packed:
    """Return what a rank wrote; raises `WireError`."""
    head, _, body = raw.partition(b"\n")
    magic, _, version = head.partition(b" ")
    own = _core.build_info()["version"]
    if magic != MAGIC:
        message = "it wrote no statistics of gpuprof"
        raise WireError(message)
    if version != own.encode():
        other = version[:40].decode("ascii", "replace")
        message = f"it has gpuprof {other}, and this rank {own}"
        raise WireError(message)
    try:
        inflate = zlib.decompressobj()
        text = inflate.decompress(body, MOST_BYTES)
        if not inflate.eof:
            message = "cut off, or too large"
            raise ValueError(message)
        data = json.loads(text)
        stats = data["stats"]
        pending = sum(int(row["pending"]) for row in stats["rows"])
        return Packed(str(data["host"]), stats, _measured(stats["rows"]), pending)
    except _DAMAGE as error:
        message = f"its statistics are damaged: {type(error).__name__}: {error}"
        raise WireError(message) from None


def _measured(rows: list[Any]) -> list[Measured]:
    found = []
    for row in rows:
        names, clock, gpu, host = tuple(row["names"]), row["clock"], row["gpu"], row["host"]
        if (own := gpu if clock == "cuda" else host) is None:
            continue
        totals = [0.0 if each is None else float(each["total_ms"]) for each in (gpu, host)]
        times = [float(own[name]) for name in TIMES]
        message = ""
        if not all(math.isfinite(each) and each >= 0.0 for each in (*totals, *times)):
            message = "times that are none"
        elif times[0] < 1.0:
            message = "rows without a measurement"
        elif len(names) > MOST_IN_A_PATH:
            message = f"more than {MOST_IN_A_PATH:,} names in a path"
        elif not names or not all(isinstance(text, str) for text in (*names, clock)):
            message = "names that are no text"
        if message:
            raise ValueError(message)
        found.append(Measured(names, clock, times, *totals))
    if sum(len(row.names) for row in found) > MOST_NAMES:
        message = f"more than {MOST_NAMES:,} names in all"
        raise ValueError(message)
    return found
