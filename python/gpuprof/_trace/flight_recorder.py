"""Traces that are kept in memory, and written when something has happened."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping
from typing import Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.records import in_results
from gpuprof._trace import path as trace_path
from gpuprof._trace import registry
from gpuprof._trace.checks import checked_length, checked_limits, checked_signals
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import TraceError

_MOST_REASON = 500
_LEAST_BYTES, _MOST_BYTES = 64 << 10, 1 << 40


def flight_recorder(
    path: str | os.PathLike[str],
    *,
    keep_last: str | float | None = None,
    keep_bytes: int = 64 << 20,
    dump_on: int | Iterable[int] | None = None,
    when: Mapping[str, float] | None = None,
    max_dumps: int = 10,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> FlightRecorder:
    """Keep the newest events of the process in bounded memory, and write them when asked.

    While it is open it takes what a trace takes, and nothing is on the disk. A dump is a complete
    trace of what it holds, in a file of its own; then it goes on. There is one for an exception
    that leaves the ``with`` block, for each signal of `dump_on`, for a scope that passes a limit of
    `when`, and for each call of `dump`. Without any of these there is no file.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write, as for `TraceWriter`. The number of the dump, from 1, stands for ``%n``, or
        before the suffix: ``run.json`` gives ``run.1.json``. A number whose file is there is left
        out, so that nothing is overwritten. It may not end in ``.gz``.
    keep_last : str or float, optional
        How far it reaches back: "30s", "500ms", "2min", or a number of seconds. None is as far as
        the memory goes.
    keep_bytes : int
        How many bytes the events may take, at least 64 KiB. What does not fit drops the oldest.
        While a dump is written it may be twice as much.
    dump_on : int or iterable of int, optional
        Signals that ask for a dump, such as ``signal.SIGUSR1``. A handler that was there before
        still runs; a signal that would have ended the program ends it after the dump.
    when : Mapping[str, float], optional
        Limits in milliseconds by the path or the name of a scope: of GPU time, or of the host's for
        a scope that CUDA does not measure. Their dumps are at least `keep_last` apart, 30 s without
        it, so that they do not show the same twice; a limit that is passed earlier is in the next.
    max_dumps : int
        After so many numbered files there is one warning, and no more are written.
    args : Mapping, optional
        Plain data to keep in each file, as for `TraceWriter`.
    buffer_mib : int, optional
        How many MiB of events may wait to be taken in, as for `TraceWriter`.

    Returns
    -------
    FlightRecorder
        A context manager, also for ``async with``, that begins and closes it.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.
    TraceError
        As for `TraceWriter`; at the start, that a signal cannot be handled.

    Notes
    -----
    A dump waits for the GPU spans in flight, for 0.5 s at most; how many it leaves out, and how
    far it reaches back, is in the last event of the file. Scopes that are still open are not in it.
    A dump that fails is one warning and leaves no file. Forked children have a recorder of their
    own, whose files have the process's number in their names.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "last.json")
    >>> with gpuprof.flight_recorder(path, keep_last="30s") as recorder:
    ...     with gpuprof.timer("step"):
    ...         pass
    ...     path = recorder.dump()
    >>> os.listdir(folder.name)
    ['last.1.json']
    >>> folder.cleanup()
    """
    ring = {
        "keep": checked_length(keep_last),
        "keep_bytes": checks.whole(
            "keep_bytes", keep_bytes, _LEAST_BYTES, _MOST_BYTES, unit="bytes"
        ),
        "signals": checked_signals(dump_on),
        "max_dumps": checks.whole("max_dumps", max_dumps, 1, 2**31 - 1),
    }
    return FlightRecorder(path, ring, checked_limits(when), args, buffer_mib)


@in_results
class FlightRecorder(TraceWriter):
    """The newest events of the process in memory, which `gpuprof.flight_recorder` makes."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        ring: dict[str, Any],
        limits: dict[str, float],
        args: Mapping[str, object] | None,
        buffer_mib: int | None,
    ) -> None:
        self._ring, self._limits = ring, limits
        super().__init__(path, collect=True, args=args, buffer_mib=buffer_mib)

    def _checked_pattern(self, path: str | os.PathLike[str]) -> str:
        given = checks.path("path", path)
        if given.endswith(".gz"):
            message = (
                f"path: a flight recorder writes no compressed files, got {given!r}; end it in "
                ".json"
            )
            raise ValueError(message)
        pattern = trace_path.with_number(given, trace_path.NUMBER)
        trace_path.around_number(trace_path.expand(pattern))
        return pattern

    def _path_of_use(self, path: str, use: int) -> str:  # noqa: ARG002 (the numbers go on)
        return path

    def _open_core(self, path: str) -> None:
        before, after = trace_path.around_number(path)
        self._path = f"{before}%n{after}"
        folder = os.path.dirname(before)  # noqa: PTH120 (a str, as all here)
        if not os.access(folder, os.W_OK | os.X_OK):
            checks.warn_outside(
                f"gpuprof: the flight recorder: there is no folder {folder} that can be written "
                "to; dumps will fail"
            )
        try:
            self._number = _core._trace_open_recorder(
                **self._facts(),
                **self._ring,
                before=os.fsencode(before),
                after=os.fsencode(after),
            )
        except RuntimeError as error:
            message = f"the flight recorder {self._path} cannot start: {error}"
            raise TraceError(message) from error
        if self._limits:
            _core._trace_set_limits(self._number, self._limits)

    def dump(self) -> str | None:
        """Write what it holds into the next numbered file, and go on.

        Returns
        -------
        str or None
            The path of the file; None where there is none, which is said in a warning: it could not
            be written, or `max_dumps` are there.

        Raises
        ------
        InvalidStateError
            It is not open.
        """
        return self._dump(self._current(), "a call of dump()")

    def _dump(self, number: int, reason: str) -> str | None:
        registry.name_threads()
        made = _core._trace_dump(number, reason)
        return os.fsdecode(made) if made else None

    def _finish(self) -> None:
        if self._limits:
            _core._trace_set_limits(self._number, {})
        self._close_core()  # no file is open
        self._say_dropped()

    def __exit__(self, *exception: object) -> None:
        error = exception[1]
        if not isinstance(error, BaseException) or not _is_failure(error):
            super().__exit__(*exception)
            return
        # A warning that was made an error must not take the place of the body's exception.
        with contextlib.suppress(Exception):
            if self._open and (number := self._current()):
                self._dump(number, _reason(error))
        with contextlib.suppress(Exception):
            super().__exit__(*exception)

    def __repr__(self) -> str:
        state = self._state
        if self._open:
            stats = self.stats()
            state = f"{stats['held']} events, {stats['dumps']} dumps"
        return f"<gpuprof.results.FlightRecorder {self._path!r}, {state}>"


def _is_failure(error: BaseException) -> bool:
    """Whether an exception that leaves the block is worth a dump: not that of a good exit."""
    if isinstance(error, SystemExit):
        return error.code is not None and error.code != 0
    return not isinstance(error, GeneratorExit)


def _reason(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}"[:_MOST_REASON] if text else name
