"""The files of the trace tools: reading pieces of what may be anything, writing all or nothing.

Input is never trusted: only regular files and pipes are opened, compressed ones grow at most by a
factor that no trace reaches. ``-`` is the standard input or output. What is wrong with an input is
a `TraceError`; what is wrong with an output stays an `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import gzip
import importlib
import os
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from gpuprof._common.files import replacing
from gpuprof._common.outputs import STANDARD, descriptor_of
from gpuprof.errors import TraceError

PIECE = 1 << 16
_BUFFER = 1 << 20
STANDARD_INPUT = "standard input"
GZIP_MAGIC = b"\x1f\x8b"
GZIP_WBITS = 31
# Traces shrink by 10 to 30, one kernel with a long name over and over by 135; bombs by 230 to 1030.
MAX_RATIO = 200
RATIO_COUNTS_FROM = 64 << 20
LONG_WORK = 64 << 20

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
    with (
        open_input(path, twice=twice) as file,
        _progress(path, os.fstat(file.fileno()).st_size) as advance,
    ):
        raw = _raw_pieces(path, file, advance)
        first = next(raw, b"")
        if first.startswith(GZIP_MAGIC):
            yield from _inflated(path, first, raw, damage)
            return
        yield first
        yield from raw


def _raw_pieces(path: Path, file: BinaryIO, advance: Callable[[int], None]) -> Iterator[bytes]:
    while True:
        try:
            piece = file.read(PIECE)
        except OSError as error:
            message = f"{shown(path)} cannot be read: {error.strerror or error}"
            raise TraceError(message) from error
        if not piece:
            return
        advance(len(piece))
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


@contextlib.contextmanager
def _progress(path: Path, size: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on a terminal's standard error while much is read, where rich is installed."""
    if size < LONG_WORK or not sys.stderr.isatty():
        yield lambda _: None
        return
    try:
        progress = importlib.import_module("rich.progress")
        console = importlib.import_module("rich.console").Console(stderr=True)
    except ModuleNotFoundError:
        yield lambda _: None
        return
    from gpuprof._common.text import shown_text

    bar = progress.Progress(
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(binary_units=True),
        progress.TimeRemainingColumn(),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task(shown_text(path.name), total=size)
        yield lambda count: bar.advance(task, count)


@contextlib.contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which appears whole under its name if the block ends well.

    Compressed where the name ends in ``.gz``. An existing file is replaced, one that a link leads
    to as well. Into a FIFO, a device, or one of our own descriptors (``-`` or ``/dev/stdout``) the
    bytes go as they come.
    """
    with _opened(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield file


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all.

    Raises OSError that names `path`, TypeError and ValueError for what is no name of a file.
    """
    name: object = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(name, str):
        message = f"path: expected a str or os.PathLike of str, got {name!r}"
        raise TypeError(message)
    if not name or "\0" in name:
        message = f"path: expected the name of a file to write, got {name!r}"
        raise ValueError(message)
    target = Path(name)
    if target.is_dir():
        reason = "is a directory; expected the name of a file to write"
        raise IsADirectoryError(errno.EISDIR, reason, name)
    try:
        with writing(target) as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        # The original one may name the temporary file, or nothing.
        raise OSError(error.errno, error.strerror or str(error), name) from error


def text_or_file(text: str, path: str | os.PathLike[str] | None) -> str | None:
    """Return `text`, or None after it was written to `path` as by `write_whole`."""
    if path is None:
        return text
    write_whole(path, text)
    return None


def _opened(path: Path) -> contextlib.AbstractContextManager[BinaryIO]:
    descriptor = descriptor_of(path)
    if descriptor is not None:
        return os.fdopen(os.dup(descriptor), "wb", buffering=_BUFFER)
    real = Path(os.path.realpath(path))
    if real.is_dir():
        message = f"{path} is a directory; expected the name of a file to write"
        raise IsADirectoryError(message)
    if real.exists() and not real.is_file():
        return os.fdopen(os.open(real, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=_BUFFER)
    return replacing(real)


def report_file(output: str) -> TextIO:
    """Return where to say what was done: standard output, unless the trace went there."""
    return sys.stderr if descriptor_of(output) == 1 else sys.stdout
