"""What the allocators of torch and CuPy did during a block: peak and change, in bytes.

Call ``reading = Reading()`` before the block and ``reading.end()`` after it. Readings may nest,
overlap, and be in several threads. They count what is allocated, without what is kept cached.

torch has one peak counter for each device, shared by all threads, and no way to read a peak since
a given moment. So a begin reads the counter and resets it where it is above the current level: a
lower peak would not show otherwise. The value before the reset is kept for the readings that are
open and for `torch_memory`. The user's own ``torch.cuda.max_memory_allocated()`` then counts from
the newest reset. CuPy has no peak counter: a memory hook follows the allocations of this thread.

Nothing here imports a library, initialises CUDA or waits. No function raises.
"""

from __future__ import annotations

import contextlib
import functools
import math
import os
import threading
from typing import Any, NamedTuple

from gpuprof._frameworks import loaded
from gpuprof._frameworks.torch import overwritten_peaks

# Of `Figures.note`; src/timing/work.hpp has the same numbers.
READ, SUM, NO_ALLOCATOR, NO_PEAK, REFUSED = range(5)


class Figures(NamedTuple):
    """What happened in a block, in bytes; NaN where it is not known.

    `peak` is above the level at the begin, `absolute` the most that was allocated at once. `note`
    says what is special: `SUM` is of two allocators' peaks, so an upper bound.
    """

    peak: float
    absolute: float
    change: float
    note: int = READ


_REFUSED = Figures(math.nan, math.nan, math.nan, REFUSED)
_NO_ALLOCATOR = Figures(math.nan, math.nan, math.nan, NO_ALLOCATOR)


class Reading:
    """The allocators between a begin and an end. Forgotten ones let go of what they hold."""

    _parts: tuple[_TorchWindow | _CupyWindow, ...] = ()

    def __init__(self, stream: object = None) -> None:
        """Begin to watch the allocators of the device of `stream`, or of the current one."""
        self._failed = False
        for open_window in (_open_torch, _open_cupy):
            try:
                if (part := open_window(stream)) is not None:
                    self._parts = (*self._parts, part)
            except Exception:
                self._failed = True

    def end(self) -> Figures:
        """Return what happened since the begin. Once."""
        try:
            found = [part.end() for part in self._parts]
        except Exception:
            self._failed = True
        finally:
            self._close()
        return _REFUSED if self._failed else _together(found)

    def _close(self) -> None:
        parts, self._parts = self._parts, ()
        for part in parts:
            with contextlib.suppress(Exception):
                part.close()

    __del__ = _close


def _together(found: list[Figures]) -> Figures:
    if not found:
        return _NO_ALLOCATOR
    moved = [each for each in found if each.peak or each.change]
    if len(moved) < 2:
        only = moved[0] if moved else found[0]
        return only._replace(absolute=sum(each.absolute for each in found))
    peak, absolute, change = (sum(parts) for parts in list(zip(*found, strict=True))[:3])
    return Figures(peak, absolute, change, NO_PEAK if math.isnan(peak) else SUM)


# torch


class _TorchWindow:
    def __init__(self, cuda: Any, device: int) -> None:
        self._cuda, self._device = cuda, device
        self._process = os.getpid()
        with _torch_lock:
            level, peak = _look(cuda, device)
            if peak > level:
                hidden, _ = overwritten_peaks.get(device, (0, 0))
                cuda.reset_peak_memory_stats(device)
                level, now = _counters(cuda, device)
                overwritten_peaks[device] = max(hidden, peak), now
            self._level = self.highest = level
            _torch_windows.setdefault(device, []).append(self)

    def end(self) -> Figures:
        if self._process != os.getpid():
            return _REFUSED
        with _torch_lock:
            level, _ = _look(self._cuda, self._device)
        highest = max(self.highest, level)
        return Figures(highest - self._level, highest, level - self._level)

    def close(self) -> None:
        if self._process == os.getpid():
            with _torch_lock, contextlib.suppress(ValueError):
                _torch_windows[self._device].remove(self)


