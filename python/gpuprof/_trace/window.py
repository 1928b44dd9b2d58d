"""Traces of some steps of a long run: a file for each window of steps."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gpuprof._core as _core
from gpuprof._common import checks
from gpuprof._common.interrupts import held_back
from gpuprof._common.records import in_results
from gpuprof._trace import path as trace_path
from gpuprof._trace import registry
from gpuprof._trace.base import TraceBlock
from gpuprof._trace.checks import checked_schedule
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import InvalidStateError, TraceError

if TYPE_CHECKING:
    from typing_extensions import Self


class WarmUp:
    """Has everything recorded and forgotten, so that the start of it is in no window."""

    _collect = True

    def __init__(self, buffer_mib: int) -> None:
        self._process = os.getpid()
        self._number = _core._trace_open_recorder(buffer_mib=buffer_mib)
        registry.remember(self, self._number)

    def close(self) -> None:
        registry.forget(self)
        if self._process != os.getpid():
            return
        _core._trace_close(self._number)
        if not registry.collecting():
            _core._trace_wanted(False)

    def _reopen_in_child(self) -> None:
        """Leave it to the parent: a forked child's own next step warms up again."""
        registry.forget(self)


class Window(TraceWriter):
    def close(self) -> None:
        """Let what ends from now on not belong to it, and close it once the GPU is done."""
        if self._process == os.getpid() and self._number:
            _core._trace_end(self._number)
        super().close()


def trace_windows(
    path: str | os.PathLike[str],
    schedule: tuple[int, int, int, int],
    *,
    args: Mapping[str, object] | None = None,
    buffer_mib: int | None = None,
) -> TraceWindows:
    """Trace windows of steps, each to a file that is there as soon as its window is over.

    The steps go round as in ``torch.profiler.schedule``: `wait` steps in which nothing is recorded
    and which cost what they do without a trace, `warm` steps that are recorded and forgotten,
    `active` steps that are recorded. The first step begins with the ``with`` block; each call of
    `step` ends one and begins the next. The block's end also writes a window that is not over.

    Parameters
    ----------
    path : str or os.PathLike
        Where to write, as for `TraceWriter`. The number of the window, from 1, stands for ``%n``,
        or before the suffix: ``run.json.gz`` gives ``run.1.json.gz``.
    schedule : tuple of int
        (wait, warm, active, repeat): the steps of a cycle, and how many cycles there are; 0 is for
        ever.
    args : Mapping, optional
        Plain data to keep in each file, as for `TraceWriter`.
    buffer_mib : int, optional
        How many MiB of events may wait to be written, as for `TraceWriter`.

    Returns
    -------
    TraceWindows
        A context manager, also for ``async with``, that begins and closes it.

    Raises
    ------
    TypeError, ValueError
        An argument is not what is listed above.
    TraceError
        As for `TraceWriter`.

    Notes
    -----
    The step that ends a window waits for the GPU time of the scopes that were left in it, so that
    they are in its file, and writes the file. One thread at a time may call `step`. A forked child
    has files of its own, with the process's number in their names.

    Examples
    --------
    >>> import gpuprof, os, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> path = os.path.join(folder.name, "run.json")
    >>> with gpuprof.trace_windows(path, schedule=(1, 1, 2, 2)) as windows:
    ...     for step in range(10):
    ...         with gpuprof.timer("step"):
    ...             pass
    ...         windows.step()
    >>> sorted(os.listdir(folder.name))
    ['run.1.json', 'run.2.json']
    >>> folder.cleanup()
    """
    return TraceWindows(path, schedule, args, buffer_mib)


