"""The table of all ranks: a line for each scope, and notes on the ranks."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuprof._common.units import duration
from gpuprof._display.table import Table
from gpuprof._display.tree import tree_lines
from gpuprof._distributed.rows import RankRow

MOST_RANGES = 16


def table(rows: Sequence[RankRow], ranks: int, of: int, notes: Sequence[str]) -> Table:
    """Return the table of so many ranks; columns that would say nothing are left out."""
    tree = [(line.row, line.depth, line.label) for line in tree_lines(rows)]
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
                "ranks": "" if len(row) == everywhere == ranks else _ranks_of(row),
            }
        )
    return Table.of(
        cells,
        left={"scope", "clock", "ranks"},
        title=_title(ranks, of, clocks),
        notes=notes,
        depths=[depth for _, depth, _ in tree],
        paths=[row.path for row, _, _ in tree],
    )


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
