"""Box plots of several rows as one SVG file. All times are milliseconds.

A box goes from the first to the third quartile with a line at the median. Its whiskers end at the
outermost samples within 1.5 times the distance of the quartiles; samples further out are counted in
the row's tooltip, and do not stretch the axis.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import cut, shown_text, width
from gpuprof._common.units import decimals, duration

_BLUE, _ORANGE, _RED = "#3b75af", "#f2a93b", "#c0392b"
_FONT = 'font-family="sans-serif" font-size="12"'
_PLOT, _ROW, _BOX, _LETTER, _MARGIN = 560, 26, 14, 7.0, 12
_TOP, _BOTTOM = 36, 44
_TICKS = 6
_LEAST_MS = 1e-9  # of the axis: a picosecond
_LEAST_SHARE = 1e-6
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)

_Point = tuple[float, float]


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
    axis = _Axis(left, boxes)
    wide, tall = left + _PLOT + 2 * _MARGIN, _TOP + _ROW * len(boxes) + _BOTTOM
    parts = [
        f'<rect width="{wide}" height="{tall}" fill="white"/>',
        _text(left, 20, title, "start", "14"),
        *axis.drawn(_TOP + _ROW * len(boxes), unit),
    ]
    for place, (box, name) in enumerate(zip(boxes, names, strict=True)):
        parts += _row(box, name, _TOP + _ROW * place + _ROW / 2, axis)
    if any(box.mark is not None for box in boxes):
        parts.append(_text(left + _PLOT, 20, "dashed: the baseline", "end", "11"))
    return (
        f'<svg data-generator="gpuprof" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{wide}" height="{tall}" '
        f'viewBox="0 0 {wide} {tall}" {_FONT} aria-label="{html.escape(shown_text(title))}">\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


class _Axis:
    """Where a time lies on the horizontal axis, which begins and ends at a tick."""

    def __init__(self, left: int, boxes: Sequence[Box]) -> None:
        times = [
            time for box in boxes for time in (box.low, box.high, box.mark) if time is not None
        ]
        low, high = min(times), max(times)
        span = max(high - low, _LEAST_SHARE * high, _LEAST_MS)
        exponent = math.floor(math.log10(span / _TICKS))
        wanted = span / _TICKS / 10.0**exponent
        step = next(each for each in _STEPS if each >= wanted - 1e-9)
        self._step = step * 10.0**exponent
        self._first = math.floor(low / self._step + 1e-9)
        self._last = max(math.ceil(high / self._step - 1e-9), self._first + 1)
        self._left = left

    def x(self, ms: float) -> float:
        share = (ms / self._step - self._first) / (self._last - self._first)
        return self._left + _PLOT * share

    def drawn(self, base: float, unit: tuple[float, str]) -> list[str]:
        scale, name = unit
        places = decimals(self._step / scale)
        parts = []
        for tick in range(self._first, self._last + 1):
            x = self.x(tick * self._step)
            parts.append(_line((x, _TOP), (x, base), "#dddddd"))
            parts.append(
                _text(x, base + 16, f"{tick * self._step / scale:,.{places}f}", "middle", "11")
            )
        middle = self._left + _PLOT / 2
        return [*parts, _text(middle, base + 34, f"time of a call in {name}", "middle", "12")]


def _row(box: Box, name: str, y: float, axis: _Axis) -> list[str]:
    low, q1, median, q3, high = (
        axis.x(time) for time in (box.low, box.q1, box.median, box.q3, box.high)
    )
    outside = f", {box.outside:,} samples further out" if box.outside else ""
    tip = (
        f"{box.name}: median {duration(box.median)}, quartiles {duration(box.q1)} and "
        f"{duration(box.q3)}, whiskers {duration(box.low)} and {duration(box.high)}{outside}"
    )
    top = y - _BOX / 2
    parts = [
        f"<g><title>{html.escape(shown_text(tip))}</title>",
        _text(_MARGIN, y + 4, name, "start", "12"),
        _line((low, y), (high, y), _BLUE),
        _line((low, y - 4), (low, y + 4), _BLUE),
        _line((high, y - 4), (high, y + 4), _BLUE),
        f'<rect x="{q1:.1f}" y="{top:.1f}" width="{max(q3 - q1, 1.0):.1f}" height="{_BOX}" '
        f'fill="{_ORANGE}" fill-opacity="0.6" stroke="{_BLUE}"/>',
        _line((median, top), (median, top + _BOX), _RED),
    ]
    if box.mark is not None:
        mark = axis.x(box.mark)
        dashed = ' stroke-dasharray="3 2"'
        parts.append(_line((mark, y - _ROW / 2 + 1), (mark, y + _ROW / 2 - 1), "black", dashed))
    return [*parts, "</g>"]


def _line(begin: _Point, end: _Point, colour: str, more: str = "") -> str:
    (x1, y1), (x2, y2) = begin, end
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"{more}/>'


def _text(x: float, y: float, text: str, anchor: str, size: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{html.escape(shown_text(text))}</text>"
    )
