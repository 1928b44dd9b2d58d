"""Traces: what the program did, when, as a file that Perfetto opens."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.interrupts import held_back, wait
from gpuprof._trace import path as trace_path
from gpuprof._trace import registry
from gpuprof._trace.base import TraceBlock
from gpuprof._trace.checks import checked_args, checked_moment, series
from gpuprof.errors import GpuprofError, InvalidStateError, TraceError

if TYPE_CHECKING:
    from typing_extensions import Self


def trace(
    path: str | os.PathLike[str],
    *,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> TraceWriter:
    """Write a trace of all that gpuprof sees, until the block is left.

    Timer scopes and annotations appear on the track of their thread, and timer scopes also on a
    track for each stream, at the time when the GPU ran them. Traces may overlap.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write, as for `TraceWriter`.
    args : Mapping, optional
        Plain data to keep in the file, as for `TraceWriter`.
    buffer_mib : int, optional
        How many MiB of events may wait to be written, as for `TraceWriter`.

    Returns
    -------
    TraceWriter
        A context manager, also for ``async with``, that begins and closes it; its
        `~TraceWriter.start` does so too. Used again, it writes another file.

    Raises
    ------
    TypeError, ValueError, TraceError
        As for `TraceWriter`.

    See Also
    --------
    trace_windows : A file for each window of steps.
    flight_recorder : The newest events in memory, written when something happens.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with gpuprof.trace(os.path.join(folder.name, "step.json.gz")) as writer:
    ...     with gpuprof.timer("step"):
    ...         pass
    >>> writer.stats()["events"]
    1
    >>> folder.cleanup()
    """
    return TraceWriter(path, collect=True, args=args, buffer_mib=buffer_mib)


class TraceWriter(TraceBlock, _core._TraceEvents):
    """A trace file that is being written: Chrome trace JSON, as Perfetto and Chrome read it.

    It takes the events that its methods are given, and with ``collect=True`` all that gpuprof sees:
    timer scopes, annotations, marks, counters. It begins when its ``with`` block is entered, or
    with `start`; one that does not collect also with the first event that it is given. While it is
    open it is ``PATH.part``, which can be loaded at any moment; `close` makes it ``PATH``. It may
    then be used again, which writes ``PATH`` with the number of the use before its suffix: `path`
    says where. Failures to write are one warning, and end the trace, not the program; `error` says
    why.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write; compressed if it ends in ``.gz``. ``%p`` is replaced by the process, ``%h``
        by the host's name, ``%r`` by the rank, ``%q{VAR}`` by an environment variable. A path that
        another open trace has gets the process's number before its suffix, and so does the file of
        a forked child. A link is followed. An earlier trace of gpuprof is replaced, any other file
        is left as it is, which is a failure to write.
    collect : bool
        Whether to take what scopes and annotations of the whole process do.
    args : Mapping, optional
        Plain data to keep in the file, of the run as a whole; a few hundred bytes.
    buffer_mib : int, optional
        How many MiB of events may wait to be written; what finds no room is dropped and counted.
        None is what ``GPUPROF_TRACE_BUFFER_MIB`` says, or 32. Open traces share the largest.

    Raises
    ------
    TypeError, ValueError
        `path` is no path, or has an unknown pattern, or `buffer_mib` is no such number.
    TraceError
        `path` is relative and the working directory is gone; at the start, that no thread can be
        started.

    Notes
    -----
    Times are nanoseconds of ``time.monotonic_ns()``. All methods may be called from any thread.
    A writer that is never closed is closed when the interpreter exits.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.json")
    >>> with gpuprof.TraceWriter(path) as writer:
    ...     writer.span("load", 1.5, cat="io")
    >>> os.listdir(folder.name)
    ['run.json']
    >>> folder.cleanup()
    """

    __module__ = "gpuprof"

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        collect: bool = False,
        args: Mapping[str, object] | None = None,
        buffer_mib: int | None = None,
        _from_start: bool = False,  # the event that opens it belongs to it
    ) -> None:
        self._pattern = trace_path.absolute(self._checked_pattern(path))  # also for a later use
        self._path = trace_path.expand(self._pattern).replace(trace_path.NUMBER, "%n")
        super().__init__(self._path, args, buffer_mib)
        self._collect = bool(collect)
        self._entered = False
        self._from_start = _from_start
        self._number = 0
        self._uses: dict[str, int] = {}
        self._last_state: dict[str, Any] | None = None
        if not self._collect:
            self._say_unused.detach()

    def _checked_pattern(self, path: str | os.PathLike[str]) -> str:
        pattern = checks.path("path", path)
        trace_path.expand(pattern)  # which says what is wrong with it
        return pattern

    def start(self) -> Self:
        """Begin to write, as entering the ``with`` block does; returns the writer.

        Raises
        ------
        InvalidStateError
            It is being written already.
        TraceError
            No thread can be started to write it, or the working directory is gone.
        """
        if self._open:
            message = f"the trace {self._path} is being written already; close it first"
            raise InvalidStateError(message)
        self._say_unused.detach()
        path = trace_path.expand(self._pattern)
        self._uses[path] = use = self._uses.get(path, 0) + 1
        self._last_state = None
        with held_back():  # else an empty file would be left, or one that nobody closes
            self._begin(self._path_of_use(path, use))
            self._open = True
            self._closed = False
        return self

    def _path_of_use(self, path: str, use: int) -> str:
        return path if use == 1 else trace_path.insert(path, f".{use}")

    def _begin(self, path: str) -> None:
        self._process = os.getpid()
        self._path = path
        if self._collect and not self._from_start:
            open_as_wanted()  # or the first event would find this one open
        self._open_core(path)
        if not self._number:
            return
        self._set_number(self._number)
        registry.remember(self, self._number)

    def _open_core(self, path: str) -> None:
        """Have C++ open the trace; a number of 0 says that it has failed, with a warning."""
        try:
            self._part = trace_path.claim(path)
        except OSError as error:
            self._fail(error.strerror or str(error))
            return
        self._path = self._part.path
        try:
            self._number = _core._trace_open(
                self._part.descriptor,
                where=self._part.name,
                collects=self._collect,
                **self._facts(),
            )
        except BaseException as error:
            self._part.discard()
            self._part.release()
            if isinstance(error, RuntimeError):
                message = f"the trace {self._path} cannot be written: no thread can start: {error}"
                raise TraceError(message) from error
            raise

    def _facts(self) -> dict[str, Any]:
        return {
            "from_start": self._from_start,
            "process": trace_path.process_name(),
            "rank": trace_path.rank(),
            "world_size": trace_path.world_size(),
            "args": self._args,
            "buffer_mib": self._buffer_mib,
        }

    def _fail(self, why: str) -> None:
        self._number = 0
        self._last_state = {**_core._trace_state(0), "error": why}
        checks.warn_outside(
            f"gpuprof: cannot write the trace {self._path}: {why}; the program goes on without it"
        )

    def _reopen_in_child(self) -> None:
        """Give it a file of the child's own, once a forked child has something to write."""
        if self._process == os.getpid() or not self._open:
            return
        registry.forget(self)
        self._last_state = None
        self._from_start = True
        try:
            path = trace_path.expand(self._pattern)
            path = self._path_of_use(path, self._uses.get(path, 1))
            self._begin(path if "%p" in self._pattern else trace_path.with_process(path))
        except TraceError as error:  # the program asked for the parent's, not for this one
            self._fail(str(error))

    def _current(self) -> int:
        """Return the number of the open trace; in a forked child that of a file of its own."""
        self._reopen_in_child()
        if not self._open:
            if self._closed or self._collect:
                message = (
                    f"the trace {self._path} is {self._state}; use it in a with statement, or "
                    "start()"
                )
                raise InvalidStateError(message)
            self.start()
        return self._number

    @property
    def path(self) -> str:
        """Where the trace is, or will be once it is closed."""
        return self._path

    @property
    def error(self) -> str | None:
        """Why nothing is written any more, or None."""
        error: str | None = self.stats()["error"]
        return error

    def stats(self) -> dict[str, Any]:
        """Return how the writing goes.

        Returns
        -------
        dict
            ``open``, ``error``, ``events``, ``dropped`` (found no room), ``unplaced`` (GPU spans
            that could not be put on the host's clock), ``bytes``, ``gpu_error_ns`` (how far a GPU
            slice may be off), ``writer_cpu_ns`` (what the writer thread has cost). Of a flight
            recorder ``bytes`` are those of the ring, and there are ``held`` (events in it),
            ``reaches_back_ns`` and ``dumps`` (files written).
        """
        if self._last_state is not None:
            return dict(self._last_state)
        return dict(_core._trace_state(self._number if self._process == os.getpid() else 0))

    def instant(
        self,
        name: str,
        *,
        cat: str | None = None,
        tid: int | None = None,
        at_ns: int | None = None,
        args: Mapping[str, object] | None = None,
    ) -> None:
        """Write a moment; parameters as for `span`, and `at_ns` None is now."""
        event = checked_moment(name, cat, tid, at_ns)
        if number := self._current():
            _core._trace_event("instant", number, *event, checked_args(args))

    def counter(
        self, name: str, values: float | Mapping[str, float], *, at_ns: int | None = None
    ) -> None:
        """Write the value of a counter, or of its several series, from now or `at_ns` on.

        A value that is not finite leaves a gap.
        """
        event, finite = checked_moment(name, None, None, at_ns), series(values)
        if (number := self._current()) and finite:
            _core._trace_event("counter", number, *event, finite)

    def flow(
        self,
        phase: Literal["start", "step", "end"],
        id: int,
        name: str = "flow",
        *,
        cat: str | None = None,
        tid: int | None = None,
        at_ns: int | None = None,
    ) -> None:
        """Write one end of an arrow between slices.

        Parameters
        ----------
        phase : {'start', 'step', 'end'}
            An arrow goes from its start over its steps to its end, each inside a slice.
        id : int
            What joins them, from 0 to 2**40 - 1.
        name, cat, tid, at_ns
            As for `instant`; name and category must be the same at all ends.
        """
        checks.choice("phase", phase, ("start", "step", "end"))
        checks.whole("id", id, 0, 2**40 - 1)
        event = checked_moment(name, cat, tid, at_ns)
        if number := self._current():
            _core._trace_event(phase, number, *event, None, id)

    def flush(self) -> None:
        """Wait until all that was given so far is in ``PATH.part``, or in a recorder's memory."""
        if number := self._current():
            _core._trace_flush(number)

    def close(self) -> None:
        """Write what is left and make `path`; idempotent, never raises for the file's sake.

        A collecting trace first waits for the GPU time of the scopes that were left, so that they
        are in it. A Ctrl-C ends that wait, and is raised once the file is there.
        """
        self._say_unused.detach()
        is_own = self._process == os.getpid()  # else a forked child that wrote nothing
        with held_back():
            try:
                if is_own and self._collect and self._open:
                    registry.name_threads()
                    wait(_flush_scopes)
            finally:
                was_open, self._open, self._closed = self._open, False, True
                if was_open:
                    registry.forget(self)
                    if is_own and self._number:
                        self._finish()

    def _finish(self) -> None:
        try:
            if self._close_core()["error"] is None:  # else the warning came with the failure
                self._part.complete()
        except OSError as error:
            why = error.strerror or str(error)
            self._last_state = {**self.stats(), "error": why}
            checks.warn_outside(
                f"gpuprof: cannot write the trace {self._path}: {why}; "
                f"what there is stays in {self._part.name}"
            )
        finally:  # until the file is in its place, nobody else may take it for one left behind
            self._part.release()
        self._say_dropped()
        if unplaced := self.stats()["unplaced"]:
            checks.warn_outside(
                f"gpuprof: the trace {self._path} lacks {unplaced} GPU slices, which could not be "
                "placed on the host's clock"
            )

    def _close_core(self) -> dict[str, Any]:
        number, self._number = self._number, 0
        self._set_number(0)
        self._last_state = state = dict(_core._trace_close(number))
        if self._collect and not registry.collecting():
            _core._trace_wanted(False)
        return state

    def _say_dropped(self) -> None:
        if dropped := self.stats()["dropped"]:
            checks.warn_outside(
                f"gpuprof: the trace {self._path} lacks {dropped} events, for which there was no "
                "room: give it more with buffer_mib= or GPUPROF_TRACE_BUFFER_MIB"
            )

    def __enter__(self) -> Self:
        if self._entered:
            message = f"the trace {self._path} is in use by a with statement; make another one"
            raise InvalidStateError(message)
        super().__enter__()
        self._entered = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._entered = False
        super().__exit__(*exception)

    def __repr__(self) -> str:
        state = f"{self.stats()['events']} events" if self._open else self._state
        return f"<gpuprof.TraceWriter {self._path!r}, {state}>"


def _flush_scopes() -> None:
    with suppress(GpuprofError):  # a driver that is gone: the host's part of the trace is good
        _core.flush()


_environment_read = False


def open_as_wanted() -> None:
    """Open the trace of GPUPROF_TRACE_OUT, and in a forked child those of its parent."""
    global _environment_read  # noqa: PLW0603 (once for the process, and its children)
    path = os.environ.get("GPUPROF_TRACE_OUT", "")
    if not registry.reopen_in_child() or _environment_read or not path:
        return
    _environment_read = True
    try:
        if _core._fork_generation() and "%p" not in path:
            path = trace_path.with_process(path)
        TraceWriter(path, collect=True, _from_start=True).start()
    except Exception as error:
        # Whatever it is, a scope that the program happens to leave must not raise it.
        warnings.warn(
            f"gpuprof: GPUPROF_TRACE_OUT was ignored: {error}", RuntimeWarning, stacklevel=1
        )
