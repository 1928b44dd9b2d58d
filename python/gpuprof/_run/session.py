"""What is measured while a program runs under ``gpuprof run``, and what is said at its end.

The end is an exit handler that was there before the program's own, so it runs after those and after
the last thread. A forked child has none of it: its copies are switched off.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import gpuprof._core as _core
import gpuprof._startup  # noqa: F401 (what the environment asks for)
from gpuprof._common.interrupts import held_back, wait
from gpuprof._common.monitoring import is_supported
from gpuprof._common.outputs import HTML, STATS, refuse_foreign, write_whole
from gpuprof._common.text import shown_text, write_text
from gpuprof._display.shown import Shown
from gpuprof._display.table import Table
from gpuprof._idle.api import Idle
from gpuprof._kernels.api import MAX_RECORDS, Kernels
from gpuprof._kernels.rows import KernelTotals
from gpuprof._run import facts
from gpuprof._run.diagnosis import diagnose
from gpuprof._run.function_scopes import FunctionScopes
from gpuprof._run.steps import Steps
from gpuprof._run.torch_scopes import TorchScopes
from gpuprof._timing import scope as timing
from gpuprof._timing.stats import Stats
from gpuprof._trace import registry
from gpuprof._trace.writer import TraceWriter
from gpuprof.errors import GpuprofError

MOST_LINES = 30  # of a table on standard error; a report has all
_PATIENCE_S = 5.0  # for a GPU whose program has failed
_FORK_WARNING = r"This process \(pid=\d+\) is multi-threaded, use of fork"


class Wishes(NamedTuple):
    """What the user asked for. The paths are absolute, because a program may change its folder."""

    program: str
    trace: str | None = None
    stats: str | None = None
    html: str | None = None
    depth: int = 1
    patterns: tuple[str, ...] = ()
    command: tuple[str, ...] = ()  # of the program, as it was given
    kernels: bool = False
    idle: bool = False

    def complaint(self) -> str | None:
        """Return why one of the paths cannot be written to, while there is no program to lose."""
        for option, path in (("-o", self.trace), ("--stats", self.stats), ("--html", self.html)):
            folder = Path(path).parent if path else None
            if folder and not (folder.is_dir() and os.access(folder, os.W_OK)):
                advice = "" if folder.is_dir() else ": make that folder first"
                return f"{option}: cannot write into {folder}{advice}"
        return None


class Session:
    """From before the first line of a program until after its last exit handler."""

    def __init__(self, wishes: Wishes) -> None:
        self._wishes = wishes
        self._process = os.getpid()
        self._begin_s = time.monotonic()
        self._failure: BaseException | None = None
        self._has_reported = self._is_over = False
        self._trace: TraceWriter | None = None
        self._steps = Steps()
        self._stop_scopes = contextlib.ExitStack()
        self._torch = TorchScopes(wishes.depth, self._steps) if wishes.depth else None
        self._imports = facts.ImportTimes()
        self._functions = FunctionScopes(wishes.patterns) if wishes.patterns else None
        # What a longer program runs after so many records is known by name alone.
        self._kernels = Kernels(MAX_RECORDS, callers=is_supported()) if wishes.kernels else None
        self._idle = Idle() if wishes.idle else None
        self._work: dict[str, Shown] = {}  # what the GPU did, by its heading in a report
        self._kernels_error = ""

    def start(self) -> None:
        """Open the trace, and let scopes come; errors as of `FunctionScopes.start`."""
        if self._functions is not None:
            self._functions.start()
            self._stop_scopes.callback(self._functions.stop)
        if (self._wishes.trace is not None or self._wishes.idle) and sys.version_info >= (3, 12):
            # It is the thread that writes the trace, or looks at the GPU.
            warnings.filterwarnings("ignore", message=_FORK_WARNING, category=DeprecationWarning)
        if self._kernels is not None:
            self._kernels.__enter__()  # may fail, while there is nothing to report
        if self._idle is not None:
            self._idle._start()
        if self._wishes.trace is not None:
            about = facts.describe(self._wishes.command, is_over=False)
            self._trace = TraceWriter(self._wishes.trace, collect=True, args=about)
            self._trace.start()
        atexit.register(self._finish_after_interrupt)
        atexit.register(self.finish)  # after the trace's own, so it runs before that
        os.register_at_fork(after_in_child=self._stop_scopes.close)
        os.register_at_fork(after_in_child=self._steps.stop)
        if self._torch is not None:
            self._stop_scopes.callback(self._torch.detach)
            self._torch.attach()
        self._stop_scopes.callback(self._imports.stop)
        self._imports.start()

    def note_failure(self, error: BaseException) -> None:
        """Say that the program ends by an exception: its GPU may never get done."""
        self._failure = error

    def finish(self) -> None:
        """Close the trace and report. Nothing in here but Ctrl-C changes how the program ends.

        A Ctrl-C ends what waits for the GPU, and the process once the files are there.
        """
        if self._process != os.getpid():
            return
        for _ in range(2):  # again if it was ended by one that no signal brought
            try:
                with held_back():
                    self._report_once()
            except KeyboardInterrupt as error:
                self._failure = error
        if type(self._failure) is KeyboardInterrupt:  # one of its subclasses is any exception
            _core._exit_by_interrupt()
        self._is_over = True

    def _finish_after_interrupt(self) -> None:
        """Finish if a Ctrl-C has ended `finish` where nothing could be held back."""
        if self._process == os.getpid() and not self._is_over:
            self._failure = KeyboardInterrupt()
            self.finish()

    def _report_once(self) -> None:
        if self._has_reported:
            return
        try:
            self._finish()
        except Exception as error:  # a traceback here would look like the program's own
            _say(f"gpuprof: no report: {type(error).__name__}: {error}")
        self._has_reported = True

    def _finish(self) -> None:
        seconds = time.monotonic() - self._begin_s
        self._stop_scopes.close()
        with contextlib.suppress(Exception):  # the interpreter flushes again, and says it
            sys.stdout.flush()  # what the program printed stands above the table
        _say(f"gpuprof: {self._wishes.program} ran for {seconds:.2f} s")
        found = self._collect()
        for pattern in self._functions.unmatched() if self._functions is not None else ():
            _say(f"gpuprof: no function that ran matches --scopes {pattern!r}")
        about = facts.in_words(facts.describe(self._wishes.command))
        covered = facts.coverage(found, seconds, self._imports.seconds)
        _say(f"gpuprof: {about}")
        _say(f"gpuprof: {covered}")
        _show(found)
        step = self._diagnose()
        for line in step.plain() if step else ():
            _say(line)
        if self._kernels_error:
            _say(self._kernels_error)
        for each in self._work.values():
            _print(each, **({"most": MOST_LINES} if isinstance(each, KernelTotals) else {}))
        if (path := self._wishes.stats) is not None:
            with _telling(f"the statistics to {path}", f"the statistics are in {path}"):
                refuse_foreign(path, STATS)  # the program may have put a file there meanwhile
                write_whole(path, found.to_json() + "\n")
        if (path := self._wishes.html) is not None:
            with _telling(f"the report {path}", f"the report is {path}"):
                from gpuprof._report.html import write_page
                from gpuprof._report.sections import stats_part

                refuse_foreign(path, HTML)
                title = f"gpuprof run {self._wishes.program}"
                parts = [("Step", step.html())] if step else []
                parts.append(("Scopes", stats_part(found)))
                for name, each in self._work.items():
                    parts.append((f"GPU work: {name}", each._repr_html_()))
                write_page(path, title, parts, f"{about}; {covered}; ")
        if self._trace is not None and self._trace.error is None:
            _say(f"gpuprof: the trace is {self._trace.path}")

    def _diagnose(self) -> Table | None:
        """Return what is said of the program's steps; that it failed harms nothing else."""
        try:
            return diagnose(self._steps)
        except Exception as error:
            _say(f"gpuprof: no diagnosis: {type(error).__name__}: {error}")
            return None
        finally:
            self._steps.stop()

    def _collect(self) -> Stats:
        """Wait for the GPU, close the trace and return the statistics."""
        if self._failure is not None and not wait(gpu_gets_done):
            _say(f"gpuprof: the GPU was not done {_PATIENCE_S:.0f} s after the program failed")
            if self._trace is not None:  # to close it would wait for the GPU
                self._trace.flush()
                registry.forget(self._trace)
                _say(f"gpuprof: the trace stays {self._trace.path}.part")
                self._trace = None
            self._stop_work(gpu_is_done=False)
            return timing.stats(wait=False)
        wait(self._stop_work)
        if self._trace is not None:
            self._trace.close()
        try:
            return wait(timing.stats) or timing.stats(wait=False)
        except GpuprofError as error:  # a driver that is gone: what was read before it is good
            _say(f"gpuprof: some times could not be read: {error}")
            return timing.stats(wait=False)

    def _stop_work(self, *, gpu_is_done: bool = True) -> None:
        """Wait for the GPU, and write what it did to the traces that are open."""
        if self._idle is not None:
            self._idle.__exit__()
        try:
            if self._kernels is not None and gpu_is_done:
                self._kernels.__exit__(None, None, None)
                self._work = {"by scope": self._kernels, "by name": self._kernels.by_kernel()}
                if is_supported():
                    self._work["by caller"] = self._kernels.by_caller()
        except Exception as error:  # must not fail the program
            self._kernels_error = f"gpuprof: no kernels: {type(error).__name__}: {error}"
        finally:
            if self._idle is not None:
                self._work["idle lines"] = self._idle


