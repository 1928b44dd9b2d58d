"""The statistics of one rank as bytes: a line that says what they are, then compressed JSON.

The line can be read by any version. The rest is taken only from the same version of gpuprof, and
nothing of it is run: a value in the store is data that another process wrote.
"""

from __future__ import annotations

import json
import os
import socket
import zlib
from dataclasses import dataclass
from typing import Any

import gpuprof._core as _core
from gpuprof._timing.stats import Stats

MAGIC = b"gpuprof-ranks"
FORMAT = 1
MOST_HEAD = 256
FIGURES = ("count", "total", "mean", "p50", "min", "max")  # that a table needs
MOST_BYTES = 256 << 20  # uncompressed; 10,000 rows are about 10 MiB


class WireError(ValueError):
    """What a rank wrote cannot be used; the text says why."""


@dataclass(frozen=True)
class Packed:
    """What one rank wrote, still compressed."""

    host: str
    process: int
    dropped: int
    raw: bytes

    def stats(self) -> Stats:
        """Return the statistics of the rank."""
        return Stats.from_dict(_data(self.raw)["stats"])


def version() -> str:
    """Return the version of gpuprof that must be the same on all ranks."""
    return _core.build_info()["version"]


def pack(stats: Stats) -> bytes:
    """Return the statistics as bytes."""
    data = {"host": socket.gethostname(), "process": os.getpid(), "stats": stats.to_dict()}
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return b"%s %d %s\n" % (MAGIC, FORMAT, version().encode()) + zlib.compress(text.encode(), 1)


def unpack(raw: bytes) -> tuple[Packed, list[dict[str, Any]]]:
    """Return what a rank wrote, and its rows as plain data; raises `WireError`."""
    head = raw[:MOST_HEAD].partition(b"\n")[0]
    words = head.split(b" ")
    if words[0] != MAGIC or len(words) != 3:
        message = "it wrote no statistics of gpuprof"
        raise WireError(message)
    if words[1] != b"%d" % FORMAT:
        message = f"it writes format {_shown(words[1])}, and this rank reads {FORMAT}"
        raise WireError(message)
    if words[2] != version().encode():
        message = f"it has gpuprof {_shown(words[2])}, and this rank {version()}"
        raise WireError(message)
    data = _data(raw)
    try:
        stats = data["stats"]
        rows = [_checked_row(row) for row in stats["rows"]]
        packed = Packed(str(data["host"]), int(data["process"]), int(stats["dropped"]), raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise WireError(f"its statistics are damaged: {error!r}") from None
    return packed, rows


def _data(raw: bytes) -> dict[str, Any]:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(raw.partition(b"\n")[2], MOST_BYTES)
        if not inflate.eof:
            raise WireError("its statistics are cut off or too large")
        data = json.loads(text)
    except (zlib.error, ValueError, RecursionError) as error:
        if isinstance(error, WireError):
            raise
        raise WireError(f"its statistics are damaged: {error}") from None
    if not isinstance(data, dict):
        raise WireError("its statistics are damaged: they are no object")
    return data


def _checked_row(row: dict[str, Any]) -> dict[str, Any]:
    names = row["names"]
    if not names or not all(isinstance(name, str) for name in names):
        message = f"a row has the names {names!r}"
        raise ValueError(message)
    for clock in ("gpu", "host"):
        if row[clock] is not None and not all(row[clock][figure] >= 0 for figure in FIGURES):
            message = f"the times of {'/'.join(names)} are no times"
            raise ValueError(message)
    str(row["clock"]), int(row["pending"])
    return row


def _shown(word: bytes) -> str:
    return word[:40].decode("ascii", "replace")
