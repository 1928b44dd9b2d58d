"""``torch.cuda.nvtx``: ranges in NVTX's own domain, by a message alone.

They work also where torch is built without CUDA or is not there, and appear in open traces. Where
neither a tool listens nor a trace is open, they do nothing. Importing this module switches NVTX on
if a tool listens and ``GPUPROF_NVTX`` does not say otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpuprof._core as _core
from gpuprof._startup import enable_nvtx
from gpuprof.nvtx import pop, push

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]

UNNAMED = ""  # the domain of ranges that name none


if not os.environ.get("GPUPROF_NVTX", "").strip() and _core.nvtx_tool_listens():
    enable_nvtx()


def range_push(msg: str) -> int:
    """Push a range on this thread and return its depth, 0 for the outermost."""
    return push(msg, domain=UNNAMED)


def range_pop() -> int:
    """Pop the range that this thread pushed last and return its depth; -1 without one."""
    return pop(UNNAMED)


def range_start(msg: str) -> int:
    """Start a range that may end on another thread; return what `range_end` takes."""
    return _core.range_start(msg, domain=UNNAMED)


def range_end(range_id: int) -> None:
    """End a range of `range_start`, on any thread."""
    _core.range_end(range_id)


def mark(msg: str) -> None:
    """Note a moment."""
    _core.mark(msg, domain=UNNAMED)


@contextmanager
def range(msg: str, *args: Any, **kwargs: Any) -> Iterator[None]:
    """Push ``msg.format(*args, **kwargs)`` for a ``with`` block or a decorated function."""
    range_push(msg.format(*args, **kwargs))
    try:
        yield
    finally:
        range_pop()
