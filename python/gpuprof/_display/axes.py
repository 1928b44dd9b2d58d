"""What drawings as SVG share: colours, a linear axis, and the elements, with their text escaped."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from gpuprof._common.text import in_html

BLUE, ORANGE, RED, GREY = "#3b75af", "#f2a93b", "#c0392b", "#9a9a9a"
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)


@dataclass(frozen=True)
class Axis:
    """Values from `low` to `high`, which lie at `start` and `end`; others lie at the closer one."""

    low: float
    high: float
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return where a value lies: in the middle, if both ends are the same."""
        span = self.high - self.low
        share = (min(max(value, self.low), self.high) - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int) -> list[float]:
    """Return round numbers of one distance; the first and the last are around both values."""
    wanted = (high - low) / most
    power = 10.0 ** math.floor(math.log10(wanted))
    step = power * next(each for each in _STEPS if each * power >= wanted * (1 - 1e-9))
    first = math.floor(low / step + 1e-9)
    last = max(math.ceil(high / step - 1e-9), first + 1)
    return [place * step for place in range(first, last + 1)]


def tip(words: str) -> str:
    """Return text that is shown beside a pointer at the element around."""
    return f"<title>{in_html(words)}</title>"


def text(x: float, y: float, words: str, anchor: str = "start", more: str = "") -> str:
    """Return a line of text that starts, ends or has its middle at a point."""
    at = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text {at} fill="currentColor"{more}>{in_html(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str, *, more: str = "") -> str:
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{colour}"{more}/>'


def rect(x: float, y: float, wide: float, tall: float, style: str, *, inside: str = "") -> str:
    sides = f'x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{tall:.1f}"'
    return f"<rect {sides} {style}>{inside}</rect>"


def drawing(parts: Iterable[str], wide: int, tall: int, label: str) -> str:
    """Return an SVG element; `label` is read to those who do not see it."""
    joined = "\n".join(parts)
    return (
        f'<svg data-generator="gpuprof" xmlns="http://www.w3.org/2000/svg" role="img" '
        f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}" font-family="sans-serif" '
        f'font-size="12" aria-label="{in_html(label)}">\n{joined}\n</svg>'
    )
