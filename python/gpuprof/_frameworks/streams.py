"""The stream that a benchmark is on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import gpuprof._core as _core
from gpuprof._frameworks import cupy as frameworks_cupy


class Where(NamedTuple):
    """A stream: what the caller gave, its handle, its device."""

    given: object
    handle: int
    device: int


def find(stream: object) -> Where:
    """Return where `stream` is; None is the framework's current stream now."""
    handle, of_default, _ = _core._current_stream()
    current = _core.cuda_device()
    device = of_default if current < 0 else current
    return Where(stream, handle if stream is None else _core.stream_handle(stream), device)


@contextmanager
def made_current(where: Where) -> Iterator[None]:
    """Make the stream that the caller gave the frameworks' current one for a block."""
    with ExitStack() as blocks:
        if where.given is not None:
            torch: Any = sys.modules.get("torch")
            cuda: Any = getattr(torch, "cuda", None)
            if getattr(cuda, "is_initialized", bool)():
                theirs = isinstance(where.given, cuda.Stream)
                stream = where.given if theirs else cuda.ExternalStream(where.handle)
                blocks.enter_context(cuda.stream(stream))
            cupy: Any = sys.modules.get("cupy")
            if hasattr(cupy, "cuda"):
                blocks.enter_context(
                    frameworks_cupy.stream_of(cupy.cuda, where.handle, where.device)
                )
        yield
