"""One measurement at a time on a GPU, among the processes of a user on this machine.

`measuring` holds a lock on a file named after the GPU's UUID, or after the CPU where the process
uses no GPU, in a folder of the user's own below the temporary one. Processes that share a GPU but
not the temporary folder, such as containers, do not see each other.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from gpuprof._common import machine
from gpuprof._common.files import FileLock

__tracebackhide__ = True  # pytest shows the frames of the test and of its function

CPU = "cpu"
SILENT_S = 2.0
_WAITING = "waiting until another process has measured on this device"


def place() -> str:
    """Return what this process would measure on: the UUID of its GPU, or ``"cpu"``."""
    return str(machine.describe()["gpu_uuid"] or CPU)


@contextmanager
def measuring(
    warn: Callable[[str], None], say: Callable[[str], None]
) -> Iterator[Callable[[], None]]:
    """Hold the lock of the device that this process measures on; wait for it without a limit.

    `say` is told once after two seconds, and `warn` where nothing is locked. Gives a function to
    call when CUDA may have come into use, which changes to the GPU's lock. Never two locks are
    held, so that processes cannot deadlock.
    """
    name = ""
    with ExitStack() as held:

        def change() -> None:
            nonlocal name
            now = place()
            if now == name:
                return
            held.close()
            name = now
            try:
                file = lock_file(name)
                lock = held.enter_context(FileLock(file, 0o600))
                if not lock.acquire(SILENT_S):
                    say(f"{_WAITING}; it holds {file}")
                    lock.acquire()
            except OSError as error:
                held.close()
                warn(f"measured without a lock, so another process may have disturbed it: {error}")

        change()
        yield change


def lock_file(name: str) -> Path:
    """Return the file for a place, in the user's own folder; OSError if it has another owner."""
    folder = Path(tempfile.gettempdir()) / f"gpuprof-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    # In a folder that all may write to, another user could have made it first.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        message = f"{folder} is not a folder of this user"
        raise OSError(message)
    safe = "".join(each if each.isalnum() or each in "-." else "_" for each in name)
    return folder / f"{safe}.lock"
