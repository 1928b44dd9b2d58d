"""What torch's caching allocator holds, read without waking torch or CUDA up.

Nothing here imports torch or initialises CUDA: where the process has not done both, there is
nothing to report. Figures are bytes. Any thread.
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict

__all__ = ["TorchMemory", "note_reset", "torch_memory"]


class TorchMemory(TypedDict):
    """The allocator of one device: its peak, and what was added since the last reset."""

    device: str
    peak_bytes: int
    delta_bytes: int


_allocated_at_reset: dict[int, int] = {}


def _torch_cuda() -> Any:
    """``torch.cuda`` where it is imported and initialised, else None."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


def note_reset() -> None:
    """Remember what is allocated now: later deltas count from here."""
    _allocated_at_reset.clear()
    try:
        cuda = _torch_cuda()
        if cuda is not None:
            for index in range(cuda.device_count()):
                _allocated_at_reset[index] = int(cuda.memory_allocated(index))
    except Exception:  # a report must not fail for what torch could not tell
        _allocated_at_reset.clear()


def torch_memory() -> list[TorchMemory]:
    """Peak and change of allocated bytes for each device that torch allocated on.

    The peak is torch's own, since the process began or ``reset_peak_memory_stats`` was called; the
    change is since the last ``gpuprof.reset()``, or since the process began.
    """
    try:
        cuda = _torch_cuda()
        if cuda is None:
            return []
        found: list[TorchMemory] = []
        for index in range(cuda.device_count()):
            peak = int(cuda.max_memory_allocated(index))
            delta = int(cuda.memory_allocated(index)) - _allocated_at_reset.get(index, 0)
            if peak or delta:
                found.append({"device": f"cuda:{index}", "peak_bytes": peak, "delta_bytes": delta})
    except Exception:  # the same: a report without memory is better than none
        return []
    return found
