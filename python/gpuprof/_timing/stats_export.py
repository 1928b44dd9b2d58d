"""Statistics as records, for CSV files and data frames, with a column for each figure."""

from __future__ import annotations

import json
import math
import os
from typing import Any

from gpuprof._common.outputs import text_or_file
from gpuprof._display.records import Cell, Records
from gpuprof._timing.rows import EMPTY, TIMES, Row, Summary
from gpuprof._timing.stats_table import Rows, value

_COUNTS = ("dropped", "pending", "failed", "skipped")
_WORK = ("flops", "nbytes", "flops_per_s", "bytes_per_s", "flops_share", "bytes_share")
_MEMORY = ("peak", "absolute_peak", "change")


def to_csv(stats: Rows, path: str | os.PathLike[str] | None) -> str | None:
    """Return the rows as CSV, or None after writing it to `path`."""
    return text_or_file(records(stats).csv(), path)


def to_frame(stats: Rows) -> Any:
    """Return the rows as a pandas DataFrame."""
    return records(stats).frame("Stats.to_frame()")


def records(stats: Rows) -> Records:
    """Return a record for each row, always with the same columns."""
    lines = [_record(row, value(stats, row, "self"), stats.share(row)) for row in stats.values()]
    head = _record(Row("-", "-", EMPTY, EMPTY), None, None)
    return Records([*head], [[*line.values()] for line in lines])


def _record(row: Row, self_ms: float | None, share: float | None) -> dict[str, Cell]:
    work, memory = row.work, row.memory
    return {
        "path": row.path,
        "name": row.name,
        "depth": row.depth,
        "clock": row.clock,
        **_summary("gpu", row.gpu),
        **_summary("host", row.host),
        "self_ms": self_ms,
        "share_of_parent": share,
        **{which: getattr(row, which) for which in _COUNTS},
        "host_bound": row.host_bound,
        "work_count": work.count if work else 0,
        **{which: getattr(work, which, None) for which in _WORK},
        "memory_count": memory.count if memory else 0,
        **{f"memory_{which}_bytes": getattr(memory, which, None) for which in _MEMORY},
        # A slash in a name is part of it, so the path alone does not say what the names are.
        "names": json.dumps(row.names, ensure_ascii=False),
    }


def _summary(clock: str, summary: Summary) -> dict[str, Cell]:
    times = {
        f"{clock}_{name}_ms": getattr(summary, name) if summary.count else math.nan
        for name in TIMES
    }
    return {f"{clock}_count": summary.count, **times}
