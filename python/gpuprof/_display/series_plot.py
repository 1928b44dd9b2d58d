"""Plots of one series of values in the order of time, as lines of text and as SVG.

All values are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import shown_text
from gpuprof._common.units import decimals, unit_of
from gpuprof._display import axes
from gpuprof._display.axes import BLUE, GREY, RED, Axis, drawing, line, tip

_ROWS = 8
_COLUMNS = 72
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 200, 90, 28, 28


@dataclass(frozen=True)
class Mark:
    """A value with its interval; `label` is shown beside the pointer."""

    value: float
    low: float
    high: float
    label: str = ""
    faint: bool = False  # shown, but not one of those that are compared


def text(marks: Sequence[Mark], change: int | None, ends: tuple[str, str]) -> list[str]:
    """Draw a series as lines of text: ``o`` a value, ``.`` one that is not compared, ``|`` around.

    `change` is the place of the first value after a change, and `ends` are the texts below the
    first and the last.
    """
    low, high = _range(marks)
    labels = _labels(low, high)
    wide = max(map(len, labels))
    step = max(1, min(4, _COLUMNS // len(marks)))
    columns = step * len(marks)
    grid = [[" "] * columns for _ in range(_ROWS)]
    axis = Axis(low, high, _ROWS - 1, 0)

    def row(value: float) -> int:
        return round(axis.at(value))

    for place, mark in enumerate(marks):
        column = step * place + step // 2
        if change == place:
            for line in grid:
                line[max(0, column - (step + 1) // 2)] = ":"
        for between in range(row(mark.high), row(mark.low) + 1):
            grid[between][column] = "|"
        grid[row(mark.value)][column] = "." if mark.faint else "o"
    lines = []
    for number, line in enumerate(grid):
        label = labels[0] if not number else labels[1] if number == _ROWS - 1 else ""
        lines.append(f"{label:>{wide}} |{''.join(line)}".rstrip())
    lines.append(f"{'':>{wide}} +{'-' * columns}")
    first, last = map(shown_text, ends)
    if last and len(marks) > 1:
        gap = max(2, columns - len(first) - len(last))
        first = f"{first}{' ' * gap}{last}"
    return [*lines, f"{'':>{wide}}  {first}".rstrip()]


def svg(marks: Sequence[Mark], change: int | None, ends: tuple[str, str], title: str) -> str:
    """Draw a series as an SVG element."""
    low, high = _range(marks)
    base, right = _HEIGHT - _BOTTOM, _WIDTH - 10
    axis = Axis(low, high, base, _TOP)
    step = (right - _LEFT) / len(marks)
    xs = [_LEFT + step * (place + 0.5) for place in range(len(marks))]
    parts = [axes.text(4, 16, title, more=' font-weight="bold"')]
    for label, edge in zip(_labels(low, high), (_TOP, base), strict=True):
        parts.append(line(_LEFT, edge, right, edge, GREY, more=' stroke-width="0.5"'))
        parts.append(axes.text(_LEFT - 6, edge + 4, label, "end"))
    if change is not None:
        between = xs[change] - step / 2
        parts.append(line(between, _TOP, between, base, RED, more=' stroke-dasharray="4 3"'))
    path = " ".join(
        f"{x:.1f},{axis.at(mark.value):.1f}"
        for x, mark in zip(xs, marks, strict=True)
        if not mark.faint
    )
    parts.append(f'<polyline points="{path}" fill="none" stroke="{BLUE}" stroke-opacity="0.5"/>')
    for x, mark in zip(xs, marks, strict=True):
        colour, y = GREY if mark.faint else BLUE, axis.at(mark.value)
        interval = line(x, axis.at(mark.high), x, axis.at(mark.low), colour)
        point = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>'
        parts.append(f"<g>{tip(mark.label)}{interval}{point}</g>")
    for place, anchor, end in ((_LEFT, "start", ends[0]), (right, "end", ends[1])):
        parts.append(axes.text(place, _HEIGHT - 8, end, anchor))
    return drawing(parts, _WIDTH, _HEIGHT, title)


def stacked(plots: Sequence[str]) -> str:
    """Return one SVG document of plots that `svg` drew below each other."""
    tall = _HEIGHT * len(plots)
    placed = "".join(
        f'<g transform="translate(0 {_HEIGHT * place})">{plot}</g>'
        for place, plot in enumerate(plots)
    )
    return (
        f'<svg data-generator="gpuprof" xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{tall}" viewBox="0 0 {_WIDTH} {tall}">{placed}</svg>'
    )


def _range(marks: Sequence[Mark]) -> tuple[float, float]:
    """Return the values at the bottom and at the top; they differ.

    All values lie between them. Intervals are cut off where they would take more than half of the
    height: those of one disturbed run must not squeeze all others into a line.
    """
    values = [mark.value for mark in marks]
    lowest, highest = min(values), max(values)
    room = (highest - lowest) / 2 or highest / 50
    low = max(min(mark.low for mark in marks), lowest - room)
    high = min(max(mark.high for mark in marks), highest + room)
    if low < high:
        return low, high
    return (low * 0.99, high * 1.01) if low else (0.0, 1.0)


def _labels(low: float, high: float) -> tuple[str, str]:
    """Write both ends in one unit, with digits that tell them apart, the top first."""
    scale, unit = unit_of(high)
    places = decimals((high - low) / scale)
    return f"{high / scale:.{places}f} {unit}", f"{low / scale:.{places}f} {unit}"
