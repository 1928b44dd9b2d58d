"""`gpuprof.idle`: which line of Python runs while the GPU has nothing to do."""

from __future__ import annotations

import atexit
import time
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common.checks import not_pickled
from gpuprof._common.places import places_of
from gpuprof._common.units import duration, percent
from gpuprof._display.shown import OfBlock
from gpuprof._idle.looks import Looks, merged
from gpuprof._idle.rows import IdleRow, rows_of, table_of
from gpuprof._kernels import api as kernels_api

if TYPE_CHECKING:
    from typing_extensions import Self

    from gpuprof._display.table import Table
    from gpuprof._kernels.collector import Columns


def idle() -> Idle:
    """Find the lines of Python that run while the GPU has nothing to do.

    A thread looks 100 times a second whether the GPU has reached the ends of all scopes. Only where
    it has, the thread takes the interpreter's lock, and notes the line that runs on the threads
    that entered scopes. So it costs nothing while the GPU works.

    Returns
    -------
    Idle
        A context manager, and after its block the result.

    Notes
    -----
    Entering it without a CUDA driver or device is a `CudaUnavailableError`.

    Scopes are all that it knows the GPU's work from: what is launched outside of them, or after
    `disable`, is not seen, and while one is open, its own work is not known until it is left.
    Inside a `kernels` block, the records of all work decide that afterwards, and idle time is
    exact; open that block around this one, or in it.

    Examples
    --------
    >>> import gpuprof
    >>> with gpuprof.idle() as found:  # doctest: +SKIP
    ...     train(model, batches)
    >>> print(found)  # doctest: +SKIP
    """
    return Idle()


class Idle(OfBlock):
    """What `idle` finds. Its ``repr`` is a table with a row for each line."""

    __module__ = "gpuprof"

    def __init__(self) -> None:
        self._looks = Looks()
        self._watching: Any = None
        self._begin_ns = self._end_ns = 0
        self._since_ns = 0  # when anything was known first
        self._not_known_ns = 0

    # --- the block ---------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not _core._is_set("GPUPROF_DISABLE"):
            _core.require_cuda()
        self._start()
        return self

    def _start(self) -> None:
        """Begin where CUDA may not be in use yet, or never."""
        self._check_new()
        self._state = "open"
        if _core._is_set("GPUPROF_DISABLE"):
            return
        self._begin_ns = time.monotonic_ns()
        kernels_api.when_collected.append(self._correct)
        atexit.register(self.__exit__)  # before the interpreter goes, which a thread may not meet
        self._watching = _core._IdleLooks(self._note)

    def __exit__(self, *exception: object) -> None:
        if self._state != "open":
            return
        self._state = "ended"
        watching, self._watching = self._watching, None
        if watching is None:
            return
        self._end_ns = time.monotonic_ns()
        try:
            watching.stop()
        finally:
            self._since_ns = min(filter(None, (self._since_ns, watching.since_ns)), default=0)
            self._not_known_ns = watching.not_known_ns
            atexit.unregister(self.__exit__)
            if not _core._cupti_is_collecting():
                kernels_api.when_collected.remove(self._correct)

    def _note(self, at: int, ns: int, is_idle: bool, waits: bool, threads: list[int]) -> None:
        self._looks.add(at, ns, places_of(threads), is_idle, waits)

    def _correct(self, work: Columns, begin_ns: int, end_ns: int) -> bool:
        """Judge what was seen by all work in a block of `kernels`; return whether more may come."""
        end_ns = min(filter(None, (end_ns, self._end_ns, self._looks.full_since_ns)))
        begin_ns = max(begin_ns, self._begin_ns)
        busy = merged(zip(work.begin_ns, work.end_ns, strict=True), begin_ns, end_ns)
        if busy:
            self._looks.correct(busy, end_ns)
            self._since_ns = min(filter(None, (self._since_ns, busy[0][0])))
        return self._state == "open"

    # --- the result --------------------------------------------------------------------------

    @property
    def rows(self) -> list[IdleRow]:
        """A row for each line, the longest idle time first."""
        self._check_ended()
        return rows_of(self._looks.found()[0], self._watched_ns)

    @property
    def idle_ms(self) -> float:
        """For how long the GPU is known to have been idle."""
        return sum(row.idle_ms for row in self.rows)

    @property
    def not_known_ms(self) -> float:
        """For how long only scopes were open, of whose work nothing tells."""
        self._check_ended()
        return (self._not_known_ns + self._looks.found()[1]) * 1e-6

    @property
    def seconds(self) -> float:
        """How long the GPU was watched: from its first work in the block on."""
        self._check_ended()
        return self._watched_ns * 1e-9

    @property
    def share(self) -> float:
        """The idle time's part of that, from 0 to 1."""
        # A look stands for whole slots of 10 ms, of which a collection may begin or end in one.
        return min(1.0, sum(row.share for row in self.rows))

    @property
    def notes(self) -> list[str]:
        """What is missing or uncertain, as stands below the table."""
        if _core._is_set("GPUPROF_DISABLE"):
            return ["nothing was watched: GPUPROF_DISABLE is set"]
        if not self._since_ns:
            return ["no scope ran on a GPU in that time, so nothing is known of it"]
        notes = []
        if not self._looks.is_corrected:
            notes.append(
                "work that was launched outside of scopes, or while disabled, was not seen"
            )
        if self.not_known_ms:
            share = percent(self.not_known_ms / self.seconds / 1e3)
            notes.append(
                f"for another {share} of the time a scope was open, and nothing more is known of "
                "its work: collect kernels as well"
            )
        return notes

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain data."""
        return {
            "seconds": self.seconds,
            "idle_ms": self.idle_ms,
            "not_known_ms": self.not_known_ms,
            "rows": [row.to_dict() for row in self.rows],
            "notes": self.notes,
        }

    __reduce__ = not_pickled("an Idle cannot be pickled; keep its to_dict()")

    @property
    def _watched_ns(self) -> int:
        return self._end_ns - self._since_ns if self._since_ns else 0

    def _table(self) -> Table:
        title = f"GPU idle: {percent(self.share)} of {duration(self.seconds * 1e3)}"
        return table_of(self.rows, title if self._since_ns else "", self.notes)
