"""The statistics of one rank as bytes: a line with the version of gpuprof, then two parts of JSON.

Each part is compressed by itself. The first has what the table needs of each row, the second all
statistics, which rank 0 reads only if it is asked for them. Only the same version reads it, and
nothing of it is run: a value in the store is data that another process wrote.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._timing.stats import Stats

if TYPE_CHECKING:
    from gpuprof._kernels.rows import KernelRow
    from gpuprof._timing.rows import Names

MAGIC = b"gpuprof-ranks"
MOST_BYTES = 256 << 20  # uncompressed; 10,000 rows are about 10 MiB
MOST_IN_A_PATH, MOST_NAMES = 4_096, 1_000_000  # rank 0 looks at each beginning of a path
MOST_MS = 1e15  # 30,000 years, so that all ranks have a mean
TIMES = ("count", "total_ms", "mean_ms", "p50_ms", "min_ms", "max_ms")
_DAMAGE = (KeyError, TypeError, ValueError, OverflowError, RecursionError, zlib.error)


class WireError(ValueError):
    """What a rank wrote cannot be used; the text says why."""


class Measured(NamedTuple):
    """A row with a measurement: `TIMES` on its own clock, and the totals on both, in ms.

    The last two are what one call communicates on the GPU, and what of it is exposed; NaN where
    no kernels tell.
    """

    names: Names
    clock: str
    times: list[float]
    gpu_ms: float
    host_ms: float
    communication_ms: float = math.nan
    exposed_ms: float = math.nan


def pack(stats: Stats, on_gpu: Sequence[KernelRow] = ()) -> bytes:
    data = stats.to_dict()
    nccl = {
        row.names: (row.communication_ms / row.entries, row.exposed_ms / row.entries)
        for row in on_gpu
        if row.entries  # a scope in a graph is entered at its capture
    }
    rows = [
        [
            *(row["names"], row["clock"], *(own[name] for name in TIMES)),
            *(0.0 if row[each] is None else row[each]["total_ms"] for each in ("gpu", "host")),
            *nccl.get(tuple(row["names"]), ()),
        ]
        for row in data["rows"]
        if (own := row["gpu"] if row["clock"] == "cuda" else row["host"]) is not None
    ]
    pending = sum(row["pending"] for row in data["rows"])
    head = b"%s %s\n" % (MAGIC, _core.build_info()["version"].encode())
    return head + _dumped([socket.gethostname(), pending, rows]) + _dumped(data)


def unpack(raw: bytes) -> tuple[str, list[Measured], int]:
    """Return a rank's host, its rows with a measurement, and how many samples are pending.

    Raises `WireError`.
    """
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
    with _damage():
        (host, pending, rows), _ = _loaded(body)
        return str(host), _measured(rows), int(pending)


def stats_of(raw: bytes) -> Stats:
    """Return all that a rank has measured, of bytes that `unpack` took; raises `WireError`."""
    with _damage():
        _, statistics = _loaded(raw.partition(b"\n")[2])
        return Stats.from_dict(_loaded(statistics)[0])


@contextlib.contextmanager
def _damage() -> Iterator[None]:
    try:
        yield
    except _DAMAGE as error:
        message = f"its statistics are damaged: {type(error).__name__}: {error}"
        raise WireError(message) from None


def _dumped(data: object) -> bytes:
    return zlib.compress(json.dumps(data, allow_nan=False, separators=(",", ":")).encode(), 1)


def _loaded(body: bytes) -> tuple[Any, bytes]:
    """Return the first part of some, and the bytes after it."""
    inflate = zlib.decompressobj()
    text = inflate.decompress(body, MOST_BYTES)
    if not inflate.eof:
        message = "cut off, or too large"
        raise ValueError(message)
    return json.loads(text), inflate.unused_data


def _measured(rows: list[Any]) -> list[Measured]:
    found = []
    for names, clock, *figures in rows:
        times = [*map(float, figures)]
        on_gpu, times[len(TIMES) :] = times[len(TIMES) :], ()
        message = ""
        if len(on_gpu) not in (2, 4) or not all(0.0 <= x <= MOST_MS for x in figures):
            message = "times that are none"
        elif times[0] < 1.0:
            message = "rows without a measurement"
        elif len(names) > MOST_IN_A_PATH:
            message = f"more than {MOST_IN_A_PATH:,} names in a path"
        elif not names or not all(isinstance(text, str) for text in (*names, clock)):
            message = "names that are no text"
        if message:
            raise ValueError(message)
        found.append(Measured(tuple(names), clock, times, *on_gpu))
    if sum(len(row.names) for row in found) > MOST_NAMES:
        message = f"more than {MOST_NAMES:,} names in all"
        raise ValueError(message)
    return found
