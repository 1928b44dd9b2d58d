"""Where a graphed callable captures and is called: by which library, on which device and stream.

Warm-ups run on the stream of the capture, because libraries keep workspaces for each stream. It is
the framework's current one, or a stream of gpuprof's where that is the legacy default stream, which
cannot be captured; then each waits for the other.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any, Literal

import gpuprof._core as _core
from gpuprof._callable.arrays import arrays_of
from gpuprof._frameworks import cupy as frameworks_cupy
from gpuprof._frameworks import torch_capture
from gpuprof._frameworks.torch_graph import what_it_lacks
from gpuprof.errors import InvalidStateError

if TYPE_CHECKING:
    from gpuprof._callable.pytree import Flat

_DEVICE = 2  # in an array's facts


class CallStream:
    """The stream of calls: the current one of the library of their arrays, on their device.

    Torch's if one of the arrays is torch's, else CuPy's if one is CuPy's. Numba has no current
    stream: its calls are on the stream that the callable was made with, or on the default one. For
    other arrays, and for calls without any, it is the framework's.

    Parameters
    ----------
    libraries : collection of str
        The names of the libraries.
    device : int
    asked : object
        The ``stream=`` argument that the callable was made with.

    Attributes
    ----------
    ask : callable, int or None
        ``ask(device)`` is the stream or its handle. An int is the handle; None is the framework's.
    """

    def __init__(self, libraries: Collection[str], device: int, asked: object) -> None:
        self.ask: Callable[[int], Any] | int | None = None
        self._device = device
        if "torch" in libraries:
            self.ask = sys.modules["torch"]._C._cuda_getCurrentRawStream
        elif "cupy" in libraries:
            self.ask = sys.modules["cupy"].cuda.get_current_stream
        elif "numba" in libraries:
            self.ask = 0 if asked is None else _core.stream_handle(asked)

    @classmethod
    def of(cls, flat: Flat, asked: object) -> CallStream:
        """Return the stream of a call with these arguments."""
        device = int(flat.leaves[0].facts[_DEVICE]) if flat.leaves else 0
        return cls(_libraries(flat), device, asked)

    def handle(self) -> int:
        """Return the handle of the stream now."""
        if self.ask is None:
            return _core._current_stream()[0]
        return (
            self.ask if isinstance(self.ask, int) else _core.stream_handle(self.ask(self._device))
        )

    def is_captured(self) -> bool:
        """Return whether the stream, or a framework's current one, is being captured.

        In either case this thread cannot capture another graph now.
        """
        handles = {self.handle(), _core._current_stream()[0]}
        if frameworks_cupy.is_loaded():
            handles.add(int(sys.modules["cupy"].cuda.get_current_stream().ptr))
        handles.discard(0)  # the legacy default stream cannot be captured
        return any(_core._capture_status(handle, self._device) != 0 for handle in handles)


def _libraries(flat: Flat) -> set[str]:
    return {arrays_of(leaf.array).name for leaf in flat.leaves}


class Place:
    """Where one capture takes place.

    Parameters
    ----------
    flat : Flat
        The arguments: whose arrays they are decides.
    asked : object
        A ``stream=`` argument.

    Attributes
    ----------
    backend : {'auto', 'driver', 'torch'}
        Who captures.
    device : int
        The GPU.
    stream : object
        What to capture, once `current` was entered.
    stream_type : type or None
        A type that tells the current stream of calls; None where `calls_stream` is to be asked.
    copies_on : CallStream
        The stream of the copies of a library that has no current stream.
    memory : list
        What CuPy's part of a graph of torch's lies in, once `current` was left. To be kept with the
        graph.

    Raises
    ------
    TypeError
        The arrays are on several devices.
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
        self.memory: list[object] = []
        self._mixes_in_cupy = has_torch and "cupy" in names
        self.stream = asked
        self.device = self._device_of(flat)
        self.stream_type = sys.modules["torch"].Tensor if self.backend == "torch" else None
        # Without a stream of its own, Numba's work is captured on the framework's current one.
        self.copies_on = CallStream(
            names if asked is not None else names - {"numba"}, self.device, asked
        )

    def check(self) -> None:
        """Refuse a library that gives no graph to add copies to.

        Raises
        ------
        InvalidStateError
            Torch is older than 2.8.
        """
        lacks = what_it_lacks(sys.modules["torch"]) if self.backend == "torch" else ""
        if lacks:
            message = f"graphed callables need more of torch than this one has: {lacks}"
            raise InvalidStateError(message)

    def calls_stream(self, of_results: Collection[str]) -> CallStream:
        """Return the stream of calls, where the results are of these libraries."""
        libraries = {"torch"} if self.backend == "torch" else self._libraries or of_results
        return CallStream(libraries, self.device, self._asked)

    def _device_of(self, flat: Flat) -> int:
        first: Any = None
        for leaf in flat.leaves:
            if first is None:
                first = leaf
            elif leaf.facts[_DEVICE] != first.facts[_DEVICE]:
                message = (
                    f"{leaf.path}: an array on GPU {leaf.facts[_DEVICE]}, and {first.path} is on "
                    f"GPU {first.facts[_DEVICE]}; a graph runs on one: move the arrays to it"
                )
                raise TypeError(message)
        if first is not None:
            return int(first.facts[_DEVICE])
        if self.backend == "torch":
            return int(sys.modules["torch"].cuda.current_device())
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
        cuda: Any = sys.modules["torch"].cuda
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
        cuda: Any = sys.modules["cupy"].cuda
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
