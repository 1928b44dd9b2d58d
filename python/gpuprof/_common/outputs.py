"""Files that a user names for gpuprof to write: nothing but earlier ones of their kind is replaced.

The commands ask for a `complaint` before they start. What is written much later looks once more.
Devices, pipes and descriptors such as ``/dev/stdout`` take bytes as they come: nothing is replaced.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from gpuprof._common import checks
from gpuprof._common.files import open_regular, replacing

STANDARD = "-"
_FIRST_BYTES = 4096
_BUFFER = 1 << 20
_GZIP_MAGIC, _GZIP_WBITS = b"\x1f\x8b", 31
# A name of one of our own descriptors.
_DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(?:dev|proc/self)/fd/(\d+)")
_SUFFIX = re.compile(r"\.[A-Za-z][A-Za-z0-9_-]*$")  # a number, or a pattern such as %h, is none


class Kind(NamedTuple):
    """A kind of file: what it is called, how its names may end, and how gpuprof begins it."""

    what: str
    suffixes: tuple[str, ...]
    begins: re.Pattern[bytes]


TRACE = Kind(
    "a trace",
    (".json", ".json.gz", ".gz"),
    re.compile(
        rb'\{"displayTimeUnit":"ns","(baseTimeNanoseconds|mergedFrom)"|\{"repairedBy":"gpuprof"|'
        rb'\[\{"ph":"M","name":"gpuprof"'
    ),
)
STATS = Kind("statistics", (".json",), re.compile(rb'\{\s*"format": "gpuprof-stats"'))
SESSION = Kind("results", (".json",), re.compile(rb'\{\s*"format": "gpuprof-pytest"'))
HTML = Kind(
    "a report",
    (".html", ".htm"),
    re.compile(rb'<!DOCTYPE html>\s.*?<meta name="generator" content="gpuprof">', re.DOTALL),
)
SVG = Kind("a plot", (".svg",), re.compile(rb'<svg data-generator="gpuprof"'))


class Output(NamedTuple):
    """A file that an option names: as it was given, and where, if patterns are replaced."""

    option: str
    kind: Kind
    given: str
    path: str = ""


def descriptor_of(path: str | Path) -> int | None:
    """Return which of our own descriptors a path names; None for a file."""
    if str(path) == STANDARD:
        return 1
    found = _DESCRIPTOR.fullmatch(str(path))
    if found is None:
        return None
    return int(found[2]) if found[2] else {"out": 1, "err": 2}[found[1]]


def complaint(outputs: Sequence[Output], inputs: Iterable[tuple[str, str]] = ()) -> str | None:
    """Return why an output cannot be written, or would replace an input or what is foreign."""
    taken: dict[object, str] = {}
    for what, path in inputs:
        taken |= dict.fromkeys(_identities(path), what)
    for option, kind, given, expanded in outputs:
        path = expanded or given
        if Path(path).is_dir():
            return f"{option}: expected a file, got the folder {path}"
        if descriptor_of(path) is not None or (Path(path).exists() and not Path(path).is_file()):
            continue
        if same := [taken[each] for each in _identities(path) if each in taken]:
            return f"{option}: {given} is also {same[0]}: name another file"
        suffix = _SUFFIX.search(given)
        if suffix and not given.lower().endswith(kind.suffixes):
            expected = " or ".join(kind.suffixes)
            return f"{option}: expected a name that ends in {expected} for {kind.what}, got {given}"
        try:
            refuse_foreign(path, kind)
        except OSError as error:
            return f"{option}: {path} {error.strerror}"
        taken |= dict.fromkeys(_identities(path), f"that of {option}")
    return None


def refuse_foreign(path: str | Path, kind: Kind) -> None:
    """Raise FileExistsError if a file is there that has content and is no `kind` of gpuprof."""
    if descriptor_of(path) is not None or not Path(path).is_file():
        return
    try:
        with os.fdopen(open_regular(Path(os.path.realpath(path))), "rb") as file:
            first = file.read(_FIRST_BYTES)
    except OSError as error:
        reason = f"is there and cannot be read: {error.strerror}: remove it, or name another file"
        raise FileExistsError(errno.EEXIST, reason, str(path)) from error
    if first.startswith(_GZIP_MAGIC):
        with suppress(zlib.error):
            first = zlib.decompressobj(_GZIP_WBITS).decompress(first, _FIRST_BYTES)
    if first and not kind.begins.match(first):
        reason = f"is there and is not {kind.what} of gpuprof: remove it, or name another file"
        raise FileExistsError(errno.EEXIST, reason, str(path))


def _identities(path: str) -> list[object]:
    """Return what another name of the same file has in common: its real path, and its inode."""
    found: list[object] = [os.path.realpath(path)]
    with suppress(OSError):
        status = Path(path).stat()
        found.append((status.st_dev, status.st_ino))
    return found


@contextmanager
def writing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write, which appears whole if the block ends well; ``.gz`` is compressed.

    An existing file is replaced, one that a link leads to as well. Into a FIFO, a device, or one of
    our own descriptors (``-`` or ``/dev/stdout``) the bytes go as they come.
    """
    with _opened(path) as file:
        if path.suffix == ".gz":
            with gzip.GzipFile("", "wb", compresslevel=1, fileobj=file, mtime=0) as packed:
                yield cast("BinaryIO", packed)
        else:
            yield file


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write `text` as UTF-8 to `path`, whole or not at all; an OSError names `path`."""
    name = checks.path("path", path)
    if not name or "\0" in name:
        raise checks.value_error(name, "path", "the name of a file to write")
    try:
        with writing(Path(name)) as file:
            file.write(text.encode(errors="replace"))
    except OSError as error:
        # The original one may name the temporary file, or nothing.
        raise OSError(error.errno, error.strerror or str(error), name) from error


def _opened(path: Path) -> AbstractContextManager[BinaryIO]:
    descriptor = descriptor_of(path)
    if descriptor is not None:
        return os.fdopen(os.dup(descriptor), "wb", buffering=_BUFFER)
    real = Path(os.path.realpath(path))
    if real.is_dir():
        reason = "is a directory; expected the name of a file to write"
        raise IsADirectoryError(errno.EISDIR, reason, str(path))
    if real.exists() and not real.is_file():
        return os.fdopen(os.open(real, os.O_WRONLY | os.O_CLOEXEC), "wb", buffering=_BUFFER)
    return replacing(real)
