"""One benchmark for each point of a grid of parameters."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, overload

from gpuprof._benchmark.options import checked_options
from gpuprof._common import checks
from gpuprof._common.records import Document, Record, head, in_results, now
from gpuprof._common.text import cut, shown_text
from gpuprof._common.units import duration
from gpuprof._display.progress import Progress
from gpuprof._display.records import Cell, Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table
from gpuprof._results.export import figures_of, samples_of
from gpuprof._results.result import LEFT, BenchResult, cells, warnings_of

_cut = partial(cut, columns=500)


@in_results
@dataclass(frozen=True, repr=False)
class SweepPoint(Record):
    """One point of a sweep: its parameters, and the result or why there is none.

    Attributes
    ----------
    params : mapping
        The value of each axis.
    result : BenchResult or None
        What was measured; None if the point failed.
    error : str or None
        The type and text of the exception that the point failed with.
    """

    params: Mapping[str, Any]
    result: BenchResult | None = None
    error: str | None = None

    def __repr__(self) -> str:
        if self.result is not None:
            return repr(self.result)
        return shown_text(f"{_text(self.params)}: {self.error}")


@dataclass(frozen=True, repr=False, eq=False)
class SweepResult(Shown, Exported, Document, Sequence[SweepPoint]):
    """What `sweep` found: a point for each combination, the last axis changing fastest.

    It holds plain data, never waits, and can be pickled if the values of the axes can.

    Attributes
    ----------
    name : str
        What was measured.
    axes : dict
        The values of each axis.
    points : tuple of SweepPoint
        The same as iterating over it gives.
    created : str
        When, as ISO 8601 text in UTC.
    """

    __module__ = "gpuprof"

    name: str
    axes: Mapping[str, tuple[Any, ...]]
    points: tuple[SweepPoint, ...]
    created: str = field(default_factory=now)

    _HEAD = head("gpuprof-sweep")
    _MEMBERS = ("format", "version", "created", ...)

    @overload
    def __getitem__(self, place: int) -> SweepPoint: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[SweepPoint]: ...

    def __getitem__(self, place: int | slice) -> SweepPoint | Sequence[SweepPoint]:
        return self.points[place]

    def __len__(self) -> int:
        return len(self.points)

    @property
    def results(self) -> list[BenchResult]:
        """The results of the points that did not fail."""
        return [point.result for point in self if point.result is not None]

    @property
    def failed(self) -> list[SweepPoint]:
        """The points that failed."""
        return [point for point in self if point.error is not None]

    def table(self, *, pivot: bool = False) -> str:
        """Return a table as plain text.

        Parameters
        ----------
        pivot : bool
            False is a line for each point. True, for two axes, is a line for each value of the
            first with a column for each of the second, and medians in the cells.
        """
        return "\n".join(self._table(pivot=pivot).plain())

    def _table(self, *, pivot: bool = False) -> Table:
        if pivot:
            return self._pivot()
        figures = list(next(map(cells, self.results), {}))
        lines = []
        for point in self:
            shown = cells(point.result) if point.result else dict.fromkeys(figures, "")
            axes = (str(point.params.get(axis, "")) for axis in self.axes)
            lines.append([*axes, *shown.values(), _cut(point.error or "")])
        headings = [*self.axes, *figures, "error"]
        return Table(headings, lines, LEFT, notes=self._notes(errors=False)).without_empty()

    def _pivot(self) -> Table:
        if len(self.axes) != 2:
            message = f"a pivot needs two axes; this sweep has {len(self.axes)}"
            raise ValueError(message)
        (first, rows), (second, columns) = self.axes.items()
        cell = iter(
            duration(point.result.median_ms) if point.result else "failed" for point in self
        )
        lines = [[str(row), *(next(cell, "") for _ in columns)] for row in rows]
        headings = [f"{first} \\ {second}", *map(str, columns)]
        return Table(headings, lines, notes=self._notes(errors=True))

    def _notes(self, *, errors: bool) -> list[str]:
        notes = [f"{len(self.failed):,} of {len(self):,} points failed"] if self.failed else []
        if errors:
            notes += [f"{_text(point.params)}: {_cut(str(point.error))}" for point in self.failed]
        return notes + warnings_of(self.results)

    def _records(self, samples: bool = False) -> Records:
        if samples:
            return samples_of(self.results)
        lines = []
        for point in self:
            params = {f"params.{axis}": _cell(value) for axis, value in point.params.items()}
            figures = figures_of(point.result) if point.result else {}
            lines.append({**params, **figures, "error": point.error})
        return Records.of(lines)


def sweep(
    make: Callable[..., Callable[..., object]],
    axes: Mapping[str, Iterable[Any]],
    *,
    name: str | None = None,
    nbytes: int | Callable[..., int] | None = None,
    flops: int | Callable[..., int] | None = None,
    progress: bool | None = None,
    **options: Any,
) -> SweepResult:
    """Benchmark a function at each combination of parameters.

    A point that raises an exception is kept with its text, and the sweep goes on.

    Parameters
    ----------
    make : callable
        Called with the parameters of a point by name; returns the function to time, which is called
        without arguments. What `make` allocates is freed before the next point if nothing else
        holds it.
    axes : mapping of str to iterable
        The values of each parameter.
    name : str, optional
        What is measured; None is the name of `make`.
    nbytes : int or callable, optional
        The bytes that a call moves, or a function of the parameters that returns them.
    flops : int or callable, optional
        The floating-point operations of a call, or a function of the parameters.
    progress : bool, optional
        Whether to show the progress; None shows it on a terminal and in a notebook.
    options : Any
        Those of `benchmark`, for each point.

    Returns
    -------
    SweepResult
        A point for each combination.

    Raises
    ------
    TypeError
        If `make` cannot be called with these parameters, or `axes` is no mapping of names to
        lists.
    ValueError
        If there is no axis, or one without values.
    """
    values = _values(make, axes)
    if "params" in options:
        message = "params has no meaning here; it is the point of the sweep"
        raise TypeError(message)
    checked_options(name=name, **options)  # a wrong option is one error, not one of each point
    grid = [dict(zip(values, point, strict=True)) for point in itertools.product(*values.values())]
    title = name or str(getattr(make, "__name__", type(make).__name__))
    points = []
    with Progress(f"gpuprof.sweep {title}", progress) as bar:
        for place, params in enumerate(grid):
            bar.update(place / len(grid), f"{place + 1:,} of {len(grid):,}: {_text(params)}")
            try:
                result = _measured(make, params, title, (nbytes, flops), options)
            except Exception as error:
                # Only its text: the exception would hold what the point had allocated.
                points.append(SweepPoint(params, error=f"{type(error).__name__}: {error}"))
            else:
                points.append(SweepPoint(params, result))
    return SweepResult(title, values, tuple(points))


def _values(make: Any, axes: Any) -> dict[str, tuple[Any, ...]]:
    """Return the values of each axis; raise if `make` cannot take them."""
    checks.function("make", make)
    if not isinstance(axes, Mapping):
        raise checks.type_error(axes, "axes", "a mapping, as in {'n': [1024, 2048]}")
    if not axes:
        raise checks.value_error(axes, "axes", "at least one, as in {'n': [1024, 2048]}")
    values: dict[str, tuple[Any, ...]] = {}
    for axis, given in axes.items():
        name = f"axes[{checks.text('a name of axes', axis)!r}]"
        if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
            raise checks.type_error(given, name, "a list of its values")
        values[axis] = tuple(given)
        if not values[axis]:
            raise checks.value_error(given, name, "a value or more")
    try:
        inspect.signature(make).bind(**values)
    except TypeError as error:
        message = f"make cannot be called with {', '.join(values)}: {error}"
        raise TypeError(message) from None
    except ValueError:  # no signature is known
        pass
    return values


def _measured(
    make: Callable[..., Any],
    params: Mapping[str, Any],
    title: str,
    amounts: tuple[Any, Any],
    options: Mapping[str, Any],
) -> BenchResult:
    from gpuprof._benchmark.api import benchmark

    function = make(**params)
    if not callable(function):
        message = f"make returned a {type(function).__name__}; expected the function to time"
        raise TypeError(message)
    nbytes, flops = (each(**params) if callable(each) else each for each in amounts)
    return benchmark(
        function,
        name=f"{title}[{_text(params)}]",
        params=params,
        nbytes=nbytes,
        flops=flops,
        progress=False,
        **options,
    )


def _text(params: Mapping[str, Any]) -> str:
    return ", ".join(f"{axis}={value}" for axis, value in params.items())


def _cell(value: object) -> Cell:
    return value if value is None or isinstance(value, (str, int, float)) else str(value)
