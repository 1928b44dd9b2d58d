"""`RankStats`: the statistics of all ranks, a row for each scope, as plain data on one rank.

Figures by rank are in arrays, not in an object each, so that 1,024 ranks of 100 scopes take a few
megabytes. Times are milliseconds.
"""

from __future__ import annotations

import json
import math
import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, TextIO

from gpuprof._common.text import output_text
from gpuprof._distributed.wire import Packed

if TYPE_CHECKING:
    from gpuprof._display.table import Table
    from gpuprof._timing.rows import Names
    from gpuprof._timing.stats import Stats

FORMAT = "gpuprof-rank-stats"
VERSION = 1
COLLECTIVE = "collective/"  # begins the name of a scope around a collective
FIGURES = ("count", "total", "mean", "p50", "min", "max", "waiting")


@dataclass(frozen=True, slots=True)
class RankTimes:
    """One scope on one rank, in milliseconds.

    `waiting_ms` is what one call of the scope spends in collectives inside it, on the scope's own
    clock, and `own_ms` the rest of its mean.
    """

    __module__ = "gpuprof.distributed"

    rank: int
    count: int
    total_ms: float
    mean_ms: float
    p50_ms: float
    min_ms: float
    max_ms: float
    waiting_ms: float

    @property
    def own_ms(self) -> float:
        """The mean of one call less its waiting in collectives."""
        return self.mean_ms - self.waiting_ms


