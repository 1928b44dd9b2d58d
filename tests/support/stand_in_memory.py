"""The allocators of torch and CuPy without a GPU, as far as their counters and hooks are concerned.

`TorchMemory` is a `torch.cuda` with the counters of torch's caching allocator: what is allocated on
each device, and one peak of it, which can be reset. `hooked` gives the stand-in of CuPy pools that
call memory hooks.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import types
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.support import stand_in_cupy

if TYPE_CHECKING:
    import pytest
    from typing_extensions import Self

KIB = 1024


class TorchMemory:
    """As much of `torch.cuda` as tells of memory. `resets` counts those of the peaks."""

    def __init__(self) -> None:
        self.initialised = True
        self.resets = 0
        self.asked = 0
        self.failing: BaseException | None = None
        self._current = [0, 0]
        self._peak = [0, 0]

    def allocate(self, size: int, device: int = 0) -> None:
        self._current[device] += size
        self._peak[device] = max(self._peak[device], self._current[device])

    def free(self, size: int, device: int = 0) -> None:
        self._current[device] -= size

    def use(self, size: int, device: int = 0) -> None:
        """Allocate, and free it again."""
        self.allocate(size, device)
        self.free(size, device)

    def is_initialized(self) -> bool:
        return self.initialised

    def current_device(self) -> int:
        return 0

    def device_count(self) -> int:
        return 2

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, Any]:
        self.asked += 1
        if self.failing is not None:
            raise self.failing
        both = {"current": self._current[device], "peak": self._peak[device]}
        return {"allocated_bytes": {"all": both}}

    def reset_peak_memory_stats(self, device: int = 0) -> None:
        self.resets += 1
        self._peak[device] = self._current[device]

    def memory_allocated(self, device: int = 0) -> int:
        return self._current[device]

    def max_memory_allocated(self, device: int = 0) -> int:
        return self._peak[device]


def install_torch(monkeypatch: pytest.MonkeyPatch) -> TorchMemory:
    """Put a torch that has no more than this into `sys.modules`."""
    torch: Any = types.ModuleType("torch")
    torch.cuda = TorchMemory()
    monkeypatch.setitem(sys.modules, "torch", torch)
    memory: TorchMemory = torch.cuda
    return memory


_threads = threading.local()


def hooks() -> dict[str, Any]:
    """Return the memory hooks of this thread."""
    found: dict[str, Any] = _threads.__dict__.setdefault("hooks", {})
    return found


class MemoryHook:
    """CuPy's base of memory hooks: one of each name for a thread."""

    name = "MemoryHook"

    def __enter__(self) -> Self:
        if self.name in hooks():
            message = f"memory hook {self.name} already exists"
            raise KeyError(message)
        hooks()[self.name] = self
        return self

    def __exit__(self, *_: object) -> None:
        del hooks()[self.name]

    def malloc_postprocess(self, **arguments: int) -> None: ...

    def free_postprocess(self, **arguments: int) -> None: ...


class _InUse(dict[int, Any]):
    """The chunks of a pool that are in use; its changes call the hooks."""

    def __setitem__(self, address: int, chunk: Any) -> None:
        super().__setitem__(address, chunk)
        size = chunk[0].size
        for hook in hooks().values():
            hook.malloc_postprocess(
                device_id=0, size=size, mem_size=size, mem_ptr=address, pmem_id=id(chunk)
            )

    def pop(self, address: int, *default: Any) -> Any:
        chunk = super().pop(address, *default)
        for hook in hooks().values():
            hook.free_postprocess(
                device_id=0, mem_size=chunk[0].size, mem_ptr=address, pmem_id=id(chunk)
            )
        return chunk


class HookedPool(stand_in_cupy.MemoryPool):
    """A pool that calls the memory hooks of the thread, and tells what is in use."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._in_use = _InUse()

    def used_bytes(self) -> int:
        return sum(memory.size for memory, _ in self._in_use.values())


class AsyncPool:
    """A pool without hooks, as CuPy's `MemoryAsyncPool`."""

    def __init__(self) -> None:
        self.used = 0

    def malloc(self, size: int) -> None:
        self.used += size

    def used_bytes(self) -> int:
        return self.used


@contextlib.contextmanager
def hooked(cupy: Any) -> Iterator[Any]:
    """Let the stand-in of CuPy allocate from a pool with hooks, for a block."""
    pool = HookedPool()
    cupy.cuda.MemoryPool = HookedPool
    cupy.cuda.MemoryHook = MemoryHook
    cupy.cuda.get_allocator = lambda: cupy.world.thread.allocators[-1]
    with cupy.cuda.using_allocator(pool.malloc):
        yield pool
    pool.is_over = True
    pool.free_all_blocks()
