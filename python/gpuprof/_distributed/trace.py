"""`trace`: a trace file for each rank, on one clock, and one file of all when they are closed."""

from __future__ import annotations

import atexit
import os
import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gpuprof._common import checks
from gpuprof._distributed import clock
from gpuprof._distributed.exchange import Exchange
from gpuprof._distributed.files import FileState, RankMerge, merge_files
from gpuprof._distributed.world import StoreError, distributed, find
from gpuprof._trace import path as trace_path
from gpuprof._trace.writer import TraceWriter
from gpuprof._trace_tools.clocks import CATEGORY, NAME, Anchor
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from typing_extensions import Self

CALL = "gpuprof.distributed.trace"
CLOCKS_SHARE = 0.75  # of the timeout at the end; the rest is for the files
FAILED_WAIT_S = 5.0  # how long rank 0 waits for the others where its own block has raised


def trace(
    path: str | os.PathLike[str],
    *,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
    merge: bool = True,
    timeout_s: float = 60.0,
    store: Any = None,
    group: Any = None,
) -> RankTrace:
    """Write a trace file for each rank, and merge them into one on one clock.

    Each rank calls it and writes its own file, as `gpuprof.trace` does. At the begin and at the
    end each rank measures how far rank 0's clock is ahead of its own, which is kept in its file.
    When the block is left, rank 0 waits for the other files and merges them.

    Parameters
    ----------
    path : str or os.PathLike
        The merged file; the ranks' files have ``.rank0``, ``.rank1`` before its suffix. With
        ``%r`` it is the ranks' files, and the merged one has ``all`` in its place. Other patterns
        are those of `gpuprof.TraceWriter`.
    args : Mapping, optional
        Plain data to keep in each rank's file.
    buffer_mib : int, optional
        How many MiB of events may wait to be written on each rank.
    merge : bool
        Whether rank 0 merges the files. Without, ``gpuprof trace merge`` does it later, also on
        another machine: what was measured of the clocks is in the files.
    timeout_s : float
        How many seconds the ranks wait for each other at the begin, and at the end, from 0 to
        86,400.
    store : torch.distributed.Store, optional
        Where the ranks meet. None is the store of the default process group.
    group : torch.distributed.ProcessGroup, optional
        The ranks that call it. None is all of them.

    Returns
    -------
    RankTrace
        A context manager. Its `~RankTrace.result` says on rank 0 what was merged.

    Raises
    ------
    InvalidStateError
        At the start: there is no process group yet in a program that a launcher has started on
        several ranks, or this rank is not in `group`.
    TypeError, ValueError, TraceError
        As for `gpuprof.trace`, and `timeout_s` is out of range.

    Notes
    -----
    No collective is used. The n-th trace of one rank belongs to the n-th of the others. A rank that
    is missing, that dies, or whose file is on another host without a shared file system, is named
    in a warning of rank 0 and in the result; what it wrote stays where it is. The file of a rank
    that never closed it is repaired for the merge.

    Examples
    --------
    >>> import gpuprof.distributed, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with gpuprof.distributed.trace(os.path.join(folder.name, "run.json")):
    ...     with gpuprof.timer("step", backend="cpu"):
    ...         pass
    >>> os.listdir(folder.name)
    ['run.json']
    >>> folder.cleanup()
    """
    checks.number("timeout_s", timeout_s, 0.0, checks.MOST_S)
    checks.flag("merge", merge)
    options = {"args": args, "buffer_mib": buffer_mib}
    return RankTrace(checks.path("path", path), options, merge, timeout_s, (store, group))


