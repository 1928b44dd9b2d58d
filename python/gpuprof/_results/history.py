"""The runs of saved benchmarks in the order of time, and where they changed."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from os import PathLike, fspath
from typing import Annotated

from gpuprof._common import checks
from gpuprof._common.records import Checked, Document, Record, check_of, each_of, head, in_results
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import duration, interval_text, percent_change, percent_sign
from gpuprof._display import series_plot
from gpuprof._display.records import Records
from gpuprof._display.series_plot import Level, Mark
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table, html_list
from gpuprof._results import statistics
from gpuprof._results.baselines import DEFAULT_ROOT, Baselines
from gpuprof._results.change_point import HistoryChange, changes
from gpuprof._results.decision import check_threshold
from gpuprof._results.eligible import difference
from gpuprof._results.git_store import opened
from gpuprof._results.result import BenchResult
from gpuprof._results.result_files import Run
from gpuprof.errors import BaselineError

THRESHOLD = 0.01
# Of the runs of --gpu-benchmark-autosave, whose baselines are called after commits. No baseline can
# be called so.
AUTOSAVED = "@autosave"
MOST_POINTS = 40  # of a series, so that its plot fits into a terminal
# `changed` is true at the first run after a change, and at the first one that drifts.
_COLUMNS = (
    "benchmark",
    "baseline",
    "machine",
    "time",
    "value_ms",
    "low_ms",
    "high_ms",
    "commit",
    "compared",
    "changed",
)
# Facts of the machine that are named where they changed together with the times.
_FACTS = ("driver", "cuda", "torch", "cupy", "numpy", "python", "os", "gpuprof")
DIRTY = "-dirty"  # ends the commit of a run with changed files
_COMMIT_CHARACTERS = 10


@in_results
@dataclass(frozen=True)
class HistoryPoint(Checked):
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
    value: Annotated[float, partial(checks.number, least=0.0)]
    low: Annotated[float, checks.number]
    high: Annotated[float, checks.number]
    commit: str | None
    machine: str
    compared: bool = True


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
            f"changed at run {change.index + 1} of {count}, {at.time}, {_short_commit(at.commit)}, "
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
                f"{_short_commit(point.commit)}, {point.machine}",
                not point.compared,
            )
            for point in self.points
        ]

    def _ends(self) -> tuple[str, str]:
        ends = self.points[0], self.points[-1]
        first, last = (f"{point.time[:10]} {_short_commit(point.commit)}" for point in ends)
        return first, last


@dataclass(frozen=True, repr=False)
class History(Shown, Exported, Document, Checked):
    """The series of benchmarks that were saved, with the run where each changed.

    Parameters
    ----------
    series : iterable of HistorySeries
        In the order in which they are shown.
    """

    __module__ = "gpuprof"

    series: Annotated[tuple[HistorySeries, ...], each_of(check_of(HistorySeries))]

    _HEAD = head("gpuprof-history", unit="ms")

    @property
    def names(self) -> list[str]:
        """The names of the benchmarks, each once."""
        return list(dict.fromkeys(each.benchmark for each in self.series))

    def __len__(self) -> int:
        return len(self.series)

    def _records(self) -> Records:
        lines = [
            [*what, point.value, point.low, point.high, point.commit, point.compared, changed]
            for what, point, changed in self._points()
        ]
        return Records(_COLUMNS, lines)

    def _points(self) -> Iterator[tuple[list[str], HistoryPoint, bool]]:
        """Yield what each point is of, the point, and whether its series changed there."""
        for each in self.series:
            places = {change.index for change in each.changes}
            for place, point in enumerate(each.points):
                changed = place in places
                yield [each.benchmark, each.baseline, point.machine, point.time], point, changed

    def _table(self) -> Table:
        lines = []
        for what, point, changed in self._points():
            times = [duration(point.value), interval_text(point.low, point.high)]
            said = "changed" if changed else "" if point.compared else "not compared"
            lines.append([*what, _short_commit(point.commit), *times, said])
        notes = [f"{each.name}: {fact}" for each in self.series for fact in each.facts()]
        columns = ["benchmark", "baseline", "machine", "time", "commit", "median"]
        return Table(
            [*columns, "95 % interval", "note"],
            lines,
            {*columns[:5], "note"},
            notes=notes or ["no saved runs"],
        ).without_empty()

    def to_svg(self, name: str | None = None) -> str:
        """Return the plots of a benchmark below each other, as one SVG document.

        Parameters
        ----------
        name : str, optional
            The name of a benchmark, or of one series; None is all of them.

        Raises
        ------
        KeyError
            If there is no such series.
        """
        chosen = [each for each in self.series if name in (None, each.name, each.benchmark)]
        if not chosen and name is not None:
            message = f"no series is called {name!r}; there are {', '.join(map(repr, self.names))}"
            raise KeyError(message)
        return series_plot.stacked([each.to_svg() for each in chosen])

    def __str__(self) -> str:
        return "\n\n".join(each.text() for each in self.series) or "no saved runs"

    __repr__ = __str__

    def _repr_html_(self) -> str:
        parts = (f"<div>{each.to_svg()}{html_list(each.facts())}</div>" for each in self.series)
        return f"<div>{''.join(parts) or 'no saved runs'}</div>"


def history(
    storage: str | PathLike[str] = DEFAULT_ROOT,
    name: str | None = None,
    *,
    baseline: str | None = None,
    threshold: float = THRESHOLD,
) -> History:
    """Read the runs of saved benchmarks, and find out where each changed.

    Parameters
    ----------
    storage : str or os.PathLike
        The folder in which ``--gpu-benchmark-save`` keeps runs, or a git ref, as in
        ``"git:refs/gpuprof"``.
    name : str, optional
        The name of a benchmark, or a pattern with ``*`` and ``?``; None is all of them.
    baseline : str, optional
        Only the runs that were saved under this name; None is all of them. ``"@autosave"`` is those
        of ``--gpu-benchmark-autosave``, which are taken together, commit after commit.
    threshold : float
        The smallest change to speak of, as a fraction.

    Returns
    -------
    History
        A series for each benchmark, baseline and kind of machine, of the last 40 runs. Times are
        milliseconds.

    Raises
    ------
    BaselineError
        If a file is damaged, or if there is no baseline of that name.
    ValueError
        If `threshold` is no fraction.
    """
    check_threshold(threshold)
    series = []
    for (each, machine), runs in _stored(opened(fspath(storage)), baseline).items():
        names = dict.fromkeys(key for run in runs for key in run.results)
        for key in names:
            if name is None or key == name or fnmatchcase(key, name):
                series.append(_series(key, each, machine, runs, threshold))
    counts = Counter(each.benchmark for each in series)
    named = [
        each if counts[each.benchmark] == 1 else replace(each, name=each.label) for each in series
    ]
    return History(tuple(sorted(named, key=lambda each: each.benchmark)))


def _stored(stored: Baselines, baseline: str | None) -> dict[tuple[str, str], list[Run]]:
    """Return the runs by baseline and machine; those that were autosaved are taken together."""
    found: dict[tuple[str, str], list[Run]] = {}
    for each in stored.names() if baseline in {None, AUTOSAVED} else [str(baseline)]:
        for machine, runs in stored.runs(each, MOST_POINTS).items():
            is_autosaved = baseline in {None, AUTOSAVED} and _is_autosaved(each, runs)
            if is_autosaved or baseline != AUTOSAVED:
                found.setdefault((AUTOSAVED if is_autosaved else each, machine), []).extend(runs)
    if baseline == AUTOSAVED and not found:
        message = f"no run of --gpu-benchmark-autosave is saved in {stored.root}"
        raise BaselineError(message)
    return found


def _is_autosaved(baseline: str, runs: Sequence[Run]) -> bool:
    """Return whether a baseline has its name from the commit of its runs."""
    commits = {(run.commit or "unversioned").removesuffix(DIRTY) for run in runs}
    return all(f"{baseline}_".startswith(f"{commit}_") for commit in commits)


def _series(
    name: str, baseline: str, machine: str, runs: Sequence[Run], threshold: float
) -> HistorySeries:
    found = sorted((run for run in runs if name in run.results), key=lambda run: run.created)
    found = found[-MOST_POINTS:]
    results = [run.results[name] for run in found]
    reasons = [difference(result, results[-1]) for result in results]
    points = tuple(
        _point(run, result, compared=reason is None)
        for run, result, reason in zip(found, results, reasons, strict=True)
    )
    notes = []
    if left_out := [*filter(None, reasons)]:
        others = f"{len(left_out)} of {len(points)} runs"
        notes.append(f"{others} left out of the search for a change: {left_out[-1]}")
    places = [place for place, point in enumerate(points) if point.compared]
    logs = [math.log(points[place].value) for place in places]
    found_changes = changes(logs, threshold, places)
    for index in (change.index for change in found_changes if change.last is None):
        before, at = found[index - 1].machine, found[index].machine
        notes += [
            f"{key} changed in run {index + 1}: {before.get(key) or 'none'}, then "
            f"{at.get(key) or 'none'}"
            for key in _FACTS
            if before.get(key) != at.get(key)
        ]
    return HistorySeries(name, name, baseline, machine, points, found_changes, tuple(notes))


def _point(run: Run, result: BenchResult, *, compared: bool) -> HistoryPoint:
    low, high = result.interval_ms
    where = result.machine.get("cpu" if result.clock == "cpu" else "gpu")
    machine = str(where or "unknown machine")
    usable = compared and result.median_ms > 0.0
    return HistoryPoint(run.created, result.median_ms, low, high, run.commit, machine, usable)


def _short_commit(commit: str | None) -> str:
    """Return a commit as people write it."""
    if not commit:
        return "no commit"
    dirty = DIRTY if commit.endswith(DIRTY) else ""
    return commit.removesuffix(DIRTY)[:_COMMIT_CHARACTERS] + dirty
