"""Where a trace is written: patterns in its path, and a file that nobody else writes."""

from __future__ import annotations

import errno
import os
import re
import stat
from pathlib import Path

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_SUFFIXES = (".json.gz", ".json", ".gz")
_PATTERN = re.compile(r"%(q\{([^}]*)\}|.|$)", re.DOTALL)
_MOST_TRIES = 1000


def rank() -> int:
    """Return this process's rank as the launchers of distributed programs tell it, else 0."""
    return _number_in(_RANK_VARIABLES, 0)


def world_size() -> int:
    """Return how many ranks there are, as the launchers tell it, else 1."""
    return _number_in(_WORLD_VARIABLES, 1)


def _number_in(variables: tuple[str, ...], default: int) -> int:
    for name in variables:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return default


def expand(pattern: str) -> str:
    """Return the absolute path for a pattern.

    Parameters
    ----------
    pattern : str
        ``%p`` is the process, ``%h`` the host's name, ``%r`` the rank, ``%q{VAR}`` an environment
        variable, ``%%`` a percent sign.

    Raises
    ------
    ValueError
        An empty path, a NUL, or a pattern that is none of these.
    """

    def value(match: re.Match[str]) -> str:
        letter, variable = match.group(1), match.group(2)
        if variable is not None:
            return os.environ.get(variable, "").replace("/", "_")
        if letter == "p":
            return str(os.getpid())
        if letter == "h":
            import socket

            return socket.gethostname()
        if letter == "r":
            return str(rank())
        if letter == "%":
            return "%"
        message = (
            f"path: {match.group(0)!r} in {pattern!r} is no pattern; expected %p, %h, %r, "
            "%q{VARIABLE}, or %% for a percent sign"
        )
        raise ValueError(message)

    if not pattern or "\0" in pattern:
        message = f"path: expected a file's name, got {pattern!r}"
        raise ValueError(message)
    return os.path.abspath(_PATTERN.sub(value, pattern))  # noqa: PTH100 (Path would drop a slash)


def with_process(path: str) -> str:
    """Return the path with this process's number before its suffix."""
    return _insert(path, _process_mark(1))


def claim(path: str) -> tuple[int, str]:
    """Open the file that a trace is while it is open.

    Another open trace of the same path, in this process or another, keeps its file: this one then
    gets the process's number, and a count where that is taken too. What a killed process left is
    moved to ``PATH.part.old``.

    Parameters
    ----------
    path : str
        Where the trace is to be, absolute.

    Returns
    -------
    tuple of int and str
        A descriptor of ``RESULT.part``, empty and locked, and RESULT.

    Raises
    ------
    OSError
        The file cannot be made.
    """
    for count in range(_MOST_TRIES):
        wanted = path if count == 0 else _insert(path, _process_mark(count))
        _check_target(wanted)
        descriptor = _open_part(f"{wanted}.part")
        if descriptor is not None:
            return descriptor, wanted
    raise OSError(errno.EEXIST, "too many traces of this path are open", path)


def _check_target(path: str) -> None:
    """Refuse to replace what is no file."""
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 (a str, as all here)
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file", path)


def _process_mark(count: int) -> str:
    return f".{os.getpid()}" if count == 1 else f".{os.getpid()}.{count}"


def _insert(path: str, mark: str) -> str:
    for suffix in _SUFFIXES:
        if path.endswith(suffix):
            return path[: -len(suffix)] + mark + suffix
    return path + mark


def _open_part(part: str) -> int | None:
    """Return a descriptor of the empty, locked file; None if somebody else is writing it."""
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(_MOST_TRIES):
        descriptor = os.open(part, flags, 0o666)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", part)
            if not _lock(descriptor):
                os.close(descriptor)
                return None
            if not _is_at(status, part):  # moved or removed since it was opened
                os.close(descriptor)
                continue
            if os.fstat(descriptor).st_size == 0:
                return descriptor
            Path(part).replace(f"{part}.old")
            os.close(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
    raise OSError(errno.EBUSY, "the file keeps changing", part)


def _lock(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_at(status: os.stat_result, path: str) -> bool:
    try:
        now = os.stat(path, follow_symlinks=False)  # noqa: PTH116
    except FileNotFoundError:
        return False
    return (now.st_dev, now.st_ino) == (status.st_dev, status.st_ino)


def complete(part: str, path: str) -> None:
    """Put a finished ``.part`` file in its place, compressed if the path ends in ``.gz``.

    Raises
    ------
    OSError
        That failed; the file at `path` is what it was, and `part` is still there.
    """
    if not path.endswith(".gz"):
        Path(part).replace(path)
        return
    packed = _compress(part, path)
    try:
        Path(packed).replace(path)
    except OSError:
        Path(packed).unlink(missing_ok=True)
        raise
    Path(part).unlink(missing_ok=True)


def _compress(part: str, path: str) -> str:
    import gzip
    import shutil

    packed = f"{path}.{os.getpid()}.tmp"
    Path(packed).unlink(missing_ok=True)
    descriptor = os.open(
        packed, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666
    )
    try:
        # Level 1: six times as fast as the default for files a few per cent larger.
        with os.fdopen(descriptor, "wb") as raw:
            with gzip.GzipFile("", "wb", 1, raw, mtime=0) as out, Path(part).open("rb") as source:
                shutil.copyfileobj(source, out, 1 << 20)
            raw.flush()
            os.fsync(raw.fileno())
    except BaseException:
        Path(packed).unlink(missing_ok=True)
        raise
    return packed
