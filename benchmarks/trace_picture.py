"""Draw a part of a trace as an SVG: kernels inside their scopes, or the scopes of several ranks.

A trace with kernels, as kernels_attribution.py --trace writes it, shows launches on the host, and
kernels inside the scopes that launched them. One without, as distributed_ranks.py --trace writes
it, shows the scopes of each rank on the host and on the GPU. What is drawn begins as the host
enters the scope of --scope, and is --us long.
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

_WIDTH, _LEFT, _ROW, _GAP, _TOP = 1100, 190, 20, 10, 30
_TICKS = 8
_CALLS = ("cuda_runtime", "cuda_driver")
_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_SCOPES = "gpu_user_annotation"
_GPU_SCOPES = "gpu"
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
    threads: dict[tuple[int, int], str] = {}
    processes: dict[int, str] = {}
    for each in events:
        if each["ph"] != "M":
            continue
        if each["name"] == "thread_name":
            threads[each["pid"], each["tid"]] = each["args"]["name"]
        elif each["name"] == "process_labels":
            processes[each["pid"]] = each["args"]["labels"]
        elif each["name"] == "process_name":
            processes.setdefault(each["pid"], each["args"]["name"])
    several = len({each["pid"] for each in events if each["ph"] == "X"}) > 1

    def track(pid: int, tid: int) -> str:
        name = threads.get((pid, tid), str(tid))
        return f"{processes.get(pid, pid)}: {name}" if several else name

    return [
        Slice(
            each["name"],
            each.get("cat", ""),
            track(each["pid"], each["tid"]),
            each["ts"],
            each["ts"] + each["dur"],
            each.get("args", {}).get("scope", ""),
        )
        for each in events
        if each["ph"] == "X"
    ]


def window(slices: Sequence[Slice], scope: str, entry: int, us: float) -> tuple[float, float]:
    """Return from when to when is drawn: from the `entry`-th time that the host enters a scope."""
    begins = sorted(
        each.begin for each in slices if each.category == "scope" and each.name == scope
    )
    if not -len(begins) <= entry < len(begins):
        sys.exit(f"trace_picture: the trace has {len(begins)} entries of the scope {scope!r}")
    return begins[entry], begins[entry] + us


def draw(slices: Sequence[Slice], begin: float, end: float) -> str:
    """Return the SVG of what lies between two times."""
    seen = [each for each in slices if each.end > begin and each.begin < end]
    categories = {"scope", _GPU_SCOPES}
    if any(each.category in _WORK for each in seen):
        categories = {*_CALLS, *_WORK, _SCOPES, "scope"}
    shown = [each for each in seen if each.category in categories]
    tracks = sorted({each.track for each in shown}, key=lambda name: _order(shown, name))
    parts: list[str] = []
    top = _TOP
    for track in tracks:
        own = sorted(
            (each for each in shown if each.track == track), key=lambda e: (e.begin, -e.end)
        )
        rows = _rows(own)
        parts.append(f'<text x="4" y="{top + 14}">{escape(_cut(track, 32))}</text>')
        for each, row in zip(own, rows, strict=True):
            parts.append(_box(each, row, top, begin, end))
        top += (max(rows) + 1) * _ROW + _GAP
    axis = _axis(begin, end, top)
    size = f'width="{_WIDTH}" height="{top + 10}" viewBox="0 0 {_WIDTH} {top + 10}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    ground = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", ground, *axis, *parts, "</svg>", ""])


def _order(slices: Sequence[Slice], track: str) -> tuple[str, int, str]:
    categories = {each.category for each in slices if each.track == track}
    place = 0 if "scope" in categories else 1 if categories & {*_CALLS} else 2
    process, separator, _ = track.partition(": ")
    return process if separator else "", place, track


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
    if each.category in {_SCOPES, _GPU_SCOPES}:
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
    return _cut(plain.strip() or text, letters)


def _cut(text: str, letters: int) -> str:
    return text if len(text) <= letters else text[: max(letters - 1, 1)] + "…"


def _axis(begin: float, end: float, bottom: int) -> list[str]:
    lines = []
    for tick in range(_TICKS + 1):
        x = _LEFT + (_WIDTH - _LEFT - 10) * tick / _TICKS
        at = (end - begin) * tick / _TICKS
        label = f"{at / 1e3:g} ms" if end - begin >= 10_000 else f"{at:.0f} µs"
        anchor = "end" if tick == _TICKS else "middle"
        lines.append(f'<line class="axis" x1="{x:.1f}" y1="22" x2="{x:.1f}" y2="{bottom}"/>')
        lines.append(f'<text x="{x:.1f}" y="16" text-anchor="{anchor}">{label}</text>')
    return lines


def main() -> None:
    """Read the trace and write the picture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="SVG")
    parser.add_argument("--scope", required=True, help="begin where the host enters this scope")
    parser.add_argument(
        "--entry", type=int, default=0, help="which entry of it, from 0; -1 is the last"
    )
    parser.add_argument("--us", type=float, default=500.0, help="how many microseconds to draw")
    options = parser.parse_args()
    slices = read(options.trace)
    begin, end = window(slices, options.scope, options.entry, options.us)
    options.output.write_text(draw(slices, begin, end), encoding="utf-8")
    print(f"written: {options.output}")


if __name__ == "__main__":
    main()
