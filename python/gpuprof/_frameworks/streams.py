"""Streams of the frameworks: what stands for one, which is current, and how one is made current."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._frameworks import cupy as frameworks_cupy
from gpuprof._frameworks import loaded, torch_capture


class StreamRef(NamedTuple):
    """A stream: what the caller gave, its handle, its device."""

    given: object
    handle: int
    device: int


def resolve(stream: object) -> StreamRef:
    """Return the stream that a ``stream=`` argument means; None is the framework's current one."""
    handle, of_default, _ = _core._current_stream()
    current = _core.cuda_device()
    device = of_default if current < 0 else current
    return StreamRef(stream, handle if stream is None else _core.stream_handle(stream), device)


@contextmanager
def as_current(ref: StreamRef) -> Iterator[None]:
    """Make the stream that the caller gave the frameworks' current one for a block."""
    with ExitStack() as blocks:
        if ref.given is not None:
            cuda = loaded.torch_cuda()
            if cuda is not None:
                blocks.enter_context(cuda.stream(torch_capture.stream_of(ref.given)))
            cupy = loaded.cupy()
            if cupy is not None:
                blocks.enter_context(frameworks_cupy.stream_of(cupy.cuda, ref.handle, ref.device))
        yield


@contextmanager
def torch_capture_stream(asked: object, device: int) -> Iterator[Any]:
    """Make the stream to capture torch's current one; the two wait for each other."""
    cuda = loaded.torch().cuda
    with cuda.device(device):
        before = cuda.current_stream()
        stream = torch_capture.stream_of(asked)
        with _joined(before, stream), cuda.stream(stream):
            yield stream


@contextmanager
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
        with suppress(Exception):
            before.wait_stream(stream)
        raise
    before.wait_stream(stream)


@contextmanager
def cupy_capture_stream(device: int) -> Iterator[Any]:
    """Make CuPy's current stream, or one that can be captured, current; the two wait."""
    cuda = loaded.cupy().cuda
    with cuda.Device(device):
        before = cuda.get_current_stream()
        if int(before.ptr) > 1:  # no default stream, which cannot be captured
            yield before
            return
        stream = frameworks_cupy.own_stream()
        stream.wait_event(before.record())
        with stream:
            yield stream
        before.wait_event(stream.record())


class CallStream:
    """The current stream of the library that a call's arrays are of, on their device.

    Torch's if one of the arrays is torch's, else CuPy's if one is CuPy's. Numba has no current
    stream: its calls are on the `asked` one, or on the default one. For other arrays, and for calls
    without any, it is the framework's.
    """

    def __init__(self, libraries: Collection[str], device: int, asked: object) -> None:
        # ``ask(device)`` is the stream or its handle. An int is the handle; None: the framework's.
        self.ask: Callable[[int], Any] | int | None = None
        self._device = device
        if "torch" in libraries:
            self.ask = loaded.torch()._C._cuda_getCurrentRawStream
        elif "cupy" in libraries:
            self.ask = loaded.cupy().cuda.get_current_stream
        elif "numba" in libraries:
            self.ask = 0 if asked is None else _core.stream_handle(asked)

    def handle(self) -> int:
        if self.ask is None:
            return _core._current_stream()[0]
        if isinstance(self.ask, int):
            return self.ask
        return _core.stream_handle(self.ask(self._device))

    def is_captured(self) -> bool:
        """Return whether the stream, or a framework's current one, is being captured already."""
        handles = {self.handle(), _core._current_stream()[0]}
        cupy = loaded.cupy()
        if cupy is not None:
            handles.add(int(cupy.cuda.get_current_stream().ptr))
        handles.discard(0)  # the legacy default stream cannot be captured
        return any(_core._capture_status(handle, self._device) != 0 for handle in handles)
