"""Bars of the statistics, drawn by matplotlib, which is imported when a plot is asked for."""

from __future__ import annotations

import functools
import importlib
import io
from typing import TYPE_CHECKING, Any

from gpuprof._common import text as common_text

if TYPE_CHECKING:
    from gpuprof._timing.stats import Row, Stats

MAX_BARS = 40
MAX_LABEL = 60
GPU_COLOUR = "#3b75af"
HOST_COLOUR = "#9a9a9a"


def _new_axes(bars: int) -> Any:
    try:
        figure_type = importlib.import_module("matplotlib.figure").Figure
    except ModuleNotFoundError as error:
        message = "plot() needs matplotlib, which is not installed: pip install 'gpuprof[plot]'"
        raise ModuleNotFoundError(message, name=error.name) from error
    # Not through pyplot: a figure that it keeps is never freed, and it may open a window.
    return figure_type(figsize=(8, 1.5 + 0.3 * bars), layout="constrained").subplots()


def _png(figure: Any) -> bytes:
    """Draw it for a notebook, which knows only figures of pyplot."""
    file = io.BytesIO()
    figure.savefig(file, format="png")
    return file.getvalue()


def _label(row: Row, with_clock: bool) -> str:
    text = common_text.shown_text(f"{row.path} ({row.clock})" if with_clock else row.path)
    return text if len(text) <= MAX_LABEL else f"…{text[1 - MAX_LABEL :]}"


def _axis_unit(longest_ms: float) -> tuple[float, str]:
    for scale, unit in ((1e-3, "µs"), (1.0, "ms")):
        if longest_ms < 1000 * scale:
            return scale, unit
    return 1e3, "s"


def bars(stats: Stats, ax: Any) -> Any:
    """Draw into `ax`, or a new figure for None, and return the figure."""
    measured = [row for row in stats.values() if row.time.count]
    shown = measured
    if len(measured) > MAX_BARS:
        largest = {id(row) for row in sorted(measured, key=lambda row: -row.time.total)[:MAX_BARS]}
        shown = [row for row in measured if id(row) in largest]
    axes = _new_axes(len(shown)) if ax is None else ax
    if ax is None:
        axes.figure._repr_png_ = functools.partial(_png, axes.figure)
    axes.set_title(_title(len(shown), len(measured)))
    if not shown:
        return axes.figure
    scale, unit = _axis_unit(max(row.time.p90 for row in shown))
    medians = [row.time.p50 / scale for row in shown]
    upwards = [max(0.0, row.time.p90 - row.time.p50) / scale for row in shown]
    places = range(len(shown))
    axes.barh(
        places,
        medians,
        xerr=([0.0] * len(shown), upwards),
        color=[GPU_COLOUR if row.on_gpu else HOST_COLOUR for row in shown],
        ecolor="black",
        capsize=2,
    )
    with_clock = len({row.clock for row in shown}) > 1
    # A dollar sign in a name is not the start of a formula.
    axes.set_yticks(places, [_label(row, with_clock) for row in shown], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlabel(f"time ({unit}): p50, whisker to p90")
    return axes.figure


def _title(shown: int, measured: int) -> str:
    if not measured:
        return "gpuprof: no samples yet"
    if shown < measured:
        return f"gpuprof: the {shown} largest totals of {measured} rows"
    return "gpuprof: time by scope"
