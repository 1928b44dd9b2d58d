"""Statistics as plain data: one row for each path and clock, taken at one moment, in ms."""

from __future__ import annotations

import difflib
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from gpuprof._common import checks
from gpuprof._common.records import Document, each_of, head, now
from gpuprof._display.shown import Exported, Shown
from gpuprof._timing.rows import EMPTY, Names, Row, Summary

if TYPE_CHECKING:
    from gpuprof._display.records import Records
    from gpuprof._display.table import Table
    from gpuprof._frameworks.torch import TorchMemory

Key: TypeAlias = "str | tuple[str, str] | tuple[Names, str]"
Exact: TypeAlias = tuple[Names, str]


def _check_memory(name: str, value: Any) -> Any:
    checks.text(f"{name}.device", checks.mapping(name, value).get("device"))
    for each in ("peak_bytes", "delta_bytes"):
        checks.whole(f"{name}.{each}", value.get(each), -(2**63), 2**63)
    return value


@dataclass(frozen=True, repr=False, eq=False)
class Stats(Shown, Exported, Document, Mapping[Key, Row]):
    """All rows at one moment, by path.

    ``stats["step/fwd"]`` is the row of that path; where several clocks measured it, the GPU's
    comes first and ``stats["step/fwd", "cpu"]`` names a clock. A ``/`` in a name makes no parent,
    so two paths may read the same: such a text is no key, and ``stats[("step", "fwd"), "cuda"]``
    is the row of exactly these names. Iterating gives a key for each row: the path, or path and
    clock, or names and clock, whichever is enough.

    Parameters
    ----------
    rows
        In the order in which they are to be shown.
    dropped
        Samples dropped in all.
    memory
        What torch's allocator holds on each device.
    created
        When, as ISO 8601 text in UTC. None: now.
    """

    __module__ = "gpuprof"

    rows: tuple[Row, ...]
    dropped: int = 0
    memory: list[TorchMemory] = field(default_factory=list)
    created: str = field(default_factory=now)

    _HEAD = head("gpuprof-stats", unit="ms")
    _MEMBERS = ("format", "version", "created", "unit", "dropped", "memory", "rows")

    def __post_init__(self) -> None:
        rows = {(row.names, row.clock): row for row in self.rows}
        object.__setattr__(self, "rows", tuple(rows.values()))
        object.__setattr__(self, "memory", [*each_of(_check_memory)("memory", self.memory)])

    @cached_property
    def _exact(self) -> dict[Exact, Row]:
        return {(row.names, row.clock): row for row in self.rows}

    @cached_property
    def _by_path(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = {}
        for row in self._exact.values():
            found.setdefault(row.path, []).append(row)
        for same_path in found.values():
            same_path.sort(key=lambda row: (not row.on_gpu, row.clock == "cpu"))
        return found

    @classmethod
    def _names(cls) -> dict[str, Any]:
        return {"TorchMemory": dict[str, Any]}

    def __getitem__(self, key: Key) -> Row:
        row = self._find(key)
        if row is None:
            raise KeyError(self._no_such_row(key))
        return row

    def __contains__(self, key: object) -> bool:
        return self._find(key) is not None

    def __iter__(self) -> Iterator[Key]:
        for exact, row in self._exact.items():
            same_path = self._by_path[row.path]
            if len(same_path) == 1:
                yield row.path
            else:
                yield exact if _read_the_same(same_path) else (row.path, row.clock)

    def __len__(self) -> int:
        return len(self._exact)

    def _find(self, key: object) -> Row | None:
        if isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str):
            path, clock = key
            found = [row for row in self._by_path.get(path, ()) if row.clock == clock]
        elif isinstance(key, str):
            found = self._by_path.get(key, [])
        else:
            return self._exact.get(cast("Exact", key)) if isinstance(key, tuple) else None
        return found[0] if found and not _read_the_same(found) else None

    def _no_such_row(self, key: object) -> str:
        if not self._exact:
            return f"no row {key!r}: nothing was measured yet"
        path = key[0] if isinstance(key, tuple) and key else key
        if path in self._by_path:
            same_path = self._by_path[cast("str", path)]
            if _read_the_same(same_path):
                exact = " or ".join(f"stats[{row.names!r}, {row.clock!r}]" for row in same_path)
                return f"several paths read {path!r}; name one by its names and clock: {exact}"
            clocks = ", ".join(repr(row.clock) for row in same_path)
            return f"no row {key!r}; the clocks of {path!r} are {clocks}"
        wanted = str(path)
        below = [known for known in self._by_path if known.endswith(f"/{wanted}")]
        near = below or difflib.get_close_matches(wanted, self._by_path, n=3, cutoff=0.5)
        if near:
            return f"no row {key!r}; did you mean {' or '.join(map(repr, near[:3]))}?"
        return f"no row {key!r}; the paths are {', '.join(map(repr, list(self._by_path)[:10]))}"

    @cached_property
    def _enclosing(self) -> dict[Exact, Row]:
        """For each row the closest one around it on the same clock."""
        found = {}
        for names, clock in self._exact:
            outer = names[:-1]
            while outer and (outer, clock) not in self._exact:
                outer = outer[:-1]
            if outer:
                found[names, clock] = self._exact[outer, clock]
        return found

    @cached_property
    def _inside_ms(self) -> dict[Exact, float]:
        """For each row with others inside, what those add up to."""
        sums: dict[Exact, float] = defaultdict(float)
        for key, outer in self._enclosing.items():
            sums[outer.names, outer.clock] += self._exact[key].time.total_ms
        return sums

    def self_ms(self, row: Row) -> float:
        """Return the row's total less what the rows inside it take on the same clock.

        Below zero where those overlap one another or outlast it. NaN where calls of the row failed:
        they have no time, but what ran in them has.
        """
        key = row.names, row.clock
        row = self[key]
        inside = self._inside_ms.get(key, 0.0)
        if inside and row.failed:
            return math.nan
        return row.time.total_ms - inside

    def share(self, row: Row) -> float | None:
        """Return the row's part of the total around it on the same clock.

        None at the root, and in a row of which calls failed: these have no time.
        """
        key = row.names, row.clock
        total = self[key].time.total_ms
        outer = self._enclosing.get(key)
        if outer is None or outer.failed or not outer.time.total_ms > 0:
            return None
        return total / outer.time.total_ms

    def _records(self) -> Records:
        from gpuprof._timing.stats_table import records

        return records(self)

    def merge(self, *others: Stats) -> Stats:
        """Return the statistics of several processes, such as workers, as one.

        Rows of the same names and clock become one row: counts, totals, dropped samples and the
        like are added up, means follow from these, `min_ms` and `max_ms` are those of all. What
        cannot be known is NaN where several parts have samples: `first_ms`, and the quantiles
        unless all parts have bins, from ``gpuprof.stats(bins=True)``. With these, quantiles are
        within 0.8 %.
        Torch's memory is left out, because devices of several processes may be the same.

        Parameters
        ----------
        *others
            What is merged; this object and they stay as they are.

        Raises
        ------
        TypeError
            One of them is something else.
        """
        from gpuprof._timing.stats_merge import merged

        given: tuple[object, ...] = others
        for other in given:
            if not isinstance(other, Stats):
                raise checks.type_error(other, "merge", "Stats")
        parts = (self, *others)
        dropped = sum(part.dropped for part in parts)
        created = max(part.created for part in parts)
        rows = tuple(merged(part.rows for part in parts))
        return Stats(rows, dropped=dropped, created=created)

    def _table(self, sort: str | None = None, columns: str | Iterable[str] | None = None) -> Table:
        # Imported where something is shown: the first scope of a program imports this module.
        from gpuprof._timing import stats_table

        footers = stats_table.footers(self.dropped, self.memory)
        return stats_table.table(self, footers, sort=sort, columns=columns)

    def tree(self) -> str:
        """Return the table as plain text, indented by nesting."""
        return self.table()

    def table(self, *, sort: str | None = None, columns: str | Iterable[str] | None = None) -> str:
        """Return the tree table as plain text, with the columns and in the order asked for.

        Parameters
        ----------
        sort
            A column, whose largest value comes first among the rows of one parent, or ``"path"``.
            None is the order of the first entries.
        columns
            Which columns, in a list or separated by commas: ``mean``, ``min``, ``p50``, ``p90``,
            ``p99``, ``max``, ``first``, ``total`` and ``count`` of the row's clock, the same with
            ``gpu_`` or ``host_`` before them; ``self``, ``share``, ``flops_per_s``,
            ``bytes_per_s``, ``peak_share``, ``peak_memory``, ``memory_change``. None is a choice
            of these that suits the rows.

        Raises
        ------
        ValueError
            There is no such column; it names those there are.
        """
        return "\n".join(self._table(sort, columns).plain())


