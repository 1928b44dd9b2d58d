"""One measurement at a time on a GPU, among the processes of a user on this machine.

`measuring` holds an ``flock`` on a file named after the GPU's UUID, or after the CPU where the
process uses no GPU, in a folder of the user's own below the temporary one. The kernel drops the
lock of a process that dies. Processes that share a GPU but not the temporary folder, such as
containers, do not see each other.
"""

from __future__ import annotations

import fcntl
import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

CPU = "cpu"
SILENT_S = 2.0
_POLL_S = 0.02


def place() -> str:
    """Return what this process would measure on: the UUID of its GPU, or ``"cpu"``."""
    from gpuprof._common import machine

    return str(machine.describe()["gpu_uuid"] or CPU)


@contextmanager
def measuring(
    warn: Callable[[str], None], say: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Hold the lock of the place that this process measures on; wait for it without a limit.

    Where that takes longer than two seconds, it calls `say` with a sentence, once.

    Gives a function to call when the place may have changed, because CUDA has come into use since:
    it changes the lock then. Never two are held, so that processes cannot block each other.

    Without a folder to put the file in, it calls `warn` with a sentence and locks nothing.
    """
    held, name = -1, place()

    def change() -> None:
        nonlocal held, name
        now = place()
        if now != name:
            _release(held)
            held, name = -1, now
            held = _acquire(name, warn, say)

    try:
        held = _acquire(name, warn, say)
        yield change
    finally:
        _release(held)


def lock_file(name: str) -> Path:
    """Return the file for a place. The folder is made, and is the user's alone.

    Raises
    ------
    OSError
        If it cannot be made, or is somebody else's.
    """
    folder = Path(tempfile.gettempdir()) / f"gpuprof-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # In a folder that all may write to, another user could have made it first.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        message = f"{folder} is not a folder of this user"
        raise OSError(message)
    safe = "".join(each if each.isalnum() or each in "-." else "_" for each in name)
    return folder / f"{safe}.lock"


def _acquire(name: str, warn: Callable[[str], None], say: Callable[[str], None]) -> int:
    descriptor = -1
    try:
        file = lock_file(name)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        descriptor = os.open(file, flags, 0o600)
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            message = f"{file} is no regular file"
            raise OSError(message)
        if not _locked_within(descriptor, SILENT_S):
            say(f"waiting until another process has measured on this device; it holds {file}")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        warn(f"measured without a lock, so another process may have disturbed it: {error}")
        return -1
    except BaseException:  # a timeout or Ctrl-C while it waits
        if descriptor >= 0:
            os.close(descriptor)
        raise
    return descriptor


def _locked_within(descriptor: int, seconds: float) -> bool:
    until = monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                return False
            sleep(_POLL_S)
        else:
            return True


def _release(descriptor: int) -> None:
    if descriptor >= 0:
        # A child that was forked meanwhile has the same lock: closing alone would leave it held.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
