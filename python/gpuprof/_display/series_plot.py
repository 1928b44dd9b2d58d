"""Plots of one series of values in the order of time, as lines of text and as SVG.

All values are milliseconds.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import shown_text
from gpuprof._common.units import decimals, unit_of

_ROWS = 8
_COLUMNS = 72
_WIDTH, _HEIGHT, _LEFT, _TOP, _BOTTOM = 720, 200, 90, 28, 28
_BLUE, _GREY, _RED = "#3b75af", "#9a9a9a", "#c0392b"


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

    def row(value: float) -> int:
        return round((high - min(max(value, low), high)) / (high - low) * (_ROWS - 1))

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


def svg(
    marks: Sequence[Mark], change: int | None, ends: tuple[str, str], title: str, top: float = 0.0
) -> str:
    """Draw a series as an SVG element, which stands `top` pixels down in one around it."""
    low, high = _range(marks)
    base, step = _HEIGHT - _BOTTOM, (_WIDTH - _LEFT - 10) / len(marks)

    def x_of(place: int) -> float:
        return _LEFT + step * (place + 0.5)

    def y_of(value: float) -> float:
        return _TOP + (high - min(max(value, low), high)) / (high - low) * (base - _TOP)

    parts = [_text((4, 16), "start", title, 'font-weight="bold"')]
    for label, y in zip(_labels(low, high), (_TOP, base), strict=True):
        line = f'<line x1="{_LEFT}" y1="{y}" x2="{_WIDTH - 10}" y2="{y}" stroke="{_GREY}"'
        parts.append(f'{line} stroke-width="0.5"/>')
        parts.append(_text((_LEFT - 6, y + 4), "end", label))
    if change is not None:
        x = x_of(change) - step / 2
        line = f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{base}" stroke="{_RED}"'
        parts.append(f'{line} stroke-dasharray="4 3"/>')
    known = [(x_of(n), y_of(m.value)) for n, m in enumerate(marks) if not m.faint]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in known)
    parts.append(f'<polyline points="{path}" fill="none" stroke="{_BLUE}" stroke-opacity="0.5"/>')
    for place, mark in enumerate(marks):
        x, colour = x_of(place), _GREY if mark.faint else _BLUE
        parts.append(
            f'<g><title>{html.escape(shown_text(mark.label))}</title><line x1="{x:.1f}" '
            f'y1="{y_of(mark.high):.1f}" x2="{x:.1f}" y2="{y_of(mark.low):.1f}" '
            f'stroke="{colour}"/><circle cx="{x:.1f}" cy="{y_of(mark.value):.1f}" r="3.5" '
            f'fill="{colour}"/></g>'
        )
    for place, anchor, end in ((_LEFT, "start", ends[0]), (_WIDTH - 10, "end", ends[1])):
        parts.append(_text((place, _HEIGHT - 8), anchor, end))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" y="{top:g}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'aria-label="{html.escape(shown_text(title))}">{"".join(parts)}</svg>'
    )


def stacked(titles_and_plots: Sequence[str]) -> str:
    """Return one SVG document of plots that `svg` drew below each other."""
    tall = _HEIGHT * len(titles_and_plots)
    return (
        f'<svg data-generator="gpuprof" xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" '
        f'height="{tall}" '
        f'viewBox="0 0 {_WIDTH} {tall}">{"".join(titles_and_plots)}</svg>'
    )


def height() -> int:
    """Return how tall a plot of `svg` is, in pixels."""
    return _HEIGHT


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


def _text(at: tuple[float, float], anchor: str, words: str, more: str = "") -> str:
    return (
        f'<text x="{at[0]:g}" y="{at[1]:g}" text-anchor="{anchor}" font-size="12" '
        f'fill="currentColor"{" " if more else ""}{more}>{html.escape(shown_text(words))}</text>'
    )
