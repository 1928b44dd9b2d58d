"""Records as CSV text and as a data frame, for programs: full precision, and one unit a column.

A cell is text, a number, a truth value, or None. None, NaN and infinite numbers are figures that do
not exist: an empty field, and NaN in a data frame.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gpuprof._common.imports import need
from gpuprof._common.text import output_text, shown_text

Cell: TypeAlias = "str | int | float | bool | None"


@dataclass(frozen=True)
class Records:
    """Columns, and a line of cells for each record."""

    columns: Sequence[str]
    lines: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, records: Sequence[Mapping[str, Cell]]) -> Records:
        """Return records that may lack columns; these come in the order of their first record."""
        columns = [*dict.fromkeys(name for record in records for name in record)]
        return cls(columns, [[record.get(name) for name in columns] for record in records])

    @classmethod
    def of_plain(cls, forms: Iterable[Mapping[str, Any]]) -> Records:
        """Return records of plain forms: what is in a member is a column each, a list is JSON."""
        return cls.of([dict(_flat(form)) for form in forms])

    def csv(self, *, printed: bool = False) -> str:
        """Return CSV as in RFC 4180: a head, lines that end in CR LF, quotes where needed.

        Text stays as it is, line breaks in it too; NUL and lone surrogates are replaced. What
        commands print has lines that end as all of their output does, and visible control
        characters.
        """
        out = io.StringIO()
        text = shown_text if printed else output_text
        writer = csv.writer(out, lineterminator="\n" if printed else "\r\n")
        writer.writerow(self.columns)
        writer.writerows([_field(cell, text) for cell in line] for line in self.lines)
        return out.getvalue()

    def frame(self, what: str) -> Any:
        pandas = need("pandas", what)
        columns = zip(*self.lines, strict=True) if self.lines else ([] for _ in self.columns)
        cells = {name: _column(column) for name, column in zip(self.columns, columns, strict=True)}
        return pandas.DataFrame(cells)


def _flat(form: Mapping[str, Any], start: str = "") -> Iterator[tuple[str, Cell]]:
    for name, value in form.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{start}{name}_")
        else:
            cell = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
            yield start + name, cell


def _field(cell: Cell, text: Callable[[str], str]) -> str:
    if isinstance(cell, str):
        return text(cell)
    if isinstance(cell, bool):
        return "true" if cell else "false"
    return "" if _is_missing(cell) else repr(cell)


def _column(cells: Sequence[Cell]) -> list[Cell]:
    """Return a column of one type: without text, what is missing is NaN."""
    if any(isinstance(cell, str) for cell in cells):
        return [output_text(cell) if isinstance(cell, str) else cell for cell in cells]
    return [math.nan if _is_missing(cell) else cell for cell in cells]


def _is_missing(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))
