"""The table of `gpuprof.kernels`: scopes as a tree, with their GPU time and idle time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuprof._common.units import NOTHING, duration
from gpuprof._display.table import Table
from gpuprof._kernels.rows import NO_SCOPE_TEXT, KernelRow

_NS = 1e-6  # milliseconds


def table_of(
    rows: Sequence[KernelRow],
    not_kept: Mapping[tuple[int, int], tuple[int, int]],
    source: str,
    seconds: float,
    notes: Sequence[str],
) -> Table:
    """Return the table; `not_kept` are the totals of work past the limit of records."""
    cells = [{"scope": _label(row), **row.cells()} for row in rows]
    depths = [max(0, len(row.names) - 1) for row in rows]
    paths = [row.path for row in rows]
    if not_kept:
        count = sum(count for count, _ in not_kept.values())
        ns = sum(ns for _, ns in not_kept.values())
        cells.append(_line_of_rest(rows, count, ns * _NS))
        depths.append(0)
        paths.append(cells[-1]["scope"])
    return Table(
        [*cells[0]] if cells else [],
        [[*line.values()] for line in cells],
        left={"scope"},
        title=_title(rows, source, seconds),
        notes=notes,
        depths=depths,
        paths=paths,
    ).without_empty()


def _label(row: KernelRow) -> str:
    return row.names[-1] if row.names else NO_SCOPE_TEXT


def _line_of_rest(rows: Sequence[KernelRow], count: int, ms: float) -> dict[str, str]:
    kept = sum(row.gpu_ms for row in rows if len(row.names) < 2)
    line = {"scope": "(past max_records)", **dict.fromkeys(KernelRow(()).cells(), NOTHING)}
    share = 100 * ms / (kept + ms) if kept + ms else 0.0
    return {**line, "GPU time": duration(ms), "% all": f"{share:.1f}", "count": f"{count:,}"}


def _title(rows: Sequence[KernelRow], source: str, seconds: float) -> str:
    if not source:
        return "no GPU work was collected"
    title = f"GPU work by scope, {duration(seconds * 1e3)} on the host, collected by {source}"
    return title if rows else f"{title}: none"
