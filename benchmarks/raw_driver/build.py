"""Builds the C++ library that makes the same driver calls with nothing around them, and wraps it.

`RawDriver` has streams and event pairs, `RawGraphs` captures, launches and fills, `RawParts` the
other driver calls of a scope and of a launch.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

_SOURCES = tuple(
    Path(__file__).with_name(f"raw_{name}.cpp") for name in ("driver", "graphs", "parts")
)


class RawDriverError(RuntimeError):
    """The library could not be built, or a driver call in it answered an error."""


class RawGraphs:
    """The raw calls for graphs, all on the context that is current on the calling thread."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        size, handle, time = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64
        _declare(library, "raw_kernels", ctypes.c_int, [handle, size])
        _declare(library, "raw_graph", handle, [handle, size])
        _declare(library, "raw_launches", time, [handle, handle, size, size])
        _declare(library, "raw_captures", time, [handle, size, size])
        _declare(library, "raw_memsets", time, [handle, size, size])
        _check(library.raw_graphs_open(), "finding the driver's functions for graphs")

    def kernels(self, stream: int, count: int) -> None:
        """Launch `count` kernels that do nothing on a stream, which may be capturing."""
        _check(self._library.raw_kernels(stream, count), "cuLaunchKernel")

    def graph(self, stream: int, kernels: int) -> int:
        """Return the handle of a new executable graph of so many kernels in a row."""
        handle = int(self._library.raw_graph(stream, kernels))
        if handle == 0:
            raise RawDriverError("a graph could not be captured and instantiated")
        return handle

    def launches(self, graph: int, stream: int, count: int, *, burst: int) -> int:
        """Return the nanoseconds that `count` launches took."""
        return _time(self._library.raw_launches(graph, stream, count, burst))

    def captures(self, stream: int, kernels: int, count: int) -> int:
        """Return the nanoseconds that `count` captures took, instantiation included."""
        return _time(self._library.raw_captures(stream, kernels, count))

    def memsets(self, stream: int, count: int, *, burst: int) -> int:
        """Return the nanoseconds that `count` fills of 4 bytes took."""
        return _time(self._library.raw_memsets(stream, count, burst))


class RawParts:
    """The driver calls that a scope and a launch make beside their own, in the current context."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        size, handle, time = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64
        _declare(library, "raw_scope_queries", time, [handle, size])
        _declare(library, "raw_launch_queries", time, [handle, size])
        _declare(library, "raw_pair_reads", time, [handle, size, size])
        _declare(library, "raw_completions", time, [handle, size, size])
        _check(library.raw_parts_open(), "finding the driver's functions for parts")

    def scope_queries(self, stream: int, count: int) -> int:
        """Return the nanoseconds of `count` times what a scope asks of the driver."""
        return _time(self._library.raw_scope_queries(stream, count))

    def launch_queries(self, stream: int, count: int) -> int:
        """Return the nanoseconds of `count` times what a launch asks of the driver."""
        return _time(self._library.raw_launch_queries(stream, count))

    def pair_reads(self, stream: int, count: int, *, pool: int) -> int:
        """Return the nanoseconds that reading `count` complete event pairs took."""
        return _time(self._library.raw_pair_reads(stream, count, pool))

    def completions(self, stream: int, count: int, *, burst: int) -> int:
        """Return the nanoseconds that `count` records of an event without timing took."""
        return _time(self._library.raw_completions(stream, count, burst))


class RawDriver:
    """The raw calls. Made anywhere; all but `clock_reads` need `open` to have succeeded."""

    def __init__(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            self._library = ctypes.CDLL(str(_build(Path(folder))))
        size, handle, time = ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int64
        _declare(self._library, "raw_stream", handle, [])
        _declare(self._library, "raw_synchronize", ctypes.c_int, [handle])
        _declare(self._library, "raw_pairs", time, [handle, size, size, size, ctypes.c_int])
        _declare(self._library, "raw_threads", time, [ctypes.POINTER(handle), size, size, size])
        _declare(self._library, "raw_clock_reads", time, [size])

    def open(self) -> None:
        """Open the driver and make device 0's primary context current on this thread."""
        _check(self._library.raw_open(), "opening libcuda.so.1 and its device 0")

    def make_current(self) -> None:
        """Make the primary context current on the calling thread."""
        _check(self._library.raw_make_current(), "cuCtxSetCurrent")

    def stream(self) -> int:
        """Return a new non-blocking stream's handle."""
        handle = int(self._library.raw_stream())
        if handle == 0:
            raise RawDriverError("cuStreamCreate failed")
        return handle

    def synchronize(self, stream: int) -> None:
        """Wait for a stream."""
        _check(self._library.raw_synchronize(stream), "cuStreamSynchronize")

    def pairs(self, stream: int, count: int, *, burst: int, pool: int, read: bool) -> int:
        """Return the nanoseconds that `count` event pairs took."""
        return _time(self._library.raw_pairs(stream, count, burst, pool, int(read)))

    def threads(self, streams: Sequence[int], count: int, *, pool: int) -> int:
        """Return the nanoseconds until each thread had made `count` pairs on its stream."""
        handles = (ctypes.c_size_t * len(streams))(*streams)
        return _time(self._library.raw_threads(handles, len(streams), count, pool))

    def clock_reads(self, count: int) -> int:
        """Return the nanoseconds that `count` times two reads of the monotonic clock took."""
        return int(self._library.raw_clock_reads(count))

    def graphs(self) -> RawGraphs:
        """Return the calls for graphs, in the primary context."""
        return RawGraphs(self._library)

    def parts(self) -> RawParts:
        """Return the calls beside a scope's and a launch's own, in the primary context."""
        return RawParts(self._library)


def _declare(library: ctypes.CDLL, name: str, result: type, arguments: Sequence[type]) -> None:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = list(arguments)


def _check(code: int, doing: str) -> None:
    if code != 0:
        raise RawDriverError(f"{doing} answered {code}")


def _time(nanoseconds: int) -> int:
    if nanoseconds < 0:
        raise RawDriverError(f"a driver call answered {-nanoseconds}")
    return nanoseconds


def _build(folder: Path) -> Path:
    library = folder / "libraw_driver.so"
    compiler = shlex.split(os.environ.get("CXX", "g++"))
    command = [*compiler, "-std=c++17", "-O2", "-shared", "-fPIC", "-pthread", *map(str, _SOURCES)]
    try:
        subprocess.run([*command, "-ldl", "-o", str(library)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise RawDriverError(f"no C++ compiler could build the raw driver: {error}") from error
    return library
