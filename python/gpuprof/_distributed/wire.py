"""The statistics of one rank as bytes: a line that says what they are, then two parts of JSON.

The line can be read by any version. The rest is taken only from the same version of gpuprof, and
nothing of it is run: a value in the store is data that another process wrote. The first part has
what the table of all ranks needs, in columns, because rank 0 reads it of every rank; the second has
all of the statistics, and is read when somebody asks for them. Both are compressed.
"""

from __future__ import annotations

import json
import math
import socket
import zlib
from array import array
from typing import TYPE_CHECKING, Any, NamedTuple

import gpuprof._core as _core
from gpuprof._timing.stats import Stats

if TYPE_CHECKING:
    from gpuprof._timing.rows import Names

MAGIC = b"gpuprof-ranks"
FORMAT = 1
MOST_HEAD = 256
MOST_BYTES = 256 << 20  # uncompressed; 10,000 rows are about 10 MiB
MOST_IN_A_PATH, MOST_NAMES = 4_096, 1_000_000  # rank 0 looks at each beginning of a path
TIMES = ("count", "total_ms", "mean_ms", "p50_ms", "min_ms", "max_ms")
TOTALS = ("gpu", "host")


class WireError(ValueError):
    """What a rank wrote cannot be used; the text says why."""


class Columns(NamedTuple):
    """The rows with a measurement: `times` on each row's own clock, `totals` on both, all in ms."""

    names: list[Names]
    clocks: list[str]
    times: dict[str, array[float]]
    totals: dict[str, array[float]]
    pending: int


class Packed(NamedTuple):
    """What one rank wrote; its statistics are still compressed."""

    host: str
    statistics: bytes

    def stats(self) -> Stats:
        """Return the statistics of the rank; `WireError` where they are damaged."""
        try:
            return Stats.from_dict(_loaded(self.statistics))
        except _DAMAGE as error:
            raise _damaged(error) from None


_DAMAGE = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)


def version() -> str:
    """Return the version of gpuprof that must be the same on all ranks."""
    return _core.build_info()["version"]


def pack(stats: Stats) -> bytes:
    """Return the statistics as bytes."""
    rows = [row for row in stats.values() if row.time.count]
    columns = {
        "host": socket.gethostname(),
        "names": [row.names for row in rows],
        "clocks": [row.clock for row in rows],
        "times": {name: [getattr(row.time, name) for row in rows] for name in TIMES},
        "totals": {name: [getattr(row, name).total_ms for row in rows] for name in TOTALS},
        "pending": sum(row.pending for row in stats.values()),
    }
    first = _dumped(columns)
    head = b"%s %d %s %d\n" % (MAGIC, FORMAT, version().encode(), len(first))
    return head + first + _dumped(stats.to_dict())


def unpack(raw: bytes) -> tuple[Packed, Columns]:
    """Return what a rank wrote, and the columns in it; raises `WireError`."""
    head = raw[:MOST_HEAD].partition(b"\n")[0]
    words = head.split(b" ")
    if words[0] != MAGIC or len(words) != 4:
        message = "it wrote no statistics of gpuprof"
        raise WireError(message)
    if words[1] != b"%d" % FORMAT:
        message = f"it writes format {_shown(words[1])}, and this rank reads {FORMAT}"
        raise WireError(message)
    if words[2] != version().encode():
        message = f"it has gpuprof {_shown(words[2])}, and this rank {version()}"
        raise WireError(message)
    begin = len(head) + 1
    try:
        end = begin + int(words[3])
        data = _loaded(raw[begin:end])
        return Packed(str(data["host"]), raw[end:]), _checked(data)
    except _DAMAGE as error:
        raise _damaged(error) from None


def _checked(data: dict[str, Any]) -> Columns:
    """Read the columns of another rank; one of `_DAMAGE` where they are not what they should be."""
    names = [tuple(each) for each in data["names"]]
    clocks = list(data["clocks"])
    times = {name: array("d", data["times"][name]) for name in TIMES}
    totals = {name: array("d", data["totals"][name]) for name in TOTALS}
    numbers = [*times.values(), *totals.values()]
    texts = [text for each in names for text in each]
    lengths = [len(column) for column in (clocks, *numbers) if len(column) != len(names)]
    if lengths:
        message = f"{len(names)} rows and {lengths[0]} values"
    elif not all(all(map(math.isfinite, each)) and min(each, default=0) >= 0 for each in numbers):
        message = "times that are none"
    elif min(times["count"], default=1.0) < 1.0:
        message = "rows without a measurement"
    elif max(map(len, names), default=0) > MOST_IN_A_PATH or len(texts) > MOST_NAMES:
        message = f"more than {MOST_IN_A_PATH:,} names in a path, or {MOST_NAMES:,} in all"
    elif not all(names) or not all(isinstance(text, str) for text in (*texts, *clocks)):
        message = "names that are no text"
    else:
        return Columns(names, clocks, times, totals, int(data["pending"]))
    raise ValueError(message)


def _dumped(data: dict[str, Any]) -> bytes:
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    return zlib.compress(text.encode(), 1)


def _loaded(part: bytes) -> dict[str, Any]:
    inflate = zlib.decompressobj()
    try:
        text = inflate.decompress(part, MOST_BYTES)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if not inflate.eof:
        message = "cut off, or too large"
        raise ValueError(message)
    data: dict[str, Any] = json.loads(text)
    return data


def _damaged(error: Exception) -> WireError:
    return WireError(f"its statistics are damaged: {type(error).__name__}: {error}")


def _shown(word: bytes) -> str:
    return word[:40].decode("ascii", "replace")
