"""Plots of benchmarks, drawn by matplotlib, which is imported when a plot is asked for."""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from gpuprof._common.text import shown_text
from gpuprof._common.units import unit_of
from gpuprof._results.report import bins
from gpuprof._timing.stats_plot import GPU_COLOUR, HOST_COLOUR, MAX_LABEL, _new_axes

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

MAX_BINS = 60
_LOG_SPAN = 20


def _label(name: str) -> str:
    text = shown_text(name)
    # A dollar sign in a name is not the start of a formula.
    text = text.replace("$", r"\$")
    return text if len(text) <= MAX_LABEL else f"{text[: MAX_LABEL - 1]}…"


def _colour(result: BenchResult) -> str:
    return GPU_COLOUR if result.clock == "cuda" else HOST_COLOUR


def histogram(result: BenchResult, ax: Any) -> Any:
    """Draw the samples of a result into `ax`, or a new figure for None; return the figure."""
    axes = _new_axes(8) if ax is None else ax
    found = [each for each in bins(result, MAX_BINS) if not each.tail]
    outside = result.count - sum(each.count for each in found)
    scale, unit = unit_of(result.median_ms)
    first_edge, step = found[0].low / scale, (found[0].high - found[0].low) / scale
    axes.bar(
        [first_edge + place * step for place in range(len(found))],
        [each.count for each in found],
        step or abs(first_edge) / 100 or 1.0,  # all samples are equal
        align="edge" if step else "center",
        color=_colour(result),
    )
    low, high = result.interval_ms
    axes.axvspan(low / scale, high / scale, color="#f2a93b", alpha=0.4, label="95 % interval")
    axes.axvline(result.median_ms / scale, color="#c0392b", label="median")
    axes.legend()
    axes.set_title(_label(result.name))
    beyond = f"; {outside:,} further out" if outside else ""
    axes.set_xlabel(f"time of a call ({unit}){beyond}")
    axes.set_ylabel("samples")
    return axes.figure


def comparison(results: Sequence[BenchResult], ratios: Sequence[str], ax: Any) -> Any:
    """Draw the medians as bars with their intervals, and the ratios beside the names."""
    axes = _new_axes(len(results)) if ax is None else ax
    scale, unit = unit_of(max(result.median_ms for result in results))
    medians = [result.median_ms / scale for result in results]
    ends = [[end / scale for end in result.interval_ms] for result in results]
    axes.barh(
        range(len(results)),
        medians,
        xerr=(
            [max(0.0, middle - low) for middle, (low, _) in zip(medians, ends, strict=True)],
            [max(0.0, high - middle) for middle, (_, high) in zip(medians, ends, strict=True)],
        ),
        color=[_colour(result) for result in results],
        ecolor="black",
        capsize=2,
    )
    names = [
        _label(f"{result.name} ({ratio})") if ratio else _label(result.name)
        for result, ratio in zip(results, ratios, strict=True)
    ]
    axes.set_yticks(range(len(results)), names)
    axes.invert_yaxis()
    axes.set_title("gpuprof: comparison")
    axes.set_xlabel(f"time of a call ({unit}): median, whiskers for its 95 % interval")
    return axes.figure


def lines(x: str, series: Mapping[str, Sequence[tuple[Any, BenchResult]]], ax: Any) -> Any:
    """Draw the medians of a sweep over the values of `x`, a line for each series."""
    axes = _new_axes(10) if ax is None else ax
    points = [point for line in series.values() for point in line]
    axes.set_title("gpuprof: sweep")
    axes.set_xlabel(_label(x))
    if not points:
        return axes.figure
    scale, unit = unit_of(max(result.median_ms for _, result in points))
    axes.set_ylabel(f"time of a call ({unit})")
    values = [value for value, _ in points]
    numeric = all(
        isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values
    )
    for label, line in series.items():
        at = [value if numeric else _label(str(value)) for value, _ in line]
        middle = [result.median_ms / scale for _, result in line]
        drawn = axes.plot(at, middle, marker="o", label=_label(label))
        if numeric:
            ends = [result.interval_ms for _, result in line]
            low, high = ([end[side] / scale for end in ends] for side in (0, 1))
            axes.fill_between(at, low, high, alpha=0.3, color=drawn[0].get_color())
    if numeric and _wide(values):
        axes.set_xscale("log", base=2)
    if _wide([result.median_ms for _, result in points]):
        axes.set_yscale("log")
    if len(series) > 1:
        axes.legend()
    return axes.figure


def _wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) >= _LOG_SPAN * min(values)