@in_results
class TraceWindows(TraceBlock):
    """Traces of windows of steps, which `gpuprof.trace_windows` makes."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        schedule: tuple[int, int, int, int],
        args: Mapping[str, object] | None,
        buffer_mib: int | None,
    ) -> None:
        self._schedule = checked_schedule(schedule)
        given = checks.path("path", path)
        trace_path.expand(trace_path.with_number(given, 1))  # which says what is wrong with it
        self._pattern = trace_path.absolute(given)
        super().__init__(given, args, buffer_mib)
        self._home = self._process
        self._changing: dict[str, int] = {}
        self._step = 0
        self._windows = 0
        self._recording: Window | WarmUp | None = None
        self._last: Window | None = None

    def start(self) -> Self:
        """Begin the first step, as entering the ``with`` block does; returns the windows.

        Raises
        ------
        InvalidStateError
            It has begun already.
        TraceError
            No thread can be started to write it, or the working directory is gone.
        """
        with held_back(), self._alone("start()"):
            if self._open:
                message = f"the windows of {self._pattern} have begun already; close them first"
                raise InvalidStateError(message)
            self._say_unused.detach()
            self._step = 0
            self._recording = self._recorder_of(self.phase_of(0))
            self._open = True
            self._closed = False
        return self

    def step(self) -> None:
        """End a step and begin the next one.

        Raises
        ------
        InvalidStateError
            It has not begun, is closed, or another thread is in this call.
        """
        with self._alone("step()"):
            if not self._open:
                message = (
                    f"the windows of {self._pattern} are {self._state}: call step() inside their "
                    "with block, or after start()"
                )
                raise InvalidStateError(message)
            step = self._step + 1
            after = self.phase_of(step)
            if after != self.phase or (after == "active" and self._schedule.begins_cycle(step)):
                self._change_to(after)
            else:
                self._step = step

    def _change_to(self, phase: str) -> None:
        with held_back():  # a Ctrl-C is raised once the file is there
            self._step += 1
            old, self._recording = self._recording, None
            try:
                # The next one begins first, so that nothing between them is lost.
                self._recording = self._recorder_of(phase)
            except TraceError as error:  # no thread can start now: the program goes on
                warnings.warn(
                    f"gpuprof: a window is left out: {error}", RuntimeWarning, stacklevel=4
                )
            finally:
                if old is not None:
                    old.close()

    def _recorder_of(self, phase: str) -> Window | WarmUp | None:
        if phase == "warm":
            try:
                return WarmUp(self._buffer_mib)
            except RuntimeError as error:
                message = f"no thread can start: {error}"
                raise TraceError(message) from error
        if phase != "active":
            return None
        self._windows += 1
        path = trace_path.with_number(self._pattern, self._windows)
        if self._process != self._home and "%p" not in path:
            path = trace_path.with_process(path)
        window = Window(path, collect=True, args=self._args, buffer_mib=self._buffer_mib)
        window.start()
        self._last = window
        return window

    @contextlib.contextmanager
    def _alone(self, call: str) -> Any:
        if self._process != os.getpid():  # the parent's threads are not here
            self._process = os.getpid()
            self._changing = {}
        # No lock: a Ctrl-C could leave it held. This thread's own mark does not stop it.
        own = threading.get_ident()
        if self._changing.setdefault("thread", own) != own:
            message = f"{call}: another thread is changing the windows of {self._pattern}"
            raise InvalidStateError(message)
        try:
            yield
        finally:
            self._changing.pop("thread", None)

    def close(self) -> None:
        """End the last step, and write its window if it was an active one; idempotent."""
        self._say_unused.detach()
        with held_back(), self._alone("close()"):
            was_open, self._open, self._closed = self._open, False, True
            recording, self._recording = self._recording, None
            if was_open and recording is not None:
                recording.close()

    def phase_of(self, step: int) -> str:
        """Return what a step is, counted from 0: "wait", "warm", "active" or "done"."""
        return self._schedule.phase(step)

    @property
    def phase(self) -> str:
        """What the current step is, or "not begun" or "closed"."""
        return self.phase_of(self._step) if self._open else self._state

    @property
    def path(self) -> str | None:
        """Where the newest window is, or will be once it is over; None before the first."""
        return None if self._last is None else self._last.path

    @property
    def windows(self) -> int:
        """How many windows have begun."""
        return self._windows

    @property
    def error(self) -> str | None:
        """Why the newest window was not written, or None."""
        return None if self._last is None else self._last.error

    def stats(self) -> dict[str, Any]:
        """Return how the writing of the newest window goes, as `~gpuprof.TraceWriter.stats`."""
        return {} if self._last is None else self._last.stats()

    def __repr__(self) -> str:
        state = f"{self.phase}, {self._windows} windows"
        return f"<gpuprof.results.TraceWindows {self._pattern!r}, {state}>"
