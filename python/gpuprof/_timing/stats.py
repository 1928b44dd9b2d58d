"""Statistics as plain data: one row for each path and clock, taken at one moment.

A ``Stats`` is a snapshot. It holds no timer, never waits, and reads nothing from the driver; it can
be pickled, sent elsewhere and shown there. Times are milliseconds.
"""

from __future__ import annotations

import difflib
import json
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO, TypeAlias, cast

from gpuprof._common import text
from gpuprof._frameworks.torch import note_reset, torch_memory
from gpuprof._timing import stats_table

if TYPE_CHECKING:
    from gpuprof._frameworks.torch import TorchMemory

__all__ = ["Row", "Stats", "Summary", "note_reset"]

FORMAT = "gpuprof-stats"
VERSION = 1
HOST_BOUND_RATIO = 0.9

Names: TypeAlias = tuple[str, ...]
Key: TypeAlias = "str | tuple[str, str] | tuple[Names, str]"
Exact: TypeAlias = tuple[Names, str]


@dataclass(frozen=True, slots=True)
class Summary:
    """What a series of times adds up to, in milliseconds.

    With a `count` of 0, `total` is 0 and the rest is NaN. `first` is the first sample, which
    usually pays for compilation and lazy loading; the other figures include it.
    """

    __module__ = "gpuprof"

    count: int
    total: float
    mean: float
    min: float
    p50: float
    p90: float
    p99: float
    max: float
    first: float

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Summary:
        """Build one from its plain form; None stands for a figure that does not exist."""
        count = int(data["count"])
        if count == 0:
            return EMPTY
        times = (data[field.name] for field in fields(cls) if field.name != "count")
        return cls(count, *(math.nan if value is None else float(value) for value in times))

    def to_dict(self) -> dict[str, int | float | None]:
        """Return the plain form, with None for what is not a finite number."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: value if math.isfinite(value) else None for name, value in values}

    def __reduce__(self) -> tuple[Any, ...]:
        return _summary, tuple(getattr(self, field.name) for field in fields(self))


def _summary(count: int, *times: float) -> Summary:
    # One object for all that are empty: its NaNs are equal to nothing but themselves.
    return Summary(count, *times) if count else EMPTY


_COUNTS = ("dropped", "pending", "failed", "skipped")
EMPTY = Summary(0, 0.0, *[math.nan] * 7)


@dataclass(frozen=True, slots=True)
class Row:
    """The samples of one path on one clock.

    `names` are the scopes of the path, outermost first; `path` is for people and joins them by
    ``/``. A ``/`` in a name is part of it. Without `names` they are what `path` has between its
    slashes.

    On clocks that are not the GPU's, `gpu` is empty: its count is 0. `dropped` samples found no
    room to wait for their result, `pending` ones have none yet, `failed` ones were left by an
    exception or lost to the driver, and `skipped` ones ran inside a capture; none of these is in
    the summaries.
    """

    __module__ = "gpuprof"

    path: str
    clock: str
    gpu: Summary
    host: Summary
    dropped: int = 0
    pending: int = 0
    failed: int = 0
    skipped: int = 0
    names: Names = ()

    def __post_init__(self) -> None:
        for which in ("gpu", "host"):
            if getattr(self, which) is None:
                object.__setattr__(self, which, EMPTY)
        if not self.names:
            object.__setattr__(self, "names", tuple(self.path.split("/")))

    @property
    def name(self) -> str:
        """The last of the names."""
        return self.names[-1]

    @property
    def depth(self) -> int:
        """How many names stand before the last."""
        return len(self.names) - 1

    @property
    def parent(self) -> str | None:
        """The names before the last, joined by ``/``; None at the root."""
        return "/".join(self.names[:-1]) or None

    @property
    def time(self) -> Summary:
        """GPU time where this clock has it, else host time."""
        return self.gpu if self.on_gpu else self.host

    @property
    def on_gpu(self) -> bool:
        """Whether the clock is the GPU's."""
        return self.clock == "cuda"

    @property
    def host_bound(self) -> bool:
        """Whether the host's p50 is at least 90 % of the GPU's.

        The host then needs about as long to queue the work as the GPU to do it, so that a faster
        kernel may not make the program faster.
        """
        return self.host.p50 >= HOST_BOUND_RATIO * self.gpu.p50  # False beside a NaN

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Row:
        """Build one from its plain form."""
        gpu, host = (
            EMPTY if data[which] is None else Summary.from_dict(data[which])
            for which in ("gpu", "host")
        )
        counts = {which: int(data[which]) for which in _COUNTS}
        names = tuple(map(str, data.get("names", ())))
        return cls(str(data["path"]), str(data["clock"]), gpu, host, **counts, names=names)

    def to_dict(self) -> dict[str, Any]:
        """Return the plain form; None for a summary without samples."""
        return {
            "path": text.output_text(self.path),
            "names": list(map(text.output_text, self.names)),
            "clock": text.output_text(self.clock),
            "dropped": self.dropped,
            "pending": self.pending,
            "failed": self.failed,
            "skipped": self.skipped,
            "host_bound": self.host_bound,
            "gpu": self.gpu.to_dict() if self.gpu.count else None,
            "host": self.host.to_dict() if self.host.count else None,
        }


