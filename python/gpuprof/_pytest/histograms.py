"""``--gpu-benchmark-histogram``: a drawing of the tests of each group, as box plots in SVG files.

A group's file is ``PREFIX-GROUP.svg``, and that of the tests of no group ``PREFIX.svg``, as
pytest-benchmark calls them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuprof._common.files import replace_file
from gpuprof._common.outputs import SVG, may_replace
from gpuprof._common.text import clean_text
from gpuprof._common.units import unit_of
from gpuprof._display import boxes
from gpuprof._display.boxes import Box
from gpuprof._pytest.columns import grouped, names_of
from gpuprof._pytest.options import UNITS
from gpuprof._pytest.settings import Settings
from gpuprof._results.export import figures

if TYPE_CHECKING:
    from gpuprof._pytest.json_file import Record

_NOT_IN_FILES = re.compile(r'[\\/:*?<>|" _]+')
_MOST_BYTES = 200  # of a group in the name of a file; file systems allow 255 for the whole name


def write(prefix: Path, records: Sequence[Record], view: Settings) -> list[Path]:
    """Write a file for each group and return their paths; folders are made."""
    written: list[Path] = []
    for group, members in grouped(records, view):
        path = _path(prefix, group, written)
        path.parent.mkdir(parents=True, exist_ok=True)
        replace_file(path, _drawn(group, members, view).encode())
        written.append(path)
    return written


def _path(prefix: Path, group: str | None, taken: Sequence[Path]) -> Path:
    """Return the file of a group; two groups never share one, nor one with somebody else."""
    ending = "" if group is None else f"-{_in_files(group)}"
    path, count = prefix.with_name(f"{prefix.name}{ending}.svg"), 1
    while path in taken or not may_replace(path, SVG):
        count += 1
        path = prefix.with_name(f"{prefix.name}{ending}-{count}.svg")
    return path


def _in_files(group: str) -> str:
    plain = "".join(letter if letter.isprintable() else "_" for letter in clean_text(group))
    plain = _NOT_IN_FILES.sub("_", plain)
    return plain.encode()[:_MOST_BYTES].decode(errors="ignore")


def _drawn(group: str | None, records: Sequence[Record], view: Settings) -> str:
    names = names_of(records, view.name)
    rows = [_box(name, record) for name, record in zip(names, records, strict=True)]
    unit = UNITS[view.unit] if view.unit else unit_of(max(row.high for row in rows))
    title = f"Time of a call in {unit[1]}" + ("" if group is None else f": {group}")
    return boxes.svg(rows, title, unit)


def _box(name: str, record: Record) -> Box:
    found = figures(record.result)
    return Box(
        name=name,
        low=1e3 * found["ld15iqr"],
        q1=1e3 * found["q1"],
        median=1e3 * found["median"],
        q3=1e3 * found["q3"],
        high=1e3 * found["hd15iqr"],
        outside=found["iqr_outliers"],
        mark=record.decision.base if record.decision else None,
    )
