"""Files: opened only where they are regular, replaced as a whole, and locked among processes."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep
from typing import BinaryIO

TEMPORARY = ".tmp"
_POLL_S = 0.02
_BUFFER = 1 << 20  # traces are written an event at a time


def open_regular(path: Path, flags: int = os.O_RDONLY, mode: int = 0o666) -> int:
    """Open a regular file; anything else is an OSError, and a FIFO is not waited for."""
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, f"{path} is not a regular file", str(path))
    return descriptor


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which replaces `path` when the block ends, or is removed if it raises.

    Readers see the old file or the new one. The permissions stay, and the new file is on the disk
    when this returns. A link at `path` would itself be replaced: resolve it first.
    """
    temporary = path.with_name(f".{path.name[:200]}.{secrets.token_hex(8)}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    file = os.fdopen(os.open(temporary, flags, 0o666), "wb", buffering=_BUFFER)
    try:
        with suppress(FileNotFoundError):
            os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode) & 0o777)
        yield file
        file.flush()
        os.fsync(file.fileno())
        file.close()
        temporary.replace(path)
    except BaseException:
        with suppress(OSError):  # closing writes what is buffered; the first error counts
            file.close()
        temporary.unlink(missing_ok=True)
        raise
    with suppress(OSError):  # not every file system can; the file itself is on the disk
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def replace_file(path: Path, data: bytes) -> None:
    with replacing(path) as file:
        file.write(data)


class FileLock(AbstractContextManager["FileLock"]):
    """An exclusive `flock` among processes and threads, on a file that is made if needed."""

    def __init__(self, path: Path, mode: int = 0o666) -> None:
        flags = os.O_RDONLY | os.O_CREAT | os.O_NOFOLLOW
        self._descriptor = open_regular(path, flags, mode)

    def acquire(self, seconds: float | None = None) -> bool:
        """Wait for the lock, None without a limit; return whether it is held now."""
        flags = fcntl.LOCK_EX if seconds is None else fcntl.LOCK_EX | fcntl.LOCK_NB
        until = monotonic() + (seconds or 0.0)
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(self._descriptor, flags)
                return True
            if monotonic() >= until:
                return False
            sleep(_POLL_S)

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            # Unlock explicitly: a child forked meanwhile would keep the lock of a closed file.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def __exit__(self, *_: object) -> None:
        self.release()
