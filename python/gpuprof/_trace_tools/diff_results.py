"""What a comparison of two traces found, as plain data that shows itself.

Names come out of files: they are made fit to be shown before they are.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuprof._common.records import Plain
from gpuprof._common.text import MAX_NAME_COLUMNS, cut, shown_text
from gpuprof._common.units import NOTHING, duration, percent
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported
from gpuprof._display.table import Table, html_list, markdown_list
from gpuprof._trace_tools.results import as_text

_TITLES = {
    "gpu": "GPU time by scope",
    "launched": "kernels by the scope that launched them",
    "host": "host time by scope",
    "kernel": "kernels, copies and memsets",
}
_IDLE_COLUMNS = ["cause", "A", "B", "change", "%", "gaps A", "gaps B"]
_CAUSES = {"host_bound": "host-bound", "launch_gap": "launch gap"}  # others as they are


@dataclass(frozen=True)
class DiffRow(Plain):
    """One scope or kernel in both traces; totals and calls are per call of the scope ``per``."""

    _MEMBERS = (..., "change_ms", "each_a_ms", "each_b_ms")

    kind: str  # "gpu", "launched", "host" or "kernel"
    name: str
    state: str  # "both", "new": only in B, or "gone": only in A
    calls_a: float
    calls_b: float
    total_a_ms: float
    total_b_ms: float

    @property
    def change_ms(self) -> float:
        """How much longer it takes in B."""
        return self.total_b_ms - self.total_a_ms

    @property
    def each_a_ms(self) -> float | None:
        """The mean of a call in A."""
        return self.total_a_ms / self.calls_a if self.calls_a else None

    @property
    def each_b_ms(self) -> float | None:
        """The mean of a call in B."""
        return self.total_b_ms / self.calls_b if self.calls_b else None

    def cells(self) -> dict[str, str]:
        heading = "kernel" if self.kind == "kernel" else "scope"
        only = self.state if self.state != "both" else ""
        return {
            heading: cut(shown_text(self.name), MAX_NAME_COLUMNS),
            "A": duration(self.total_a_ms) if self.calls_a else NOTHING,
            "B": duration(self.total_b_ms) if self.calls_b else NOTHING,
            "change": _signed(self.change_ms),
            "%": only or _change(self.total_a_ms, self.total_b_ms),
            "calls A": _count(self.calls_a),
            "calls B": _count(self.calls_b),
            "each A": duration(self.each_a_ms),
            "each B": duration(self.each_b_ms),
        }


@dataclass(frozen=True)
class IdleRow(Plain):
    """GPU time without work, of one cause, or the time with work, whose cause is ``busy``."""

    cause: str
    gaps_a: float
    gaps_b: float
    total_a_ms: float
    total_b_ms: float

    def cells(self) -> list[str]:
        is_busy = self.cause == "busy"
        return [
            _CAUSES.get(self.cause, self.cause),
            duration(self.total_a_ms),
            duration(self.total_b_ms),
            _signed(self.total_b_ms - self.total_a_ms),
            _change(self.total_a_ms, self.total_b_ms),
            "" if is_busy else _count(self.gaps_a),
            "" if is_busy else _count(self.gaps_b),
        ]


@dataclass(frozen=True)
class TraceDiff(Plain, Exported):
    """How two traces differ; made by `gpuprof.trace_diff`.

    ``rows`` are by scope and by kernel, the largest changes first; ``idle`` is the GPU's time
    without work by cause, empty where a trace has no GPU work. With ``per``, totals and counts are
    per call of that scope, of which there are ``per_calls`` in A and in B.
    """

    path_a: str
    path_b: str
    per: str | None
    per_calls: tuple[int, int] | None
    rows: list[DiffRow]
    hidden: dict[str, int]  # of each kind, how many rows are left out
    idle: list[IdleRow]
    notes: list[str]
    cut: list[str]  # of files that are cut off: which, and where

    __module__ = "gpuprof"

    def to_markdown(self) -> str:
        """Return the headlines, the tables in Markdown, and the notes as a list."""
        lines = [line for table in self._tables() for line in ("", *table.markdown())]
        return "\n".join([*self._headlines(), *lines, *markdown_list(self._all_notes())]) + "\n"

    def _records(self) -> Records:
        return Records.of_plain(row.to_dict() for row in self.rows)

    def _repr_html_(self) -> str:
        tables = "".join(table.html() for table in self._tables())
        notes = html_list(self._all_notes())
        return f"<div>{html_list(self._headlines())}{tables}{notes}</div>"

    def _headlines(self) -> list[str]:
        lines = [f"A: {shown_text(self.path_a)}", f"B: {shown_text(self.path_b)}"]
        if self.per is not None and self.per_calls is not None:
            calls = f"{self.per_calls[0]:,} in A, {self.per_calls[1]:,} in B"
            lines.append(f"all figures are per call of {shown_text(self.per)}: {calls}")
        return lines

    def _tables(self) -> list[Table]:
        tables = []
        for kind, title in _TITLES.items():
            rows = [row for row in self.rows if row.kind == kind]
            if not rows:
                continue
            more = self.hidden.get(kind, 0)
            note = f" ({more:,} more with smaller changes)" if more else ""
            lines = [row.cells() for row in rows]
            tables.append(Table.of(lines, left={"kernel", "scope"}, title=title + note))
        if self.idle:
            cells = [row.cells() for row in self.idle]
            tables.append(Table(_IDLE_COLUMNS, cells, {"cause"}, "GPU idle by cause"))
        return tables

    def _all_notes(self) -> list[str]:
        return [shown_text(note) for note in (*self.cut, *self.notes)]

    def __str__(self) -> str:
        return as_text(self._headlines(), self._tables(), self._all_notes())

    def __repr__(self) -> str:
        return f"<TraceDiff of {self.path_a!r} and {self.path_b!r}>\n{self}"


def _signed(ms: float) -> str:
    return duration(ms) if ms <= 0 else f"+{duration(ms)}"


def _change(before: float, after: float) -> str:
    if before <= 0:
        return NOTHING if after <= 0 else "new"
    change = after / before - 1
    return f"{'+' if change > 0 else ''}{percent(change)}"


def _count(calls: float) -> str:
    return f"{calls:,.0f}" if calls == round(calls) else f"{calls:,.2f}"
