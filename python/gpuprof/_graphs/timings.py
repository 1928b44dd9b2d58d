"""The times of the spans inside a graph, as `CapturedGraph.timings` returns them."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from gpuprof._common.records import Plain, in_results
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table

Names: TypeAlias = tuple[str, ...]
_HEAD = ("count", "ms", "mean")


@in_results
@dataclass(frozen=True)
class SpanTiming(Plain, Shown):
    """What the scopes of one path took in the last replay.

    Attributes
    ----------
    values : tuple of float or None
        Milliseconds, one for each time that the scope was entered in the capture, in that order;
        None where the replay has not come that far.
    """

    values: tuple[float | None, ...]
    _MEMBERS = ("count", "ms", "mean_ms", "values")

    @property
    def count(self) -> int:
        """How often the scope is in the graph."""
        return len(self.values)

    @property
    def known(self) -> tuple[float, ...]:
        """The values that are known."""
        return tuple(value for value in self.values if value is not None)

    @property
    def ms(self) -> float:
        """The sum of the known values in milliseconds; nan if none is known."""
        return sum(self.known) if self.known else float("nan")

    @property
    def mean_ms(self) -> float:
        """The mean of the known values in milliseconds; nan if none is known."""
        return statistics.fmean(self.known) if self.known else float("nan")

    def _table(self) -> Table:
        return Table(_HEAD, [self._cells()])

    def _cells(self) -> tuple[str, ...]:
        return str(self.count), f"{self.ms:.4f}", f"{self.mean_ms:.4f}"


class GraphTimings(Shown, Exported, Mapping["str | Names", SpanTiming]):
    """The last replay's times by path, in the order in which the scopes were captured.

    A key is the names joined by ``/``. Where two paths read the same, because a name has a ``/``
    in it, the key of each is the tuple of its names, which finds every row.

    Parameters
    ----------
    spans : list of (tuple of str, float or None)
        The names of each span's path, outermost first, and its milliseconds.
    """

    __module__ = "gpuprof"

    def __init__(self, spans: list[tuple[Names, float | None]]) -> None:
        values: dict[Names, list[float | None]] = {}
        for names, ms in spans:
            values.setdefault(names, []).append(ms)
        self._rows = {names: SpanTiming(tuple(all_ms)) for names, all_ms in values.items()}
        paths = Counter(map("/".join, self._rows))
        self._names = {path: names for names in self._rows if paths[path := "/".join(names)] == 1}

    def __getitem__(self, key: str | Names) -> SpanTiming:
        return self._rows[self._names[key] if isinstance(key, str) else key]

    def __iter__(self) -> Iterator[str | Names]:
        for names in self._rows:
            path = "/".join(names)
            yield path if path in self._names else names

    def __len__(self) -> int:
        return len(self._rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as plain data, by path.

        Where two paths read the same, a slash in a name has a backslash before it, and so has a
        backslash.
        """
        unique = len(self._names) == len(self._rows)
        return {
            "/".join(names if unique else map(_escaped, names)): row.to_dict()
            for names, row in self._rows.items()
        }

    def __repr__(self) -> str:
        empty = "<gpuprof.GraphTimings: no timer in the graph>"
        return super().__repr__() if self._rows else empty

    def _records(self) -> Records:
        return Records.of_plain(
            {
                "span": "/".join(names),
                "count": row.count,
                "total_ms": row.ms,
                "mean_ms": row.mean_ms,
                "names": list(names),
            }
            for names, row in self._rows.items()
        )

    def _table(self) -> Table:
        lines = [("/".join(names), *row._cells()) for names, row in self._rows.items()]
        return Table(("span", *_HEAD), lines, left={"span"})


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace("/", "\\/")