# A window may be closed by a garbage collection inside of the lock.
_torch_lock = threading.RLock()
_torch_windows: dict[int, list[_TorchWindow]] = {}


def _open_torch(stream: object) -> _TorchWindow | None:
    cuda = loaded.torch_cuda()
    if cuda is None or not hasattr(cuda, "memory_stats_as_nested_dict"):
        return None
    device = getattr(stream, "device_index", None)
    return _TorchWindow(cuda, cuda.current_device() if device is None else int(device))


def _counters(cuda: Any, device: int) -> tuple[int, int]:
    """Return what is allocated, and torch's peak of it."""
    figures = cuda.memory_stats_as_nested_dict(device)["allocated_bytes"]["all"]
    return int(figures["current"]), int(figures["peak"])


def _look(cuda: Any, device: int) -> tuple[int, int]:
    """Return the counters, and tell the peak to all windows that are open."""
    level, peak = _counters(cuda, device)
    for window in tuple(_torch_windows.get(device, ())):
        window.highest = max(window.highest, peak)
    hidden, seen = overwritten_peaks.get(device, (0, 0))
    if hidden:  # a peak that fell was reset by somebody else, and the one before does not count
        overwritten_peaks[device] = (hidden if peak >= seen else 0), peak
    return level, peak


# CuPy


class _CupyWindow:
    def __init__(self, cuda: Any, pool: Any, device: int) -> None:
        self.device = device
        self._cuda, self._pool = cuda, pool
        self._level = self._used()
        self.now = self.highest = self._level
        self._hook: Any = None
        if isinstance(pool, cuda.MemoryPool):  # others do not call hooks
            self._hook = _hook_of_thread(cuda)
            self._hook.windows.append(self)

    def end(self) -> Figures:
        level = self._used()
        change = level - self._level
        if self._hook is None:
            nothing = change == 0 == level
            peak = 0 if nothing else math.nan
            return Figures(peak, peak, change, READ if nothing else NO_PEAK)
        highest = max(self.highest, level)
        return Figures(highest - self._level, highest, change)

    def close(self) -> None:
        if self._hook is None:
            return
        with contextlib.suppress(ValueError):
            self._hook.windows.remove(self)
        # Another thread's hook stays: its dictionary is out of reach.
        is_here = getattr(_threads, "hook", None) is self._hook
        if is_here and not self._hook.windows:
            del _threads.hook
            self._hook.__exit__()

    def _used(self) -> int:
        with self._cuda.Device(self.device):
            return int(self._pool.used_bytes())


_threads = threading.local()  # each with its hook


def _open_cupy(_stream: object) -> _CupyWindow | None:
    cupy = loaded.cupy()
    if cupy is None:
        return None
    pool = getattr(cupy.cuda.get_allocator(), "__self__", None)
    if not hasattr(pool, "used_bytes"):  # such as torch's allocator
        return None
    return _CupyWindow(cupy.cuda, pool, int(cupy.cuda.runtime.getDevice()))


def _hook_of_thread(cuda: Any) -> Any:
    if not hasattr(_threads, "hook"):
        _threads.hook = _hook_class(cuda.MemoryHook)()
        _threads.hook.__enter__()
    return _threads.hook


@functools.cache
def _hook_class(base: Any) -> Any:
    class Hook(base):  # type: ignore[misc]
        """Follows the level of the pools. May run in a garbage collection: it takes no lock."""

        name = "gpuprof memory"

        def __init__(self) -> None:
            self.windows: list[_CupyWindow] = []

        def malloc_postprocess(
            self, device_id: int, mem_size: int, mem_ptr: int, **_: object
        ) -> None:
            if mem_ptr:  # else there was no memory
                for window in self.windows:
                    if window.device == device_id:
                        window.now += mem_size
                        window.highest = max(window.highest, window.now)

        def free_postprocess(self, device_id: int, mem_size: int, **_: object) -> None:
            for window in self.windows:
                if window.device == device_id:
                    window.now -= mem_size

    return Hook
