"""Where a trace is written: patterns in its path, and a file that nobody else writes."""

from __future__ import annotations

import errno
import fcntl
import gzip
import os
import re
import stat
import sys
from contextlib import suppress
from pathlib import Path

from gpuprof._common import checks
from gpuprof._common.files import replacing
from gpuprof._common.outputs import TRACE, refuse_foreign
from gpuprof.errors import TraceError

_RANK_VARIABLES = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
_WORLD_VARIABLES = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")
_SUFFIXES = (".json.gz", ".json", ".gz")
_PATTERN = re.compile(r"%(q\{([^}]*)\}|.|$)", re.DOTALL)
_DESCRIPTORS = re.compile(r"/proc/\d+(/task/\d+)?/fd")
NUMBER = "\ue000"  # stands for a number that is not known yet; for private use, so in no path
_MOST_TRIES = 1000
_MOST_LINKS = 40
_PIECE = 1 << 20


_told: tuple[int, int] | None = None


def tell_rank(rank: int, world_size: int) -> None:
    """Say which rank this process is, where more than the environment is known."""
    global _told  # noqa: PLW0603 (a process has one rank)
    _told = rank, world_size


def process_name() -> str:
    script = Path(sys.argv[0] if sys.argv else "")
    if script.name == "__main__.py":  # python -m PACKAGE
        return script.parent.name
    return script.name if script.name not in {"", "-c", "-m"} else "python"


def rank() -> int:
    """Return this process's rank as told, or as the launchers of programs say it, else 0."""
    return _told[0] if _told else _number_in(_RANK_VARIABLES, 0)


def world_size() -> int:
    """Return how many ranks there are, as told, or as the launchers say it, else 1."""
    return _told[1] if _told else _number_in(_WORLD_VARIABLES, 1)


def _number_in(variables: tuple[str, ...], default: int) -> int:
    for name in variables:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return default


def expand(pattern: str) -> str:
    """Return the absolute path for a pattern: its %-parts are those of `TraceWriter`.

    An unknown part is a `ValueError`, a relative path without a working directory a `TraceError`.
    """

    known = {"p": str(os.getpid()), "h": os.uname().nodename, "r": str(rank()), "%": "%"}

    def value(match: re.Match[str]) -> str:
        letter, variable = match.group(1), match.group(2)
        if variable is not None:
            return os.environ.get(variable, "").replace("/", "_")
        if letter in known:
            return known[letter]
        message = (
            f"path: {match.group(0)!r} in {pattern!r} is no pattern; expected %p, %h, %r, "
            "%q{VARIABLE}, or %% for a percent sign"
        )
        raise ValueError(message)

    if not pattern or "\0" in pattern:
        raise checks.value_error(pattern, "path", "a file's name")
    return absolute(_PATTERN.sub(value, pattern))


def of_ranks(pattern: str) -> tuple[str, str]:
    """Return the patterns of the ranks' files and of the one file of all for a pattern.

    Without ``%r`` the pattern is that of the file of all, and ``.rank%r`` stands before its suffix
    in the others; with it the file of all has ``all`` in its place.
    """
    whole = _replaced(pattern, "r", "all")
    return (pattern, whole) if whole != pattern else (insert(pattern, ".rank%r"), pattern)


def _replaced(pattern: str, letter: str, by: str) -> str:
    return _PATTERN.sub(lambda found: by if found[1] == letter else found[0], pattern)


def with_number(pattern: str, number: object) -> str:
    """Return the pattern of one of several files: with the number for ``%n``, or ``.N`` in it.

    Without ``%n`` the number comes before the suffix.
    """
    numbered = _replaced(pattern, "n", str(number))
    return numbered if numbered != pattern else insert(pattern, f".{number}")


def around_number(path: str) -> tuple[str, str]:
    """Return what comes before and after `NUMBER`; it is a ValueError if it is there twice."""
    before, _, after = path.partition(NUMBER)
    if NUMBER in after:
        message = f"path: expected %n once, got it twice in {path.replace(NUMBER, '%n')!r}"
        raise ValueError(message)
    return before, after


def absolute(path: str) -> str:
    """Return an absolute path for one that may be relative; TraceError without a directory."""
    try:
        return os.path.abspath(path)  # noqa: PTH100 (Path would drop a slash)
    except FileNotFoundError:
        message = (
            f"path: {path!r} is relative, and the working directory is gone; give an absolute path"
        )
        raise TraceError(message) from None


def with_process(path: str, count: int = 1) -> str:
    """Return the path with this process's number before its suffix, and a count from 2 on."""
    return insert(path, f".{os.getpid()}" if count == 1 else f".{os.getpid()}.{count}")


def insert(path: str, mark: str) -> str:
    """Return the path with `mark` before its suffix."""
    for suffix in _SUFFIXES:
        if path.endswith(suffix):
            return path[: -len(suffix)] + mark + suffix
    return path + mark


