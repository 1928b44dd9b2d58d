"""Where a graphed callable captures and is called: by which library, on which device and stream.

Warm-ups run on the stream of the capture, because libraries keep workspaces for each stream. It is
the framework's current one, or a stream of gpuprof's where that is the legacy default stream, which
cannot be captured; then each waits for the other.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection, Iterator
from typing import Any, Literal

import gpuprof._core as _core
from gpuprof._callable.pytree import Flat
from gpuprof._frameworks import loaded, torch_capture
from gpuprof._frameworks.cupy import CupyCapture
from gpuprof._frameworks.streams import CallStream, cupy_capture_stream, torch_capture_stream
from gpuprof._frameworks.torch_graph import what_it_lacks
from gpuprof.errors import InvalidStateError

# Held while a capture is open: captures share torch's generators and current streams. A thread that
# holds it waits for no other one, but for autograd's in the backward pass of a captured function.
_open = threading.RLock()


@contextlib.contextmanager
def one_capture(patience_s: float = -1) -> Iterator[None]:
    """Wait until no other thread has a capture open, and keep others from it for the block.

    InvalidStateError after `patience_s`; without it for ever.
    """
    if not _open.acquire(timeout=patience_s):
        message = (
            f"another thread has had a capture open for {patience_s} s; it may wait for this one, "
            "if it captures a backward pass: do that before or after"
        )
        raise InvalidStateError(message)
    try:
        yield
    finally:
        _open.release()


class Place:
    """Where the capture of a call with some arguments takes place: backend, device, stream."""

    def __init__(self, flat: Flat, asked: object) -> None:
        self._asked = asked
        names = self._libraries = flat.libraries
        has_torch = "torch" in names
        self.backend: Literal["auto", "driver", "torch"] = "auto"
        if has_torch or (not names and torch_capture.wants(asked)):
            self.backend = "torch"
        elif "cupy" in names:
            self.backend = "driver"
        # Once `current` was left: what the graph has to keep alive for CuPy's part in it.
        self.memory: list[object] = []
        self._mixes_in_cupy = has_torch and "cupy" in names
        self.stream: Any = asked  # what to capture, once `current` was entered
        self.device = self._device_of(flat)
        # A type that tells the current stream of calls; None where `calls_stream` is to be asked.
        self.stream_type = loaded.tensor_type() if self.backend == "torch" else None
        # Without a stream of its own, Numba's work is captured on the framework's current one.
        self.copies_on = CallStream(
            names if asked is not None else names - {"numba"}, self.device, asked
        )

    def check(self) -> None:
        """Refuse a torch that does not give the executable graph: one older than 2.9."""
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
            if leaf.facts.device != flat.device:
                message = (
                    f"{leaf.path}: an array on GPU {leaf.facts.device}, and {flat.leaves[0].path} "
                    f"is on GPU {flat.device}; a graph runs on one: move the arrays to it"
                )
                raise TypeError(message)
        if flat.leaves:
            return flat.device
        if self.backend == "torch":
            return int(loaded.torch().cuda.current_device())
        return max(_core._current_stream()[1], 0)

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make the stream, the same each time, current for the block; each waits for the other."""
        if self.backend == "torch":
            with torch_capture_stream(self.stream, self.device) as self.stream, self._for_cupy():
                yield
        elif self.backend == "driver" and self._asked is None:
            with cupy_capture_stream(self.device) as self.stream:
                yield
        else:
            yield

    @contextlib.contextmanager
    def _for_cupy(self) -> Iterator[None]:
        """Let CuPy's work in the block run on torch's stream, too, in memory of the graph's."""
        if not self._mixes_in_cupy:
            yield
            return
        cupy = CupyCapture(self.stream.cuda_stream)
        cupy.begin()
        try:
            yield
        except BaseException:
            cupy.abort()
            raise
        self.memory.append(cupy.end())
