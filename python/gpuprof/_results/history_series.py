"""The runs of one benchmark in the order of time: plain data, as text and as a plot."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from gpuprof._common import checks
from gpuprof._common.records import Record, in_results
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import duration, interval_text, percent_change, percent_sign
from gpuprof._display import series_plot
from gpuprof._display.series_plot import Level, Mark
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
    changes : tuple of HistoryChange
        Where it changed, the newest first; empty where nothing changed.
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
    changes: tuple[HistoryChange, ...] = ()
    notes: tuple[str, ...] = ()
    unit: str = "ms"

    _MEMBERS = ("name", "benchmark", "baseline", "machine", "unit", "points", "changes", "notes")

    def __post_init__(self) -> None:
        if not self.points:
            message = "points: expected at least one run, got none"
            raise ValueError(message)
        for each in self.changes:
            if max(each.index, each.last or 0, each.back_to or 0) > len(self.points) - bool(
                each.last
            ):
                message = f"changes: expected runs of the series, which has {len(self.points)}"
                raise ValueError(message)
            index = each.index if each.last is None else max(each.last, each.index + 1)
            sides = self.points[:index], self.points[index:]
            if not all(any(point.compared and point.value for point in side) for side in sides):
                message = "changes: expected a compared run with a time on both of its sides"
                raise ValueError(message)

    @property
    def label(self) -> str:
        """The name, the baseline and the machine."""
        return f"{self.benchmark} (baseline {self.baseline!r}, {self.machine})"

    def facts(self) -> list[str]:
        """Return what is known of the series as sentences: first the changes, then the notes."""
        found = [*map(self._said, self.changes)]
        return [*(found or [f"no change found in {plural(len(self.points), 'run')}"]), *self.notes]

    def _said(self, change: HistoryChange) -> str:
        count, at = len(self.points), self.points[change.index]
        much = f"takes {percent_change(change.ratio)} time"
        if change.last is not None:
            return (
                f"drifts from run {change.index + 1} to run {change.last + 1} of {count}, "
                f"{at.time} to {self.points[change.last].time}: {much} at the end than at the "
                f"start (p {change.p:.2g})"
            )
        later = [each.index for each in self.changes if each.index > change.index]
        until = f"up to run {min(later)}" if later else "from there on"
        said = (
            f"changed at run {change.index + 1} of {count}, {at.time}, {short_commit(at.commit)}, "
            f"{at.machine}: {much} {until} (p {change.p:.2g})"
        )
        if change.back_to is None:
            return said
        return f"{said}; this is back at the level of before run {change.back_to + 1}"

    def text(self) -> str:
        """Return a plot for a terminal, with what was found below."""
        plot = series_plot.text(self._marks(), self._levels(), self._ends())
        return "\n".join([shown_text(self.label), *plot, *map(shown_text, self.facts())])

    def to_svg(self) -> str:
        """Return a plot as an SVG element, without scripts."""
        return series_plot.svg(self._marks(), self._levels(), self._ends(), self.label)

    def _levels(self) -> list[Level]:
        """Return the level between each two changes, the oldest first."""
        drifts = {each.index: each for each in self.changes if each.last is not None}
        steps = {each.index: each for each in self.changes if each.last is None}
        ends = {each.last + 1 for each in drifts.values() if each.last is not None}
        bounds = sorted({0, len(self.points), *drifts, *steps, *ends})
        found = []
        for start, end in itertools.pairwise(bounds):
            values = [each.value for each in self.points[start:end] if each.compared]
            if not values:
                continue
            level = statistics.median(values)
            half, said = 1.0, percent_sign(steps[start].ratio) if start in steps else ""
            if start in drifts:
                half = math.sqrt(drifts[start].ratio)
                said = f"drift {percent_sign(drifts[start].ratio)}"
            found.append(Level(start, end, level / half, level * half, said, start in steps))
        return found

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
        ends = self.points[0], self.points[-1]
        first, last = (f"{point.time[:10]} {short_commit(point.commit)}" for point in ends)
        return first, last


def short_commit(commit: str | None) -> str:
    """Return a commit as people write it."""
    if not commit:
        return "no commit"
    dirty = DIRTY if commit.endswith(DIRTY) else ""
    return commit.removesuffix(DIRTY)[:_COMMIT_CHARACTERS] + dirty
