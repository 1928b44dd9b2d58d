"""The figures of `gpuprof.idle`: of one line, and the table of all."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gpuprof._common.places import Place, short
from gpuprof._common.records import Plain, in_results
from gpuprof._common.units import duration
from gpuprof._display.table import Table


@in_results
@dataclass(frozen=True)
class IdleRow(Plain):
    """One line of the program, and how long the GPU was idle while it ran.

    Attributes
    ----------
    file : str
        The file; ``"(no Python frame)"`` where threads had none.
    line : int
        The line's number; 0 where there is no line.
    function : str
        The function that it is in.
    idle_ms : float
        Milliseconds.
    share : float
        Its part of all time that was watched, from 0 to 1.
    inner : str
        In which function of a library it was most of that time, as ``"lib/queue.py:171 get"``;
        ``""`` for none.
    code : str
        The text of the line; ``""`` where it cannot be read.
    """

    file: str
    line: int
    function: str
    idle_ms: float
    share: float
    inner: str = ""
    code: str = ""

    @property
    def place(self) -> str:
        """The file and the line, as ``"train.py:40"``."""
        return f"{self.file}:{self.line}" if self.line else self.file


def rows_of(idle_ns: Mapping[Place, float], all_ns: int) -> list[IdleRow]:
    """Return a row for each line, the longest first."""
    lines: dict[tuple[str, int, str], Counter[str]] = {}
    for (file, line, function, inner), ns in idle_ns.items():
        lines.setdefault((file, line, function), Counter())[inner] += ns  # type: ignore[assignment]
    rows = [
        IdleRow(
            *key,
            idle_ms=sum(inners.values()) * 1e-6,
            share=sum(inners.values()) / all_ns if all_ns else 0.0,
            inner=inners.most_common(1)[0][0],
            code=linecache.getline(*key[:2]).strip(),
        )
        for key, inners in lines.items()
        if sum(inners.values()) >= 1.0  # else the records say that the GPU worked
    ]
    return sorted(rows, key=lambda row: (-row.idle_ms, row.place))


def table_of(rows: Sequence[IdleRow], title: str, notes: Sequence[str]) -> Table:
    lines = [
        {
            "line": short(row.place),
            "idle": duration(row.idle_ms),
            "%": f"{100 * row.share:.1f}",
            "code": row.code or row.function,
            "inside": row.inner,
        }
        for row in rows
    ]
    return Table.of(lines, left={"line", "code", "inside"}, title=title, notes=notes)
