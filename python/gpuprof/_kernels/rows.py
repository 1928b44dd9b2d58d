"""The figures of `gpuprof.kernels`: of a scope, of a kernel, of one record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, overload

from gpuprof._common.records import Plain, in_results
from gpuprof._common.units import NOTHING, byte_size, duration
from gpuprof._display.records import Records
from gpuprof._display.shown import Exported, Shown
from gpuprof._display.table import Table

NO_SCOPE_TEXT = "(no scope)"


@in_results
@dataclass(frozen=True)
class KernelRow(Plain):
    """What one scope launched, with all that is inside it. Times are milliseconds.

    Attributes
    ----------
    names : tuple of str
        The scopes of the path, outermost first; () for what no scope launched.
    count : int
        How many kernels, copies and memsets there were.
    kernels, copies, memsets : int
        How many of each.
    gpu_ms : float
        The sum of their times. Work on several streams at once counts as often.
    self_ms : float
        What of it no scope inside this one launched.
    share : float
        Its part of all work, from 0 to 1.
    host_bound_ms, dependency_ms, launch_gap_ms, unknown_ms : float
        How long streams had nothing to do before work of this scope, by cause.
    communication_ms, exposed_ms : float
        How long kernels of NCCL ran, those that run at once counted once; and how long of it the
        same GPU did nothing else.
    entries : int
        How often the scope was entered in the block.
    module : str
        Where the last names are those of a module in compiled code: its path; ``""`` for a scope.
    """

    names: tuple[str, ...]
    count: int = 0
    kernels: int = 0
    copies: int = 0
    memsets: int = 0
    gpu_ms: float = 0.0
    self_ms: float = 0.0
    share: float = 0.0
    host_bound_ms: float = 0.0
    dependency_ms: float = 0.0
    launch_gap_ms: float = 0.0
    unknown_ms: float = 0.0
    communication_ms: float = 0.0
    exposed_ms: float = 0.0
    entries: int = 0
    module: str = ""
    _MEMBERS = ("path", ..., "idle_ms")

    @property
    def path(self) -> str:
        """The names joined by ``/``."""
        return "/".join(self.names) if self.names else NO_SCOPE_TEXT

    @property
    def idle_ms(self) -> float:
        """How long streams had nothing to do before this scope's work: the sum of the causes."""
        return self.host_bound_ms + self.dependency_ms + self.launch_gap_ms + self.unknown_ms

    def cells(self) -> dict[str, str]:
        """Return the texts of the table's line, without that of the scope."""
        return {
            "GPU time": duration(self.gpu_ms),
            "self": _time(self.self_ms),
            "% all": f"{100 * self.share:.1f}",
            "count": f"{self.count:,}",
            "idle": _time(self.idle_ms),
            "host-bound": _time(self.host_bound_ms),
            "dependency": _time(self.dependency_ms),
            "launch gap": _time(self.launch_gap_ms),
            "unknown": _time(self.unknown_ms),
            "communication": duration(self.communication_ms) if self.communication_ms else "",
            "exposed": duration(self.exposed_ms) if self.communication_ms else "",
        }


@in_results
@dataclass(frozen=True)
class KernelTotal(Plain):
    """All work of one name.

    Attributes
    ----------
    name : str
        The kernel's, or what was copied or set: ``"Memcpy HtoD (Pageable -> Device)"``.
    kind : str
        ``"kernel"``, ``"memcpy"``, ``"memset"``, or ``"caller"`` for all that one line launched.
    count : int
    total_ms, min_ms, max_ms : float
        Milliseconds. Work past ``max_records`` is in `count` and `total_ms` alone.
    share : float
        Its part of the work asked about, from 0 to 1.
    nbytes : int
        How many bytes were copied or set; 0 where that is not known.
    """

    name: str
    kind: str
    count: int
    total_ms: float
    min_ms: float
    max_ms: float
    share: float
    nbytes: int = 0
    _MEMBERS = (..., "mean_ms")

    @property
    def mean_ms(self) -> float:
        """The mean of one."""
        return self.total_ms / self.count


@in_results
class KernelTotals(Shown, Exported, Sequence[KernelTotal]):
    """Work by name, the largest total first, as `gpuprof.Kernels.by_kernel` returns it."""

    def __init__(self, totals: Sequence[KernelTotal], title: str) -> None:
        self._totals = tuple(totals)
        self._title = title

    @overload
    def __getitem__(self, index: int) -> KernelTotal: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[KernelTotal, ...]: ...
    def __getitem__(self, index: int | slice) -> KernelTotal | tuple[KernelTotal, ...]:
        return self._totals[index]

    def __len__(self) -> int:
        return len(self._totals)

    def to_dict(self) -> dict[str, Any]:
        """Return the totals as plain data."""
        return {"title": self._title, "kernels": [each.to_dict() for each in self._totals]}

    def _records(self) -> Records:
        return Records.of_plain(each.to_dict() for each in self._totals)

    def _table(self, *, most: int | None = None) -> Table:
        title = self._title
        if most is not None and most < len(self):
            title += f": the first {most} of {len(self):,}"
        lines = [
            {
                "name": each.name,
                "count": f"{each.count:,}",
                "total": duration(each.total_ms),
                "%": f"{100 * each.share:.1f}",
                "mean": duration(each.mean_ms),
                "min": _time(each.min_ms),
                "max": _time(each.max_ms),
                "size": byte_size(each.nbytes) if each.nbytes else "",
            }
            for each in self._totals[:most]
        ]
        return Table.of(lines, left={"name"}, title=title)


@in_results
class KernelRecord(NamedTuple):
    """One kernel, copy or memset. Times are nanoseconds of ``time.monotonic_ns()``.

    Attributes
    ----------
    name, kind : str
        As of `KernelTotal`.
    scope : tuple of str
        The path of the scope that launched it; below it, in a graph replay, the scopes of the
        capture. () for none.
    begin_ns, end_ns : int
        When it ran.
    device, stream : int
        The device's number, and the number that CUPTI has for the stream (7 is the default one).
    launch : str
        The function that launched it; ``""`` where the call is not known.
    launched_ns, launch_end_ns : int
        When that call began and returned; 0 where it is not known.
    thread_id : int
        The system id of the thread that called it; 0 where it is not known.
    correlation : int
        What joins it to its call; all work of one graph replay has the same.
    graph_id, node_id : int
        Of the graph node, where the source tells; else 0.
    nbytes : int
        How many bytes were copied or set.
    idle_ns : int
        How long its stream was idle before it.
    idle_cause : str
        Why, for most of it: ``"host_bound"``, ``"dependency"``, ``"launch_gap"``, ``"unknown"`` or
        ``""``.
    caller : str
        The line of Python that launched it, as ``"app/train.py:31 in step"``; ``""`` where callers
        were not asked for.
    module : str
        Of compiled code, the path of its module in what was compiled; it is also the end of
        `scope`. ``""`` for the whole, where it is not known, and for what was not compiled.
    line : str
        Of compiled code, the first of its lines, as ``"app/model.py:12 in forward"``; or ``""``.
    """

    name: str
    kind: str
    scope: tuple[str, ...]
    begin_ns: int
    end_ns: int
    device: int
    stream: int
    launch: str
    launched_ns: int
    launch_end_ns: int
    thread_id: int
    correlation: int
    graph_id: int
    node_id: int
    nbytes: int
    idle_ns: int
    idle_cause: str
    caller: str = ""
    module: str = ""
    line: str = ""


def _time(ms: float) -> str:
    return duration(ms) if ms else NOTHING
