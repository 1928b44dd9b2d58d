"""Draw a part of a trace as an SVG: launches on the host, and kernels inside their scopes.

The trace is one that `gpuprof.kernels` wrote its records to, as of kernels_attribution.py --trace.
What is drawn begins with the first launch, or as the host enters the scope of --scope, and is --us
long.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

_WIDTH, _LEFT, _ROW, _GAP, _TOP = 1100, 150, 20, 10, 30
_TICKS = 8
_CALLS = ("cuda_runtime", "cuda_driver")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_SCOPES = "gpu_user_annotation"
_COLOURS = {"kernel": "#76b900", "gpu_memcpy": "#e08e0b", "gpu_memset": "#b35900"}
_SCOPE_COLOURS = ("#4c78a8", "#72a0c9", "#9fc2de", "#c9deee")
_CALL_COLOUR, _HOST_COLOUR = "#8c8c8c", "#5b5b8c"
_STYLE = (
    "text{font:11px sans-serif;fill:#222}.axis{stroke:#ccc;stroke-width:1}"
    ".name{font-size:10px;fill:#fff}.dark{font-size:10px;fill:#222}"
)


@dataclass(frozen=True)
class Slice:
    """One slice of the trace; microseconds."""

    name: str
    category: str
    track: str
    begin: float
    end: float
    scope: str


def read(path: Path) -> list[Slice]:
    """Return the slices of a trace's file."""
    raw = path.read_bytes()
    events: list[dict[str, Any]] = json.loads(
        gzip.decompress(raw) if path.suffix == ".gz" else raw
    )["traceEvents"]
    tracks = {
        each["tid"]: each["args"]["name"]
        for each in events
        if each["ph"] == "M" and each["name"] == "thread_name"
    }
    return [
        Slice(
            each["name"],
            each.get("cat", ""),
            tracks.get(each["tid"], str(each["tid"])),
            each["ts"],
            each["ts"] + each["dur"],
            each.get("args", {}).get("scope", ""),
        )
        for each in events
        if each["ph"] == "X"
    ]


def window(slices: Sequence[Slice], scope: str, us: float) -> tuple[float, float]:
    """Return from when to when is drawn."""
    kernels = [each for each in slices if each.category in _WORK and each.scope.startswith(scope)]
    if not kernels:
        sys.exit(f"kernels_picture: no kernel of the scope {scope!r} is in the trace")
    begin = min(each.begin for each in kernels)
    if not scope:
        begin = min(each.begin for each in slices if each.category in {*_CALLS, *_WORK})
    outermost = scope.split("/", maxsplit=1)[0]
    hosts = [
        each
        for each in slices
        if each.category == "scope" and each.name == outermost and each.begin <= begin
    ]
    begin = max((each.begin for each in hosts), default=begin)
    return begin, begin + us


def draw(slices: Sequence[Slice], begin: float, end: float) -> str:
    """Return the SVG of what lies between two times."""
    shown = [
        each
        for each in slices
        if each.end > begin
        and each.begin < end
        and each.category in {*_CALLS, *_WORK, _SCOPES, "scope"}
    ]
    tracks = sorted({each.track for each in shown}, key=lambda name: _order(shown, name))
    parts: list[str] = []
    top = _TOP
    for track in tracks:
        own = sorted(
            (each for each in shown if each.track == track), key=lambda e: (e.begin, -e.end)
        )
        rows = _rows(own)
        parts.append(f'<text x="4" y="{top + 14}">{escape(_short(track, 24))}</text>')
        for each, row in zip(own, rows, strict=True):
            parts.append(_box(each, row, top, begin, end))
        top += (max(rows) + 1) * _ROW + _GAP
    axis = _axis(begin, end, top)
    size = f'width="{_WIDTH}" height="{top + 10}" viewBox="0 0 {_WIDTH} {top + 10}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *axis, *parts, "</svg>", ""])


def _order(slices: Sequence[Slice], track: str) -> tuple[int, str]:
    categories = {each.category for each in slices if each.track == track}
    return (0 if "scope" in categories else 1 if categories & {*_CALLS} else 2), track


def _rows(slices: Sequence[Slice]) -> list[int]:
    """Return how deep each slice is inside others of its track."""
    ends: list[float] = []
    depths = []
    for each in slices:
        while ends and ends[-1] <= each.begin + 1e-3:
            ends.pop()
        depths.append(len(ends))
        ends.append(each.end)
    return depths


def _box(each: Slice, row: int, top: int, begin: float, end: float) -> str:
    scale = (_WIDTH - _LEFT - 10) / (end - begin)
    left = _LEFT + (max(each.begin, begin) - begin) * scale
    width = max((min(each.end, end) - max(each.begin, begin)) * scale, 0.6)
    y = top + row * _ROW
    dark = False
    if each.category == _SCOPES:
        colour, dark = _SCOPE_COLOURS[row % len(_SCOPE_COLOURS)], row % len(_SCOPE_COLOURS) > 1
    elif each.category in _CALLS:
        colour = _CALL_COLOUR
    else:
        colour = _COLOURS.get(each.category, _HOST_COLOUR)
    title = f"<title>{escape(each.name)}: {each.end - each.begin:.1f} us</title>"
    box = (
        f'<rect x="{left:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 2}" fill="{colour}" '
        f'stroke="#fff" stroke-width="0.4">{title}</rect>'
    )
    letters = int(width / 6)
    if letters < 3:
        return box
    style = "dark" if dark else "name"
    text = escape(_short(each.name, letters))
    return f'{box}<text class="{style}" x="{left + 3:.1f}" y="{y + 13}">{text}</text>'


def _short(text: str, letters: int) -> str:
    plain = text.removeprefix("void ").split("<")[0].split("(")[0] if "(" in text else text
    plain = plain.strip() or text
    return plain if len(plain) <= letters else plain[: max(letters - 1, 1)] + "…"


def _axis(begin: float, end: float, bottom: int) -> list[str]:
    lines = []
    for tick in range(_TICKS + 1):
        x = _LEFT + (_WIDTH - _LEFT - 10) * tick / _TICKS
        us = (end - begin) * tick / _TICKS
        lines.append(f'<line class="axis" x1="{x:.1f}" y1="22" x2="{x:.1f}" y2="{bottom}"/>')
        lines.append(f'<text x="{x - 14:.1f}" y="16">{us:.0f} µs</text>')
    return lines


def main() -> None:
    """Read the trace and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="SVG")
    parser.add_argument("--scope", default="", help="begin where this scope launches work")
    parser.add_argument("--us", type=float, default=500.0, help="how many microseconds to draw")
    options = parser.parse_args()
    slices = read(options.trace)
    begin, end = window(slices, options.scope, options.us)
    options.output.write_text(draw(slices, begin, end), encoding="utf-8")
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
