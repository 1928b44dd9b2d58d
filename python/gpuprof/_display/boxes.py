"""Box plots of several rows as one SVG file. All times are milliseconds.

A box goes from the first to the third quartile with a line at the median. Its whiskers end at the
outermost samples within 1.5 times the distance of the quartiles; samples further out are counted in
the row's tooltip, and do not stretch the axis.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import cut, shown_text, width
from gpuprof._common.units import decimals, duration
from gpuprof._display.axes import BLUE, ORANGE, RED, Axis, drawing, line, rect, text, ticks, tip

_PLOT, _ROW, _BOX, _LETTER, _MARGIN = 560, 26, 14, 7.0, 12
_TOP, _BOTTOM = 36, 44
_TICKS = 6
_LEAST_MS = 1e-9  # of the axis: a picosecond
_LEAST_SHARE = 1e-6


@dataclass(frozen=True)
class Box:
    """One row: the ends of the whiskers, the quartiles and the median.

    `mark` is another time to compare with, such as a baseline's. `outside` samples lie beyond the
    whiskers.
    """

    name: str
    low: float
    q1: float
    median: float
    q3: float
    high: float
    outside: int = 0
    mark: float | None = None


def svg(boxes: Sequence[Box], title: str, unit: tuple[float, str]) -> str:
    """Draw the rows below each other; `unit` is its length in milliseconds and its name."""
    names = [cut(shown_text(box.name)) for box in boxes]
    left = _MARGIN + math.ceil(_LETTER * max(map(width, names)))
    right, base = left + _PLOT, _TOP + _ROW * len(boxes)
    wide, tall = right + 2 * _MARGIN, base + _BOTTOM
    marks = [box.mark for box in boxes if box.mark is not None]
    low = min([*marks, *(box.low for box in boxes)])
    high = max([*marks, *(box.high for box in boxes)])
    times = ticks(low, low + max(high - low, _LEAST_SHARE * high, _LEAST_MS), _TICKS)
    axis = Axis(times[0], times[-1], left, right)
    scale, unit_name = unit
    places = decimals((times[1] - times[0]) / scale)
    parts = [rect(0, 0, wide, tall, 'fill="white"'), text(left, 20, title)]
    for time in times:
        x = axis.at(time)
        parts.append(line(x, _TOP, x, base, "#dddddd"))
        parts.append(text(x, base + 16, f"{time / scale:,.{places}f}", "middle"))
    parts.append(text(left + _PLOT / 2, base + 34, f"time of a call in {unit_name}", "middle"))
    for place, (box, name) in enumerate(zip(boxes, names, strict=True)):
        parts += _row(box, name, _TOP + _ROW * (place + 0.5), axis)
    if marks:
        parts.append(text(right, 20, "dashed: the baseline", "end"))
    return drawing(parts, wide, tall, title) + "\n"


def _row(box: Box, name: str, y: float, axis: Axis) -> list[str]:
    low, q1, median, q3, high = map(axis.at, (box.low, box.q1, box.median, box.q3, box.high))
    outside = f", {box.outside:,} samples further out" if box.outside else ""
    top = y - _BOX / 2
    parts = [
        "<g>",
        tip(
            f"{box.name}: median {duration(box.median)}, quartiles {duration(box.q1)} and "
            f"{duration(box.q3)}, whiskers {duration(box.low)} and {duration(box.high)}{outside}"
        ),
        text(_MARGIN, y + 4, name),
        line(low, y, high, y, BLUE),
        line(low, y - 4, low, y + 4, BLUE),
        line(high, y - 4, high, y + 4, BLUE),
        rect(
            *(q1, top, max(q3 - q1, 1.0), _BOX),
            f'fill="{ORANGE}" fill-opacity="0.6" stroke="{BLUE}"',
        ),
        line(median, top, median, top + _BOX, RED),
    ]
    if box.mark is not None:
        mark, half = axis.at(box.mark), _ROW / 2 - 1
        parts.append(line(mark, y - half, mark, y + half, "black", more=' stroke-dasharray="3 2"'))
    return [*parts, "</g>"]
