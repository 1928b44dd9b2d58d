"""Running a command of ``gpuprof ab`` once, as a process group of its own.

What it writes goes to files, so that no pipe can fill up; their ends are shown if it fails. The
group is ended when the command has ended, when its time is up, or when gpuprof is told to stop: a
process that is left behind would disturb the next run. One that has left the group, as daemons do,
becomes a child of gpuprof when its parent ends, and is killed then. The command itself dies with
gpuprof, however that ends, unless it gains privileges.
"""

from __future__ import annotations

import ctypes
import math
import os
import resource
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from time import monotonic, sleep
from typing import IO, Any, NamedTuple

PLACEHOLDER = "{out}"
VARIABLE = "GPUPROF_AB_OUT"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 1, 36, 37  # of prctl
_GRACE_S = 2.0  # that a process has to end after a signal, before it gets the next one
_POLL_S = 0.05  # how often it is seen whether a signal has come
_TAIL_BYTES = 16 << 10
_TAIL_LINES = 20
_libc = ctypes.CDLL(None)


@dataclass(frozen=True)
class Command:
    """A command as the user gave it, where it runs, and its environment."""

    side: str
    text: str
    folder: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    in_shell: bool = False

    @property
    def label(self) -> str:
        return self.text if self.folder is None else f"{self.text} in {self.folder}"

    def words(self, out: str) -> list[str]:
        """Return the words of one run, whose results go to the file `out`.

        ValueError says what is wrong with the text.
        """
        if self.in_shell:
            return ["/bin/sh", "-c", self.text.replace(PLACEHOLDER, shlex.quote(out))]
        words = shlex.split(self.text)
        if not words:
            message = "it is empty"
            raise ValueError(message)
        return [word.replace(PLACEHOLDER, out) for word in words]


class Ended(NamedTuple):
    """How one run ended: its exit status (below 0 the signal), its wall time and its CPU time.

    The CPU time is that of the command and of the processes that it has waited for. One that failed
    has the ends of what it wrote.
    """

    status: int
    seconds: float
    cpu_seconds: float
    timed_out: bool
    tails: Mapping[str, str]


@contextmanager
def signals_noted() -> Iterator[list[int]]:
    """Give the list of the SIGINT, SIGTERM, SIGHUP and SIGQUIT that have come, and adopt orphans.

    The end of a child is not ignored meanwhile: how it ended and its CPU time would be lost. No
    exception interrupts the start of a process: it would be left behind. Handlers are those of
    the main thread; in another one, nothing is noticed.
    """
    signals: list[int] = []
    old: dict[int, Any] = {}
    if threading.current_thread() is threading.main_thread():
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            old[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number in _SIGNALS:
            before = signal.getsignal(number)
            if before is not signal.SIG_IGN and before is not None:  # nohup: hanging up is ignored
                old[number] = signal.signal(number, lambda number, _: signals.append(number))
    adopted = ctypes.c_int(1)
    _prctl(_GET_CHILD_SUBREAPER, ctypes.addressof(adopted))
    _prctl(_SET_CHILD_SUBREAPER, 1)
    try:
        yield signals
    finally:
        _prctl(_SET_CHILD_SUBREAPER, adopted.value)
        for each, handler in old.items():
            signal.signal(each, handler)


def run_once(command: Command, out: str, timeout_s: float | None, signals: Sequence[int]) -> Ended:
    """Run a command, and return how it ended. OSError: it cannot be started."""
    environment = {**os.environ, VARIABLE: out, **command.environment}
    others, parent = _children(), os.getpid()

    def die_with_parent() -> None:
        _prctl(_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before that
            os._exit(1)

    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        began = monotonic()
        process = subprocess.Popen(
            command.words(out),
            cwd=command.folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
            preexec_fn=die_with_parent,  # noqa: PLW1509 (it imports nothing and takes no lock)
        )
        ended = _end_of(process.pid)
        try:
            over = _wait(ended, timeout_s, signals)
            seconds = monotonic() - began
            if not over:
                _end(process.pid, ended, signals)
        finally:
            _signal(process.pid, signal.SIGKILL)  # what is left of the group
            ended.wait()
            cpu_seconds = -_cpu_seconds()
            status = process.wait()
            cpu_seconds += _cpu_seconds()
            _end_orphans(others)
        failed = status != 0 or not over
        files = {"standard error": errors, "standard output": output} if failed else {}
        tails = {what: _tail(file) for what, file in files.items()}
    return Ended(status, seconds, cpu_seconds, not over, tails)


def _cpu_seconds() -> float:
    """Return the CPU time of the children that this process has waited for."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _end_of(pid: int) -> threading.Event:
    """Return what is set once a process has ended.

    It is not reaped: until then its process group is surely its own.
    """
    ended = threading.Event()

    def watch() -> None:
        with suppress(ChildProcessError):  # where SIGCHLD is ignored, nobody is left to wait for
            os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    return ended


def _wait(
    ended: threading.Event, seconds: float | None, signals: Sequence[int], known: int = 0
) -> bool:
    """Return whether a process has ended; False when its time is up or there are more `signals`."""
    until = math.inf if seconds is None else monotonic() + seconds
    while len(signals) == known and (left := until - monotonic()) > 0.0:
        if ended.wait(min(left, _POLL_S)):
            return True
    return False


def _end(pid: int, ended: threading.Event, signals: Sequence[int]) -> None:
    """Ask a process group to end, and insist; a second signal of the user cuts that short."""
    for number in (signal.SIGINT, signal.SIGTERM):
        known = len(signals)
        _signal(pid, number)
        if _wait(ended, _GRACE_S, signals, known) or len(signals) > known:
            return


def _signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)  # a kernel without it refuses


def _children() -> set[int]:
    found, own = set(), str(os.getpid())
    for name in filter(str.isdigit, os.listdir("/proc")):  # noqa: PTH208
        with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
            # After the name, which may hold anything: the state, and the parent.
            if file.read().rpartition(b")")[2].split()[1] == own.encode():
                found.add(int(name))
    return found


def _end_orphans(others: set[int]) -> None:
    """Kill the children besides `others`, which this process has adopted, and theirs in turn."""
    until = monotonic() + _GRACE_S
    while (left := _children() - others) and monotonic() < until:
        for pid in left:
            with suppress(ProcessLookupError, PermissionError, ChildProcessError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, os.WNOHANG)
        sleep(_POLL_S / 10)


def _tail(file: IO[bytes]) -> str:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
