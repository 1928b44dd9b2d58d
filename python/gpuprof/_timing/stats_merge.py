"""Statistics of several processes as one, claiming no more than their summaries say.

Of a series that is cut into parts, count, total, mean, minimum and maximum follow from those of the
parts. Quantiles do not: the median of two halves can be anything between theirs, and with few
samples even a quantile that both parts share need not be that of the whole. They follow from bins.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from operator import truediv
from typing import TYPE_CHECKING

from gpuprof._common.quantiles import quantile_of_bins
from gpuprof._timing.rows import COUNTS, EMPTY, Bins, Names, Row, Summary

if TYPE_CHECKING:
    from gpuprof._timing.memory import MemoryUse
    from gpuprof._timing.work import Work

# What a sample is told, the rate that follows from it, and the share of the device's peak.
_RATES = {"flops": ("flops_per_s", "flops_share"), "nbytes": ("bytes_per_s", "bytes_share")}


def merged(parts: Iterable[Iterable[Row]]) -> list[Row]:
    """Return a row for each names and clock, in the order in which they come first."""
    found: dict[tuple[Names, str], list[Row]] = {}
    for part in parts:
        for row in part:
            found.setdefault((row.names, row.clock), []).append(row)
    return [_row(rows) if len(rows) > 1 else rows[0] for rows in found.values()]


def _row(rows: Sequence[Row]) -> Row:
    first = rows[0]
    return Row(
        first.path,
        first.clock,
        _summary([row.gpu for row in rows]),
        _summary([row.host for row in rows]),
        **{which: sum(getattr(row, which) for row in rows) for which in COUNTS},
        names=first.names,
        work=_work([row.work for row in rows if row.work]),
        memory=_memory([row.memory for row in rows if row.memory]),
    )


def _summary(parts: Sequence[Summary]) -> Summary:
    measured = [part for part in parts if part.count]
    if len(measured) < 2:
        return measured[0] if measured else EMPTY
    count, total = sum(part.count for part in measured), math.fsum(p.total_ms for p in measured)
    least, most = min(part.min_ms for part in measured), max(part.max_ms for part in measured)
    bins = _bins(measured)
    found = (quantile_of_bins(bins or (), q) for q in (0.5, 0.9, 0.99))
    p50, p90, p99 = (min(max(each, least), most) for each in found)
    left_out = sum(part.left_out for part in measured)
    margin = math.hypot(*(part.total_margin_ms for part in measured))  # of independent estimates
    times = total, total / count, least, p50, p90, p99, most, math.nan
    return Summary(count, *times, bins, left_out, margin)


def _bins(parts: Sequence[Summary]) -> Bins | None:
    """Return the bins of all; None unless all parts have theirs."""
    counts: dict[int, int] = {}
    for part in parts:
        if part.bins is None:
            return None
        for place, count in part.bins:
            counts[place] = counts.get(place, 0) + count
    return tuple(sorted(counts.items()))


def _work(parts: Sequence[Work]) -> Work | None:
    """Return the work of all.

    Where a part has both FLOP and bytes, how many of its samples have either is not known, and so
    neither are means and rates of the whole.
    """
    if len(parts) < 2:
        return parts[0] if parts else None
    from gpuprof._timing.work import Work

    count = sum(part.count for part in parts)
    told = {name for part in parts for name in _RATES if getattr(part, name) is not None}
    if len(told) != 1:
        return Work(count)
    (name,) = told
    rate, share = _RATES[name]
    amounts = [getattr(part, name) * part.count for part in parts]
    rates = [getattr(part, rate) for part in parts]
    figures = {name: math.fsum(amounts) / count}
    if all(rates):
        figures[rate] = math.fsum(amounts) / math.fsum(map(truediv, amounts, rates))
        peaks = [getattr(part, rate) / (getattr(part, share) or math.nan) for part in parts]
        if all(math.isclose(each, peaks[0], rel_tol=1e-9) for each in peaks):
            figures[share] = figures[rate] / peaks[0]
    dtypes = {part.peak_dtype for part in parts}
    return Work(count, **figures, peak_dtype=dtypes.pop() if len(dtypes) == 1 else "")


def _memory(parts: Sequence[MemoryUse]) -> MemoryUse | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    from gpuprof._timing.memory import MemoryUse

    read = [part for part in parts if part.count]
    count = sum(part.count for part in read)
    changes = (part.change * part.count for part in read)
    return MemoryUse(
        count,
        max((part.peak for part in read), default=math.nan),
        max((part.absolute_peak for part in read), default=math.nan),
        math.fsum(changes) / count if count else math.nan,
        "; ".join(dict.fromkeys(part.note for part in parts if part.note)),
    )
