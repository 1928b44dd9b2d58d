"""The files that the trace tools read, in pieces.

Input is never trusted: only regular files and pipes are opened, compressed ones grow at most by a
factor that no trace reaches. ``-`` is the standard input. What is wrong is a `TraceError`.
"""

from __future__ import annotations

import gzip
import os
import stat
import zlib
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, cast

from gpuprof._common.outputs import STANDARD
from gpuprof._display.progress import Progress
from gpuprof.errors import TraceError

PIECE = 1 << 16
STANDARD_INPUT = "standard input"
GZIP_MAGIC = b"\x1f\x8b"
# Traces shrink by 10 to 30, one kernel with a long name over and over by 135; bombs by 230 to 1030.
MAX_RATIO = 200
RATIO_COUNTS_FROM = 64 << 20

_KINDS = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass
class Damage:
    """What is wrong with the compression of a file: cut off, or other bytes; None for nothing."""

    gzip: str | None = None


def shown(path: Path) -> str:
    return STANDARD_INPUT if str(path) == STANDARD else str(path)


def _refuse_special(path: Path, mode: int, *, twice: bool) -> None:
    for is_kind, what in _KINDS:
        if is_kind(mode) and (twice or is_kind is not stat.S_ISFIFO):
            expected = ", because it is read twice" if twice else " or a pipe"
            message = f"{shown(path)} is {what}; expected a regular file with a trace{expected}"
            raise TraceError(message)


def open_input(path: Path, *, twice: bool = False) -> BinaryIO:
    """Open a regular file or a pipe; anything else is refused without waiting for it.

    With `twice`, for what has to be read again, only a regular file.
    """
    try:
        if str(path) == STANDARD:
            file = os.fdopen(os.dup(0), "rb")
        else:
            _refuse_special(path, path.stat().st_mode, twice=twice)  # before it is opened
            file = path.open("rb")
        _refuse_special(path, os.fstat(file.fileno()).st_mode, twice=twice)
        return file
    except OSError as error:
        message = f"{shown(path)} cannot be read: {error.strerror or error}"
        raise TraceError(message) from error
    except ValueError as error:  # a NUL in the path
        message = f"{str(path)!r} is no path: {error}"
        raise TraceError(message) from error


def pieces(path: Path, damage: Damage, *, twice: bool = False) -> Generator[bytes, None, None]:
    """Yield the uncompressed contents of a file, at most `PIECE` bytes at a time.

    A compressed file that is cut off or damaged ends early, up to `PIECE` bytes before the damage;
    `damage` then says why.
    """
    with open_input(path, twice=twice) as file, Progress(path.name, None) as progress:
        source = _Source(path, file, progress)
        if source.first != GZIP_MAGIC:
            while piece := source.read(PIECE):
                yield piece
            return
        unpacked, given = gzip.GzipFile(fileobj=cast("BinaryIO", source)), 0
        try:
            while piece := unpacked.read1(PIECE):
                given += len(piece)
                if given > RATIO_COUNTS_FROM and given > MAX_RATIO * source.taken:
                    message = (
                        f"{shown(path)} grows {given // max(source.taken, 1)} times when "
                        f"uncompressed, which no trace does (at most {MAX_RATIO} times is read); "
                        "uncompress it first if you trust it"
                    )
                    raise TraceError(message)
                yield piece
        except EOFError:
            damage.gzip = f"the compressed data is cut off at byte {source.taken}"
        except (zlib.error, gzip.BadGzipFile) as error:
            damage.gzip = f"the compressed data is damaged near byte {source.taken}: {error}"


class _Source:
    """Reads a file, and tells how far; `first` are its first two bytes."""

    def __init__(self, path: Path, file: BinaryIO, progress: Progress) -> None:
        self._path, self._file, self._progress = path, file, progress
        self._size = os.fstat(file.fileno()).st_size  # a pipe has none
        self.taken = 0
        self._given_back = b""
        self.first = self._given_back = self.read(len(GZIP_MAGIC))

    def read(self, size: int) -> bytes:
        if self._given_back:
            piece, self._given_back = self._given_back, b""
            return piece
        try:
            piece = self._file.read(size)
        except OSError as error:
            message = f"{shown(self._path)} cannot be read: {error.strerror or error}"
            raise TraceError(message) from error
        self.taken += len(piece)
        if self._size:
            self._progress.update(self.taken / self._size)
        return piece
