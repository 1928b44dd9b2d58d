"""Running a command of ``gpuprof ab`` once, as a process group of its own.

What it writes goes to files, so that no pipe can fill up; their ends are shown if it fails. The
group is ended when the command has ended, when its time is up, or when gpuprof is told to stop: a
process that is left behind would disturb the next run. One that has left the group, as daemons do,
becomes a child of gpuprof when its parent ends, and is killed then. The command itself dies with
gpuprof, however that ends, unless it gains privileges.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from time import monotonic, sleep
from types import FrameType
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

PLACEHOLDER = "{out}"
VARIABLE = "GPUPROF_AB_OUT"
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER, _GET_CHILD_SUBREAPER = 1, 36, 37  # of prctl
_GRACE_S = 2.0  # that a process has to end after a signal, before it gets the next one
_POLL_S = 0.002
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


@dataclass(frozen=True)
class Ended:
    """How one run ended: its exit status (below 0 the signal), and its wall time."""

    status: int
    seconds: float
    timed_out: bool = False
    stopped: bool = False
    error_tail: str = ""
    output_tail: str = ""

    @property
    def failed(self) -> bool:
        """Whether there is nothing to read."""
        return self.status != 0 or self.timed_out or self.stopped


class Stop:
    """Notices SIGINT, SIGTERM, SIGHUP and SIGQUIT, and wakes up whoever waits for a run.

    It also has the kernel hand orphans of the runs to this process. No exception interrupts the
    start of a process: it would be left behind. Handlers are those of the main thread; in another
    one, nothing is noticed.
    """

    def __init__(self) -> None:
        self.signals: list[int] = []
        self.news: SimpleQueue[None] = SimpleQueue()  # its put may interrupt its get
        self._old: dict[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                old = signal.getsignal(number)
                if old is not signal.SIG_IGN and old is not None:  # nohup: hanging up is ignored
                    self._old[number] = signal.signal(number, self._note)
        self._adopted = ctypes.c_int(1)
        _prctl(_GET_CHILD_SUBREAPER, ctypes.addressof(self._adopted))
        _prctl(_SET_CHILD_SUBREAPER, 1)
        return self

    def __exit__(self, *_: object) -> None:
        _prctl(_SET_CHILD_SUBREAPER, self._adopted.value)
        for number, old in self._old.items():
            signal.signal(number, old)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.signals.append(number)
        self.news.put(None)


def run_once(command: Command, out: str, timeout_s: float | None, stop: Stop) -> Ended:
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
        waiter = _Waiter(process, stop)
        try:
            over = waiter.wait(timeout_s)
            seconds = (waiter.ended or monotonic()) - began
            if not over:
                waiter.end()
        finally:
            status = waiter.reap()
            _end_orphans(others)
        stopped = bool(stop.signals)
        failed = status != 0 or not over
        tails = (_tail(errors), _tail(output)) if failed else ("", "")
    return Ended(status, seconds, not over and not stopped, stopped, *tails)


class _Waiter:
    """Waits for a process without reaping it: until then its process group is surely its own."""

    def __init__(self, process: subprocess.Popen[bytes], stop: Stop) -> None:
        self._process, self._stop = process, stop
        self.ended = 0.0  # when, or 0 while it runs
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)
        self.ended = monotonic()
        self._stop.news.put(None)

    def wait(self, seconds: float | None, signals: int = 0) -> bool:
        """Return whether it has ended; False when the time is up, or at more than those signals."""
        until = None if seconds is None else monotonic() + seconds
        while not self.ended and len(self._stop.signals) == signals:
            left = None if until is None else until - monotonic()
            if left is not None and left <= 0.0:
                break
            with suppress(Empty):
                self._stop.news.get(timeout=left)
        return self.ended > 0.0

    def end(self) -> None:
        """End the process group: ask, insist, kill; a second signal of the user kills at once."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signals = len(self._stop.signals)
            self._signal(number)
            if self.wait(_GRACE_S, signals) or len(self._stop.signals) > signals:
                return

    def reap(self) -> int:
        """Kill what is left of the group, and return the exit status."""
        self._signal(signal.SIGKILL)
        self._thread.join()
        return self._process.wait()

    def _signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def _prctl(option: int, value: int) -> None:
    _libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0)  # a kernel without it refuses


def _children() -> set[int]:
    """Return the children of this process."""
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
        sleep(_POLL_S)


def _tail(file: IO[bytes]) -> str:
    """Return the last lines of a file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - _TAIL_BYTES))
    lines = file.read().decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:])