@contextlib.contextmanager
def _telling(what: str, done: str) -> Iterator[None]:
    """Say what was written, or why it cannot be."""
    try:
        yield
    except Exception as error:
        text = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        _say(f"gpuprof: cannot write {what}: {text}")
    else:
        _say(f"gpuprof: {done}")


def gpu_gets_done() -> bool:
    """Wait a while for what is pending. A wait of the driver's has no end on a GPU that hangs."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        try:
            if not any(row.pending for row in timing.stats(wait=False).values()):
                return True
        except GpuprofError:
            return True  # a broken driver makes nobody wait
        if time.monotonic() > until:
            return False
        time.sleep(0.01)


def _show(found: Stats) -> None:
    if found:
        _print(found)
    elif _core._is_set("GPUPROF_DISABLE"):
        _say("gpuprof: GPUPROF_DISABLE is set, so nothing was measured")
    else:
        functions = "name functions with --scopes 'MODULE.*', or " if is_supported() else ""
        timers = "write `with gpuprof.timer(...)`"
        _say(f"gpuprof: the program entered no scope: {functions}{timers}")


def _say(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed, or its reader is gone
        if sys.__stderr__ is not None:
            write_text(sys.__stderr__, shown_text(text) + "\n")


def _print(found: Shown, **options: Any) -> None:
    with contextlib.suppress(OSError, ValueError):
        if sys.__stderr__ is not None:
            found.print(sys.__stderr__, **options)
