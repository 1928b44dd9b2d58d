"""The table of `RankStats`: a line for each scope, and notes on the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuprof._common.units import duration
from gpuprof._display.table import Table

if TYPE_CHECKING:
    from gpuprof._distributed.ranks import RankRow, RankStats
    from gpuprof._timing.rows import Names

SAME_WITHIN = 1.02  # below this imbalance no rank is called slow
MOST_NAMED = 16


def table(stats: RankStats) -> Table:
    """Return the table; columns that would say nothing are left out."""
    tree = _tree(list(stats.values()))
    clocks = {row.clock for row, _, _ in tree}
    everywhere = max((len(row) for row, _, _ in tree), default=0)
    cells = []
    for row, _, label in tree:
        imbalance = row.imbalance
        several = len(row) > 1
        cells.append(
            {
                "scope": label,
                "clock": row.clock if len(clocks) > 1 else "",
                "mean": duration(row.mean_ms),
                "p50": duration(row.p50_ms),
                "min": duration(row.min_ms),
                "max": duration(row.max_ms),
                "waiting": duration(row.waiting_ms) if row.waiting_ms > 0.0 else "",
                "imbalance": f"{imbalance:.2f}" if several and math.isfinite(imbalance) else "",
                "slowest": f"rank {row.slowest_rank}" if several else "",
                "ranks": "" if len(row) == everywhere == len(stats.ranks) else _ranks_of(row),
            }
        )
    return Table(
        [*cells[0]] if cells else [],
        [[*line.values()] for line in cells],
        left={"scope", "clock", "ranks"},
        title=_title(stats, clocks),
        notes=notes(stats),
        depths=[depth for _, depth, _ in tree],
        paths=[row.path for row, _, _ in tree],
    ).without_empty()


def _ranks_of(row: RankRow) -> str:
    return f"{len(row):,}: {ranges(row)}" if len(row) > 1 else f"only {ranges(row)}"


def _title(stats: RankStats, clocks: Iterable[str]) -> str:
    of = f"{len(stats.ranks):,} of {len(stats.members):,} ranks"
    names = ", ".join(sorted(clocks))
    if not names:
        return f"{of}: nothing was measured"
    return f"{of}, clock: {names}; the mean of one call by rank, over ranks"


def notes(stats: RankStats) -> list[str]:
    """Return what stands below the table."""
    found = []
    row = stats.largest()
    if row is not None and row.imbalance >= SAME_WITHIN:
        slowest = row[row.slowest_rank]
        others = [row[rank].own_ms for rank in row if rank != slowest.rank]
        mean = sum(others) / len(others)
        found.append(
            f"rank {slowest.rank} is the slowest in {row.path}: {duration(slowest.own_ms)} outside "
            f"of collectives, the others {duration(mean)} on average"
        )
    if stats.missing:
        found.append(f"missing: {named(stats.missing)} wrote nothing before the deadline")
    for rank, why in sorted(stats.left_out.items())[:MOST_NAMED]:
        found.append(f"left out: rank {rank}: {why}")
    if len(stats.left_out) > MOST_NAMED:
        found.append(f"left out in all: {named(sorted(stats.left_out))}")
    if stats.empty:
        found.append(f"nothing measured on {named(stats.empty)}")
    if stats.pending:
        found.append(f"some samples of {named(stats.pending)} were still waiting for the GPU")
    if stats.store_error:
        found.append(f"the store failed: {stats.store_error}")
    return found


def named(ranks: Sequence[int]) -> str:
    """Write ranks for a person: ``rank 2``, or ``ranks 1-3, 7``."""
    return f"rank{'' if len(ranks) == 1 else 's'} {ranges(ranks)}"


def ranges(ranks: Iterable[int]) -> str:
    """Write numbers as ranges, the first few of them: ``1-3, 7``."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    shown = [f"{a}" if a == b else f"{a}-{b}" for a, b in runs[:MOST_NAMED]]
    return ", ".join(shown) + (", ..." if len(runs) > MOST_NAMED else "")


def _tree(rows: Sequence[RankRow]) -> list[tuple[RankRow, int, str]]:
    """Put the rows in the order of the tree, each with its depth and what is shown of its path."""
    by_names: dict[Names, list[RankRow]] = {}
    for row in rows:
        by_names.setdefault(row.names, []).append(row)
    inside: dict[Names, list[Names]] = {}
    for names in by_names:
        outer = names[:-1]
        while outer and outer not in by_names:
            outer = outer[:-1]
        inside.setdefault(outer, []).append(names)
    result = []
    waiting = [(names, 0, 0) for names in reversed(inside.get((), []))]
    while waiting:
        names, depth, above = waiting.pop()
        result += [(row, depth, "/".join(names[above:])) for row in by_names[names]]
        below = reversed(inside.get(names, []))
        waiting += [(child, depth + 1, len(names)) for child in below]
    return result