class Stats(Mapping[Key, Row]):
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

    def __init__(
        self,
        rows: Iterable[Row],
        *,
        dropped: int = 0,
        memory: Iterable[TorchMemory] = (),
        created: str | None = None,
    ) -> None:
        self._rows = tuple(rows)
        self.dropped = dropped
        self.memory = list(memory)
        self.created = created or datetime.now(timezone.utc).isoformat(timespec="seconds")
        self._exact = {(row.names, row.clock): row for row in self._rows}
        self._by_path: dict[str, list[Row]] = {}
        for row in self._exact.values():
            self._by_path.setdefault(row.path, []).append(row)
        for same_path in self._by_path.values():
            same_path.sort(key=lambda row: (not row.on_gpu, row.clock == "cpu"))

    @classmethod
    def from_snapshot(cls, snapshot: Mapping[str, Any]) -> Stats:
        """Build one from what the core counted, adding the time and torch's memory."""
        rows = [Row.from_dict(row) for row in snapshot["rows"]]
        return cls(rows, dropped=int(snapshot["dropped"]), memory=torch_memory())

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Stats:
        """Build one from what `to_dict` returned.

        Raises
        ------
        ValueError
            If `data` is something else, or of a version that this one cannot read.
        """
        found = data.get("format"), data.get("version")
        if found != (FORMAT, VERSION):
            message = (
                f"data has format {found[0]!r} and version {found[1]!r}; expected {FORMAT!r} and "
                f"{VERSION}: pass what Stats.to_dict() of a matching gpuprof returned"
            )
            raise ValueError(message)
        return cls(
            [Row.from_dict(row) for row in data["rows"]],
            dropped=int(data["dropped"]),
            memory=data["memory"],
            created=data["created"],
        )

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

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._rows, self.dropped, self.memory, self.created)

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
        sums: dict[Exact, float] = {}
        for key, outer in self._enclosing.items():
            outer_key = outer.names, outer.clock
            sums[outer_key] = sums.get(outer_key, 0.0) + self._exact[key].time.total
        return sums

    def self_ms(self, row: Row) -> float:
        """Return the row's total less what the rows inside it take on the same clock.

        Below zero where those overlap one another or outlast it.
        """
        key = row.names, row.clock
        return self[key].time.total - self._inside_ms.get(key, 0.0)

    def share(self, row: Row) -> float | None:
        """Return the row's part of the total around it on the same clock; None at the root."""
        key = row.names, row.clock
        total = self[key].time.total
        outer = self._enclosing.get(key)
        return total / outer.time.total if outer and outer.time.total > 0 else None

    def to_dict(self) -> dict[str, Any]:
        """Return everything as dicts, lists, text, finite numbers and None."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "created": self.created,
            "unit": "ms",
            "dropped": self.dropped,
            "memory": [dict(entry) for entry in self.memory],
            "rows": [row.to_dict() for row in self.values()],
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return `to_dict` as strict JSON, in ASCII."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False)

    def to_markdown(self) -> str:
        """Return a Markdown table, a line for each row."""
        return stats_table.markdown(self)

    def tree(self) -> str:
        """Return the table as plain text, indented by nesting."""
        return stats_table.plain(self)

    def print(self, file: TextIO | None = None, *, style: str = "auto") -> None:
        """Write the tree table.

        Parameters
        ----------
        file
            Where to; None is standard output.
        style
            ``"plain"``, ``"rich"``, or ``"auto"``: rich on a terminal. Where rich is not installed
            the table is plain.
        """
        stats_table.write(self, file, style)

    def plot(self, ax: Any = None) -> Any:
        """Draw the median of each row as a bar, with a whisker up to its 90th percentile.

        Parameters
        ----------
        ax
            The matplotlib axes to draw into; None makes a figure.

        Returns
        -------
        matplotlib.figure.Figure
            Not known to pyplot: save it with ``savefig``, or show it as a notebook cell's value.

        Raises
        ------
        ModuleNotFoundError
            Without matplotlib; it comes with ``pip install 'gpuprof[plot]'``.
        """
        from gpuprof._timing import stats_plot

        return stats_plot.bars(self, ax)

    def __repr__(self) -> str:
        return self.tree()

    def _repr_html_(self) -> str:
        return stats_table.html_table(self)

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        yield stats_table.rich_table(self, options.max_width)


def _read_the_same(rows: list[Row]) -> bool:
    """Whether rows of one text are of several paths."""
    return any(row.names != rows[0].names for row in rows)


def _rebuild(rows: tuple[Row, ...], dropped: int, memory: list[TorchMemory], created: str) -> Stats:
    return Stats(rows, dropped=dropped, memory=memory, created=created)
