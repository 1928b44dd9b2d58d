"""Plots of one series of values in the order of time, as lines of text and as SVG.

All values are milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.text import shown_text
from gpuprof._common.units import percent_sign, unit_of
from gpuprof._display import axes
from gpuprof._display.axes import BLUE, GREY, ORANGE, RED, Axis, drawing, line, ticks, tip

_ROWS = 9
_COLUMNS = 72
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 720, 200, 90, 60, 40, 28
_LEAST_SHARE = 0.1  # of the level, that the scale spans: less of a change must not look large
_TICKS = 4


@dataclass(frozen=True)
class Mark:
    """A value with its interval; `label` is shown beside the pointer."""

    value: float
    low: float
    high: float
    label: str = ""
    faint: bool = False  # shown, but not one of those that are compared


@dataclass(frozen=True)
class Level:
    """The level of the values from `start` up to `end`, as a line; `label` is what changed there.

    `is_step` is true where the values step to it.
    """

    start: int
    end: int
    first: float
    last: float
    label: str = ""
    is_step: bool = False

    def at(self, place: int) -> float:
        share = (place - self.start) / max(self.end - self.start - 1, 1)
        return self.first + share * (self.last - self.first)


def text(marks: Sequence[Mark], levels: Sequence[Level], ends: tuple[str, str]) -> list[str]:
    """Draw a series as lines of text: ``o`` a value, ``.`` one that is not compared, ``|`` around.

    ``-`` is the level and ``:`` where it changed. `ends` are the texts below the first and the last
    value.
    """
    scale = _scale(marks)
    step = max(1, min(4, _COLUMNS // len(marks)))
    columns = step * len(marks)
    grid = [[" "] * columns for _ in range(_ROWS)]
    above = [" "] * columns
    axis = Axis(scale[0], scale[-1], _ROWS - 1, 0)

    def row(value: float) -> int:
        return round(axis.at(value))

    for level in levels:
        for column in range(step * level.start, step * level.end):
            grid[row(level.at(column // step))][column] = "-"
        if level.is_step:
            for line in grid:
                line[max(0, step * level.start - (step == 1))] = ":"
        place = max(min(step * level.start, columns - len(level.label)), 0)
        if level.label and not "".join(above[place - 1 if place else 0 :]).strip():
            above[place:] = level.label.ljust(columns - place)
    for place, mark in enumerate(marks):
        column = step * place + step // 2
        for between in range(row(mark.high), row(mark.low) + 1):
            grid[between][column] = "|"
        grid[row(mark.value)][column] = "." if mark.faint else "o"
    labels = {row(value): label for value, label in zip(scale, _labels(scale), strict=True)}
    wide = max(map(len, labels.values()))
    lines = [f"{'':>{wide}}  {''.join(above)}".rstrip()] if "".join(above).strip() else []
    for number, line in enumerate(grid):
        lines.append(f"{labels.get(number, ''):>{wide}} |{''.join(line)}".rstrip())
    lines.append(f"{'':>{wide}} +{'-' * columns}")
    first, last = map(shown_text, ends)
    if last and len(marks) > 1:
        gap = max(2, columns - len(first) - len(last))
        first = f"{first}{' ' * gap}{last}"
    return [*lines, f"{'':>{wide}}  {first}".rstrip()]


def svg(marks: Sequence[Mark], levels: Sequence[Level], ends: tuple[str, str], title: str) -> str:
    """Draw a series as an SVG element, with its scale in percent of the last level on the right."""
    scale = _scale(marks)
    base, right = _HEIGHT - _BOTTOM, _WIDTH - _RIGHT
    axis = Axis(scale[0], scale[-1], base, _TOP)
    step = (right - _LEFT) / len(marks)
    xs = [_LEFT + step * (place + 0.5) for place in range(len(marks))]
    parts = [axes.text(4, 16, title, more=' font-weight="bold"')]
    whole = levels[-1].last if levels else 0.0
    for value, label in zip(scale, _labels(scale), strict=True):
        y = axis.at(value)
        parts.append(line(_LEFT, y, right, y, GREY, more=' stroke-width="0.5"'))
        parts.append(axes.text(_LEFT - 6, y + 4, label, "end"))
        if whole:
            parts.append(axes.text(right + 6, y + 4, percent_sign(value / whole)))
    for level in levels:
        between = _LEFT + step * level.start
        if level.is_step:
            parts.append(line(between, _TOP, between, base, RED, more=' stroke-dasharray="4 3"'))
        if level.label:
            parts.append(axes.text(between, _TOP - 6, level.label))
        at = [axis.at(value) for value in (level.first, level.last)]
        parts.append(
            line(between, at[0], _LEFT + step * level.end, at[1], ORANGE, more=' stroke-width="2"')
        )
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


def _scale(marks: Sequence[Mark]) -> list[float]:
    """Return round values from the bottom to the top, between which all values lie.

    Intervals are cut off where they would take more than half of the height: those of one disturbed
    run must not squeeze all others into a line. Values that hardly differ get a scale of a tenth of
    their size, so that noise does not look like a change.
    """
    values = [mark.value for mark in marks]
    lowest, highest = min(values), max(values)
    room = (highest - lowest) / 2 or highest / 50
    low = max(min(mark.low for mark in marks), lowest - room, 0.0)
    high = min(max(mark.high for mark in marks), highest + room)
    if not high > 0.0:
        return [0.0, 1.0]
    more = max(_LEAST_SHARE * highest - (high - low), 0.0) / 2
    unit = unit_of(high)[0]
    return [unit * each for each in ticks((low - more) / unit, (high + more) / unit, _TICKS)]


def _labels(scale: Sequence[float]) -> list[str]:
    """Write the values of a scale in one unit, with digits that tell them apart."""
    size, unit = unit_of(scale[-1])
    apart = (scale[1] - scale[0]) / size
    places = next((n for n in range(7) if abs(round(apart, n) / apart - 1.0) < 1e-6), 6)
    return [f"{value / size:.{places}f} {unit}" for value in scale]
