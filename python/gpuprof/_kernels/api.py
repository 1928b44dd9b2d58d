"""`gpuprof.kernels`: every kernel of a block by name, under the scope that launched it."""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import ExitStack, suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common.checks import flag, not_pickled, value_error, whole
from gpuprof._common.monitoring import is_supported
from gpuprof._common.units import duration
from gpuprof._display.shown import OfBlock
from gpuprof._display.table import Table
from gpuprof._graphs import labels
from gpuprof._kernels import to_trace
from gpuprof._kernels.attribution import Attribution, Span, Spans, attribute, python_threads
from gpuprof._kernels.callers import CallerNotes
from gpuprof._kernels.collector import Collected, Collector, Columns
from gpuprof._kernels.compiled import add_modules
from gpuprof._kernels.rows import KernelRecord, KernelRow, KernelTotals
from gpuprof._kernels.summary import Evaluated, scope_names
from gpuprof._timing.listeners import Listener, on_sample
from gpuprof.errors import GpuprofError, InvalidStateError

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import Self

MAX_RECORDS = 1_000_000

# Told of all work of each block that has ended, and of when it began and ended; they answer
# whether they want to hear of more.
when_collected: list[Callable[[Columns, int, int], bool]] = []

_is_open = threading.Lock()  # by the one block that a process may have open


def _end(collector: Collector) -> None:
    with suppress(GpuprofError):  # it has ended, or not begun
        collector.stop()


def kernels(*, max_records: int = MAX_RECORDS, callers: bool = False) -> Kernels:
    """Collect every kernel, copy and memset of a block, each under the scope that launched it.

    CUPTI collects them, which torch's wheels bring, the wheel ``nvidia-cuda-cupti``, or a CUDA
    toolkit. They are also written to each open `trace`.

    Parameters
    ----------
    max_records : int
        How many pieces of work are kept one by one, and how many calls. What comes after is counted
        by name only.
    callers : bool
        Whether the line of Python is kept that launched each piece of work: the innermost one that
        is of no library. It costs each such line some 0.1 µs, and needs Python 3.12.

    Returns
    -------
    Kernels
        A context manager, and after its block the result. Leaving the block waits for the GPU.

    Raises
    ------
    TypeError, ValueError
        `max_records` is no whole number, or negative; `callers` is no bool, or this Python cannot
        tell of lines.
    InvalidStateError
        On entering: another `kernels` block is open, or one of torch's profilers is running.
    CudaUnavailableError
        On entering: there is no CUDA driver with a device, or CUPTI is missing, too old, or held by
        another tool.

    Notes
    -----
    Collecting makes launches dearer, by some microseconds each, so the host's times inside the
    block are not those without it; the GPU's times of single kernels are. A profiler of torch's
    that is started inside the block works, and ends the collection early.

    Examples
    --------
    >>> import gpuprof
    >>> with gpuprof.kernels() as k:  # doctest: +SKIP
    ...     with gpuprof.timer("step"):
    ...         model(batch)
    >>> print(k)  # doctest: +SKIP
    """
    whole("max_records", max_records, 0)
    if flag("callers", callers) and not is_supported():
        raise value_error(callers, "callers", "False on a Python before 3.12")
    return Kernels(max_records, callers=callers)


