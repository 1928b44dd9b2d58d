"""The tree table and the records of rows."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import gpuprof._core as _core
from gpuprof._common.checks import choice, type_error
from gpuprof._common.units import NOTHING, byte_size, duration, one_in, percent, rate
from gpuprof._display.records import Cell, Records
from gpuprof._display.table import Table, tree_lines
from gpuprof._timing.rows import COUNTS, EMPTY, TIMES, Row, Summary

if TYPE_CHECKING:
    from gpuprof._frameworks.torch import TorchMemory
    from gpuprof._timing.work import Work

_WORK = ("flops", "nbytes", "flops_per_s", "bytes_per_s", "flops_share", "bytes_share")
_MEMORY = ("peak", "absolute_peak", "change")

_TIMES = ("mean", "min", "p50", "p90", "p99", "max", "first", "total")
_HEADINGS = {
    "self": "self",
    "share": "% parent",
    "first": "first call",
    "flops_per_s": "FLOP/s",
    "bytes_per_s": "bytes/s",
    "peak_share": "% of peak",
    "peak_memory": "peak memory",
    "memory_change": "memory change",
}
# The columns that are shown unless others are asked for.
DEFAULT = ("gpu_p50", "host_p50", "count", "total", *_HEADINGS)
_CLOCKS = {"": "", "gpu_": "GPU ", "host_": "host "}
# What can be asked for, with the heading of each.
HEADINGS = {
    **{
        f"{clock}{figure}": f"{shown}{_HEADINGS.get(figure, figure) if not clock else figure}"
        for clock, shown in _CLOCKS.items()
        for figure in ("count", *_TIMES)
    },
    **_HEADINGS,
}
Columns: TypeAlias = "str | Iterable[str] | None"


class Rows(Protocol):
    """Statistics: all rows, and what each of them is among the others."""

    def values(self) -> Iterable[Row]: ...
    def self_ms(self, row: Row, /) -> float: ...
    def share(self, row: Row, /) -> float | None: ...


def table(
    stats: Rows, notes: Sequence[str], *, sort: str | None = None, columns: Columns = None
) -> Table:
    """Return the table of the rows; columns that would say nothing are left out."""
    rows = list(stats.values())
    wanted = _default(rows) if columns is None else _wanted(columns)
    tree = tree_lines(sorted_rows(stats, sort))
    clocks = list(dict.fromkeys(row.clock for row in rows))
    cells = []
    for line in tree:
        row = line.row
        figures = {HEADINGS[name]: cell_text(stats, row, name) for name in wanted}
        clock = row.clock if len(clocks) > 1 else ""
        cells.append({"scope": line.label, "clock": clock, **figures, "notes": notes_of(row)})
    return Table.of(
        cells,
        left={"scope", "clock", "notes"},
        title=_title(clocks),
        notes=notes,
        depths=[line.depth for line in tree],
        paths=[line.row.path for line in tree],
    )


def _default(rows: Sequence[Row]) -> list[str]:
    on_gpu = any(row.on_gpu for row in rows)
    wanted = [name for name in DEFAULT if on_gpu or not name.startswith("gpu_")]
    measured = [row.time for row in rows if row.time.count]
    if any(math.isnan(time.p50_ms) for time in measured):  # merged: see `Stats.merge`
        wanted = [name.replace("p50", "mean") for name in wanted]
    if measured and all(math.isnan(time.first_ms) for time in measured):
        wanted.remove("first")
    return wanted


def _wanted(columns: Any) -> list[str]:
    """Return the columns that are asked for, each once; ValueError names those there are."""
    if not isinstance(columns, Iterable):
        raise type_error(columns, "columns", "names as text with commas or as a list")
    asked = columns.split(",") if isinstance(columns, str) else [*columns]
    names = [each.strip() if isinstance(each, str) else each for each in asked]
    return [*dict.fromkeys(choice("columns", each, HEADINGS) for each in names)]


def sorted_rows(stats: Rows, sort: str | None) -> list[Row]:
    """Return the rows with the largest of a column first, or by ``"path"``; None: as they are."""
    rows = list(stats.values())
    if sort is None:
        return rows
    choice("sort", sort, ("path", *HEADINGS))
    if sort == "path":
        return sorted(rows, key=lambda row: row.names)
    values = {id(row): value(stats, row, sort) for row in rows}
    known = {place: each for place, each in values.items() if math.isfinite(each)}
    return sorted(rows, key=lambda row: -known.get(id(row), -math.inf))


def value(stats: Rows, row: Row, column: str) -> float:
    """Return what a column holds of a row: a time in milliseconds, or NaN for nothing."""
    work, memory = row.work, row.memory
    if column == "self":
        return stats.self_ms(row) if row.time.count else math.nan
    if column == "share":
        return _number(stats.share(row))
    if column in {"flops_per_s", "bytes_per_s"}:
        return _number(getattr(work, column, None))
    if column == "peak_share":
        return _peak_share(work)[0]
    if column in {"peak_memory", "memory_change"}:
        return _number(getattr(memory, column.replace("memory", "").strip("_"), None))
    clock, _, figure = column.rpartition("_")
    summary = getattr(row, clock or "time")
    number: float = getattr(summary, figure if figure == "count" else f"{figure}_ms")
    return number if summary.count else math.nan


def _number(found: float | None) -> float:
    return math.nan if found is None else found


def cell_text(stats: Rows, row: Row, column: str) -> str:
    number = value(stats, row, column)
    if column == "count":
        return f"{row.time.count:,}"
    if column in {"flops_per_s", "bytes_per_s"}:
        return "" if math.isnan(number) else rate(number, "FLOP" if column[0] == "f" else "B")
    if column == "peak_share":
        return "" if math.isnan(number) else f"{100 * number:.1f} {_peak_share(row.work)[1]}"
    if math.isnan(number):
        return "" if column.endswith(("_memory", "_change")) else NOTHING
    if column == "peak_memory":
        return byte_size(round(number))
    if column == "memory_change":
        return f"{'+' if round(number) > 0 else ''}{byte_size(round(number))}"
    if column == "share":
        return f"{100 * number:.1f}"
    return f"{number:,.0f}" if column.endswith("count") else duration(number)


def _peak_share(work: Work | None) -> tuple[float, str]:
    """Return the larger of the shares, what limits the row, and of what it is; NaN for none."""
    shares = [(work.flops_share, work.peak_dtype), (work.bytes_share, "memory")] if work else []
    known = [(share, of) for share, of in shares if share is not None]
    return max(known, key=lambda each: each[0], default=(math.nan, ""))


def notes_of(row: Row) -> str:
    counts = {what: getattr(row, what) for what in COUNTS}
    notes = [f"{count:,} {what}" for what, count in counts.items() if count]
    notes += [_measured(row.time)] if row.time.left_out else []
    notes += ["host-bound"] if row.host_bound else []
    notes += [f"memory: {row.memory.note}"] if row.memory and row.memory.note else []
    return ", ".join(notes)


def _measured(time: Summary) -> str:
    """Return which part was measured, and how well the total is known from it."""
    margin = time.total_margin_ms / time.total_ms if time.total_ms else math.nan
    return f"{one_in(time.one_in)} measured" + (
        "" if math.isnan(margin) else f", total ±{percent(margin)}"
    )


def _title(clocks: Sequence[str]) -> str:
    if not clocks and not _core.is_enabled():
        switch = (
            "GPUPROF_DISABLE is set" if _core._is_set("GPUPROF_DISABLE") else "gpuprof.disable()"
        )
        return f"no samples: timing is switched off ({switch})"
    if not clocks:
        return 'no samples yet: `with gpuprof.timer("name"):` around some code adds one'
    names = ", ".join(clocks)
    if len(clocks) > 1:
        return f"clocks: {names} (shares and self time are within one clock)"
    if clocks[0] == "cuda":
        return "clock: cuda (GPU time, from events in the stream)"
    if clocks[0] == "cpu":
        return "clock: cpu (host time; no GPU time was measured)"
    return f"clock: {names} (host time around a body that was waited for)"


def footers(dropped: int, memory: Iterable[TorchMemory]) -> list[str]:
    found = []
    if dropped:
        found.append(
            f"{dropped:,} samples dropped: too many were waiting for the GPU; read values "
            "or call gpuprof.flush() more often"
        )
    for entry in memory:
        delta = entry["delta_bytes"]
        found.append(
            f"torch memory on {entry['device']}: peak {byte_size(entry['peak_bytes'])},"
            f" {'+' if delta >= 0 else ''}{byte_size(delta)} since the last reset"
        )
    return found


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
        **_times_of("gpu", row.gpu),
        **_times_of("host", row.host),
        "self_ms": self_ms,
        "share_of_parent": share,
        **{which: getattr(row, which) for which in COUNTS},
        "host_bound": row.host_bound,
        "work_count": work.count if work else 0,
        **{which: getattr(work, which, None) for which in _WORK},
        "memory_count": memory.count if memory else 0,
        **{f"memory_{which}_bytes": getattr(memory, which, None) for which in _MEMORY},
        # A slash in a name is part of it, so the path alone does not say what the names are.
        "names": json.dumps(row.names, ensure_ascii=False),
    }


def _times_of(clock: str, summary: Summary) -> dict[str, Cell]:
    times = {
        f"{clock}_{name}": getattr(summary, name) if summary.count else math.nan for name in TIMES
    }
    return {
        f"{clock}_count": summary.count,
        f"{clock}_left_out": summary.left_out,
        **times,
        f"{clock}_total_margin_ms": summary.total_margin_ms if summary.count else math.nan,
    }
