"""Plots of plain numbers by matplotlib, which is imported when a plot is asked for.

Each function draws into the axes that it is given, or into a new figure for None, and returns the
figure. Times are milliseconds.
"""

from __future__ import annotations

import functools
import io
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from gpuprof._common.imports import need
from gpuprof._common.text import cut, ending, shown_text
from gpuprof._common.units import unit_of
from gpuprof._display.axes import BLUE, GREY, ORANGE, RED
from gpuprof._display.histogram import Bin

MAX_BINS = 60
_LOG_SPAN = 20


def colour_of(clock: str) -> str:
    """Return the colour of times of a clock: ``"cuda"`` is the GPU's."""
    return BLUE if clock == "cuda" else GREY


def bars(
    names: Sequence[str],
    middles: Sequence[float],
    ends: Sequence[tuple[float, float]],
    colours: Sequence[str],
    ax: Any,
    *,
    title: str,
    x_label: str,
) -> Any:
    """Draw a bar for each name, with a whisker from the one end to the other.

    ``{unit}`` in `x_label` becomes the unit. Of long names the end is shown: paths differ late.
    """
    axes = _axes(ax, len(names))
    axes.set_title(title)
    if not names:
        return axes.figure
    scale, unit = unit_of(max(high for _, high in ends))
    axes.barh(
        range(len(names)),
        [middle / scale for middle in middles],
        xerr=[
            [max(0.0, m - low) / scale for m, (low, _) in zip(middles, ends, strict=True)],
            [max(0.0, high - m) / scale for m, (_, high) in zip(middles, ends, strict=True)],
        ],
        color=colours,
        ecolor="black",
        capsize=2,
    )
    # A dollar sign in a name is not the start of a formula.
    axes.set_yticks(
        range(len(names)), [ending(shown_text(name)) for name in names], parse_math=False
    )
    axes.invert_yaxis()
    axes.set_xlabel(x_label.format(unit=unit))
    return axes.figure


def histogram(
    bins: Sequence[Bin],
    middle: float,
    interval: tuple[float, float],
    colour: str,
    ax: Any,
    *,
    title: str,
) -> Any:
    """Draw a histogram, with a line at the median and its interval as a band.

    The bins of stragglers are left out and counted below.
    """
    axes = _axes(ax, 8)
    found = [each for each in bins if not each.tail]
    outside = sum(each.count for each in bins) - sum(each.count for each in found)
    scale, unit = unit_of(middle)
    first_edge, step = found[0].low / scale, (found[0].high - found[0].low) / scale
    axes.bar(
        [first_edge + place * step for place in range(len(found))],
        [each.count for each in found],
        step or abs(first_edge) / 100 or 1.0,  # all samples are equal
        align="edge" if step else "center",
        color=colour,
    )
    low, high = interval
    axes.axvspan(low / scale, high / scale, color=ORANGE, alpha=0.4, label="95 % interval")
    axes.axvline(middle / scale, color=RED, label="median")
    axes.legend()
    axes.set_title(_label(title))
    beyond = f"; {outside:,} further out" if outside else ""
    axes.set_xlabel(f"time of a call ({unit}){beyond}")
    axes.set_ylabel("samples")
    return axes.figure


def lines(
    x: str, series: Mapping[str, Sequence[tuple[Any, float, tuple[float, float]]]], ax: Any
) -> Any:
    """Draw a line for each series of (value of `x`, median, interval)."""
    axes = _axes(ax, 10)
    axes.set_title("gpuprof: sweep")
    axes.set_xlabel(_label(x))
    values = [value for line in series.values() for value, _, _ in line]
    middles = [middle for line in series.values() for _, middle, _ in line]
    if not values:
        return axes.figure
    scale, unit = unit_of(max(middles))
    axes.set_ylabel(f"time of a call ({unit})")
    numeric = all(
        isinstance(value, numbers.Real) and not isinstance(value, bool) for value in values
    )
    for name, line in series.items():
        at = [value if numeric else _label(str(value)) for value, _, _ in line]
        drawn = axes.plot(
            at, [middle / scale for _, middle, _ in line], marker="o", label=_label(name)
        )
        if numeric:
            low, high = ([ends[side] / scale for _, _, ends in line] for side in (0, 1))
            axes.fill_between(at, low, high, alpha=0.3, color=drawn[0].get_color())
    if numeric and _wide(values):
        axes.set_xscale("log", base=2)
    if _wide(middles):
        axes.set_yscale("log")
    if len(series) > 1:
        axes.legend()
    return axes.figure


def _axes(ax: Any, rows: int) -> Any:
    if ax is not None:
        return ax
    # Not through pyplot: a figure that it keeps is never freed, and it may open a window.
    figure_type = need("matplotlib.figure", "plot()").Figure
    figure = figure_type(figsize=(8, 1.5 + 0.3 * rows), layout="constrained")
    # Notebooks show only figures of pyplot by themselves.
    figure._repr_png_ = functools.partial(_png, figure)
    return figure.subplots()


def _png(figure: Any) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _label(name: str) -> str:
    # A dollar sign in a name is not the start of a formula.
    return cut(shown_text(name).replace("$", r"\$"))


def _wide(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) >= _LOG_SPAN * min(values)