class RankRow(Mapping[int, RankTimes]):
    """One scope on one clock, on all ranks that measured it: a mapping from ranks to times.

    `names` are the scopes of the path, outermost first, and `path` joins them by ``/``. The
    figures of the row are over ranks, each rank with the mean of one call.
    """

    __module__ = "gpuprof.distributed"

    def __init__(self, names: Names, clock: str) -> None:
        self.names = names
        self.clock = clock
        self.path = "/".join(names)
        self._ranks = array("l")
        self._figures = {figure: array("d") for figure in FIGURES}

    def add(self, rank: int, times: Mapping[str, Any], waiting_ms: float) -> None:
        """Take in the times of a further rank, in the plain form of a `Summary`."""
        count = int(times["count"])
        figures = {name: float(times[name]) for name in FIGURES[1:-1]}
        figures["count"] = count
        figures["waiting"] = min(waiting_ms / count, figures["mean"])
        self._ranks.append(rank)
        for name, values in self._figures.items():
            values.append(figures[name])

    def __getitem__(self, rank: int) -> RankTimes:
        try:
            place = self._ranks.index(rank)
        except (ValueError, TypeError):
            raise KeyError(rank) from None
        count, *times = (self._figures[figure][place] for figure in FIGURES)
        return RankTimes(rank, int(count), *times)

    def __iter__(self) -> Iterator[int]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)

    @property
    def name(self) -> str:
        """The last of the names."""
        return self.names[-1]

    @property
    def is_collective(self) -> bool:
        """Whether it is a collective, as `watch` measures them."""
        return COLLECTIVE in self.name

    @property
    def mean_ms(self) -> float:
        """The mean over ranks."""
        return statistics.fmean(self._figures["mean"])

    @property
    def p50_ms(self) -> float:
        """The median over ranks, of each rank's median."""
        return statistics.median(self._figures["p50"])

    @property
    def min_ms(self) -> float:
        """The mean of the rank with the lowest."""
        return min(self._figures["mean"])

    @property
    def max_ms(self) -> float:
        """The mean of the rank with the highest."""
        return max(self._figures["mean"])

    @property
    def waiting_ms(self) -> float:
        """What one call spends in collectives inside it, the mean over ranks."""
        return statistics.fmean(self._figures["waiting"])

    @property
    def _own(self) -> list[float]:
        columns = self._figures["mean"], self._figures["waiting"]
        return [mean - waiting for mean, waiting in zip(*columns, strict=True)]

    @property
    def slowest_rank(self) -> int:
        """The rank that the others wait for.

        It has the most time without its waiting in collectives; of a collective itself, the least
        time in it.
        """
        if self.is_collective:
            means = self._figures["mean"]
            return self._ranks[means.index(min(means))]
        own = self._own
        return self._ranks[own.index(max(own))]

    @property
    def imbalance(self) -> float:
        """The slowest rank's time over the mean of all, both without waiting in collectives.

        1.0 is balanced. NaN for a collective.
        """
        if self.is_collective:
            return math.nan
        own = self._own
        mean = statistics.fmean(own)
        return max(own) / mean if mean > 0.0 else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form: the figures over ranks, and those of each rank as lists."""
        over = ("mean_ms", "p50_ms", "min_ms", "max_ms", "waiting_ms", "slowest_rank", "imbalance")
        data = {name: _finite(getattr(self, name)) for name in over}
        lists = {f"{name}_ms": [*values] for name, values in self._figures.items()}
        lists["count"] = [int(count) for count in lists.pop("count_ms")]
        return {
            "path": output_text(self.path),
            "names": [output_text(name) for name in self.names],
            "clock": output_text(self.clock),
            **data,
            "by_rank": {"rank": [*self._ranks], **lists},
        }

    def __repr__(self) -> str:
        return (
            f"<RankRow {self.path!r} ({self.clock}): {len(self)} ranks, mean {self.mean_ms:.4g} ms,"
            f" slowest rank {self.slowest_rank}>"
        )


class RankStats(Mapping[Any, RankRow]):
    """What the scopes of all ranks have measured, as `gather_stats` returns it on rank 0.

    ``ranks["step/forward"]`` is the row of that path; where several clocks measured it, the GPU's
    comes first and ``ranks["step/forward", "cpu"]`` names a clock. Iterating gives the names and
    clock of each row. Printing it shows one table.

    Parameters
    ----------
    members
        The ranks that could have been in it.
    created
        When, as ISO 8601 text in UTC. None: now.
    """

    __module__ = "gpuprof.distributed"

    def __init__(self, members: Iterable[int], created: str | None = None) -> None:
        self.members = tuple(members)
        self.created = created or datetime.now(timezone.utc).isoformat(timespec="seconds")
        self.left_out: dict[int, str] = {}
        self.empty: tuple[int, ...] = ()
        self.pending: tuple[int, ...] = ()
        self.store_error: str | None = None
        self._packed: dict[int, Packed] = {}
        self._rows: dict[tuple[Names, str], RankRow] = {}

    def add(self, rank: int, packed: Packed, rows: Iterable[Mapping[str, Any]]) -> None:
        """Take in the statistics of a further rank."""
        self._packed[rank] = packed
        measured = [row for row in rows if row["gpu" if row["clock"] == "cuda" else "host"]]
        if not measured:
            self.empty = (*self.empty, rank)
        waiting = Waiting(measured)
        for row in measured:
            key = tuple(row["names"]), row["clock"]
            if key not in self._rows:
                self._rows[key] = RankRow(*key)
            times = row["gpu" if row["clock"] == "cuda" else "host"]
            self._rows[key].add(rank, times, waiting.inside(row))
        if any(row["pending"] for row in rows):
            self.pending = (*self.pending, rank)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks whose statistics are in it, also those that had measured nothing."""
        return tuple(sorted(self._packed))

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that wrote nothing before the deadline."""
        return tuple(
            rank for rank in self.members if rank not in self._packed and rank not in self.left_out
        )

    @property
    def hosts(self) -> dict[int, str]:
        """The host of each rank that is in it."""
        return {rank: self._packed[rank].host for rank in self.ranks}

    def stats(self, rank: int) -> Stats:
        """Return all that one rank has measured.

        Raises
        ------
        KeyError
            The rank is missing or was left out; the text says so.
        """
        if rank not in self._packed:
            why = self.left_out.get(rank, "it wrote nothing before the deadline")
            message = f"no statistics of rank {rank}: {why}"
            raise KeyError(message)
        return self._packed[rank].stats()

    @property
    def slowest_rank(self) -> int | None:
        """The rank that the others wait for, in the outermost scope with the largest total.

        None where nothing was measured on several ranks.
        """
        row = self.largest()
        return None if row is None else row.slowest_rank

    def largest(self) -> RankRow | None:
        """Return the outermost row with the largest total that several ranks have, or None."""
        shared = [row for row in self._rows.values() if len(row) > 1 and not row.is_collective]
        depth = min((len(row.names) for row in shared), default=0)
        outermost = [row for row in shared if len(row.names) == depth]
        return max(outermost, key=lambda row: sum(row._figures["total"]), default=None)

    def __getitem__(self, key: Any) -> RankRow:
        if isinstance(key, str):
            rows = [row for row in self._rows.values() if row.path == key]
            rows.sort(key=lambda row: (row.clock != "cuda", row.clock == "cpu"))
        elif isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str):
            rows = [row for row in self._rows.values() if (row.path, row.clock) == key]
        else:
            rows = [self._rows[key]] if isinstance(key, tuple) and key in self._rows else []
        if not rows:
            paths = ", ".join(dict.fromkeys(repr(row.path) for row in self._rows.values()))
            message = f"no row {key!r}; the paths are {paths}" if paths else "nothing was measured"
            raise KeyError(message)
        return rows[0]

    def __iter__(self) -> Iterator[tuple[Names, str]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text, finite numbers and None."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "unit": "ms",
            "ranks": [*self.ranks],
            "missing": [*self.missing],
            "left_out": {str(rank): output_text(why) for rank, why in self.left_out.items()},
            "empty": [*self.empty],
            "pending": [*self.pending],
            "hosts": {str(rank): output_text(host) for rank, host in self.hosts.items()},
            "store_error": self.store_error,
            "slowest_rank": self.slowest_rank,
            "rows": [row.to_dict() for row in self._rows.values()],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON, in ASCII."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def _table(self) -> Table:
        from gpuprof._distributed.ranks_table import table

        return table(self)

    def tree(self) -> str:
        """Return the table as plain text, indented by nesting."""
        return "\n".join(self._table().plain())

    def to_markdown(self) -> str:
        """Return a Markdown table, a line for each row."""
        return "\n".join(self._table().markdown()) + "\n"

    def print(self, file: TextIO | None = None, *, style: str = "auto") -> None:
        """Write the table.

        Parameters
        ----------
        file
            Where to; None is standard output.
        style
            ``"plain"``, ``"rich"``, or ``"auto"``: rich on a terminal, where it is installed.
        """
        from gpuprof._display.table import write

        write(self._table(), file, style)

    def __repr__(self) -> str:
        return self.tree()

    def _repr_html_(self) -> str:
        return self._table().html()

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield self._table()


class Waiting:
    """What one rank spent in collectives, by the text of each path around them.

    By the text, because the part of DistributedDataParallel that runs on another thread is known by
    its path's text only.
    """

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        self._on_gpu: dict[str, float] = {}
        self._on_host: dict[str, float] = {}
        for row in rows:
            if COLLECTIVE not in row["names"][-1]:
                continue
            text = "/".join(row["names"])
            host = row["host"]["total"] if row["host"] else 0.0
            gpu = row["gpu"]["total"] if row["clock"] == "cuda" else host
            around = text[: text.rindex(COLLECTIVE)].rstrip("/")
            while around:
                self._on_gpu[around] = self._on_gpu.get(around, 0.0) + gpu
                self._on_host[around] = self._on_host.get(around, 0.0) + host
                around = around.rpartition("/")[0]

    def inside(self, row: Mapping[str, Any]) -> float:
        """Return the total inside a row in milliseconds, as the row's own clock sees it."""
        if COLLECTIVE in row["names"][-1]:
            return 0.0
        by_text = self._on_gpu if row["clock"] == "cuda" else self._on_host
        return by_text.get("/".join(row["names"]), 0.0)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