@dataclass(repr=False, eq=False)
class RankTrace:
    """The trace of one rank among several, as `trace` returns it; used once."""

    _pattern: str
    _options: Mapping[str, Any]
    _merge: bool
    _timeout_s: float
    _meeting: tuple[Any, Any]  # the store and the group
    _writer: TraceWriter | None = None
    _exchange: Exchange | None = None
    _reference: str = ""
    _closed: bool = False
    _result: RankMerge | None = None

    def __post_init__(self) -> None:
        trace_path.expand(self._pattern)  # an unknown pattern is an error of this call

    @property
    def writer(self) -> TraceWriter:
        """The writer of this rank's file, for events of your own."""
        if self._writer is None:
            message = f"{CALL}: the trace was not begun; use it in a with statement, or start()"
            raise InvalidStateError(message)
        return self._writer

    @property
    def path(self) -> str:
        """Where this rank's file is, or will be once it is closed."""
        return self.writer.path

    @property
    def result(self) -> RankMerge | None:
        """What was merged: on rank 0, once it is closed; else None."""
        return self._result

    def start(self) -> Self:
        """Begin to write, as entering the ``with`` block does; returns the trace.

        Raises
        ------
        InvalidStateError
            It was begun already, or the other ranks cannot be reached.
        """
        if self._writer is not None:
            message = f"{CALL}: a trace is used once, and this one was begun already; make another"
            raise InvalidStateError(message)
        world = find(CALL, *self._meeting)
        torch_distributed = distributed()
        if torch_distributed is not None:
            trace_path.tell_rank(torch_distributed.get_rank(), torch_distributed.get_world_size())
        path = self._pattern if world.size == 1 else trace_path.of_ranks(self._pattern)[0]
        self._writer = TraceWriter(path, collect=True, **self._options).start()
        atexit.register(self.close)
        if world.size > 1:
            self._exchange = Exchange(world, "trace")
            self._reference = f"{socket.gethostname()}:{os.getpid()}:{time.monotonic_ns()}"
            self._together(self._say)
            self._together(self._measure_clock, "begin", time.monotonic() + self._timeout_s)
        return self

    def close(self) -> None:
        """Close this rank's file; on rank 0 wait for the others, and merge. Idempotent."""
        self._close(has_failed=False)

    def _close(self, *, has_failed: bool) -> None:
        if self._writer is None or self._closed:
            return
        self._closed = True
        atexit.unregister(self.close)
        timeout_s = min(self._timeout_s, FAILED_WAIT_S) if has_failed else self._timeout_s
        begun = time.monotonic()
        try:
            if not has_failed:
                clocks = begun + CLOCKS_SHARE * timeout_s
                self._together(self._measure_clock, "end", clocks)
        finally:
            self._writer.close()
        self._together(self._say)
        if self._exchange is not None and self._exchange.world.rank == 0:
            self._together(self._collect, begun + timeout_s)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exception: object) -> None:
        self._close(has_failed=exception[1] is not None)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "not begun" if self._writer is None else "open"
        return f"<gpuprof.distributed.RankTrace {self._pattern!r}, {state}>"

    __reduce__ = checks.not_pickled(
        "a RankTrace holds an open file and cannot be pickled or copied; make a new one"
    )

    def _together(self, step: Any, *arguments: Any) -> None:
        """Do what needs the store; where that fails, go on with this rank's file alone."""
        if self._exchange is None:
            return
        try:
            step(self._exchange, *arguments)
        except StoreError as error:
            self._exchange = None
            checks.warn_outside(
                f"gpuprof: the trace {self.path} is not merged with those of the other ranks: "
                f"{error}; `gpuprof trace merge` does it later"
            )

    def _say(self, exchange: Exchange) -> None:
        state = FileState.of(self.writer, is_closed=self._closed)
        if not exchange.post(state.to_bytes()):
            message = "rank 0 has gone on without it"
            raise StoreError(message)

    def _measure_clock(self, exchange: Exchange, when: str, deadline: float) -> None:
        if exchange.world.rank == 0:
            found: Anchor | None = Anchor(time.monotonic_ns(), 0, 0, self._reference)
            has_left = partial(_has_closed, exchange) if when == "end" else lambda _: False
            clock.serve(exchange, when, deadline, self._reference, has_left)
        else:
            found = clock.measure(
                exchange, when, deadline, lambda: _has_closed(exchange, 0) or exchange.is_closed()
            )
        if found is not None:
            self.writer.instant(NAME, cat=CATEGORY, at_ns=found.clock, args=found.args())

    def _collect(self, exchange: Exchange, deadline: float) -> None:
        values = exchange.collect(deadline, FileState.is_closed_in) if self._merge else {}
        exchange.close()
        if not self._merge:
            return
        members = exchange.world.members
        states = {members[rank]: FileState.from_bytes(value) for rank, value in values.items()}
        states[members[0]] = FileState.of(self.writer, is_closed=True)
        merged = trace_path.expand(trace_path.of_ranks(self._pattern)[1])
        self._result = merge_files(states, members, merged)
        if self._result.problems:
            checks.warn_outside(f"gpuprof: {self._result}")


def _has_closed(exchange: Exchange, rank: int) -> bool:
    key = exchange.key(rank)
    return exchange.connection.has([key]) and FileState.is_closed_in(exchange.connection.get(key))
