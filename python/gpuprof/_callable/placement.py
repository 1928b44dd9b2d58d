"""Where a graphed callable captures and is called: by which library, on which device and stream.

Warm-ups run on the stream of the capture, because libraries keep workspaces for each stream. It is
the framework's current one, or a stream of gpuprof's where that is the legacy default stream, which
cannot be captured; then each waits for the other.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator
from typing import Any, Literal

import gpuprof._core as _core
from gpuprof._callable.arrays import arrays_of
from gpuprof._callable.leaves import DEVICE
from gpuprof._callable.pytree import Flat
from gpuprof._frameworks import cupy as frameworks_cupy
from gpuprof._frameworks import loaded, torch_capture
from gpuprof._frameworks.streams import CallStream
from gpuprof._frameworks.torch_graph import what_it_lacks
from gpuprof.errors import InvalidStateError


def call_stream(flat: Flat, asked: object) -> CallStream:
    """Return the stream of a call; `asked` is the ``stream=`` that the callable was made with."""
    device = int(flat.leaves[0].facts[DEVICE]) if flat.leaves else 0
    return CallStream(_libraries(flat), device, asked)


def _libraries(flat: Flat) -> set[str]:
    return {arrays_of(leaf.array).name for leaf in flat.leaves}


class Place:
    """Where the capture of a call with some arguments takes place: backend, device, stream.

    TypeError if their arrays are on several devices.
    """

    def __init__(self, flat: Flat, asked: object) -> None:
        self._asked = asked
        names = self._libraries = _libraries(flat)
        has_torch = "torch" in names
        self.backend: Literal["auto", "driver", "torch"] = "auto"
        if has_torch or (not names and torch_capture.wants(asked)):
            self.backend = "torch"
        elif "cupy" in names:
            self.backend = "driver"
        # Once `current` was left: what the graph has to keep alive for CuPy's part in it.
        self.memory: list[object] = []
        self._mixes_in_cupy = has_torch and "cupy" in names
        self.stream = asked  # what to capture, once `current` was entered
        self.device = self._device_of(flat)
        # A type that tells the current stream of calls; None where `calls_stream` is to be asked.
        self.stream_type = loaded.tensor_type() if self.backend == "torch" else None
        # Without a stream of its own, Numba's work is captured on the framework's current one.
        self.copies_on = CallStream(
            names if asked is not None else names - {"numba"}, self.device, asked
        )

    def check(self) -> None:
        """Refuse a torch that gives no graph to add copies to: one older than 2.8."""
        lacks = what_it_lacks(loaded.torch()) if self.backend == "torch" else ""
        if lacks:
            message = f"graphed callables need more of torch than this one has: {lacks}"
            raise InvalidStateError(message)

    def calls_stream(self, of_results: Collection[str]) -> CallStream:
        """Return the stream of calls, where the results are of these libraries."""
        libraries = {"torch"} if self.backend == "torch" else self._libraries or of_results
        return CallStream(libraries, self.device, self._asked)

    def _device_of(self, flat: Flat) -> int:
        for leaf in flat.leaves:
            first = flat.leaves[0]
            if leaf.facts[DEVICE] != first.facts[DEVICE]:
                message = (
                    f"{leaf.path}: an array on GPU {leaf.facts[DEVICE]}, and {first.path} is on "
                    f"GPU {first.facts[DEVICE]}; a graph runs on one: move the arrays to it"
                )
                raise TypeError(message)
        if flat.leaves:
            return int(flat.leaves[0].facts[DEVICE])
        if self.backend == "torch":
            return int(loaded.torch().cuda.current_device())
        return max(_core._current_stream()[1], 0)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream current for the block, which it waits for and which waits for it."""
        if self.backend == "torch":
            with self._current_for_torch():
                yield
        elif self.backend == "driver" and self._asked is None:
            with self._current_for_cupy():
                yield
        else:
            yield

    @contextlib.contextmanager
    def _current_for_torch(self) -> Iterator[None]:
        cuda = loaded.torch().cuda
        with cuda.device(self.device):
            before = cuda.current_stream()
            stream = torch_capture.stream_to_capture(self._asked)
            self.stream = stream
            with _joined(before, stream), cuda.stream(stream), self._for_cupy(stream.cuda_stream):
                yield

    @contextlib.contextmanager
    def _for_cupy(self, handle: int) -> Iterator[None]:
        """Let CuPy's work in the block run on torch's stream, too, in memory of the graph's."""
        if not self._mixes_in_cupy:
            yield
            return
        cupy = frameworks_cupy.CupyCapture(handle)
        cupy.begin()
        try:
            yield
        except BaseException:
            cupy.abort()
            raise
        self.memory.append(cupy.end())

    @contextlib.contextmanager
    def _current_for_cupy(self) -> Iterator[None]:
        cuda = loaded.cupy().cuda
        with cuda.Device(self.device):
            before = cuda.get_current_stream()
            stream = before if int(before.ptr) > 1 else frameworks_cupy.own_stream()
            self.stream = stream
            if stream is before:
                yield
                return
            stream.wait_event(before.record())
            with stream:
                yield
            before.wait_event(stream.record())


@contextlib.contextmanager
def _joined(before: Any, stream: Any) -> Iterator[None]:
    """Have two of torch's streams wait for each other around the block."""
    if before == stream:
        yield
        return
    stream.wait_stream(before)
    try:
        yield
    except BaseException:
        # The block's error matters more than one of the wait.
        with contextlib.suppress(Exception):
            before.wait_stream(stream)
        raise
    before.wait_stream(stream)
