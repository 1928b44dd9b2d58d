"""What a graphed callable did so far, as plain data, and a `GraphCounts` for each of its graphs.

A snapshot: it holds no graph, never waits and reads nothing from the driver; it can be pickled,
written as JSON and shown elsewhere. Times are seconds, sizes bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuprof._callable.leaves import Leaf
from gpuprof._common.records import Document, Record, in_results
from gpuprof._common.text import plural, shown_text
from gpuprof._common.units import byte_size, duration
from gpuprof._display.shown import Shown
from gpuprof._frameworks.array_facts import dtype_name

if TYPE_CHECKING:
    from gpuprof._display.table import Table

_MAX_ARGUMENTS = 4  # of a graph in a text


@in_results
@dataclass(frozen=True, repr=False)
class GraphCounts(Shown, Record):
    """One captured graph of a graphed callable.

    Attributes
    ----------
    name : str
        The graph's name.
    arguments : str
        The arrays that it was captured for, as in "args[0]: float32 (32, 256)".
    replays : int
        How often it was launched.
    num_nodes : int or None
        How many nodes it has, the copies at its edges included; None if that is not known.
    memory_bytes : int or None
        Device memory that it took; None if that is not known.
    capture_s : float
        What making it took on the host, in seconds: warm-up, capture and instantiation.
    """

    name: str
    arguments: str
    replays: int
    num_nodes: int | None
    memory_bytes: int | None
    capture_s: float

    def _cells(self) -> dict[str, str]:
        return {
            "graph": self.name,
            "arguments": self.arguments,
            "replays": f"{self.replays:,}",
            "nodes": "" if self.num_nodes is None else f"{self.num_nodes:,}",
            "memory": "" if self.memory_bytes is None else byte_size(self.memory_bytes),
            "capture": duration(1e3 * self.capture_s),
        }

    def _table(self) -> Table:
        return _table([self])


@in_results
@dataclass(frozen=True, repr=False)
class GraphedCallableStats(Shown, Document):
    """What a graphed callable did since it was made.

    Attributes
    ----------
    captures : int
        How many graphs were captured, those that are gone included.
    replays : int
        How many calls were served by a graph.
    eager_calls : int
        How many calls ran the function itself; those of the warm-up are not counted.
    hits : int
        How many calls found a graph that fitted.
    misses : int
        How many calls found none.
    evictions : int
        How many graphs were dropped because there were more than ``max_graphs``.
    recaptures : int
        How many captures replaced a graph whose parameters had moved or changed.
    failures : int
        How many captures failed.
    padded_calls : int
        How many calls were padded to a size of ``buckets``.
    capture_s : float
        What the captures took on the host in all, in seconds.
    memory_bytes : int or None
        Device memory that the graphs have now; None if it is not known of all of them.
    graphs : tuple of GraphCounts
        The graphs that there are now.
    numerics : int
        How many comparisons found differences, and none larger than rounding explains.
    """

    captures: int = 0
    replays: int = 0
    eager_calls: int = 0
    hits: int = 0
    misses: int = 0
    evictions: int = 0
    recaptures: int = 0
    failures: int = 0
    padded_calls: int = 0
    capture_s: float = 0.0
    memory_bytes: int | None = None
    graphs: tuple[GraphCounts, ...] = ()
    numerics: int = 0

    _MEMBERS = (..., "hit_rate", "graphs")

    @property
    def hit_rate(self) -> float | None:
        """The share of calls that found a graph; None before the first call."""
        looked = self.hits + self.misses
        return self.hits / looked if looked else None

    def _lines(self) -> list[str]:
        rate = "" if self.hit_rate is None else f" ({100 * self.hit_rate:.1f} % found a graph)"
        captures = plural(self.captures, "capture")
        memory = "" if self.memory_bytes is None else f", {byte_size(self.memory_bytes)}"
        rare = {
            "failed": self.failures,
            "evicted": self.evictions,
            "captured again": self.recaptures,
        }
        told = "".join(f", {count:,} {what}" for what, count in rare.items() if count)
        padded = f", {self.padded_calls:,} padded" if self.padded_calls else ""
        eager = plural(self.eager_calls, "eager call")
        close = f", {self.numerics:,} verified but for rounding" if self.numerics else ""
        return [
            f"{plural(self.replays, 'replay')}, {eager}{padded}{close}{rate}",
            f"{captures} in {duration(1e3 * self.capture_s)}{told}; "
            f"{plural(len(self.graphs), 'graph')} now{memory}",
        ]

    def _table(self) -> Table:
        return _table(self.graphs, self._lines())


def arguments_text(leaves: Sequence[Leaf]) -> str:
    """Write the arrays of a call in short, as in "args[0]: float32 (32, 256)"."""
    texts = [
        shown_text(f"{leaf.path}: {dtype_name(leaf.facts)} {tuple(leaf.facts.shape)}")
        for leaf in leaves[:_MAX_ARGUMENTS]
    ]
    more = len(leaves) - len(texts)
    return ", ".join([*texts, *([f"and {more:,} more"] if more else [])]) or "no arrays"


def _table(graphs: Sequence[GraphCounts], titles: Sequence[str] = ()) -> Table:
    from gpuprof._display.table import Table

    cells = [graph._cells() for graph in graphs]
    return Table.of(cells, left={"graph", "arguments"}, title=titles)
