"""The files that the trace tools read, in pieces.

Input is never trusted: only regular files and pipes are opened, compressed ones grow at most by a
factor that no trace reaches. ``-`` is the standard input. What is wrong is a `TraceError`.
"""

from __future__ import annotations

import os
import stat
import zlib
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from gpuprof._common.outputs import STANDARD
from gpuprof._display.progress import Progress
from gpuprof.errors import TraceError

PIECE = 1 << 16
STANDARD_INPUT = "standard input"
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31
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
    """Return how messages call a file."""
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
            _refuse_special(path, os.fstat(0).st_mode, twice=twice)
            return os.fdopen(os.dup(0), "rb")
        # A device is looked at before it is opened, and again after: it may have taken the place.
        mode = path.stat().st_mode
        _refuse_special(path, mode, twice=twice)
        waits = 0 if stat.S_ISFIFO(mode) else os.O_NONBLOCK
        file = os.open(path, os.O_RDONLY | waits | os.O_CLOEXEC)
        try:
            _refuse_special(path, os.fstat(file).st_mode, twice=twice)
            return os.fdopen(file, "rb")
        except BaseException:
            os.close(file)
            raise
    except OSError as error:
        message = f"{shown(path)} cannot be read: {error.strerror or error}"
        raise TraceError(message) from error
    except ValueError as error:  # a NUL in the path
        message = f"{str(path)!r} is no path: {error}"
        raise TraceError(message) from error


def pieces(path: Path, damage: Damage, *, twice: bool = False) -> Generator[bytes, None, None]:
    """Yield the uncompressed contents of a file, at most `PIECE` bytes at a time.

    A compressed file that is cut off or damaged ends early; `damage` then says why.
    """
    with open_input(path, twice=twice) as file, Progress(path.name, None) as progress:
        raw = _raw_pieces(path, file, progress)
        first = next(raw, b"")
        if first.startswith(GZIP_MAGIC):
            yield from _inflated(path, first, raw, damage)
            return
        yield first
        yield from raw


def _raw_pieces(path: Path, file: BinaryIO, progress: Progress) -> Iterator[bytes]:
    size, given = os.fstat(file.fileno()).st_size, 0
    while True:
        try:
            piece = file.read(PIECE)
        except OSError as error:
            message = f"{shown(path)} cannot be read: {error.strerror or error}"
            raise TraceError(message) from error
        if not piece:
            return
        if size:  # a pipe has none
            given += len(piece)
            progress.update(given / size)
        yield piece


def _inflated(path: Path, first: bytes, rest: Iterator[bytes], damage: Damage) -> Iterator[bytes]:
    inflate = zlib.decompressobj(wbits=GZIP_WBITS)
    taken = given = 0
    compressed = first
    while compressed:
        taken += len(compressed)
        while compressed:
            if inflate.eof:  # another member follows, or zeros that fill up a block
                compressed = compressed.lstrip(b"\0")
                if not compressed:
                    break
                inflate = zlib.decompressobj(wbits=GZIP_WBITS)
            before = inflate.copy()
            try:
                piece = inflate.decompress(compressed, PIECE)
            except zlib.error as error:
                damage.gzip = f"the compressed data is damaged near byte {taken}: {error}"
                yield from _up_to_damage(before, compressed)
                return
            given += len(piece)
            compressed = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
            _check_ratio(path, taken - len(compressed), given)
            if piece:
                yield piece
        compressed = next(rest, b"")
    while piece := inflate.decompress(b"", PIECE):  # of input that was taken in whole
        yield piece
    if not inflate.eof:
        damage.gzip = f"the compressed data is cut off at byte {taken}"


def _up_to_damage(inflate: zlib._Decompress, compressed: bytes) -> Iterator[bytes]:
    """Yield what comes before the byte at which decompression fails, in ever smaller steps."""
    for size in (1 << 16, 1 << 12, 1 << 8, 1 << 4, 1):
        while True:
            attempt = inflate.copy()
            try:
                piece = attempt.decompress(compressed, size)
            except zlib.error:
                break
            if not piece:
                return
            inflate, compressed = attempt, attempt.unconsumed_tail
            yield piece


def _check_ratio(path: Path, taken: int, given: int) -> None:
    if given > RATIO_COUNTS_FROM and given > MAX_RATIO * taken:
        message = (
            f"{shown(path)} grows {given // max(taken, 1)} times when uncompressed, which no trace "
            f"does (at most {MAX_RATIO} times is read); uncompress it first if you trust it"
        )
        raise TraceError(message)