def output_path(path: str) -> str:
    """Return the path at which a file for `path` is to be put: a link is followed, not replaced.

    An `OSError` for what is no regular file, a circle of links, a link that somebody else has put
    into a folder that all may write to, or a name of an open file, like ``/dev/stdout``, because
    whoever opened it would not see the new one.
    """
    found = path
    for _ in range(_MOST_LINKS):
        if not os.path.islink(found):  # noqa: PTH114 (a str, as all here)
            _check_kind(found)
            return found
        folder = os.path.realpath(os.path.dirname(found) or ".")  # noqa: PTH120
        if _DESCRIPTORS.fullmatch(folder):
            raise OSError(errno.EINVAL, "stands for an open file; name the file itself", path)
        _check_link(found, folder)
        found = os.path.join(folder, os.readlink(found))  # noqa: PTH115, PTH118
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _check_kind(path: str) -> None:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "is not a regular file", path)


def _check_link(link: str, folder: str) -> None:
    """Refuse what the kernel would not follow either: it would choose which file is replaced."""
    owner = os.stat(link, follow_symlinks=False).st_uid  # noqa: PTH116
    around = os.stat(folder)  # noqa: PTH116
    shared = stat.S_ISVTX | stat.S_IWOTH
    if around.st_mode & shared == shared and owner not in {os.geteuid(), around.st_uid}:
        message = "is a link of somebody else in a folder that all may write to"
        raise PermissionError(errno.EACCES, message, link)


class Part:
    """The file that a trace is while it is open: ``PATH.part``, locked; `path` is PATH.

    A program may close its descriptor and open another file, which reuses the number.
    """

    def __init__(self, descriptor: int, path: str) -> None:
        self.descriptor, self.path, self.name = descriptor, path, f"{path}.part"
        self._status = os.fstat(descriptor)

    def complete(self) -> None:
        """Put the finished file in its place, compressed if the path ends in ``.gz``.

        After an `OSError` the file at `path` is what it was, and the part is still there, unless
        somebody has put another file in its place.
        """
        refuse_foreign(self.path, TRACE)  # the program may have put a file there meanwhile
        self._check_at(self.name)
        if self.path.endswith(".gz"):
            _compress(self.descriptor, self.path)
            self.discard()
        else:
            Path(self.name).replace(self.path)
            self._check_at(self.path)

    def _check_at(self, path: str) -> None:
        os.stat(path, follow_symlinks=False)  # noqa: PTH116 (it says why it is not there)
        if not _is_at(os.fstat(self.descriptor), path):
            raise OSError(errno.EBUSY, "another file was put in the place of this trace's", path)

    def discard(self) -> None:
        """Remove it, unless another file is in its place."""
        if _is_at(os.fstat(self.descriptor), self.name):
            Path(self.name).unlink(missing_ok=True)

    def release(self) -> None:
        """Close it, unless the program did, and its descriptor is another file's now."""
        with suppress(OSError):
            if os.path.samestat(os.fstat(self.descriptor), self._status):
                os.close(self.descriptor)


def claim(path: str) -> Part:
    """Open the file for a trace that is to be at `path`.

    If that is another's, be it an open trace of this process or another, or anything that somebody
    else has put there, it gets the process's number, and a count where that is taken too. What a
    killed process left is moved to ``PATH.part.old``. A link is followed.
    """
    path = output_path(path)
    for count in range(_MOST_TRIES):
        wanted = with_process(path, count) if count else path
        _check_kind(wanted)
        refuse_foreign(wanted, TRACE)
        descriptor = _open_part(f"{wanted}.part")
        if descriptor is not None:
            return Part(descriptor, wanted)
    raise OSError(errno.EEXIST, "too many traces of this path are open", path)


def _open_part(part: str) -> int | None:
    """Return a descriptor of the empty, locked file; None if it is somebody else's."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    for _ in range(_MOST_TRIES):
        try:
            descriptor = os.open(part, flags | os.O_CREAT | os.O_EXCL, 0o666)
            is_new = True
        except FileExistsError:
            try:
                descriptor = os.open(part, flags)
            except FileNotFoundError:
                continue
            except PermissionError:
                return None
            is_new = False
        found = None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.EINVAL, "is not a regular file", part)
            is_ours = is_new or (status.st_uid == os.geteuid() and status.st_nlink <= 1)
            if not (is_ours and _lock(descriptor)):
                return None
            if not _is_at(status, part):  # moved or removed since it was opened
                continue
            if os.fstat(descriptor).st_size == 0:
                found = descriptor
                return found
            Path(part).replace(f"{part}.old")
        finally:
            if found is None:
                os.close(descriptor)
    raise OSError(errno.EBUSY, "the file keeps changing", part)


def _lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:  # others come from a file system without locks
        return not isinstance(error, BlockingIOError)
    return True


def _is_at(status: os.stat_result, path: str) -> bool:
    with suppress(FileNotFoundError):
        return os.path.samestat(os.stat(path, follow_symlinks=False), status)  # noqa: PTH116
    return False


def _compress(descriptor: int, path: str) -> None:
    with (
        replacing(Path(path)) as file,
        gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed,
    ):
        place = 0
        while piece := os.pread(descriptor, _PIECE, place):
            place += len(piece)
            packed.write(piece)
