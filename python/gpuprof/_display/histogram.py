"""Histograms of plain numbers, as lines of text and as SVG. All times are milliseconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuprof._common.units import decimals, duration, unit_of
from gpuprof._display import axes
from gpuprof._display.axes import BLUE, ORANGE, RED, Axis, drawing, line, rect, tip

BAR_COLUMNS = 40
_MIN_TICK = 1e-9  # a picosecond
_WIDTH, _HEIGHT = 420, 130


@dataclass(frozen=True)
class Bin:
    """Samples from `low` up to `high`; the last bin includes its `high`."""

    low: float
    high: float
    count: int
    tail: bool = False  # holds all that lies further out


def bins(
    samples: Sequence[float], quartiles: tuple[float, float], tick: float, most: int
) -> list[Bin]:
    """Put samples into at most that many bins of one width: whole ticks where the clock has them.

    Samples further outside the quartiles than three times their distance share a bin at that end,
    so that one straggler does not squeeze all others into one bar.
    """
    ordered = sorted(samples)
    low, high = quartiles
    tick = tick if tick > _MIN_TICK else 0.0
    reach = 3 * max(high - low, tick) if most >= 3 else math.inf
    inside = [value for value in ordered if low - reach <= value <= high + reach]
    below = [value for value in ordered if value < low - reach]
    above = [value for value in ordered if value > high + reach]
    found = _of_one_width(inside, most - bool(below) - bool(above), tick)
    if below:
        found.insert(0, Bin(below[0], found[0].low, len(below), tail=True))
    if above:
        found.append(Bin(found[-1].high, above[-1], len(above), tail=True))
    return found


def _of_one_width(ordered: Sequence[float], room: int, tick: float) -> list[Bin]:
    low, span = ordered[0] - tick / 2, ordered[-1] - ordered[0] + tick
    width = span / room
    if tick:  # equal samples lie in the middle of a bin
        width = tick * max(1, math.ceil(width / tick - 1e-9))
        room = min(room, math.ceil(span / width - 1e-9))
    if low + width == low:  # all samples are equal
        return [Bin(low, low, len(ordered))]
    counts = [0] * room
    for value in ordered:
        counts[min(int((value - low) / width), room - 1)] += 1
    edges = [low + place * width for place in range(room + 1)]
    edges[-1] = max(edges[-1], ordered[-1])  # rounding leaves none outside
    return [Bin(*each) for each in zip(edges[:-1], edges[1:], counts, strict=True)]


def _labels(found: Sequence[Bin]) -> list[str]:
    """Return the range of each bin as text, all in one unit."""
    inner = [each for each in found if not each.tail]
    scale, unit = unit_of(max(abs(each.high) for each in inner))
    places = decimals((inner[0].high - inner[0].low) / scale)
    labels = []
    for place, each in enumerate(found):
        low, high = (f"{ms / scale:.{places}f}" for ms in (each.low, each.high))
        if not each.tail:
            text = f"{low} to {high}"
        else:
            text = f"{low} to below {high}" if place == 0 else f"above {low}, to {high}"
        labels.append(f"{text} {unit}")
    return labels


def text(found: Sequence[Bin]) -> str:
    labels = _labels(found)
    width, largest = max(map(len, labels)), max(each.count for each in found)
    lines = []
    for label, each in zip(labels, found, strict=True):
        bar = "#" * math.ceil(BAR_COLUMNS * each.count / largest)
        lines.append(f"{label:>{width}} |{bar}{' ' if bar else ''}{each.count or ''}".rstrip())
    return "\n".join(lines)


def svg(
    found: Sequence[Bin], median: float, interval: tuple[float, float], ends: tuple[float, float]
) -> str:
    """Draw a histogram as an SVG element, with a line at the median and its interval as a band.

    `ends` are the smallest and the largest sample, which stand below it.
    """
    labels, largest = _labels(found), max(each.count for each in found)
    step, base = _WIDTH / len(found), _HEIGHT - 20
    inner = [place for place, each in enumerate(found) if not each.tail]
    first, last = inner[0], inner[-1]
    axis = Axis(found[first].low, found[last].high, first * step, (last + 1) * step)
    low, high = map(axis.at, interval)
    middle = axis.at(median)
    parts = [rect(low, 0, max(high - low, 1.0), base, f'fill="{ORANGE}" fill-opacity="0.4"')]
    for place, (each, label) in enumerate(zip(found, labels, strict=True)):
        tall = (base - 4) * each.count / largest
        style = f'fill="{BLUE}" fill-opacity="{0.4 if each.tail else 0.9}"'
        if each.count:
            box = (place * step + 0.5, base - tall, max(step - 1, 0.5), tall)
            parts.append(rect(*box, style, inside=tip(f"{label}: {each.count:,}")))
    parts.append(line(middle, 0, middle, base, RED))
    for x, anchor, ms in ((0, "start", ends[0]), (_WIDTH, "end", ends[1])):
        parts.append(axes.text(x, _HEIGHT - 6, duration(ms), anchor))
    return drawing(parts, _WIDTH, _HEIGHT, "histogram of the samples")
