"""`RankStats`: the statistics of all ranks, a row for each scope, as plain data on one rank."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gpuprof._common.records import Plain, head, now
from gpuprof._common.units import duration
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table, tree_lines
from gpuprof._distributed import wire
from gpuprof._distributed.rows import RankRow, waiting_around

if TYPE_CHECKING:
    from gpuprof._display.records import Records
    from gpuprof._timing.rows import Names
    from gpuprof._timing.stats import Stats

SAME_WITHIN = 1.02  # below this imbalance no rank is called slow
MOST_NAMED = 16
MOST_RANGES = 16


@dataclass(repr=False, eq=False)
class RankStats(Shown, Exported, Plain, Mapping[Any, RankRow]):
    """What the scopes of all ranks have measured, as `gather_stats` returns it on rank 0.

    ``ranks["step/forward"]`` is the row of that path; where several clocks measured it, the GPU's
    comes first and ``ranks["step/forward", "cpu"]`` names a clock. Iterating gives the names and
    clock of each row. Printing it shows one table.

    Parameters
    ----------
    members
        The ranks that could have been in it.
    created
        When, as ISO 8601 text in UTC; now by default.
    """

    members: tuple[int, ...]
    created: str = field(default_factory=now)
    left_out: dict[int, str] = field(default_factory=dict)
    empty: tuple[int, ...] = ()
    pending: tuple[int, ...] = ()
    store_error: str | None = None
    hosts: dict[int, str] = field(default_factory=dict)
    _raw: dict[int, bytes] = field(default_factory=dict)
    _rows: dict[tuple[Names, str], RankRow] = field(default_factory=dict)

    _HEAD = head("gpuprof-rank-stats", unit="ms")
    _MEMBERS = (
        *("format", "version", "created", "unit", "ranks", "missing", "left_out", "empty"),
        *("pending", "hosts", "store_error", "slowest_rank", "rows"),
    )

    def add(self, rank: int, raw: bytes) -> None:
        """Add the statistics that a further rank wrote; it is left out where they are damaged."""
        try:
            host, rows, pending = wire.unpack(raw)
        except wire.WireError as error:
            self.left_out[rank] = str(error)
            return
        self.hosts[rank], self._raw[rank] = host, raw
        if not rows:
            self.empty = (*self.empty, rank)
        if pending:
            self.pending = (*self.pending, rank)
        waiting = waiting_around(rows)
        for each in rows:
            key = each.names, each.clock
            row = self._rows.setdefault(key, RankRow(*key))
            inside = 0.0 if row.is_collective else waiting.get((row.path, row.clock == "cuda"), 0.0)
            row.add(rank, each, inside)

    @property
    def ranks(self) -> tuple[int, ...]:
        """The ranks whose statistics are in it, also those that had measured nothing."""
        return tuple(sorted(self._raw))

    @property
    def missing(self) -> tuple[int, ...]:
        """The ranks that wrote nothing before the deadline."""
        known = self._raw.keys() | self.left_out.keys()
        return tuple(rank for rank in self.members if rank not in known)

    @property
    def rows(self) -> list[RankRow]:
        """The row of each scope and clock."""
        return [*self._rows.values()]

    def stats(self, rank: int) -> Stats:
        """Return all that one rank has measured.

        Raises
        ------
        KeyError
            The rank is missing or was left out; the text says so.
        ValueError
            What it wrote is damaged behind what the table needs.
        """
        if rank not in self._raw:
            why = self.left_out.get(rank, "it wrote nothing before the deadline")
            message = f"no statistics of rank {rank}: {why}"
            raise KeyError(message)
        return wire.stats_of(self._raw[rank])

    @property
    def slowest_rank(self) -> int | None:
        """The rank that the others wait for, in the outermost scope with the largest total.

        None where nothing was measured on several ranks.
        """
        row = self.largest()
        return None if row is None else row.slowest_rank

    def largest(self) -> RankRow | None:
        """Return the outermost row with the largest total that several ranks have, or None."""
        shared = [row for row in self.rows if len(row) > 1 and not row.is_collective]
        depth = min((len(row.names) for row in shared), default=0)
        outermost = [row for row in shared if len(row.names) == depth]
        return max(outermost, key=lambda row: row.total_ms, default=None)

    def notes(self) -> list[str]:
        """Return what is to be said of the ranks: who is slow, missing, left out."""
        found = []
        row = self.largest()
        if row is not None and row.imbalance >= SAME_WITHIN:
            slowest = row[row.slowest_rank]
            others = [row[rank].own_ms for rank in row if rank != slowest.rank]
            found.append(
                f"rank {slowest.rank} is the slowest in {row.path}: {duration(slowest.own_ms)} "
                f"outside of collectives, the others {duration(statistics.fmean(others))} on "
                "average"
            )
        if self.missing:
            found.append(f"missing: {named(self.missing)} wrote nothing before the deadline")
        for rank, why in sorted(self.left_out.items())[:MOST_NAMED]:
            found.append(f"left out: rank {rank}: {why}")
        if len(self.left_out) > MOST_NAMED:
            found.append(f"left out in all: {named(sorted(self.left_out))}")
        if self.empty:
            found.append(f"nothing measured on {named(self.empty)}")
        if self.pending:
            found.append(f"some samples of {named(self.pending)} were still waiting for the GPU")
        if self.store_error:
            found.append(f"the store failed: {self.store_error}")
        return found

    def __getitem__(self, key: Any) -> RankRow:
        with suppress(KeyError, TypeError):  # one of the keys, as `items` asks for
            return self._rows[key]
        rows = [row for row in self.rows if key in (row.path, (row.path, row.clock))]
        if not rows:
            paths = ", ".join(dict.fromkeys(repr(row.path) for row in self.rows))
            message = f"no row {key!r}; the paths are {paths}" if paths else "nothing was measured"
            raise KeyError(message)
        return min(rows, key=lambda row: (row.clock != "cuda", row.clock == "cpu"))

    def __iter__(self) -> Iterator[tuple[Names, str]]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _table(self) -> Table:
        tree = tree_lines(self.rows)
        clocks = {row.clock for row in self.rows}
        everywhere = max(map(len, self.rows), default=0)
        is_whole = everywhere == len(self.ranks)
        cells = []
        for line in tree:
            row, several = line.row, len(line.row) > 1
            communication = row.communication_ms
            imbalance = f"{row.imbalance:.2f}" if math.isfinite(row.imbalance) else ""
            cells.append(
                {
                    "scope": line.label,
                    "clock": row.clock if len(clocks) > 1 else "",
                    "mean": duration(row.mean_ms),
                    "p50": duration(row.p50_ms),
                    "min": duration(row.min_ms),
                    "max": duration(row.max_ms),
                    "waiting": duration(row.waiting_ms) if row.waiting_ms > 0.0 else "",
                    "communication": duration(communication) if communication > 0.0 else "",
                    "exposed": duration(row.exposed_ms) if communication > 0.0 else "",
                    "imbalance": imbalance if several else "",
                    "slowest": f"rank {row.slowest_rank}" if several else "",
                    "ranks": "" if is_whole and len(row) == everywhere else _ranks_of(row),
                }
            )
        return Table.of(
            cells,
            left={"scope", "clock", "ranks"},
            title=_title(len(self.ranks), len(self.members), clocks),
            notes=self.notes(),
            depths=[line.depth for line in tree],
            paths=[line.row.path for line in tree],
        )

    def _records(self) -> Records:
        from gpuprof._display.records import Records

        forms = [row.to_dict() for row in self.rows]
        return Records.of_plain({**form, "by_rank": {}} for form in forms)

    def tree(self) -> str:
        """Return the table as plain text, indented by nesting."""
        return repr(self)


def named(ranks: Sequence[int]) -> str:
    """Write ranks for a person: ``rank 2``, or ``ranks 1-3, 7``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"


def _ranks_of(row: RankRow) -> str:
    return f"{len(row):,}: {ranges(row)}" if len(row) > 1 else f"only {ranges(row)}"


def _title(ranks: int, of: int, clocks: Iterable[str]) -> str:
    names = ", ".join(sorted(clocks))
    if not names:
        return f"{ranks:,} of {of:,} ranks: nothing was measured"
    return f"{ranks:,} of {of:,} ranks, clock: {names}; the mean of one call by rank, over ranks"


def ranges(ranks: Iterable[int]) -> str:
    """Write numbers as ranges, the first few of them: ``1-3, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:MOST_RANGES]]
    return ", ".join(shown) + (", ..." if len(runs) > MOST_RANGES else "")
