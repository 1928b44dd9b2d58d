"""How a result of a benchmark is shown: text, Markdown, and HTML with a histogram as SVG.

Everything is made of what the result holds; nothing is waited for.
"""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuprof._common.text import shown_text
from gpuprof._common.units import decimals, duration, interval_text, rate, unit_of
from gpuprof._display.table import Grid, html_list, markdown_list
from gpuprof._results import statistics

if TYPE_CHECKING:
    from gpuprof._results.result import BenchResult

LEFT = frozenset({"name", "mode", "clock", "L2", "verdict", "error"})
BAR_COLUMNS = 40
_CLOCKS = {
    "cuda": "CUDA event times",
    "host": "host time around a wait for the device",
    "cpu": "host time; no GPU time was measured",
}
_L2 = {
    "hot": "L2 hot",
    "rotated": "L2 cold (arguments rotated)",
    "flushed": "L2 cold (flushed)",
}
_MIN_TICK = 1e-9  # a picosecond
_BLUE, _ORANGE, _RED = "#3b75af", "#f2a93b", "#c0392b"
_WIDTH, _HEIGHT = 420, 130


@dataclass(frozen=True)
class Bin:
    """Samples from `low` up to `high`, in milliseconds; the last bin holds its `high` too."""

    low: float
    high: float
    count: int
    tail: bool = False  # holds all that lies further out


def cells(result: BenchResult) -> dict[str, str]:
    """Return what a line of a table says of a result; without its name."""
    bytes_per_s, flops_per_s = result.gbytes_per_s, result.tflops_per_s
    unknown = math.isnan(result.host_ms)
    return {
        "median": duration(result.median_ms),
        "95 % interval": interval_text(*result.interval_ms),
        "min": duration(result.min_ms),
        "IQR": duration(result.iqr_ms),
        # On the CPU's clock the time of a call is the host's time.
        "host": "" if result.clock == "cpu" or unknown else duration(result.host_ms),
        "bytes": rate(bytes_per_s and bytes_per_s * 1e9, "B"),
        "flops": rate(flops_per_s and flops_per_s * 1e12, "FLOP"),
        "samples": f"{result.count:,}",
        "mode": result.mode,
        "clock": result.clock,
        "L2": "" if result.l2 == "n/a" else result.l2,
    }


def how(result: BenchResult) -> str:
    """Say in a line how the result was measured."""
    asked = (
        ""
        if result.requested_mode in {"auto", result.mode}
        else (f" ({result.requested_mode} was asked for)")
    )
    l2 = [_L2[result.l2]] if result.l2 in _L2 else []
    gate = [result.gate] if result.gate != "n/a" else []
    return ", ".join([f"{result.mode} mode{asked}", _CLOCKS[result.clock], *l2, *gate])


def _amounts(result: BenchResult) -> str:
    calls = "1 call" if result.calls_per_sample == 1 else f"{result.calls_per_sample:,} calls"
    samples = "1 sample" if result.count == 1 else f"{result.count:,} samples"
    tick = f", tick {duration(result.tick_ms)}" if result.tick_ms >= 5e-7 else ""
    if result.independent_samples < result.count:
        samples += f" (as {result.independent_samples:,.0f} independent ones)"
    return f"{samples} of {calls} in {duration(1e3 * result.duration_s)}{tick}"


def _facts(result: BenchResult) -> list[tuple[str, str]]:
    """Return what there is to say besides the median, by heading."""
    shown = cells(result)
    left_out = ("left out", "the host's time, allocation") if result.mode == "graph" else None
    facts = [
        ("measured", how(result)),
        *([left_out] if left_out else []),
        ("samples", _amounts(result)),
        (
            "spread",
            f"min {shown['min']}, quartiles {duration(result.q1_ms)} and {duration(result.q3_ms)}, "
            f"max {duration(result.max_ms)}; IQR {shown['IQR']}, MAD {duration(result.mad_ms)}",
        ),
    ]
    if shown["host"]:
        facts.append(("host", f"{shown['host']} to queue a call"))
    rates = [text for text in (shown["bytes"], shown["flops"]) if text]
    if rates:
        facts.append(("rate", ", ".join(rates)))
    if result.clock_mhz:
        low, high = min(result.clock_mhz), max(result.clock_mhz)
        middle = statistics.median(result.clock_mhz)
        facts.append(("SM clock", f"{middle:,.0f} MHz ({low:,.0f} to {high:,.0f})"))
    if result.throttle_reasons:
        facts.append(("throttled", ", ".join(result.throttle_reasons)))
    if result.params:
        facts.append(
            ("params", ", ".join(f"{key}={value}" for key, value in result.params.items()))
        )
    facts += [(str(key), str(value)) for key, value in result.extra_info.items()]
    return facts


def headline(result: BenchResult) -> str:
    """Say the median and its interval."""
    return (
        f"{shown_text(result.name)}: {duration(result.median_ms)} a call, "
        f"95 % interval {interval_text(*result.interval_ms)}"
    )


def plain(result: BenchResult) -> str:
    """Write a result as text."""
    facts = [(shown_text(heading), shown_text(text)) for heading, text in _facts(result)]
    width = max(len(heading) for heading, _ in facts)
    text = [headline(result), *(f"  {heading:<{width}}  {text}" for heading, text in facts)]
    return "\n".join([*text, *(f"  warning: {shown_text(each)}" for each in result.warnings)])


def markdown(result: BenchResult) -> str:
    """Write a result as a Markdown table of one line, with the warnings below."""
    line = {"name": result.name, **cells(result)}
    grid = Grid([*line], [[*line.values()]], LEFT).without_empty()
    return "\n".join([*grid.markdown(), *markdown_list(warnings_of([result]))]) + "\n"