def counted_rows(counted: list[dict[str, Any]]) -> list[Row]:
    """Build rows from what the core counted, with their work and memory; few have any."""
    work_of = memory_of = peaks = None
    if any(row["work"] or row["memory"] for row in counted):
        from gpuprof._common.peaks import device_peaks
        from gpuprof._timing.memory import MemoryUse
        from gpuprof._timing.work import Work

        work_of, memory_of = Work.from_sums, MemoryUse.from_sums
        peaks = device_peaks() if any(row["work"] and row["gpu"] for row in counted) else None
    found = []
    for row in counted:
        on_gpu = row["clock"] == "cuda"
        details = {
            "gpu": _counted(row["gpu"]),
            "host": _counted(row["host"]),
            "work": row["work"] and work_of and work_of(row["work"], peaks if on_gpu else None),
            "memory": row["memory"] and memory_of and memory_of(row["memory"]),
        }
        found.append(Row(**{**row, **details}))
    return found


def _counted(summary: dict[str, Any] | None) -> Summary:
    if summary is None:
        return EMPTY
    if "bins" in summary:
        summary["bins"] = tuple(summary["bins"])
    return Summary(**summary)


def _read_the_same(rows: list[Row]) -> bool:
    """Whether rows of one text are of several paths."""
    return any(row.names != rows[0].names for row in rows)