class Kernels(OfBlock):
    """What `kernels` collects. Its ``repr`` is a table with a row for each scope."""

    __module__ = "gpuprof"

    def __init__(self, max_records: int, *, callers: bool = False) -> None:
        self._max_records = max_records
        self._callers = CallerNotes() if callers else None
        self._collector: Collector | None = None
        self._listener: Listener | None = None
        self._spans: list[Span] = []
        self._lost_spans = 0
        self._threads: set[int] = set()
        self._undo = ExitStack()
        self._labels = labels.NodeScopes()
        self._begin_ns = self._end_ns = 0
        self._evaluated = Evaluated(Collected([]), Attribution(0))
        self._rows: list[KernelRow] = []
        self._notes: list[str] = []

    def __enter__(self) -> Self:
        self._check_new()
        if _core._is_set("GPUPROF_DISABLE"):
            self._state = "open"
            self._notes.append("nothing was collected: GPUPROF_DISABLE is set")
            return self
        if not _is_open.acquire(blocking=False):
            message = (
                "a gpuprof.kernels() block is open already, and a process has one profiler: "
                "end it first, or use its result for both"
            )
            raise InvalidStateError(message)
        with ExitStack() as undo:
            undo.callback(_is_open.release)
            collector = Collector(self._max_records)
            self._threads = python_threads()
            self._listener = on_sample(self._add_spans)
            undo.callback(self._listener.close)
            self._labels = undo.enter_context(labels.watch())
            undo.callback(_end, collector)
            collector.start()
            if self._callers is not None:
                undo.callback(self._callers.stop)
                self._callers.start(4 * self._max_records)
            self._begin_ns = time.monotonic_ns()
            self._collector = collector
            self._state = "open"
            self._undo = undo.pop_all()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._state != "open":
            return
        self._state = "ended"
        collector = self._collector
        if collector is None:
            return
        self._end_ns = time.monotonic_ns()
        try:
            self._finish(collector)
        except Exception as own:
            self._notes.append(f"the collection failed: {own}")
            if exception[1] is None:
                raise
        finally:
            self._undo.close()
            self._listener = None  # which knows this

    def _finish(self, collector: Collector) -> None:
        still_open = [
            Span(names, since, 1 << 62, thread)
            for names, since, thread in _core._open_scopes()
            if since
        ]
        self._threads |= python_threads()
        if self._callers is not None:
            self._callers.stop()
        collector.stop()
        with suppress(GpuprofError):  # a driver that is gone; what is finished is handed over
            _core.flush()
        listener = self._listener
        if listener is not None:
            listener.close()
            self._lost_spans += listener.dropped
        spans = Spans([*self._spans, *still_open])
        self._spans = []
        found = collector.collected()
        attribution = attribute(found, spans, self._labels, self._threads)
        add_modules(found, attribution)
        evaluated = Evaluated(found, attribution)
        if self._callers is not None:
            evaluated.callers = self._callers.find(found.launches, self._threads)
            self._notes += self._callers.notes
        self._evaluated = evaluated
        # What was entered after the records end has none in the figures.
        entered = (each.names for each in spans.all if each.begin_ns <= found.until_ns)
        self._rows = evaluated.rows(Counter(entered))
        self._notes += evaluated.notes(self._max_records, self._lost_spans)
        if self._labels.problem and attribution.in_graph:
            self._notes.append(f"scopes of some graphs are not known: {self._labels.problem}")
        to_trace.write(evaluated, spans)
        end_ns = min(self._end_ns, found.until_ns)
        when_collected[:] = [
            each for each in when_collected if each(found.work, self._begin_ns, end_ns)
        ]

    def _add_spans(self, samples: list[_core.Sample]) -> None:
        room = self._max_records - len(self._spans)
        self._lost_spans += max(0, len(samples) - room)
        self._spans += [
            Span(each.names, each.host_begin_ns, each.host_end_ns, each.thread_id)
            for each in samples[: max(0, room)]
        ]

    @property
    def source(self) -> str:
        """What collected, as ``"CUPTI 13.0"``; ``""`` for nothing."""
        return "" if self._collector is None else self._collector.name

    @property
    def rows(self) -> list[KernelRow]:
        """A row for each scope that launched something, and for those around it, as a tree."""
        self._check_ended()
        return list(self._rows)

    @cached_property
    def records(self) -> list[KernelRecord]:
        """Every piece of work in the order in which it began, at most ``max_records``."""
        self._check_ended()
        return [*map(self._evaluated.record, range(len(self._evaluated.found.work)))]

    @property
    def dropped(self) -> int:
        """How many pieces of work past ``max_records`` are known by their names alone."""
        self._check_ended()
        return self._evaluated.found.dropped

    @property
    def notes(self) -> list[str]:
        """What is missing or uncertain, as stands below the table."""
        return list(self._notes)

    @property
    def seconds(self) -> float:
        """How long the block was, on the host."""
        self._check_ended()
        return (self._end_ns - self._begin_ns) * 1e-9

    def by_kernel(self, scope: str | tuple[str, ...] | None = None) -> KernelTotals:
        """Return the work by name, the largest total first.

        Parameters
        ----------
        scope : str or tuple of str, optional
            Only what this scope and those inside it launched: its path, or the names of its path;
            () or ``"(no scope)"`` is what no scope did. None is all work.

        Raises
        ------
        KeyError
            The scope launched nothing.
        InvalidStateError
            The block has not ended.
        """
        return self._totals(scope, by_caller=False)

    def by_caller(self, scope: str | tuple[str, ...] | None = None) -> KernelTotals:
        """Return the work by the line of Python that launched it, the largest total first.

        Parameters
        ----------
        scope : str or tuple of str, optional
            As of `by_kernel`.

        Raises
        ------
        KeyError
            The scope launched nothing.
        InvalidStateError
            The block has not ended, or was not one of ``kernels(callers=True)``.
        """
        if self._callers is None:
            message = "callers were not kept: collect with gpuprof.kernels(callers=True)"
            raise InvalidStateError(message)
        return self._totals(scope, by_caller=True)

    def _totals(self, scope: str | tuple[str, ...] | None, *, by_caller: bool) -> KernelTotals:
        self._check_ended()
        names = scope_names(scope, self._rows)
        of = "all" if names is None else KernelRow(names).path
        title = f"GPU work by {'caller' if by_caller else 'name'}, scope: {of}"
        return KernelTotals(self._evaluated.totals(names, by_caller=by_caller), title)

    def table(self) -> str:
        """Return the table of the scopes as text.

        Raises
        ------
        InvalidStateError
            The block has not ended.
        """
        return "\n".join(self._table().plain())

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data: rows, work by name, notes; not the records."""
        found = self._evaluated.found
        return {
            "source": self.source,
            "seconds": self.seconds,
            "records": len(found.work),
            "dropped": found.dropped,
            "clock_error_ns": found.clock_error_ns,
            "rows": [row.to_dict() for row in self._rows],
            "kernels": self.by_kernel().to_dict()["kernels"],
            "notes": self.notes,
        }

    __reduce__ = not_pickled(
        "a Kernels cannot be pickled; keep its to_dict(), or a list of its records"
    )

    def _table(self) -> Table:
        rows, title = self.rows, "no GPU work was collected"
        if self.source:
            host = f"{duration(self.seconds * 1e3)} on the host"
            title = f"GPU work by scope, {host}, collected by {self.source}"
            title += "" if rows else ": none"
        if not_kept := self._evaluated.found.not_kept().values():
            ms = sum(ns for _, ns in not_kept) * 1e-6
            whole = ms + sum(row.gpu_ms for row in rows if len(row.names) < 2)
            share = ms / whole if whole else 0.0
            count = sum(count for count, _ in not_kept)
            rows.append(KernelRow(("(past max_records)",), count, gpu_ms=ms, share=share))
        return Table.of(
            [{"scope": (row.names or (row.path,))[-1], **row.cells()} for row in rows],
            left={"scope"},
            title=title,
            notes=self._notes,
            depths=[max(0, len(row.names) - 1) for row in rows],
            paths=[row.path for row in rows],
        )
