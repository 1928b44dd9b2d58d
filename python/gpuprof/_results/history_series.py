"""The runs of one benchmark in the order of time: plain data, as text and as a plot."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from gpuprof._common import checks
from gpuprof._common.records import Record, in_results
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import duration, interval_text, percent_change
from gpuprof._display import series_plot
from gpuprof._display.series_plot import Mark
from gpuprof._results import statistics
from gpuprof._results.change_point import HistoryChange

DIRTY = "-dirty"  # ends the commit of a run with changed files
_COMMIT_CHARACTERS = 10


@in_results
@dataclass(frozen=True)
class HistoryPoint(Record):
    """One run of a benchmark.

    Attributes
    ----------
    time : str
        When it was saved, as ISO 8601 text in UTC.
    value : float
        The median, in milliseconds.
    low, high : float
        The 95 % interval of the median within this run.
    commit : str or None
        The version of the measured code; it ends in ``-dirty`` where files were changed.
    machine : str
        The GPU, or the CPU where no GPU was measured.
    compared : bool
        Whether it was measured as the last run was; others are shown, but a change is not looked
        for among them.
    """

    time: str
    value: float
    low: float
    high: float
    commit: str | None
    machine: str
    compared: bool = True

    _CHECKS = MappingProxyType(
        {
            "value": partial(checks.number, least=0.0),
            "low": checks.number,
            "high": checks.number,
        }
    )


@in_results
@dataclass(frozen=True)
class HistorySeries(Record):
    """The runs of one benchmark in one baseline on one kind of machine.

    Attributes
    ----------
    name : str
        The name of the benchmark; with baseline and machine where several series have it.
    benchmark : str
        The name of the benchmark.
    baseline : str
        The name under which the runs were saved.
    machine : str
        The kind of machine, as in the name of the baseline's file.
    points : tuple of HistoryPoint
        The runs, oldest first.
    change : HistoryChange or None
        The first point after the change, and its p value; None where nothing changed.
    notes : tuple of str
        What else to know.
    unit : str
        Of the values: ``"ms"``.
    """

    name: str
    benchmark: str
    baseline: str
    machine: str
    points: tuple[HistoryPoint, ...]
    change: HistoryChange | None = None
    notes: tuple[str, ...] = ()
    unit: str = "ms"

    _MEMBERS = (
        *("name", "benchmark", "baseline", "machine", "unit", "points", "change", "ratio"),
        "notes",
    )

    def __post_init__(self) -> None:
        if not self.points:
            message = "points: expected at least one run, got none"
            raise ValueError(message)
        if self.change is not None and not all(map(any, self._sides(self.change.index))):
            message = "change: expected a compared run with a time on both of its sides"
            raise ValueError(message)

    def _sides(self, index: int) -> list[list[float]]:
        """Return the times that are compared, before a point and from it on."""
        sides = self.points[:index], self.points[index:]
        return [[each.value for each in side if each.compared] for side in sides]

    @property
    def label(self) -> str:
        """The name, the baseline and the machine."""
        return f"{self.benchmark} (baseline {self.baseline!r}, {self.machine})"

    @property
    def ratio(self) -> float | None:
        """The median of the runs from the change on over that of those before; None without one."""
        if self.change is None:
            return None
        before, after = self._sides(self.change.index)
        return statistics.median(after) / statistics.median(before)

    def facts(self) -> list[str]:
        """Return what is known of the series as sentences: first the change, then the notes."""
        count = len(self.points)
        if self.change is None:
            said = f"no change found in {plural(count, 'run')}"
        else:
            at = self.points[self.change.index]
            said = (
                f"changed at run {self.change.index + 1} of {count}, {at.time}, "
                f"{short_commit(at.commit)}, {at.machine}: takes "
                f"{percent_change(self.ratio or 1.0)} time from there on "
                f"(p {self.change.p:.2g})"
            )
        return [said, *self.notes]

    def text(self) -> str:
        """Return a plot for a terminal, with what was found below."""
        index = None if self.change is None else self.change.index
        plot = series_plot.text(self._marks(), index, self._ends())
        return "\n".join([shown_text(self.label), *plot, *map(shown_text, self.facts())])

    def to_svg(self) -> str:
        """Return a plot as an SVG element, without scripts."""
        index = None if self.change is None else self.change.index
        return series_plot.svg(self._marks(), index, self._ends(), self.label)

    def _marks(self) -> list[Mark]:
        return [
            Mark(
                point.value,
                point.low,
                point.high,
                f"{duration(point.value)} ({interval_text(point.low, point.high)}), {point.time}, "
                f"{short_commit(point.commit)}, {point.machine}",
                not point.compared,
            )
            for point in self.points
        ]

    def _ends(self) -> tuple[str, str]:
        first, last = self.points[0], self.points[-1]
        return _end(first), _end(last)


def _end(point: HistoryPoint) -> str:
    return f"{point.time[:10]} {short_commit(point.commit)}"


def short_commit(commit: str | None) -> str:
    """Return a commit as people write it."""
    if not commit:
        return "no commit"
    dirty = DIRTY if commit.endswith(DIRTY) else ""
    return commit.removesuffix(DIRTY)[:_COMMIT_CHARACTERS] + dirty
