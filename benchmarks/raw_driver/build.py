"""Builds and wraps the C++ library that makes the same driver calls with nothing around them."""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SOURCE = Path(__file__).with_name("raw_driver.cpp")


class RawDriverError(RuntimeError):
    """The library could not be built, or a driver call in it answered an error."""


class RawDriver:
    """The raw calls. Made anywhere; all but `clock_reads` need `open` to have succeeded."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self._library = ctypes.CDLL(str(_build(Path(folder))))
        size, handle, time = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64
        self._declare("raw_stream", handle, [])
        self._declare("raw_synchronize", ctypes.c_int, [handle])
        self._declare("raw_pairs", time, [handle, size, size, size, ctypes.c_int])
        self._declare("raw_threads", time, [ctypes.POINTER(handle), size, size, size])
        self._declare("raw_clock_reads", time, [size])

    def _declare(self, name: str, result: type, arguments: Sequence[type]) -> None:
        function = getattr(self._library, name)
        function.restype = result
        function.argtypes = list(arguments)

    def open(self) -> None:
        """Open the driver and make device 0's primary context current on this thread."""
        self._check(self._library.raw_open(), "opening libcuda.so.1 and its device 0")

    def make_current(self) -> None:
        """Make the primary context current on the calling thread."""
        self._check(self._library.raw_make_current(), "cuCtxSetCurrent")

    def stream(self) -> int:
        """Return a new non-blocking stream's handle."""
        handle = int(self._library.raw_stream())
        if handle == 0:
            raise RawDriverError("cuStreamCreate failed")
        return handle

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        self._check(self._library.raw_synchronize(stream), "cuStreamSynchronize")

    def pairs(self, stream: int, count: int, *, burst: int, pool: int, read: bool) -> int:
        """Return the nanoseconds that `count` event pairs took."""
        return self._time(self._library.raw_pairs(stream, count, burst, pool, int(read)))

    def threads(self, streams: Sequence[int], count: int, *, pool: int) -> int:
        """Return the nanoseconds until each thread had made `count` pairs on its stream."""
        handles = (ctypes.c_size_t * len(streams))(*streams)
        return self._time(self._library.raw_threads(handles, len(streams), count, pool))

    def clock_reads(self, count: int) -> int:
        """Return the nanoseconds that `count` times two reads of the monotonic clock took."""
        return int(self._library.raw_clock_reads(count))

    def _check(self, code: int, doing: str) -> None:
        if code != 0:
            raise RawDriverError(f"{doing} answered {code}")

    def _time(self, nanoseconds: int) -> int:
        if nanoseconds < 0:
            raise RawDriverError(f"an event call answered {-nanoseconds}")
        return nanoseconds


def _build(folder: Path) -> Path:
    library = folder / "libraw_driver.so"
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    command = [*compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", str(_SOURCE)]
    try:
        subprocess.run([*command, "-ldl", "-o", str(library)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RawDriverError(f"no C++ compiler could build {_SOURCE.name}: {error}") from error
    return library
