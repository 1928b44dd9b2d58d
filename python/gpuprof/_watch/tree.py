"""What a watch measures: sums while it runs, and rows of plain data in the order of the tree."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gpuprof._core as _core
from gpuprof._common.records import Plain, in_results
from gpuprof._common.units import NOTHING, byte_size, duration
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table
from gpuprof._frameworks import loaded

_CLOCKS = {
    "cuda": "GPU time, from events in the stream",
    "cpu": "host time; no GPU time was measured",
}
NOTED = ("failed", "dropped", "skipped", "pending")


class ModuleEntry(_core._WatchedEntry):
    """One row: a place in the tree of modules."""

    def __init__(self, path: str, module: Any, caller: ModuleEntry | None) -> None:
        super().__init__(module, caller)
        self.path = path
        self.module: Callable[[], Any] = weakref.ref(module)
        self.class_name = type(module).__name__
        self.also: list[str] = []
        self.parameters = self.parameter_bytes = 0

    def count_parameters(self) -> None:
        module = self.module()
        if module is None:
            return
        is_lazy = loaded.torch().nn.parameter.is_lazy
        known = [each for each in module.parameters() if not is_lazy(each)]
        self.parameters = sum(each.numel() for each in known)
        self.parameter_bytes = sum(each.numel() * each.element_size() for each in known)


@in_results
@dataclass(frozen=True)
class PassTimes(Plain, Shown):
    """The passes of one module in one direction. Times are milliseconds.

    Attributes
    ----------
    calls : int
        How often it ran, replays of graphs left out.
    timed : int
        How many of the calls have been measured.
    total_ms : float
        Their sum. Of a module that calls itself, the outermost calls alone; of a container that is
        never called, such as a `ModuleList`, the sum of what is in it.
    self_ms : float
        Their sum without the modules below.
    mean_ms : float or None
        The mean of one call.
    graph_calls : int
        How many times of calls inside graphs are in `graph_ms`.
    graph_ms : float
        Their sum: with ``timers="collect"`` over all replays, else in the last replay of each
        graph.
    failed, dropped, skipped, pending : int
        Calls without a time: they raised, too many spans waited to be read, they ran in a capture
        that gpuprof did not open, or the GPU is not done with them.
    """

    calls: int = 0
    timed: int = 0
    total_ms: float = 0.0
    self_ms: float = 0.0
    mean_ms: float | None = None
    graph_calls: int = 0
    graph_ms: float = 0.0
    failed: int = 0
    dropped: int = 0
    skipped: int = 0
    pending: int = 0

    @property
    def graph_mean_ms(self) -> float | None:
        """The mean of one call inside a graph; None if none was replayed."""
        return self.graph_ms / self.graph_calls if self.graph_calls else None

    def _table(self) -> Table:
        return Table(("figure", "value"), [(k, str(v)) for k, v in asdict(self).items()])


@in_results
@dataclass(frozen=True)
class ModuleRow(Plain, Shown):
    """One module of a watched model.

    Attributes
    ----------
    path : str
        Its name in the model, as of ``named_modules()``: ``""`` is the model itself.
    class_name : str
        The name of its class.
    depth : int
        How many names its path has.
    forward, recomputed, backward : PassTimes
        What its passes took. `recomputed` is what ran again inside of a backward pass, as with
        checkpointing, and is in none of the other two; its total is also that of the modules below.
    share : float or None
        Its part of the time of the module above it, from 0 to 1.
    parameters, parameter_bytes : int
        The parameters in it and below: how many numbers, and their size.
    activation_bytes : int or None
        How much more memory torch had allocated on the GPU after its newest measured forward pass
        than before it: results and what is kept for the backward pass. None without CUDA.
    also : tuple of str
        Other paths of the same module, whose calls are counted here.
    """

    path: str
    class_name: str
    depth: int
    forward: PassTimes
    recomputed: PassTimes
    backward: PassTimes
    share: float | None
    parameters: int
    parameter_bytes: int
    activation_bytes: int | None
    also: tuple[str, ...]

    @property
    def total_ms(self) -> float:
        """Forward, recomputed and backward time together."""
        return sum(each.total_ms for each in self._passes())

    def _passes(self) -> tuple[PassTimes, ...]:
        return self.forward, self.recomputed, self.backward

    def _table(self) -> Table:
        return ModuleTimes([self])._table()

    def _cells(self) -> dict[str, str]:
        forward, recomputed, backward = passes = self._passes()
        seen = self.total_ms or any(each.timed for each in passes)
        return {
            "module": self.path.rpartition(".")[2] or f"({self.class_name})",
            "class": self.class_name,
            "calls": f"{forward.calls:,}" if forward.calls else NOTHING,
            "forward": duration(forward.total_ms) if forward.total_ms else NOTHING,
            "per call": duration(forward.mean_ms),
            "recomputed": duration(recomputed.total_ms) if recomputed.total_ms else "",
            "backward": duration(backward.total_ms) if backward.total_ms else NOTHING,
            "per pass": duration(backward.mean_ms),
            "self": duration(sum(each.self_ms for each in passes)) if seen else NOTHING,
            "% parent": NOTHING if self.share is None else f"{100 * self.share:.1f}",
            "graph forward": _or_nothing(duration, forward.graph_mean_ms),
            "graph recomputed": _or_nothing(duration, recomputed.graph_mean_ms),
            "graph backward": _or_nothing(duration, backward.graph_mean_ms),
            "parameters": f"{self.parameters:,}" if self.parameters else NOTHING,
            "size": byte_size(self.parameter_bytes) if self.parameters else NOTHING,
            "activations": _or_nothing(byte_size, self.activation_bytes),
            "notes": self._notes(),
        }

    def _notes(self) -> str:
        notes = [f"also {', '.join(self.also)}"] if self.also else []
        for what in NOTED:
            count = sum(getattr(each, what) for each in self._passes())
            notes += [f"{count:,} {what}"] if count else []
        return ", ".join(notes)


class ModuleTimes(Shown, Exported, Mapping[str, ModuleRow]):
    """What a watch had measured when it was read: its rows by path, as a tree in a text.

    Parameters
    ----------
    rows : sequence of ModuleRow
        In the order of ``named_modules()``: each module, then what is inside it.
    clocks : sequence of str
        What measured.
    notes : sequence of str
        What stands below the table.
    """

    __module__ = "gpuprof"

    def __init__(
        self, rows: Sequence[ModuleRow], clocks: Sequence[str] = (), notes: Sequence[str] = ()
    ) -> None:
        self._rows = {row.path: row for row in rows}
        self.clocks = tuple(clocks)
        self.notes = tuple(notes)

    def __getitem__(self, path: str) -> ModuleRow:
        return self._rows[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def to_dict(self) -> dict[str, Any]:
        """Return the rows as plain data, by path, with the clocks and the notes."""
        return {
            "clocks": list(self.clocks),
            "notes": list(self.notes),
            "modules": {path: row.to_dict() for path, row in self._rows.items()},
        }

    def _records(self) -> Records:
        return Records.of_plain(row.to_dict() for row in self.values())

    def _table(self) -> Table:
        return Table.of(
            [row._cells() for row in self._rows.values()],
            left={"module", "class", "notes"},
            title=", ".join(
                f"clock: {each} ({_CLOCKS.get(each, 'host time')})" for each in self.clocks
            )
            or "no forward pass was measured yet",
            notes=self.notes,
            depths=[row.depth for row in self._rows.values()],
            paths=[row.path for row in self._rows.values()],
        )


def _or_nothing(write: Callable[[Any], str], value: float | None) -> str:
    return "" if value is None else write(value)
