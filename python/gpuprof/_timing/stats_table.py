"""The tree table and the plot of rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common.text import in_markdown, shown_text
from gpuprof._common.units import NOTHING, byte_size, duration, rate
from gpuprof._display.table import Table
from gpuprof._display.tree import tree_lines
from gpuprof._timing.rows import Row

if TYPE_CHECKING:
    from gpuprof._frameworks.torch import TorchMemory
    from gpuprof._timing.memory import MemoryUse
    from gpuprof._timing.work import Work

MAX_BARS = 40


def table(
    rows: Sequence[Row],
    self_ms: Callable[[Row], float],
    share: Callable[[Row], float | None],
    notes: Sequence[str],
) -> Table:
    """Return the table of the rows; columns that would say nothing are left out."""
    tree = tree_lines(rows)
    clocks = list(dict.fromkeys(row.clock for row in rows))
    cells = []
    for line in tree:
        row, part = line.row, share(line.row)
        cells.append(
            {
                "scope": line.label,
                "clock": row.clock if len(clocks) > 1 else "",
                "GPU p50": duration(row.gpu.p50),
                "host p50": duration(row.host.p50),
                "count": f"{row.time.count:,}",
                "total": duration(row.time.total) if row.time.count else NOTHING,
                "self": duration(self_ms(row)) if row.time.count else NOTHING,
                "% parent": NOTHING if part is None else f"{100 * part:.1f}",
                "first call": duration(row.time.first),
                **_work_cells(row.work),
                **_memory_cells(row.memory),
                "notes": _notes(row),
            }
        )
    return Table(
        [*cells[0]] if cells else [],
        [[*line.values()] for line in cells],
        left={"scope", "clock", "notes"},
        title=_title(clocks),
        notes=notes,
        depths=[line.depth for line in tree],
        paths=[line.row.path for line in tree],
    ).without_empty()


def _work_cells(work: Work | None) -> dict[str, str]:
    """Return the rates, and the larger of the shares: what limits the row, if anything does."""
    if work is None:
        return dict.fromkeys(("FLOP/s", "bytes/s", "% of peak"), "")
    shares = [(work.flops_share, work.peak_dtype), (work.bytes_share, "memory")]
    share, of = max(shares, key=lambda each: -1.0 if each[0] is None else each[0])
    return {
        "FLOP/s": rate(work.flops_per_s, "FLOP"),
        "bytes/s": rate(work.bytes_per_s, "B"),
        "% of peak": "" if share is None else f"{100 * share:.1f} {of}",
    }


def _memory_cells(memory: MemoryUse | None) -> dict[str, str]:
    peak, change = (memory.peak, memory.change) if memory else (math.nan, math.nan)
    return {
        "peak memory": byte_size(round(peak)) if math.isfinite(peak) else "",
        "memory change": _signed_size(round(change)) if math.isfinite(change) else "",
    }


def _signed_size(size: int) -> str:
    return f"{'+' if size > 0 else ''}{byte_size(size)}"


def _notes(row: Row) -> str:
    counts = {what: getattr(row, what) for what in ("dropped", "pending", "failed", "skipped")}
    notes = [f"{count:,} {what}" for what, count in counts.items() if count]
    notes += ["host-bound"] if row.host_bound else []
    notes += [f"memory: {row.memory.note}"] if row.memory and row.memory.note else []
    return ", ".join(notes)


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
    """Return what stands below the table."""
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


def markdown(content: Table) -> str:
    """Write the table in Markdown, with the footers as paragraphs."""
    footers = [text for note in content.notes for text in ("", in_markdown(shown_text(note)))]
    return "\n".join([*replace(content, notes=()).markdown(), *footers]) + "\n"


def plot(rows: Sequence[Row], ax: Any) -> Any:
    """Draw the medians of the rows with the largest totals as bars, in their order."""
    from gpuprof._display import plot as display_plot

    measured = [row for row in rows if row.time.count]
    largest = sorted(measured, key=lambda row: -row.time.total)[:MAX_BARS]
    kept = set(map(id, largest))
    shown = [row for row in measured if id(row) in kept]
    title = "gpuprof: time by scope" if shown else "gpuprof: no samples yet"
    if len(shown) < len(measured):
        title = f"gpuprof: the {len(shown)} largest totals of {len(measured)} rows"
    with_clock = len({row.clock for row in shown}) > 1
    return display_plot.bars(
        [f"{row.path} ({row.clock})" if with_clock else row.path for row in shown],
        [row.time.p50 for row in shown],
        [(row.time.p50, row.time.p90) for row in shown],
        [display_plot.colour_of(row.clock) for row in shown],
        ax,
        title=title,
        x_label="time ({unit}): p50, whisker to p90",
    )