def warnings_of(results: Sequence[BenchResult], more: Sequence[str] = ()) -> list[str]:
    """Return the warnings of several results; one that all have is said once, without a name."""
    found: dict[str, list[str]] = {}
    for result in results:
        for text in dict.fromkeys(result.warnings):
            found.setdefault(text, []).append(result.name)
    texts = [
        text if len(names) == len(results) else f"{', '.join(names)}: {text}"
        for text, names in found.items()
    ]
    return [f"warning: {text}" for text in [*more, *texts]]


def html_report(result: BenchResult) -> str:
    """Write a result as an HTML fragment with a histogram, without scripts."""
    facts = "".join(
        f'<tr><th style="text-align:left">{html.escape(shown_text(heading))}</th>'
        f'<td style="text-align:left">{html.escape(shown_text(text))}</td></tr>'
        for heading, text in _facts(result)
    )
    return (
        f"<div><div><b>{html.escape(headline(result))}</b></div>{svg(result)}"
        f"<table><tbody>{facts}</tbody></table>{html_list(warnings_of([result]))}</div>"
    )


def bins(result: BenchResult, most: int) -> list[Bin]:
    """Put the samples into bins of one width, whole ticks where the clock has them.

    What lies further than three times the distance between the quartiles outside of these is
    counted in a bin of its own at that end, so that one straggler does not squeeze all others into
    one bar.
    """
    ordered = sorted(result.samples_ms)
    tick = result.tick_ms if result.tick_ms > _MIN_TICK else 0.0
    reach = 3 * max(result.iqr_ms, tick) if most >= 3 else math.inf
    lowest, highest = result.q1_ms - reach, result.q3_ms + reach
    inside = [value for value in ordered if lowest <= value <= highest]
    below = [value for value in ordered if value < lowest]
    above = [value for value in ordered if value > highest]
    filled = _of_one_width(inside, most - bool(below) - bool(above), tick)
    if below:
        filled.insert(0, Bin(below[0], filled[0].low, len(below), tail=True))
    if above:
        filled.append(Bin(filled[-1].high, above[-1], len(above), tail=True))
    return filled


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
    """Write where each bin lies, in one unit."""
    inner = [each for each in found if not each.tail]
    scale, unit = unit_of(max(abs(each.high) for each in inner))
    places = decimals((inner[0].high - inner[0].low) / scale)

    def written(ms: float) -> str:
        return f"{ms / scale:.{places}f}"

    labels = []
    for place, each in enumerate(found):
        if not each.tail:
            text = f"{written(each.low)} to {written(each.high)}"
        elif place == 0:
            text = f"{written(each.low)} to below {written(each.high)}"
        else:
            text = f"above {written(each.low)}, to {written(each.high)}"
        labels.append(f"{text} {unit}")
    return labels


def histogram(result: BenchResult, most: int) -> str:
    """Draw the histogram as text."""
    if isinstance(most, bool) or not isinstance(most, int) or not 1 <= most <= 1000:
        message = f"bins is {most!r}; expected a whole number from 1 to 1000"
        raise ValueError(message)
    found = bins(result, most)
    labels = _labels(found)
    width, largest = max(map(len, labels)), max(each.count for each in found)
    text = []
    for label, each in zip(labels, found, strict=True):
        bar = "#" * math.ceil(BAR_COLUMNS * each.count / largest)
        text.append(f"{label:>{width}} |{bar}{' ' if bar else ''}{each.count or ''}".rstrip())
    return "\n".join(text)


def svg(result: BenchResult, most: int = 30) -> str:
    """Draw the histogram as an SVG element: bars, a line at the median, its interval as a band."""
    found = bins(result, most)
    labels, largest = _labels(found), max(each.count for each in found)
    step, base = _WIDTH / len(found), _HEIGHT - 20
    low, high = (_place(found, ms) * step for ms in result.interval_ms)
    middle = _place(found, result.median_ms) * step
    parts = [_rect((low, 0, max(high - low, 1.0), base), f'fill="{_ORANGE}" fill-opacity="0.4"')]
    for place, (each, label) in enumerate(zip(found, labels, strict=True)):
        tall = (base - 4) * each.count / largest
        style = f'fill="{_BLUE}" fill-opacity="{0.4 if each.tail else 0.9}"'
        if each.count:
            box = (place * step + 0.5, base - tall, max(step - 1, 0.5), tall)
            parts.append(_rect(box, style, f"<title>{html.escape(label)}: {each.count:,}</title>"))
    parts.append(f'<line x1="{middle:.1f}" y1="0" x2="{middle:.1f}" y2="{base}" stroke="{_RED}"/>')
    for x, anchor, ms in ((0, "start", result.min_ms), (_WIDTH, "end", result.max_ms)):
        parts.append(
            f'<text x="{x}" y="{_HEIGHT - 6}" text-anchor="{anchor}" font-size="11" '
            f'fill="currentColor">{duration(ms)}</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" width="{_WIDTH}" height="{_HEIGHT}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" aria-label="histogram of the samples">'
        f"{''.join(parts)}</svg>"
    )


def _place(found: Sequence[Bin], ms: float) -> float:
    """Return where a time lies among the bins, counted in bins from the left."""
    for place, each in enumerate(found):
        if ms <= each.high:
            wide = each.high - each.low
            return place + (min(max((ms - each.low) / wide, 0.0), 1.0) if wide > 0 else 0.5)
    return len(found)


def _rect(box: tuple[float, float, float, float], style: str, inside: str = "") -> str:
    x, y, width, height = box
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" {style}>'
        f"{inside}</rect>"
    )
